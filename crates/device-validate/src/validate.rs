//! One model of a workspace: run, judged, recorded.

use std::sync::atomic::AtomicBool;

use artifact_pickle::Expectations;
use camino::{Utf8Path, Utf8PathBuf};
use durable_fs::{FsError, Progress};
use model_catalog::{BehaviorVersion, ModelId, Target};
use onnx_source::ElementType;
use rebuild_workspace::{
    ArtifactRecord, BudgetConfig, BuildReason, BuildRecord, FailureRecord, SourceRecord, Stage,
    ValidationRecord, Workspace, artifact_change,
};
use remote_compile::{
    adopt::recorded_abi,
    device::Device,
    supervise::{JobFailure, Watch},
};
use serde_json::{Map, Value};
use tinygrad_compile::driver::DriverError;

use crate::{
    Budget, Evidence, Recording, ReferenceReport, RunPlan, ValidateError, Verdict, judge, known,
    record::{JUDGE_VERSION, Provenance, drive_record, keep_previous, validation_record},
    reference::{Precision, SourceModel, compare, feeds, run_reference},
    run::COMPARED_STEPS,
    run_again_request, run_request,
    runs::{Jobs, Runs, Scratch},
    weights,
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
    /// What the device allows, where it is not what the artifact's target allows.
    pub budget: BudgetConfig,
    /// The Python with onnxruntime of this machine, where outputs are compared with it.
    pub reference: Option<Utf8PathBuf>,
    /// How long to go on at the camera's rate.
    pub soak_minutes: f64,
    /// SHA-256 of the driver that the device runs.
    pub driver_sha256: String,
}

impl ValidateOptions {
    /// The first run of an artifact.
    pub(crate) fn plan(&self, plan: RunPlan) -> RunPlan {
        RunPlan {
            python: self.python.clone(),
            record: if self.reference.is_some() { COMPARED_STEPS } else { 0 },
            soak_seconds: self.soak_minutes * 60.0,
            ..plan
        }
    }

    /// Whether a record with these fields, made with `budget`, shows all that is asked for.
    pub(crate) fn are_met(&self, fields: &Map<String, Value>, budget: Budget) -> bool {
        let budget_then =
            fields.get("budget").and_then(|then| serde_json::from_value::<Budget>(then.clone()).ok());
        let soaked = fields.get("soak_minutes").and_then(Value::as_f64).unwrap_or_default();
        fields.get("judge").and_then(Value::as_u64) == Some(u64::from(JUDGE_VERSION))
            && fields.get("driver_sha256").and_then(Value::as_str) == Some(&self.driver_sha256)
            && budget_then == Some(budget)
            && (self.reference.is_none() || fields.get("reference").is_some_and(Value::is_object))
            && soaked >= self.soak_minutes
    }
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

/// Validates the artifact of a model, unless the record is of the same artifact, driver, judge and budget. A model that does not
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
    let artifact = match artifact_of(workspace, id, options.target, watch.progress) {
        Ok(artifact) => artifact,
        Err(error) => {
            if matches!(error, ValidateError::NoArtifact { .. } | ValidateError::NotRecorded { .. }) {
                // What was validated is no longer there.
                workspace.remove_record::<ValidationRecord>(id)?;
            }
            return Err(error);
        }
    };
    let target = artifact.target.unwrap_or(options.target);
    let budget = Budget::of(target).changed(&options.budget);
    // A record that cannot be read is made anew.
    let old = workspace.record::<ValidationRecord>(id).ok().flatten();
    if let Some(record) = old.filter(|record| is_of(record, &artifact, version, budget, options)) {
        if !options.force {
            let passed = record.extra.get("passed") == Some(&Value::Bool(true));
            return Ok(Validated { record, was_current: true, passed });
        }
    } else {
        keep_previous(workspace, &artifact)?;
        workspace.remove_record::<ValidationRecord>(id)?;
    }
    let sources = workspace.record::<SourceRecord>(id).ok().flatten();
    if options.reference.is_some() && sources.is_none() {
        return Err(ValidateError::NoSources { id: id.clone(), why: "no sources are recorded".to_owned() });
    }
    let path = workspace.compiled_file(artifact.artifact_id());
    let build = workspace.record::<BuildRecord>(id).ok().flatten();
    let abi = recorded_abi(build.as_ref());
    let expected = Expectations::driving(artifact.target, version);
    let mut known = known::about_file(&path, &expected, abi.as_ref())?;
    known.extend(known::about_sources(&artifact, sources.as_ref()));
    let scratch = Scratch::create(workspace)?;
    let runs = run(&path, device, &artifact, options, &scratch.0, watch, on_event)?;
    let models = match (&sources, runs.first.model_type) {
        (Some(sources), Some(model_type)) => {
            let (models, wrong) = known::sources_of(workspace, sources, model_type);
            if let (Some(verdict), true) = (wrong.first(), options.reference.is_some()) {
                return Err(ValidateError::NoSources { id: id.clone(), why: verdict.text.clone() });
            }
            known.extend(wrong);
            models
        }
        _ => Vec::new(),
    };
    let sources = known::metadata_of(&models);
    let (report, types, altered) = weights::judge(&path, &models);
    known.extend(altered);
    let mut reference = None;
    if let Some(python) = &options.reference {
        let comparison = Comparison { id, python, target, models: &models, types: &types };
        let (report, verdicts) = comparison.run(&runs.first, &scratch.0, watch.cancel, on_event)?;
        known.extend(verdicts);
        reference = Some(report);
    }
    let evidence = Evidence {
        run: &runs.first,
        again: Some(&runs.again),
        drive: Some(&runs.drive),
        budget,
        sources,
        known,
    };
    let judgement = judge(&evidence);
    let provenance = Provenance { device, options, weights: Some(report), reference: reference.as_ref() };
    let record = validation_record((id, version), &artifact, &evidence, &judgement, &provenance)?;
    workspace.save(&drive_record(id, &artifact, &runs.drive))?;
    workspace.save(&record)?;
    Ok(Validated { record, was_current: false, passed: judgement.passed() })
}

