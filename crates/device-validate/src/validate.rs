//! One model of a workspace: run, judged, recorded.

use std::fs;

use camino::{Utf8Path, Utf8PathBuf};
use durable_fs::FsError;
use model_catalog::{BehaviorVersion, ModelId, Target};
use rebuild_workspace::{
    ArtifactRecord, FailureRecord, SourceRecord, Stage, Stamp, ValidationRecord, Workspace,
};
use remote_compile::{
    device::{Device, JobName},
    supervise::{JobFailure, PreparedJob, Watch, begin, supervise},
};
use serde_json::Value;

use crate::{
    Budget, Evidence, Recording, RunPlan, ValidateError, Verdict, fetch_recording, judge, known,
    record::{JUDGE_VERSION, drive_record, validation_record},
    run_again_request, run_request,
};

/// How models are validated.
#[derive(Debug, Clone, PartialEq)]
pub struct ValidateOptions {
    /// The target of normal artifacts.
    pub target: Target,
    /// Validate again what was validated.
    pub force: bool,
    /// The Python of the device, where it is not the usual one.
    pub python: Option<Utf8PathBuf>,
    /// What the device allows; that of the artifact's target where absent.
    pub budget: Option<Budget>,
}

/// What became of one model.
#[derive(Debug, Clone, PartialEq)]
pub struct Validated {
    /// The record, as it stands in the workspace now.
    pub record: ValidationRecord,
    /// Whether it was there already.
    pub was_current: bool,
    /// Whether the artifact passed.
    pub passed: bool,
}

/// Validates the artifact of a model, unless the record is of the same artifact, judge and budget. A model that does not
/// pass, or could not be run, gets a failure record.
///
/// # Errors
/// [`ValidateError`] where it could not be run; no record is written then, and an older one that is of another artifact is
/// removed, so that none looks like a pass.
pub fn validate_model(
    workspace: &Workspace,
    device: &dyn Device,
    model: (&ModelId, Option<BehaviorVersion>),
    options: &ValidateOptions,
    watch: &Watch<'_>,
    on_event: &mut dyn FnMut(&Value),
) -> Result<Validated, ValidateError> {
    let outcome = validate(workspace, device, model, options, watch, on_event);
    let id = model.0;
    let failed = |kind: &str, hint: Option<&str>, error: String| FailureRecord {
        kind: Some(kind.to_owned()),
        hint: hint.map(str::to_owned),
        ..FailureRecord::new(id.clone(), Stage::Validate, error)
    };
    match &outcome {
        Ok(validated) if validated.passed => workspace.clear_failure(id, Stage::Validate)?,
        Ok(validated) => {
            let error = format!("the artifact does not pass: {}", worst(&validated.record));
            workspace.save(&failed("verdict", None, error))?;
        }
        Err(ValidateError::Job(JobFailure::Interrupted)) => {}
        Err(error) => workspace.save(&failed(error.kind(), error.hint(), error.to_string()))?,
    }
    outcome
}

/// The worst finding of a record, as text.
fn worst(record: &ValidationRecord) -> String {
    let verdicts = record.extra.get("verdicts").cloned().unwrap_or_default();
    let verdicts: Vec<Verdict> = serde_json::from_value(verdicts).unwrap_or_default();
    verdicts.first().map_or_else(|| "see its verdicts".to_owned(), ToString::to_string)
}

fn validate(
    workspace: &Workspace,
    device: &dyn Device,
    (id, version): (&ModelId, Option<BehaviorVersion>),
    options: &ValidateOptions,
    watch: &Watch<'_>,
    on_event: &mut dyn FnMut(&Value),
) -> Result<Validated, ValidateError> {
    let artifact = artifact_of(workspace, id, options.target)?;
    let budget = options.budget.unwrap_or(Budget::of(artifact.target.unwrap_or(options.target)));
    // A record that cannot be read is made anew.
    let old = workspace.record::<ValidationRecord>(id).ok().flatten();
    if let Some(record) = old.filter(|record| is_of(record, &artifact, version, budget)) {
        if !options.force {
            let passed = record.extra.get("passed") == Some(&Value::Bool(true));
            return Ok(Validated { record, was_current: true, passed });
        }
    } else {
        workspace.remove_record::<ValidationRecord>(id)?;
    }
    let sources = workspace.record::<SourceRecord>(id).ok().flatten();
    let path = workspace.compiled_file(artifact.artifact_id());
    let mut known = known::about_file(&path, &artifact, version);
    known.extend(known::about_sources(&artifact, sources.as_ref()));
    let runs = run(workspace, device, &artifact, options, watch, on_event)?;
    let sources =
        sources.map(|sources| known::metadata_of_sources(workspace, &sources, runs.first.model_type));
    let evidence = Evidence {
        run: &runs.first,
        again: Some(&runs.again),
        budget,
        sources: sources.unwrap_or_default(),
        known,
    };
    let judgement = judge(&evidence);
    let record = validation_record((id, version), &artifact, &evidence, &judgement, device);
    workspace.save(&drive_record(id, &artifact, &runs.drive))?;
    workspace.save(&record)?;
    Ok(Validated { record, was_current: false, passed: judgement.passed() })
}

