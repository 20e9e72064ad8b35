//! One model of a workspace: run, judged, recorded.

use std::fs;

use camino::{Utf8Path, Utf8PathBuf};
use durable_fs::FsError;
use model_catalog::{BehaviorVersion, ModelId, Target};
use rebuild_workspace::{ArtifactRecord, FailureRecord, Stage, Stamp, ValidationRecord, Workspace};
use remote_compile::{
    device::Device,
    supervise::{JobFailure, Watch, begin, supervise},
};
use serde_json::{Map, Value, json};

use crate::{
    Check, Judgement, Recording, RunPlan, ValidateError, Verdict, fetch_recording, judge, run_request,
};

/// Version of what is run and judged: a record of another version is made anew.
const JUDGE_VERSION: u32 = 1;

/// How models are validated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValidateOptions {
    /// The target of normal artifacts.
    pub target: Target,
    /// Validate again what was validated.
    pub force: bool,
    /// The Python of the device, where it is not the usual one.
    pub python: Option<Utf8PathBuf>,
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

/// Validates the artifact of a model, unless the record is of the same artifact and judge. A model that does not pass, or
/// could not be run, gets a failure record.
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
    match &outcome {
        Ok(validated) if validated.passed => workspace.clear_failure(id, Stage::Validate)?,
        Ok(validated) => {
            let error = format!("the artifact does not pass: {}", worst(&validated.record));
            let kind = Some("verdict".to_owned());
            workspace
                .save(&FailureRecord { kind, ..FailureRecord::new(id.clone(), Stage::Validate, error) })?;
        }
        Err(ValidateError::Job(JobFailure::Interrupted)) => {}
        Err(error) => workspace.save(&FailureRecord {
            kind: Some(error.kind().to_owned()),
            hint: error.hint().map(str::to_owned),
            ..FailureRecord::new(id.clone(), Stage::Validate, error.to_string())
        })?,
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
    // A record that cannot be read is made anew.
    let old = workspace.record::<ValidationRecord>(id).ok().flatten();
    if let Some(record) = old.filter(|record| is_of(record, &artifact, version)) {
        if !options.force {
            let passed = record.extra.get("passed") == Some(&Value::Bool(true));
            return Ok(Validated { record, was_current: true, passed });
        }
    } else {
        workspace.remove_record::<ValidationRecord>(id)?;
    }
    let recording = record_run(workspace, device, &artifact, options, watch, on_event)?;
    let judgement = judge(&recording);
    let record = validation_record(id, version, &artifact, &recording, &judgement, device);
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
        Some(_) => {}
    }
    match record.target {
        Some(found) if found != target && found != Target::ExternalGpu => {
            Err(ValidateError::Target { id: id.clone(), found, expected: target })
        }
        _ => Ok(record),
    }
}

fn is_of(record: &ValidationRecord, artifact: &ArtifactRecord, version: Option<BehaviorVersion>) -> bool {
    let field = |name: &str| record.extra.get(name);
    (version.is_none() || record.version == version)
        && field("artifact_sha256").and_then(Value::as_str) == Some(artifact.sha256.to_string().as_str())
        && field("judge").and_then(Value::as_u64) == Some(u64::from(JUDGE_VERSION))
}

fn record_run(
    workspace: &Workspace,
    device: &dyn Device,
    artifact: &ArtifactRecord,
    options: &ValidateOptions,
    watch: &Watch<'_>,
    on_event: &mut dyn FnMut(&Value),
) -> Result<Recording, ValidateError> {
    let path = workspace.compiled_file(artifact.artifact_id());
    let model_type = artifact.extra.get("model_type").and_then(Value::as_str);
    let plan = RunPlan {
        python: options.python.clone(),
        ..RunPlan::random(
            artifact.target.unwrap_or(options.target),
            model_type.and_then(|text| text.parse().ok()),
        )
    };
    let job = run_request(&artifact.id, &path, (artifact.size, artifact.sha256), &plan);
    begin(device, &job, watch)?;
    let recording =
        supervise(device, &job.name, watch, on_event).map_err(ValidateError::from).and_then(|result| {
            let run = result.run.ok_or_else(|| ValidateError::Outputs {
                id: artifact.id.clone(),
                why: "the result has no outputs".to_owned(),
            })?;
            let scratch = Scratch::create(workspace)?;
            fetch_recording(device, &job.name, run, &scratch.0)
        });
    if !matches!(recording, Err(ValidateError::Job(JobFailure::Device(ref error))) if error.is_retryable()) {
        device.remove(&job.name)?;
    }
    recording
}

/// A directory for arrays on their way; the workspace is locked, so there is one at a time.
struct Scratch(Utf8PathBuf);

impl Scratch {
    fn create(workspace: &Workspace) -> Result<Self, FsError> {
        let path = workspace.root().join(".validating");
        remove(&path)?;
        fs::create_dir(&path).map_err(FsError::io("create", &path))?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed now is removed by the next validation.
        let _ = remove(&self.0);
    }
}

fn remove(path: &Utf8Path) -> Result<(), FsError> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        result => result.map_err(FsError::io("remove", path)),
    }
}

fn validation_record(
    id: &ModelId,
    version: Option<BehaviorVersion>,
    artifact: &ArtifactRecord,
    recording: &Recording,
    judgement: &Judgement,
    device: &dyn Device,
) -> ValidationRecord {
    let size = |(name, _, width): &(String, _, usize)| (name.clone(), json!(width));
    let shape = |(name, _, width): &(String, _, usize)| (name.clone(), json!([1, width]));
    let mut extra = Map::new();
    extra.insert("passed".to_owned(), judgement.passed().into());
    extra.insert("judge".to_owned(), JUDGE_VERSION.into());
    extra.insert("artifact_sha256".to_owned(), artifact.sha256.to_string().into());
    extra.insert("device".to_owned(), device.name().into());
    extra.insert("target".to_owned(), json!(artifact.target));
    extra.insert("load_seconds".to_owned(), recording.load_seconds.into());
    let seconds = recording.cameras.iter().map(|run| (run.camera.to_string(), json!(run.step_seconds)));
    extra.insert("step_seconds".to_owned(), Value::Object(seconds.collect()));
    extra.insert("verdicts".to_owned(), json!(judgement.verdicts));
    ValidationRecord {
        id: id.clone(),
        version: version.or(recording.behavior_version),
        model_type: recording.model_type,
        policy_order: recording.policy_order.clone(),
        parsed_inputs: recording.parsed_inputs.clone(),
        output_sizes: judgement.sizes.iter().map(size).collect(),
        output_shapes: judgement.sizes.iter().map(shape).collect(),
        missing: judgement.slices_with(Check::Missing),
        non_finite: judgement.slices_with(Check::NonFinite),
        has_control_output: judgement.has_control_output,
        extra,
    }
}
