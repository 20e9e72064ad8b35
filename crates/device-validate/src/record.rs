//! What a validation leaves in the workspace: the record, and the scenes that pictures are drawn from.

use model_catalog::{BehaviorVersion, Camera, ModelId, Sha256Digest};
use rebuild_workspace::{ArtifactRecord, Record, ValidationRecord, Workspace, WorkspaceError};
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
pub(crate) const JUDGE_VERSION: u32 = 4;
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

/// What was validated before: the records of the artifact that was replaced, so that a report can say what changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PreviousRecord {
    /// The model, by source ID.
    pub id: ModelId,
    /// The validation of the replaced artifact.
    pub validation: ValidationRecord,
    /// What it saw on the drawn road, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drive: Option<DriveRecord>,
}

impl Record for PreviousRecord {
    const KIND: &'static str = "previous";
    fn id(&self) -> &ModelId {
        &self.id
    }
}

/// Keeps the records of an artifact that `artifact` replaces. Those of the same artifact are no history.
pub(crate) fn keep_previous(workspace: &Workspace, artifact: &ArtifactRecord) -> Result<(), WorkspaceError> {
    // A record that cannot be read is nothing to compare with.
    let Some(validation) = workspace.record::<ValidationRecord>(&artifact.id).ok().flatten() else {
        return Ok(());
    };
    let of = validation.extra.get("artifact_sha256").and_then(Value::as_str).map(str::to_owned);
    let Some(of) = of.filter(|of| *of != artifact.sha256.to_string()) else { return Ok(()) };
    let drive = workspace.record::<DriveRecord>(&artifact.id).ok().flatten();
    let drive = drive.filter(|drive| drive.artifact_sha256.to_string() == of);
    workspace.save(&PreviousRecord { id: artifact.id.clone(), validation, drive })
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
            ("temperature_celsius", json!(recording.temperature_celsius)),
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

#[cfg(test)]
mod tests {
    use camino::Utf8Path;
    use rebuild_workspace::{ArtifactStatus, InitOptions};

    use super::*;

    fn artifact(byte: u8) -> ArtifactRecord {
        ArtifactRecord {
            id: ModelId::new("m1").unwrap(),
            status: ArtifactStatus::Compiled,
            path: "/x/m1_driving_tinygrad.pkl".into(),
            size: 1,
            sha256: Sha256Digest::from_bytes([byte; 32]),
            multipart: false,
            release_id: None,
            target: None,
            fingerprint: None,
            modified_ns: None,
            extra: Map::new(),
        }
    }

    fn validation(byte: u8) -> ValidationRecord {
        let text = format!(
            r#"{{"id": "m1", "version": null, "model_type": "supercombo", "policy_order": [], "parsed_inputs": [],
                "output_sizes": {{}}, "output_shapes": {{}}, "missing": [], "non_finite": [], "has_control_output": true,
                "artifact_sha256": "{}"}}"#,
            Sha256Digest::from_bytes([byte; 32])
        );
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn the_records_of_a_replaced_artifact_are_kept_and_no_others() {
        let dir = tempfile::tempdir().unwrap();
        let root = Utf8Path::from_path(dir.path()).unwrap().join("ws");
        let (workspace, _) = Workspace::init(&root, &InitOptions::default()).unwrap();
        let id = ModelId::new("m1").unwrap();
        let previous = || workspace.record::<PreviousRecord>(&id).unwrap();
        keep_previous(&workspace, &artifact(1)).unwrap();
        assert_eq!(previous(), None, "nothing was validated");
        workspace.save(&validation(1)).unwrap();
        keep_previous(&workspace, &artifact(1)).unwrap();
        assert_eq!(previous(), None, "the same artifact is no history");
        let drive = |byte| DriveRecord {
            id: id.clone(),
            artifact_sha256: Sha256Digest::from_bytes([byte; 32]),
            cameras: Vec::new(),
        };
        workspace.save(&drive(9)).unwrap();
        keep_previous(&workspace, &artifact(2)).unwrap();
        assert_eq!(previous().unwrap().drive, None, "the drive of another artifact is not its own");
        workspace.save(&drive(1)).unwrap();
        keep_previous(&workspace, &artifact(2)).unwrap();
        let kept = previous().unwrap();
        assert_eq!((kept.validation, kept.drive), (validation(1), Some(drive(1))));
    }
}
