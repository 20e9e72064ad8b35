//! What a validation leaves in the workspace: the record, and the scenes that pictures are drawn from.

use model_catalog::{BehaviorVersion, Camera, ModelId, Sha256Digest};
use rebuild_workspace::{ArtifactRecord, Record, ValidationRecord};
use remote_compile::device::Device;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::{
    Check, Evidence, Judgement, Recording, ReferenceReport, StepTimes, ValidateError, ValidateOptions,
    WeightReport,
    decode::{Scene, layout_of, scene_of},
    run::STEPS_BEFORE_ROAD,
};

/// Version of what is run and judged: a record of another version is made anew.
pub(crate) const JUDGE_VERSION: u32 = 3;
/// Every so many steps of a drive become a scene.
const SCENE_EVERY: usize = 3;

/// What a model saw and planned on a drawn road; pictures are drawn from it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DriveRecord {
    /// The model, by source ID.
    pub id: ModelId,
    /// The artifact that drove.
    pub artifact_sha256: Sha256Digest,
    /// Scenes of each camera.
    pub cameras: Vec<CameraDrive>,
}

/// What a model saw on one camera.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CameraDrive {
    /// The camera.
    pub camera: Camera,
    /// Scenes, some steps apart.
    pub scenes: Vec<Scene>,
}

impl Record for DriveRecord {
    const KIND: &'static str = "drive";
    fn id(&self) -> &ModelId {
        &self.id
    }
}

pub(crate) fn drive_record(id: &ModelId, artifact: &ArtifactRecord, drive: &Recording) -> DriveRecord {
    let (slices, _) = drive.slices();
    let camera = |run: &crate::CameraRun| {
        let steps = run.outputs.values().map(crate::Series::steps).min().unwrap_or_default();
        let shown = (STEPS_BEFORE_ROAD..steps).filter(|step| (step + 1) % SCENE_EVERY == 0);
        CameraDrive {
            camera: run.camera,
            scenes: shown.map(|step| scene_of(run, &slices, step).rounded()).collect(),
        }
    };
    DriveRecord {
        id: id.clone(),
        artifact_sha256: artifact.sha256,
        cameras: drive.cameras.iter().map(camera).collect(),
    }
}

/// What a record says of how it came about.
pub(crate) struct Provenance<'p> {
    pub(crate) device: &'p dyn Device,
    pub(crate) options: &'p ValidateOptions,
    pub(crate) weights: Option<WeightReport>,
    pub(crate) reference: Option<&'p ReferenceReport>,
}

impl Provenance<'_> {
    /// The fields that every validation has besides those of the contract.
    pub(crate) fn fields(&self, evidence: &Evidence<'_>, judgement: &Judgement) -> Map<String, Value> {
        let recording = evidence.run;
        let by_camera = |value: &dyn Fn(&crate::CameraRun) -> Value| {
            Value::Object(recording.cameras.iter().map(|run| (run.camera.to_string(), value(run))).collect())
        };
        let fields = [
            ("passed", judgement.passed().into()),
            ("judge", JUDGE_VERSION.into()),
            ("device", self.device.name().into()),
            ("driver_sha256", self.options.driver_sha256.clone().into()),
            ("versions", json!(recording.versions)),
            ("settings", json!(recording.settings)),
            ("budget", json!(evidence.budget)),
            ("load_seconds", recording.load_seconds.into()),
            ("peak_bytes", json!(recording.peak_bytes)),
            ("step_times", by_camera(&|run| json!(StepTimes::of(&run.step_seconds)))),
            ("step_seconds", by_camera(&|run| json!(run.step_seconds))),
            ("weights", json!(self.weights)),
            ("reference", json!(self.reference)),
            (
                "soak_minutes",
                if recording.soak.is_empty() { Value::Null } else { self.options.soak_minutes.into() },
            ),
            ("soak", json!(recording.soak)),
            ("verdicts", json!(judgement.verdicts)),
        ];
        fields.into_iter().map(|(name, value): (&str, Value)| (name.to_owned(), value)).collect()
    }
}

/// Name and width, and name and decoded shape, of every slice.
pub(crate) fn sizes_and_shapes(judgement: &Judgement) -> (Map<String, Value>, Map<String, Value>) {
    let shape =
        |name: &str, width: usize| layout_of(name, width).map_or_else(|| vec![width], |(shape, _)| shape);
    let sizes = judgement.sizes.iter().map(|(name, _, width)| (name.clone(), json!(width)));
    let shapes = judgement.sizes.iter().map(|(name, _, width)| (name.clone(), json!(shape(name, *width))));
    (sizes.collect(), shapes.collect())
}

pub(crate) fn validation_record(
    (id, version): (&ModelId, Option<BehaviorVersion>),
    artifact: &ArtifactRecord,
    evidence: &Evidence<'_>,
    judgement: &Judgement,
    provenance: &Provenance<'_>,
) -> Result<ValidationRecord, ValidateError> {
    let recording = evidence.run;
    let model_type = recording.model_type.ok_or_else(|| ValidateError::Outputs {
        id: id.clone(),
        why: "the run does not say of which type the artifact is".to_owned(),
    })?;
    let (output_sizes, output_shapes) = sizes_and_shapes(judgement);
    let mut extra = provenance.fields(evidence, judgement);
    extra.insert("artifact_sha256".to_owned(), json!(artifact.sha256));
    extra.insert("target".to_owned(), json!(artifact.target));
    Ok(ValidationRecord {
        id: id.clone(),
        version: version.or(recording.behavior_version),
        model_type,
        policy_order: recording.policy_order.clone(),
        parsed_inputs: recording.parsed_inputs(),
        output_sizes,
        output_shapes,
        missing: judgement.slices_with(Check::Missing),
        non_finite: judgement.slices_with(Check::NonFinite),
        has_control_output: judgement.has_control_output,
        extra,
    })
}
