//! What verifications on devices left: the newest of each camera resolution.

use std::collections::BTreeMap;

use model_catalog::{CAMERAS, Camera, ModelId, Sha256Digest};
use rebuild_workspace::{ArtifactRecord, Record, Workspace, WorkspaceError};
use serde::{Deserialize, Serialize};
use tinygrad_compile::job::RuntimeResult;

/// The verifications of one artifact.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RuntimeRecord {
    /// The model, by source ID.
    pub id: ModelId,
    /// The artifact that drove.
    pub artifact_sha256: Sha256Digest,
    /// The newest run of each camera resolution, and of devices whose resolution is not known under `unknown`.
    pub runs: BTreeMap<String, RuntimeRun>,
}

/// One run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RuntimeRun {
    /// The device.
    pub device: String,
    /// Whether nothing was found.
    pub passed: bool,
    /// What was found.
    #[serde(flatten)]
    pub result: RuntimeResult,
}

impl Record for RuntimeRecord {
    const KIND: &'static str = "runtime";
    fn id(&self) -> &ModelId {
        &self.id
    }
}

impl RuntimeRecord {
    /// The camera resolutions on which this artifact was not seen to drive.
    pub fn cameras_missing(&self) -> Vec<Camera> {
        let passed = |camera: &Camera| self.runs.get(&camera.to_string()).is_some_and(|run| run.passed);
        CAMERAS.into_iter().filter(|camera| !passed(camera)).collect()
    }
}

pub(super) fn add(
    workspace: &Workspace,
    id: &ModelId,
    artifact: &ArtifactRecord,
    device: &str,
    result: &RuntimeResult,
) -> Result<(), WorkspaceError> {
    // Runs of another artifact say nothing about this one, and a record that cannot be read says nothing at all.
    let old = workspace.record::<RuntimeRecord>(id).ok().flatten();
    let mut record = old.filter(|old| old.artifact_sha256 == artifact.sha256).unwrap_or_else(|| {
        RuntimeRecord { id: id.clone(), artifact_sha256: artifact.sha256, runs: BTreeMap::new() }
    });
    let camera = result.camera.map_or_else(|| "unknown".to_owned(), |camera| camera.to_string());
    let run =
        RuntimeRun { device: device.to_owned(), passed: result.findings.is_empty(), result: result.clone() };
    record.runs.insert(camera, run);
    workspace.save(&record)
}
