//! The runs of one artifact on a device, brought home.

use std::fs;

use camino::{Utf8Path, Utf8PathBuf};
use durable_fs::FsError;
use rebuild_workspace::Workspace;
use remote_compile::{
    device::{Device, JobName},
    supervise::{JobFailure, PreparedJob, Watch, begin, clear_away, supervise},
};
use serde_json::Value;

use crate::{Recording, ValidateError, fetch_recording};

/// What the runs of one artifact left.
pub(crate) struct Runs {
    /// Random frames, with probes.
    pub(crate) first: Recording,
    /// The same frames in another process.
    pub(crate) again: Recording,
    /// Gradients, checkerboards, and a drawn road.
    pub(crate) drive: Recording,
}

/// The three jobs: the first brings the artifact along, the others use it where it lies.
pub(crate) struct Jobs {
    pub(crate) first: PreparedJob,
    pub(crate) again: PreparedJob,
    pub(crate) drive: PreparedJob,
}

impl Jobs {
    /// Runs them one after the other and removes them, unless the device is out of reach: then they are taken up later.
    pub(crate) fn run(
        &self,
        device: &dyn Device,
        scratch: &Utf8Path,
        watch: &Watch<'_>,
        on_event: &mut dyn FnMut(&Value),
    ) -> Result<Runs, ValidateError> {
        let Self { first, again, drive } = self;
        let mut record = |job: &PreparedJob| record_run(device, job, scratch, watch, on_event);
        let runs = record(first).and_then(|recording| {
            Ok(Runs { first: recording, again: record(again)?, drive: record(drive)? })
        });
        let lost =
            matches!(&runs, Err(ValidateError::Job(JobFailure::Device(error))) if error.is_retryable());
        if !lost {
            // The later ones need the first one's artifact, so it goes last.
            clear(device, [&drive.name, &again.name, &first.name], on_event);
        }
        runs
    }
}

/// Removes jobs whose outcome is known; what cannot be removed is said and does not take the outcome's place.
pub(crate) fn clear<'j>(
    device: &dyn Device,
    jobs: impl IntoIterator<Item = &'j JobName>,
    on_event: &mut dyn FnMut(&Value),
) {
    for why in jobs.into_iter().filter_map(|job| clear_away(device, job)) {
        on_event(&serde_json::json!({"event": "left_on_device", "why": why}));
    }
}

fn record_run(
    device: &dyn Device,
    job: &PreparedJob,
    scratch: &Utf8Path,
    watch: &Watch<'_>,
    on_event: &mut dyn FnMut(&Value),
) -> Result<Recording, ValidateError> {
    begin(device, job, watch)?;
    let result = supervise(device, &job.name, watch, on_event)?;
    let run = result.run.ok_or_else(|| ValidateError::Outputs {
        id: job.name.model().clone(),
        why: "the result has no outputs".to_owned(),
    })?;
    fetch_recording(device, &job.name, run, scratch)
}

/// A directory for arrays on their way; the workspace is locked, so there is one at a time.
pub(crate) struct Scratch(pub(crate) Utf8PathBuf);

impl Scratch {
    pub(crate) fn create(workspace: &Workspace) -> Result<Self, FsError> {
        let path = workspace.root().join(".validating");
        remove_dir(&path)?;
        fs::create_dir(&path).map_err(FsError::io("create", &path))?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed now is removed by the next validation.
        let _ = remove_dir(&self.0);
    }
}

fn remove_dir(path: &Utf8Path) -> Result<(), FsError> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        result => result.map_err(FsError::io("remove", path)),
    }
}