fn artifact_of(workspace: &Workspace, id: &ModelId, target: Target) -> Result<ArtifactRecord, ValidateError> {
    let record = workspace.record::<ArtifactRecord>(id)?;
    let record = record.ok_or_else(|| ValidateError::NoArtifact { id: id.clone() })?;
    let path = workspace.compiled_file(record.artifact_id());
    match Stamp::of(&path)? {
        None => return Err(ValidateError::NoArtifact { id: id.clone() }),
        Some(stamp) if stamp.size != record.size => {
            let why = format!("it has {} bytes instead of {}", stamp.size, record.size);
            return Err(ValidateError::NotRecorded { id: id.clone(), path, why });
        }
        // Its content is compared on its way to the device.
        Some(_) => {}
    }
    match record.target {
        Some(found) if found != target && found != Target::ExternalGpu => {
            Err(ValidateError::Target { id: id.clone(), found, expected: target })
        }
        _ => Ok(record),
    }
}

fn is_of(
    record: &ValidationRecord,
    artifact: &ArtifactRecord,
    version: Option<BehaviorVersion>,
    budget: Budget,
) -> bool {
    let field = |name: &str| record.extra.get(name);
    let budget_then =
        field("budget").and_then(|budget| serde_json::from_value::<Budget>(budget.clone()).ok());
    (version.is_none() || record.version == version)
        && field("artifact_sha256").and_then(Value::as_str) == Some(artifact.sha256.to_string().as_str())
        && field("judge").and_then(Value::as_u64) == Some(u64::from(JUDGE_VERSION))
        && budget_then == Some(budget)
}

/// What the runs of one artifact left.
struct Runs {
    /// Random frames, with probes.
    first: Recording,
    /// The same frames in another process.
    again: Recording,
    /// A drawn road.
    drive: Recording,
}

fn run(
    workspace: &Workspace,
    device: &dyn Device,
    artifact: &ArtifactRecord,
    options: &ValidateOptions,
    watch: &Watch<'_>,
    on_event: &mut dyn FnMut(&Value),
) -> Result<Runs, ValidateError> {
    let path = workspace.compiled_file(artifact.artifact_id());
    let model_type = artifact.extra.get("model_type").and_then(Value::as_str);
    let plan = RunPlan {
        python: options.python.clone(),
        ..RunPlan::thorough(
            artifact.target.unwrap_or(options.target),
            model_type.and_then(|text| text.parse().ok()),
        )
    };
    let first = run_request(&artifact.id, &path, (artifact.size, artifact.sha256), &plan);
    let again = run_again_request(&first.name, &plan.again());
    let drive = run_again_request(&first.name, &plan.drive());
    let scratch = Scratch::create(workspace)?;
    let mut record = |job: &PreparedJob| record_run(device, job, &scratch.0, watch, on_event);
    let runs = record(&first)
        .and_then(|recording| Ok(Runs { first: recording, again: record(&again)?, drive: record(&drive)? }));
    let lost = matches!(&runs, Err(ValidateError::Job(JobFailure::Device(error))) if error.is_retryable());
    if !lost {
        // The later ones need the first one's artifact, so it goes last.
        remove(device, [&drive.name, &again.name, &first.name])?;
    }
    runs.map_err(|error| altered(error, artifact, path))
}

fn remove<'j>(device: &dyn Device, jobs: impl IntoIterator<Item = &'j JobName>) -> Result<(), ValidateError> {
    jobs.into_iter().try_for_each(|job| Ok(device.remove(job)?))
}

/// A digest that differs on the way to the device is the artifact's, and no disk's fault.
fn altered(error: ValidateError, artifact: &ArtifactRecord, path: Utf8PathBuf) -> ValidateError {
    use remote_compile::device::DeviceError::Fs;
    match error {
        ValidateError::Job(JobFailure::Device(Fs(FsError::Digest { expected, actual, .. }))) => {
            let why = format!("it has SHA-256 {actual} instead of {expected}");
            ValidateError::NotRecorded { id: artifact.id.clone(), path, why }
        }
        other => other,
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
struct Scratch(Utf8PathBuf);

impl Scratch {
    fn create(workspace: &Workspace) -> Result<Self, FsError> {
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
