//! What a report holds.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use crate::{Change, PathChange};

/// Everything that a page shows.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// The workspace, as people call it.
    pub workspace: String,
    /// When the report was made, as text; given by the caller.
    pub made: String,
    /// Distances of the points of lane lines and road edges in metres.
    pub distances: Vec<f64>,
    /// The models in the order of the catalog.
    pub models: Vec<ModelReport>,
}

/// One model.
#[derive(Debug, Clone, PartialEq, Serialize, Default)]
pub struct ModelReport {
    /// Source ID.
    pub id: String,
    /// Release ID, once namespaced.
    pub release_id: Option<String>,
    /// Display name.
    pub name: String,
    /// One word: `passed`, `failed`, `not validated`, `not compiled`, `not extracted`, `broken`.
    pub status: &'static str,
    /// The failure that stands, or the record that cannot be read.
    pub failure: Option<String>,
    /// Behaviour version.
    pub version: Option<String>,
    /// `vision_policy`, `vision_multi_policy`, `supercombo`; the input format where it was not compiled.
    pub kind: String,
    /// Bytes of the artifact.
    pub size: Option<u64>,
    /// Parts that it is uploaded in; 0 is whole.
    pub parts: usize,
    /// What it was compiled for.
    pub target: Option<String>,
    /// SHA-256 of the artifact.
    pub sha256: Option<String>,
    /// Seconds that compiling took.
    pub compile_seconds: Option<f64>,
    /// Seconds that loading took.
    pub load_seconds: Option<f64>,
    /// Median seconds of a step on the slower camera.
    pub p50: Option<f64>,
    /// Seconds that 99 of 100 steps do not pass, on the slower camera.
    pub p99: Option<f64>,
    /// Peak memory of the run in bytes.
    pub peak_bytes: Option<u64>,
    /// The device of the validation.
    pub device: Option<String>,
    /// Findings of the validation.
    pub verdicts: Vec<VerdictLine>,
    /// One line a run on a device's own runtime.
    pub runtime: Vec<VerdictLine>,
    /// Seconds of each step, by camera.
    pub step_seconds: BTreeMap<String, Vec<f64>>,
    /// What was seen on the drawn road, by camera.
    pub drive: Vec<CameraPlot>,
    /// The same of the artifact before.
    pub previous_drive: Vec<CameraPlot>,
    /// What changed since the artifact before.
    pub changes: Vec<Change>,
    /// How far the paths moved since the artifact before.
    pub path_changes: Vec<PathChange>,
    /// The comparison with a reference, as the validation recorded it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reference: Option<Value>,
}

/// One finding in words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct VerdictLine {
    /// `failure`, `warning` or `good`.
    pub severity: &'static str,
    /// What was checked.
    pub check: String,
    /// What was found.
    pub text: String,
}

/// What one camera saw.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CameraPlot {
    /// The camera, `1928x1208`.
    pub camera: String,
    /// Scenes, some steps apart.
    pub scenes: Vec<ScenePlot>,
}

/// One scene, in metres ahead and to the right. Lines have lateral offsets only: their distances are those of the report.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ScenePlot {
    /// The step.
    pub step: usize,
    /// Points of the path.
    pub path: Vec<[f64; 2]>,
    /// Lateral offsets of each lane line.
    pub lanes: Vec<Vec<f64>>,
    /// Probability of each lane line.
    pub lane_probs: Vec<f64>,
    /// Lateral offsets of each road edge.
    pub edges: Vec<Vec<f64>>,
    /// Distance, offset and probability of each lead.
    pub leads: Vec<[f64; 3]>,
    /// The car's own speed in metres a second.
    pub speed: Option<f64>,
}
