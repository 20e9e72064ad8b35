//! A whole catalog through one device: decide, build, bring home, record; one model's trouble is no other's.
//!
//! [`plan_catalog`] decides for each model from records and file stamps alone; what it says is exactly what
//! [`compile_catalog`] does. Each model is isolated: its sources are staged as the set that its source record names, all or
//! nothing, in a job directory of its own; its artifact replaces the old one only when it is whole and verified; its
//! failure is recorded and the next model follows.

mod build;
mod pipeline;
mod plan;
mod pool;
mod summary;

use std::{
    num::NonZeroUsize,
    sync::atomic::{AtomicBool, Ordering},
    time::Instant,
};

use artifact_pickle::AbiDescription;
use camino::{Utf8Path, Utf8PathBuf};
use durable_fs::Progress;
use model_catalog::{BehaviorVersion, ImageHistoryPipeline, ModelId, SourceEntry, Target};
use rebuild_workspace::{Difference, SourceRecord, Workspace, WorkspaceError};
use serde_json::Value;

pub use build::ModelError;
pub use plan::plan_catalog;
pub use summary::{ModelOutcome, Outcome, RunSummary};

use crate::{
    adopt::AdoptError,
    device::{Device, DeviceError, JobName, Reservation},
    home::PartRule,
    supervise::{PreparedJob, Watch, sweep_jobs},
};

/// One model of the catalog as the caller knows it.
#[derive(Debug, Clone, PartialEq)]
pub struct CatalogModel {
    /// The model, by source ID.
    pub id: ModelId,
    /// Its entry in the source map.
    pub entry: SourceEntry,
    /// Its behaviour version, from the base manifest.
    pub version: Option<BehaviorVersion>,
    /// Whether it was asked for by name: what is not there is then an error.
    pub is_named: bool,
}

/// Reads an artifact as data and says whether it fits its target, its behaviour version and a tinygrad that is known or recorded; [`crate::adopt::inspect`] does.
pub type Judge =
    fn(&Utf8Path, Target, Option<BehaviorVersion>, Option<&AbiDescription>) -> Result<(), AdoptError>;

/// How a catalog is built.
#[derive(Debug, Clone)]
pub struct CatalogOptions {
    /// What normal artifacts are compiled for. A model whose source entry asks for the external GPU is compiled for that.
    pub target: Target,
    /// Where artifacts keep the history of camera images.
    pub image_history_pipeline: ImageHistoryPipeline,
    /// Build what is current, too.
    pub force: bool,
    /// Build what is merely outdated, too.
    pub outdated: bool,
    /// When artifacts get parts.
    pub parts: PartRule,
    /// The Python of the device, where it is not the usual one.
    pub python: Option<Utf8PathBuf>,
    /// `embedded`, `tree` or `auto`, where the caller chooses.
    pub toolchain: Option<String>,
    /// How many threads hash, inspect and split on this machine at a time.
    pub jobs: NonZeroUsize,
    /// Looks at every artifact that is taken up, whether it was found or came from the device, before it counts as one.
    pub judge: Judge,
}

impl CatalogOptions {
    /// What a model is compiled for.
    pub const fn target_of(&self, entry: &SourceEntry) -> Target {
        Self::target_for(self.target, entry)
    }

    /// What a model is compiled for where normal artifacts are for `target`.
    pub const fn target_for(target: Target, entry: &SourceEntry) -> Target {
        if entry.uses_external_gpu { Target::ExternalGpu } else { target }
    }
}

/// What will be done with a model.
#[derive(Debug, Clone)]
pub struct PlannedModel {
    /// The model.
    pub model: CatalogModel,
    /// What and why.
    pub action: Action,
}

