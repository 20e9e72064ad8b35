//! The driver-monitoring set of a workspace: run, judged, recorded.
//!
//! The model and both warps are run as the runtime runs them, one process a camera. A set is of use as a whole only, so it has
//! one record, which names the digest of each file.

use std::collections::BTreeMap;

use artifact_pickle::{AbiDescription, AbiRecord, Content, Expectations, InspectOptions, inspect};
use camino::Utf8Path;
use durable_fs::{NoProgress, hash_file};
use model_catalog::{DM_METADATA, DM_MODEL, DmFile, ModelId, PolicyKey, Sha256Digest};
use rebuild_workspace::{Record, Workspace};
use remote_compile::{device::Device, supervise::Watch};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tinygrad_compile::{DM_BUILD_RECORD, find_dm_source};

use crate::{
    Budget, Check, Evidence, RunPlan, ValidateError, ValidateOptions, judge, known,
    record::{Provenance, sizes_and_shapes},
    reference::SourceModel,
    run::DmSet,
    runs::{Jobs, Scratch},
    validate::Comparison,
    weights,
};

/// What a run of the driver-monitoring set showed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DmValidationRecord {
    /// Always `dmonitoring`.
    pub id: ModelId,
    /// SHA-256 of every file, by name.
    pub files: BTreeMap<String, Sha256Digest>,
    /// Names of the model's inputs besides the image.
    pub parsed_inputs: Vec<String>,
    /// Elements of each output slice.
    pub output_sizes: Map<String, Value>,
    /// Decoded shape of each output slice.
    pub output_shapes: Map<String, Value>,
    /// Required outputs that are absent.
    pub missing: Vec<String>,
    /// Output slices with a value that is not finite.
    pub non_finite: Vec<String>,
    /// The same as in the validation of a driving model.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl Record for DmValidationRecord {
    const KIND: &'static str = "dm-validation";
    fn id(&self) -> &ModelId {
        &self.id
    }
}

impl DmValidationRecord {
    /// Whether nothing fails the set.
    pub fn passed(&self) -> bool {
        self.extra.get("passed") == Some(&Value::Bool(true))
    }
}

/// What became of the set.
#[derive(Debug, Clone, PartialEq)]
pub struct DmValidated {
    /// The record, as it stands in the workspace now.
    pub record: DmValidationRecord,
    /// Whether it was there already.
    pub was_current: bool,
}

/// The ID under which the set is recorded.
pub fn dm_id() -> ModelId {
    ModelId::new("dmonitoring").unwrap_or_else(|_| unreachable!("the ID is a plain word"))
}

/// Validates the driver-monitoring set, unless the record is of the same files, driver, judge and budget.
///
/// # Errors
/// [`ValidateError`] where it could not be run; no record is left then that is of other files.
pub fn validate_dm(
    workspace: &Workspace,
    device: &dyn Device,
    options: &ValidateOptions,
    watch: &Watch<'_>,
    on_event: &mut dyn FnMut(&Value),
) -> Result<DmValidated, ValidateError> {
    let (id, dir) = (dm_id(), workspace.driver_monitoring_dir());
    let found = set_in(&dir);
    let budget = Budget::of(options.target).changed(&options.budget);
    let old = workspace.record::<DmValidationRecord>(&id).ok().flatten();
    let is_current = |record: &DmValidationRecord| {
        found.as_ref().is_ok_and(|(_, files)| *files == record.files)
            && options.are_met(&record.extra, budget)
    };
    match old.filter(is_current) {
        Some(record) if !options.force => return Ok(DmValidated { record, was_current: true }),
        Some(_) => {}
        None => workspace.remove_record::<DmValidationRecord>(&id)?,
    }
    let (set, files) = found.map_err(|why| ValidateError::DriverMonitoring { dir: dir.clone(), why })?;
    let mut known = Vec::new();
    let abi = recorded_abi(&dir);
    for (file, ..) in &set.files {
        let expected = Expectations::of_file_name(file.file_name().unwrap_or_default(), Some(options.target));
        known.extend(known::about_file(file, &expected, abi.as_ref())?);
    }
    let scratch = Scratch::create(workspace)?;
    let plan = options.plan(RunPlan::thorough(options.target, None));
    let first = set.run_request(&id, &plan);
    let again = set.run_again_request(&first.name, &plan.again());
    let drive = set.run_again_request(&first.name, &plan.drive());
    let runs = Jobs { first, again, drive }.run(device, &scratch.0, watch, on_event)?;
    let source = find_dm_source(&dir).ok().map(|path| SourceModel { key: PolicyKey::Model, path });
    let models: Vec<SourceModel> = source.into_iter().collect();
    let (report, types, altered) = weights::judge(&dir.join(DM_MODEL), &models);
    known.extend(altered);
    let mut reference = None;
    if let Some(python) = &options.reference {
        let comparison =
            Comparison { id: &id, python, target: options.target, models: &models, types: &types };
        let (report, verdicts) = comparison.run(&runs.first, &scratch.0, watch.cancel, on_event)?;
        known.extend(verdicts);
        reference = Some(report);
    }
    let evidence = Evidence {
        run: &runs.first,
        again: Some(&runs.again),
        drive: Some(&runs.drive),
        budget,
        sources: known::metadata_of(&models),
        known,
    };
    let judgement = judge(&evidence);
    let provenance = Provenance { device, options, weights: Some(report), reference: reference.as_ref() };
    let (output_sizes, output_shapes) = sizes_and_shapes(&judgement);
    let mut extra = provenance.fields(&evidence, &judgement);
    extra.insert("target".to_owned(), serde_json::json!(options.target));
    let record = DmValidationRecord {
        id,
        files,
        parsed_inputs: runs.first.parsed_inputs(),
        output_sizes,
        output_shapes,
        missing: judgement.slices_with(Check::Missing),
        non_finite: judgement.slices_with(Check::NonFinite),
        extra,
    };
    workspace.save(&record)?;
    Ok(DmValidated { record, was_current: false })
}

/// The set in a directory, and the digest of each of its files; an error says what is not as it must be.
fn set_in(dir: &Utf8Path) -> Result<(DmSet, BTreeMap<String, Sha256Digest>), String> {
    let mut digests = BTreeMap::new();
    let mut files = Vec::new();
    for name in DmFile::ALL.map(|file| file.to_string()) {
        let path = dir.join(&name);
        if !path.is_file() {
            return Err(format!("{path} is missing"));
        }
        let (sha256, size) = hash_file(&path, &NoProgress).map_err(|error| error.to_string())?;
        digests.insert(name.clone(), sha256);
        if name != DM_METADATA {
            files.push((path, size, sha256));
        }
    }
    let path = dir.join(DM_METADATA);
    match inspect(&path, &InspectOptions::default()).map(|inspection| inspection.content) {
        Ok(Content::Metadata(metadata)) => Ok((DmSet { files, metadata: (&*metadata).into() }, digests)),
        Ok(_) => Err(format!("{path} holds something else than metadata")),
        Err(error) => Err(error.to_string()),
    }
}

/// The tinygrad that the build record beside the files names; without a readable one the files must fit a known tinygrad.
fn recorded_abi(dir: &Utf8Path) -> Option<AbiDescription> {
    let text = std::fs::read_to_string(dir.join(DM_BUILD_RECORD)).ok()?;
    AbiRecord::of_build(&serde_json::from_str(&text).ok()?).ok()??.description()
}
