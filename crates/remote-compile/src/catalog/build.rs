//! One model: built, brought home, recorded.

use std::{fs, io};

use artifact_pickle::AbiDescription;
use camino::{Utf8Path, Utf8PathBuf};
use durable_fs::{Expected, FsError, sync_dir};
use model_catalog::{ArtifactName, ModelId, RelPath, Sha256Digest};
use rebuild_workspace::{
    ArtifactRecord, ArtifactStatus, BuildRecord, FailureRecord, Fingerprint, SourceRecord, Stage, Stamp,
    Workspace, WorkspaceError,
};
use serde_json::{Map, Value};
use tinygrad_compile::job::{JobEvent, JobResult, OUTPUT_DIR};

use super::{Action, CatalogOptions, ModelOutcome, Outcome, PlannedModel, plan::fingerprint};
use crate::{
    adopt::AdoptError,
    device::{Device, DeviceError},
    home::{HomeError, make_ready, withdraw},
    link::partial::remove_partials,
    supervise::{
        JobFailure, Prepared, PreparedJob, Watch, clear_away, fetch_log, has_result, job_path, prepare,
    },
};

/// Why a model was not built.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// It could not be begun.
    #[error("{why}")]
    Unready {
        /// A stable word for records.
        kind: &'static str,
        /// What is wrong.
        why: String,
    },
    /// Its job failed.
    #[error(transparent)]
    Job(#[from] JobFailure),
    /// What came from the device is not what was asked for.
    #[error("the artifact of {id} came home and was not taken: {why}")]
    Unfit {
        /// The model.
        id: ModelId,
        /// What is wrong with it.
        why: AdoptError,
    },
    /// Its artifact could not be made ready for upload.
    #[error(transparent)]
    Home(#[from] HomeError),
    /// A record could not be written.
    #[error(transparent)]
    Workspace(#[from] WorkspaceError),
}

impl From<DeviceError> for ModelError {
    fn from(error: DeviceError) -> Self {
        Self::Job(error.into())
    }
}

impl From<FsError> for ModelError {
    fn from(error: FsError) -> Self {
        Self::Workspace(error.into())
    }
}

impl ModelError {
    /// A stable word for records.
    pub fn kind(&self) -> &str {
        match self {
            Self::Unready { kind, .. } => kind,
            Self::Job(failure) => failure.kind(),
            Self::Unfit { .. } => "unfit",
            Self::Home(_) => "ready",
            Self::Workspace(_) => "workspace",
        }
    }

    /// What to do next, where the message does not say it.
    pub fn hint(&self) -> Option<&str> {
        match self {
            Self::Job(failure) => failure.hint(),
            Self::Unfit { .. } => {
                Some("compare the device's tinygrad and `models` with this machine's: rebuild doctor")
            }
            _ => None,
        }
    }

    /// Whether a machine and not the model is at fault.
    pub fn is_environment(&self) -> bool {
        match self {
            Self::Unready { .. } | Self::Unfit { .. } | Self::Home(HomeError::Parts(_)) => false,
            Self::Job(failure) => failure.is_environment(),
            Self::Home(HomeError::Workspace(error)) | Self::Workspace(error) => error.is_environment(),
        }
    }

    /// Whether every further model would meet the same.
    fn stops_run(&self) -> bool {
        match self {
            Self::Job(JobFailure::Interrupted) => true,
            Self::Job(JobFailure::Device(error)) => error.is_environment(),
            _ => false,
        }
    }
}

/// An artifact that is in its place and recorded, and not ready for upload yet.
pub(super) struct AtHome {
    record: ArtifactRecord,
    outcome: Outcome,
    reasons: Vec<String>,
    moved_bytes: u64,
    /// What remains on the device, for people.
    left: Option<String>,
}

/// Whether what is done for a model that is not built reads or writes an artifact.
pub(super) const fn takes_time(action: &Action) -> bool {
    matches!(action, Action::Adopt { .. } | Action::Keep { restage: true, .. })
}

/// Carries out what was planned for a model that needs no device.
pub(super) fn process(
    workspace: &Workspace,
    planned: &PlannedModel,
    options: &CatalogOptions,
    watch: &Watch<'_>,
) -> Result<ModelOutcome, ModelError> {
    let id = &planned.model.id;
    match &planned.action {
        Action::Wait => Ok(ModelOutcome::new(id.clone(), Outcome::Waiting)),
        Action::Fail { kind, why } => Err(ModelError::Unready { kind, why: why.clone() }),
        Action::Keep { outdated, restage, restamp } => {
            let outcome = keep(workspace, id, *restage, *restamp, options, watch)?;
            Ok(ModelOutcome { outdated: outdated.iter().map(ToString::to_string).collect(), ..outcome })
        }
        Action::Adopt { sources } => {
            adopt(workspace, id, fingerprint(sources, &planned.model, options), options, watch)
        }
        Action::Build { .. } => {
            let why = format!("{id} has to be built and there is no device");
            Err(ModelError::Unready { kind: "no_device", why })
        }
    }
}

fn keep(
    workspace: &Workspace,
    id: &ModelId,
    restage: bool,
    restamp: Option<Stamp>,
    options: &CatalogOptions,
    watch: &Watch<'_>,
) -> Result<ModelOutcome, ModelError> {
    let gone = || ModelError::Unready { kind: "workspace", why: format!("the record of {id} vanished") };
    let mut record = workspace.record::<ArtifactRecord>(id)?.ok_or_else(gone)?;
    if restage {
        let expected = Expected::exactly(record.size, record.sha256);
        let ready = make_ready(workspace, record.artifact_id(), expected, options.parts, watch.progress)?;
        record.multipart = !ready.parts.is_empty();
    }
    if let Some(stamp) = restamp {
        record.modified_ns = Some(stamp.modified_ns);
    }
    if restage || restamp.is_some() {
        workspace.save(&record)?;
    }
    workspace.clear_failure(id, Stage::Compile)?;
    Ok(ModelOutcome::of_record(&record, Outcome::Current))
}

fn adopt(
    workspace: &Workspace,
    id: &ModelId,
    fingerprint: Fingerprint,
    options: &CatalogOptions,
    watch: &Watch<'_>,
) -> Result<ModelOutcome, ModelError> {
    let path = workspace.compiled_file(id);
    watch.progress.begin(&format!("hashing {}", path.file_name().unwrap_or_default()), None);
    let hashed = durable_fs::hash_file(&path, watch.progress);
    watch.progress.end();
    let (sha256, size) = hashed?;
    // What it was built from is taken to be the present sources; what it was built with is known only where a run was
    // killed after it had brought the artifact home and before it had recorded it.
    let built =
        workspace.record::<BuildRecord>(id).ok().flatten().and_then(|build| built_with(&build, sha256));
    let (status, outcome) = match built {
        Some(_) => (ArtifactStatus::Compiled, Outcome::Built),
        None => (ArtifactStatus::Skipped, Outcome::Adopted),
    };
    let (driver, tinygrad) = built.map_or((None, None), |(driver, tinygrad)| (Some(driver), Some(tinygrad)));
    let fingerprint = Fingerprint { driver, tinygrad, ..fingerprint };
    let artifact = Artifact { status, size, sha256, fingerprint, extra: Map::new() };
    let record = record(workspace, id, artifact)?;
    let home = AtHome { record, outcome, reasons: Vec::new(), moved_bytes: 0, left: None };
    make_ready_at_home(workspace, home, options, watch)
}

/// The driver and the tinygrad of a build record, where it is of this very artifact.
pub(super) fn built_with(build: &BuildRecord, sha256: Sha256Digest) -> Option<(String, String)> {
    let text =
        |pointer: [&str; 2]| build.provenance.get(pointer[0])?.get(pointer[1])?.as_str().map(str::to_owned);
    let is_of_it = text(["artifact", "sha256"])? == sha256.to_string();
    let tinygrad = text(["tinygrad", "commit"]).or_else(|| text(["tinygrad", "version"]))?;
    is_of_it.then_some((text(["tool", "driver_sha256"])?, tinygrad))
}

struct Artifact {
    status: ArtifactStatus,
    size: u64,
    sha256: Sha256Digest,
    fingerprint: Fingerprint,
    extra: Map<String, Value>,
}

/// Records a compiled file. What the upload folder holds of an older one goes first: the record would vouch for it.
fn record(workspace: &Workspace, id: &ModelId, artifact: Artifact) -> Result<ArtifactRecord, ModelError> {
    // A damaged record is replaced; a readable one hands on its release ID and the fields of other tools.
    let old = workspace.record::<ArtifactRecord>(id).ok().flatten();
    let release_id = old.as_ref().and_then(|old| old.release_id.clone());
    let artifact_id = release_id.clone().unwrap_or_else(|| id.clone());
    let path = workspace.compiled_file(&artifact_id);
    withdraw(workspace, &artifact_id)?;
    let mut extra = old.map(|old| old.extra).unwrap_or_default();
    extra.extend(artifact.extra);
    let record = ArtifactRecord {
        id: id.clone(),
        status: artifact.status,
        size: artifact.size,
        sha256: artifact.sha256,
        multipart: false,
        release_id,
        target: Some(artifact.fingerprint.target),
        fingerprint: Some(artifact.fingerprint),
        modified_ns: Stamp::of(&path)?.map(|stamp| stamp.modified_ns),
        path,
        extra,
    };
    workspace.save(&record)?;
    Ok(record)
}

/// Puts a recorded artifact into the upload folder. Where that fails or is stopped, the next run does it from the record.
pub(super) fn make_ready_at_home(
    workspace: &Workspace,
    home: AtHome,
    options: &CatalogOptions,
    watch: &Watch<'_>,
) -> Result<ModelOutcome, ModelError> {
    let AtHome { mut record, outcome, reasons, moved_bytes, left } = home;
    let expected = Expected::exactly(record.size, record.sha256);
    let ready = make_ready(workspace, record.artifact_id(), expected, options.parts, watch.progress)?;
    if !ready.parts.is_empty() {
        record.multipart = true;
        workspace.save(&record)?;
    }
    workspace.clear_failure(&record.id, Stage::Compile)?;
    let known = ModelOutcome::of_record(&record, outcome);
    Ok(ModelOutcome { reasons, moved_bytes, left_on_device: left, parts: ready.parts, ..known })
}

/// Puts a model's job on the device.
pub(super) fn put_there(
    device: &dyn Device,
    job: &PreparedJob,
    options: &CatalogOptions,
    watch: &Watch<'_>,
) -> Result<Prepared, JobFailure> {
    if options.force {
        // A result that an earlier run left would be taken up as the one that was asked for.
        device.remove(&job.name)?;
    }
    prepare(device, job, watch)
}

/// An artifact that is written on the device and not proven yet.
pub(super) struct Unproven {
    file: RelPath,
    expected: Expected,
}

impl Unproven {
    /// What an event of a job tells of it; any other event is `None`.
    pub(super) fn told_by(event: &Value) -> Option<Self> {
        let JobEvent::Written { file, size, sha256 } = serde_json::from_value(event.clone()).ok()?;
        Some(Self { file, expected: Expected::exactly(size, sha256) })
    }

    /// Brings it home while its proof runs, under the name at which it is looked for when the job has ended: there it counts if
    /// the result names the same size and digest, and is fetched again if not. What goes wrong here is therefore not told: the
    /// artifact was proven and moved meanwhile, or the link is down, which the fetch after the result finds too.
    pub(super) fn fetch(
        &self,
        workspace: &Workspace,
        device: &dyn Device,
        planned: &PlannedModel,
        watch: &Watch<'_>,
    ) {
        let Action::Build { job, .. } = &planned.action else { return };
        let name = ArtifactName::new(planned.model.id.clone()).to_string();
        let arriving = arriving_file(workspace, &planned.model.id, &name);
        watch.progress.begin(&format!("{name} from {}", device.name()), self.expected.size);
        let _ = device.get(&job.name, &self.file, &arriving, self.expected, watch.progress);
        watch.progress.end();
    }
}

/// Where the compiled file of a model goes.
fn compiled_file(workspace: &Workspace, id: &ModelId) -> Utf8PathBuf {
    let released = workspace.record::<ArtifactRecord>(id).ok().flatten().and_then(|record| record.release_id);
    workspace.compiled_file(released.as_ref().unwrap_or(id))
}

/// Where an artifact arrives: under a stable name, so that an interrupted transfer goes on where it was.
fn arriving_file(workspace: &Workspace, id: &ModelId, name: &str) -> Utf8PathBuf {
    compiled_file(workspace, id).with_file_name(format!(".arriving.{name}"))
}

/// Removes what came home of an artifact that its device refused after all.
fn forget_arrived(workspace: &Workspace, id: &ModelId) -> Result<(), FsError> {
    let name = ArtifactName::new(id.clone()).to_string();
    let arriving = arriving_file(workspace, id, &name);
    remove_partials(&arriving, None)?;
    match fs::remove_file(&arriving) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed.map_err(FsError::io("remove", arriving)),
    }
}

/// Ends a model's job: its log and artifact come home and are recorded, and then what it has on the device goes.
pub(super) fn end(
    workspace: &Workspace,
    device: &dyn Device,
    planned: &PlannedModel,
    result: Result<JobResult, JobFailure>,
    options: &CatalogOptions,
    watch: &Watch<'_>,
) -> Result<AtHome, ModelError> {
    let Action::Build { reasons, sources, job } = &planned.action else {
        let why = format!("no job was planned for {}", planned.model.id);
        return Err(ModelError::Unready { kind: "protocol", why });
    };
    let id = &planned.model.id;
    let _ = fetch_log(device, &job.name, &workspace.log_file(id));
    let brought = match result {
        Ok(result) => bring_home(workspace, device, planned, (sources, job), &result, options, watch),
        Err(failure) => {
            forget(workspace, id, &failure);
            Err(failure.into())
        }
    };
    let left = match &brought {
        // It ended before it could be cancelled: what it made is not made again.
        Err(ModelError::Job(JobFailure::Interrupted)) if has_result(device, &job.name) => None,
        // The job goes on and its result can still be had.
        Err(ModelError::Job(JobFailure::Device(DeviceError::Unreachable { .. }))) => None,
        // It is finished; what failed is this side, and the next run takes it from there.
        Err(error) if error.is_environment() && !matches!(error, ModelError::Job(JobFailure::Failed(_))) => {
            None
        }
        _ => clear_away(device, &job.name),
    };
    brought.map(|home| AtHome { reasons: reasons.clone(), left, ..home }).map_err(|error| match error {
        // A transfer that the user stopped is no failure.
        ModelError::Job(JobFailure::Device(DeviceError::Unreachable { .. })) if watch.is_cancelled() => {
            JobFailure::Interrupted.into()
        }
        other => other,
    })
}

/// Removes what came home before of a job that ended without an artifact, unless the job may still be taken up.
fn forget(workspace: &Workspace, id: &ModelId, failure: &JobFailure) {
    if !matches!(failure, JobFailure::Interrupted | JobFailure::Device(DeviceError::Unreachable { .. })) {
        // The failure is the news. What cannot be removed has no final name, and the next artifact replaces it.
        let _ = forget_arrived(workspace, id);
    }
}

fn bring_home(
    workspace: &Workspace,
    device: &dyn Device,
    planned: &PlannedModel,
    (sources, job): (&SourceRecord, &PreparedJob),
    result: &JobResult,
    options: &CatalogOptions,
    watch: &Watch<'_>,
) -> Result<AtHome, ModelError> {
    let id = &planned.model.id;
    let (Some(artifact), Some(build)) = (&result.artifact, &result.build) else {
        return Err(JobFailure::Result {
            device: device.name().to_owned(),
            job: job.name.to_string(),
            why: "it names no artifact".to_owned(),
        }
        .into());
    };
    let from = job_path(OUTPUT_DIR, &artifact.file)?;
    let expected = Expected::exactly(artifact.size, artifact.sha256);
    let (compiled, arriving) = (compiled_file(workspace, id), arriving_file(workspace, id, &artifact.file));
    watch.progress.begin(&format!("{} from {}", artifact.file, device.name()), Some(artifact.size));
    let got = device.get(&job.name, &from, &arriving, expected, watch.progress);
    watch.progress.end();
    got?;
    take_up(&arriving, &compiled, planned, build.tinygrad.description().as_ref(), options)?;
    let provenance = provenance(device, build)?;
    workspace.save(&BuildRecord { id: id.clone(), provenance })?;
    let mut fingerprint = fingerprint(sources, &planned.model, options);
    fingerprint.driver = Some(build.tool.driver_sha256.to_string());
    fingerprint.tinygrad =
        Some(build.tinygrad.commit.clone().unwrap_or_else(|| build.tinygrad.version.clone()));
    let mut extra = Map::new();
    extra.insert("device".to_owned(), device.name().into());
    extra.insert("model_type".to_owned(), build.model_type.as_str().into());
    let (size, sha256) = (artifact.size, artifact.sha256);
    let artifact = Artifact { status: ArtifactStatus::Compiled, size, sha256, fingerprint, extra };
    let record = record(workspace, id, artifact)?;
    let moved_bytes = sources.files.iter().map(|file| file.size).sum::<u64>() + size;
    Ok(AtHome { record, outcome: Outcome::Built, reasons: Vec::new(), moved_bytes, left: None })
}

/// Gives an artifact that came home its name, where it is what was asked for. What the device said of it is not asked.
fn take_up(
    arriving: &Utf8Path,
    compiled: &Utf8Path,
    planned: &PlannedModel,
    abi: Option<&AbiDescription>,
    options: &CatalogOptions,
) -> Result<(), ModelError> {
    let target = options.target_of(&planned.model.entry);
    if let Err(why) = (options.judge)(arriving, target, planned.model.version, abi) {
        fs::remove_file(arriving).map_err(FsError::io("remove", arriving))?;
        return Err(ModelError::Unfit { id: planned.model.id.clone(), why });
    }
    fs::rename(arriving, compiled).map_err(FsError::io("replace", compiled))?;
    let _ = sync_dir(arriving.parent().unwrap_or(arriving))?;
    Ok(())
}

/// The device's build record as it is kept here, with the device that made it.
fn provenance(
    device: &dyn Device,
    build: &tinygrad_compile::BuildRecord,
) -> Result<Map<String, Value>, ModelError> {
    let Ok(Value::Object(mut fields)) = serde_json::to_value(build) else {
        let why = "the build record cannot be written as JSON".to_owned();
        return Err(ModelError::Unready { kind: "protocol", why });
    };
    // The ID stands in the record itself.
    fields.shift_remove("id");
    fields.insert("device".to_owned(), device.name().into());
    Ok(fields)
}

/// The outcome of a model, with its failure recorded where it failed.
pub(super) fn concluded(
    workspace: &Workspace,
    planned: &PlannedModel,
    result: Result<ModelOutcome, ModelError>,
) -> ModelOutcome {
    let error = match result {
        Ok(outcome) => return outcome,
        Err(error) => error,
    };
    let id = planned.model.id.clone();
    let interrupted = matches!(error, ModelError::Job(JobFailure::Interrupted));
    let mut outcome = ModelOutcome {
        error: Some(error.to_string()),
        kind: Some(error.kind().to_owned()),
        hint: error.hint().map(|hint| with_log_at_home(hint, &workspace.log_file(&id))),
        environment: error.is_environment(),
        stops_run: error.stops_run(),
        ..ModelOutcome::new(id.clone(), if interrupted { Outcome::NotTried } else { Outcome::Failed })
    };
    if let Action::Build { reasons, .. } = &planned.action {
        outcome.reasons.clone_from(reasons);
    }
    // Why the sources are missing is what the extraction recorded; an interruption is nobody's failure.
    if !interrupted {
        let record = FailureRecord {
            kind: outcome.kind.clone(),
            hint: outcome.hint.clone(),
            ..FailureRecord::new(id.clone(), Stage::Compile, error.to_string())
        };
        let extracting = workspace.record::<FailureRecord>(&id).ok().flatten();
        if extracting.is_none_or(|failure| failure.stage != Some(Stage::Extract))
            && let Err(error) = workspace.save(&record)
        {
            outcome.error = Some(format!("{}; it could not be recorded: {error}", record.error));
            outcome.environment = true;
        }
    }
    outcome
}

/// A hint that names the log where it stays: a job's own log goes with the job, its copy is the workspace's.
fn with_log_at_home(hint: &str, log: &Utf8Path) -> String {
    let is_job_log = |word: &&str| word.ends_with("/log.txt");
    let named = hint.split(|c: char| c.is_whitespace() || "();,".contains(c)).find(is_job_log);
    named.map_or_else(|| hint.to_owned(), |job_log| hint.replace(job_log, log.as_str()))
}

#[cfg(test)]
mod hint_tests {
    use super::*;

    #[test]
    fn a_hint_names_the_log_that_stays() {
        let home = Utf8Path::new("/w/logs/a.log");
        let hint = with_log_at_home("run again (log: /data/jobs/compile.a.12/log.txt)", home);
        assert_eq!(hint, "run again (log: /w/logs/a.log)");
        assert_eq!(
            with_log_at_home("look into the log /j/log.txt; its last lines:\nx", home),
            "look into the log /w/logs/a.log; its last lines:\nx"
        );
        assert_eq!(with_log_at_home("install clang", home), "install clang");
    }
}