/// What will be done with one model.
#[derive(Debug, Clone)]
pub enum Action {
    /// Nothing was extracted for it and nobody named it: it waits.
    Wait,
    /// Its artifact is what would be built now.
    Keep {
        /// What makes it outdated, where something does.
        outdated: Vec<Difference>,
        /// Whether it has to be put into the upload folder again.
        restage: bool,
        /// The file's stamp, where the record has to take over another time.
        restamp: Option<rebuild_workspace::Stamp>,
    },
    /// A file that nothing is recorded of is taken as it is.
    Adopt {
        /// The sources that it is taken to be of.
        sources: Box<SourceRecord>,
    },
    /// It is built.
    Build {
        /// Why.
        reasons: Vec<String>,
        /// From what.
        sources: Box<SourceRecord>,
        /// The job.
        job: Box<PreparedJob>,
    },
    /// It cannot be built as things stand.
    Fail {
        /// A stable word for records.
        kind: &'static str,
        /// What is wrong, in one sentence that says what to do.
        why: String,
    },
}

/// What happens while a catalog is built.
#[derive(Debug)]
pub enum CatalogEvent<'e> {
    /// A model is begun.
    Begin {
        /// The model.
        id: &'e ModelId,
        /// Its number, from 1.
        number: usize,
        /// How many there are.
        total: usize,
        /// What will be done with it.
        action: &'e Action,
    },
    /// The device reports from the model's job.
    Job {
        /// The model.
        id: &'e ModelId,
        /// The event as the job wrote it.
        event: &'e Value,
    },
    /// A model is done.
    End(&'e ModelOutcome),
}

/// Why a catalog run could not go on.
#[derive(Debug, thiserror::Error)]
pub enum CatalogError {
    /// The device as a whole failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The workspace as a whole failed.
    #[error(transparent)]
    Workspace(#[from] WorkspaceError),
}

/// Whether carrying out a plan needs a device.
pub fn needs_device(plan: &[PlannedModel]) -> bool {
    plan.iter().any(|planned| matches!(planned.action, Action::Build { .. }))
}

/// Carries out a plan on a device, which may be absent where [`needs_device`] says so. A device that is given is looked
/// through for jobs that nobody waits for, also where nothing is built. Every model ends with an outcome; after an interruption, or an error that every further model would
/// meet as well, the rest is reported as not tried.
///
/// # Errors
/// [`CatalogError`] where not even the first model could be begun.
pub fn compile_catalog(
    workspace: &Workspace,
    device: Option<&dyn Device>,
    plan: Vec<PlannedModel>,
    options: &CatalogOptions,
    (progress, cancel): (&dyn Progress, &AtomicBool),
    on_event: &mut dyn FnMut(CatalogEvent<'_>),
) -> Result<RunSummary, CatalogError> {
    let began = Instant::now();
    let builds: Vec<_> = plan
        .iter()
        .filter_map(|planned| match &planned.action {
            Action::Build { job, .. } => Some(job.name.clone()),
            _ => None,
        })
        .collect();
    let (mut swept, mut unswept) = (Vec::new(), None);
    // Held until the run ends.
    let _reservation = match device.map(|device| reserve_and_sweep(device, &builds)) {
        None => None,
        Some(Ok((reservation, removed))) => {
            swept = removed.iter().map(ToString::to_string).collect();
            Some(reservation)
        }
        Some(Err(error)) if builds.is_empty() => {
            unswept = Some(error.to_string());
            None
        }
        Some(Err(error)) => return Err(error.into()),
    };
    let watch = Watch { cancel, progress };
    let outcomes = pipeline::Pipeline { workspace, device, options, watch }.run(&plan, on_event);
    Ok(RunSummary {
        device: device.map(|device| device.name().to_owned()),
        target: options.target,
        interrupted: cancel.load(Ordering::Relaxed),
        seconds: began.elapsed().as_secs_f64(),
        swept,
        unswept,
        models: outcomes,
    })
}

fn reserve_and_sweep<'d>(
    device: &'d dyn Device,
    wanted: &[JobName],
) -> Result<(Box<dyn Reservation + 'd>, Vec<JobName>), DeviceError> {
    let reservation = device.reserve("rebuild compile")?;
    let removed = sweep_jobs(device, wanted)?;
    Ok((reservation, removed))
}

#[cfg(test)]
mod tests;