/// A comparison with ONNX Runtime.
pub(crate) struct Comparison<'c> {
    pub(crate) id: &'c ModelId,
    pub(crate) python: &'c Utf8Path,
    pub(crate) target: Target,
    pub(crate) models: &'c [SourceModel],
    pub(crate) types: &'c [ElementType],
}

impl Comparison<'_> {
    pub(crate) fn run(
        &self,
        recording: &Recording,
        scratch: &Utf8Path,
        cancel: &AtomicBool,
        on_event: &mut dyn FnMut(&Value),
    ) -> Result<(ReferenceReport, Vec<Verdict>), ValidateError> {
        let sources = known::metadata_of(self.models);
        let outputs = |why: String| ValidateError::Outputs { id: self.id.clone(), why };
        if sources.is_empty() {
            let why = "no source of it can be read".to_owned();
            return Err(ValidateError::NoSources { id: self.id.clone(), why });
        }
        let feeds = feeds(recording, &sources).map_err(outputs)?;
        let ran = run_reference(self.python, self.models, &feeds, scratch, cancel, on_event);
        let (runtime, reference) = ran.map_err(|source| match source {
            DriverError::Cancelled { .. } => ValidateError::Job(JobFailure::Interrupted),
            source => ValidateError::Reference { python: self.python.to_owned(), source },
        })?;
        let precision = Precision::of(self.target, &recording.settings, self.types);
        let (slices, verdicts) = compare(recording, &sources, &reference, precision);
        if slices.is_empty() {
            return Err(outputs("no slice can be compared with the sources".to_owned()));
        }
        let steps = feeds.iter().map(|feed| feed.steps).max().unwrap_or_default();
        Ok((ReferenceReport { runtime, precision, steps, slices }, verdicts))
    }
}

/// The record of the artifact whose file is the recorded one: what passed is that file and no other.
fn artifact_of(
    workspace: &Workspace,
    id: &ModelId,
    target: Target,
    progress: &dyn Progress,
) -> Result<ArtifactRecord, ValidateError> {
    let record = workspace.record::<ArtifactRecord>(id)?;
    let record = record.ok_or_else(|| ValidateError::NoArtifact { id: id.clone() })?;
    let why = match artifact_change(workspace, &record, progress)? {
        None => None,
        Some(BuildReason::Absent) => return Err(ValidateError::NoArtifact { id: id.clone() }),
        Some(BuildReason::Size { recorded, found }) => {
            Some(format!("it has {found} bytes instead of {recorded}"))
        }
        Some(_) => Some(format!("its SHA-256 is no longer {}", record.sha256)),
    };
    if let Some(why) = why {
        let path = workspace.compiled_file(record.artifact_id());
        return Err(ValidateError::NotRecorded { id: id.clone(), path, why });
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
    options: &ValidateOptions,
) -> bool {
    let sha256 = record.extra.get("artifact_sha256").and_then(Value::as_str);
    (version.is_none() || record.version == version)
        && sha256 == Some(artifact.sha256.to_string().as_str())
        && options.are_met(&record.extra, budget)
}

fn run(
    path: &Utf8Path,
    device: &dyn Device,
    artifact: &ArtifactRecord,
    options: &ValidateOptions,
    scratch: &Utf8Path,
    watch: &Watch<'_>,
    on_event: &mut dyn FnMut(&Value),
) -> Result<Runs, ValidateError> {
    let model_type = artifact.extra.get("model_type").and_then(Value::as_str);
    let target = artifact.target.unwrap_or(options.target);
    let plan = options.plan(RunPlan::thorough(target, model_type.and_then(|text| text.parse().ok())));
    let first = run_request(&artifact.id, path, (artifact.size, artifact.sha256), &plan);
    let again = run_again_request(&first.name, artifact.sha256, &plan.again());
    let drive = run_again_request(&first.name, artifact.sha256, &plan.drive());
    let runs = Jobs { first, again, drive }.run(device, scratch, watch, on_event);
    runs.map_err(|error| altered(error, &artifact.id, path.to_owned()))
}

/// A digest that differs on the way to the device is the artifact's, and no disk's fault.
fn altered(error: ValidateError, id: &ModelId, path: Utf8PathBuf) -> ValidateError {
    use remote_compile::device::DeviceError::Fs;
    match error {
        ValidateError::Job(JobFailure::Device(Fs(FsError::Digest { expected, actual, .. }))) => {
            let why = format!("it has SHA-256 {actual} instead of {expected}");
            ValidateError::NotRecorded { id: id.clone(), path, why }
        }
        other => other,
    }
}
