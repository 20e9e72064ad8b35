//! The records and their fields. Other tools read them: fields are added, none is renamed, and fields that this version
//! does not know are kept.

use std::fmt;

use camino::Utf8PathBuf;
use model_catalog::{
    BehaviorVersion, Component, ComponentFile, InputFormat, ModelId, ModelType, PolicyKey, RelPath,
    Sha256Digest, Target, Variant,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{Fingerprint, Record, Stamp};

/// The sources of a model as they were extracted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SourceRecord {
    /// The model.
    pub id: ModelId,
    /// The ref of the source map that was extracted.
    #[serde(rename = "ref")]
    pub git_ref: String,
    /// Split or supercombo.
    pub input_format: InputFormat,
    /// Every file of the model: the set that is compiled, all or nothing.
    pub files: Vec<SourceFile>,
    /// Whether these are the `big_` files.
    #[serde(default)]
    pub uses_external_gpu: bool,
    /// The commit that the ref resolved to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// Fields of other tools.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// One source file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SourceFile {
    /// What the file is.
    pub component: Component,
    /// Its path in the repository at the ref.
    pub git_path: RelPath,
    /// Where it lies in the workspace.
    pub path: Utf8PathBuf,
    /// Size in bytes.
    pub size: u64,
    /// SHA-256 of the content.
    pub sha256: Sha256Digest,
    /// Modification time in nanoseconds since 1970, so that a rerun need not hash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modified_ns: Option<i64>,
    /// Fields of other tools.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl SourceRecord {
    /// Which of the repository's files these are.
    pub fn variant(&self) -> Variant {
        Variant::for_external_gpu(self.uses_external_gpu)
    }

    /// What a file of the record is.
    pub fn component_file(&self, file: &SourceFile) -> ComponentFile {
        ComponentFile { component: file.component, variant: self.variant() }
    }
}

/// How an artifact came to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ArtifactStatus {
    /// It was compiled here.
    #[serde(rename = "compiled")]
    Compiled,
    /// It was found complete, inspected and taken as it is.
    #[serde(rename = "skipped")]
    Skipped,
}

/// A completed artifact.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ArtifactRecord {
    /// The model, by source ID.
    pub id: ModelId,
    /// Compiled or adopted.
    pub status: ArtifactStatus,
    /// Where it lies.
    pub path: Utf8PathBuf,
    /// Size in bytes.
    pub size: u64,
    /// SHA-256 of the content.
    pub sha256: Sha256Digest,
    /// Whether it is uploaded in parts.
    pub multipart: bool,
    /// The ID under which it is released, once namespaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release_id: Option<ModelId>,
    /// What it was compiled for; absent in records of other tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<Target>,
    /// What it was built from and with; absent in records of other tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<Fingerprint>,
    /// Modification time in nanoseconds since 1970, so that a rerun need not hash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modified_ns: Option<i64>,
    /// Fields of other tools.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl ArtifactRecord {
    /// The ID in the artifact's file name: the release ID, else the source ID.
    pub fn artifact_id(&self) -> &ModelId {
        self.release_id.as_ref().unwrap_or(&self.id)
    }

    /// The recorded size and time, where both are known.
    pub fn stamp(&self) -> Option<Stamp> {
        self.modified_ns.map(|modified_ns| Stamp { size: self.size, modified_ns })
    }
}

/// What a run with synthetic frames showed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ValidationRecord {
    /// The model, by source ID.
    pub id: ModelId,
    /// Behaviour version.
    pub version: Option<BehaviorVersion>,
    /// The shape of the artifact.
    pub model_type: ModelType,
    /// The policies in the order of their outputs; empty for a supercombo.
    pub policy_order: Vec<PolicyKey>,
    /// Names of the inputs that are packed for each step, in their order.
    pub parsed_inputs: Vec<String>,
    /// Elements of each output slice.
    pub output_sizes: Map<String, Value>,
    /// Decoded shape of each output slice.
    pub output_shapes: Map<String, Value>,
    /// Required outputs that are absent.
    pub missing: Vec<String>,
    /// Output slices with a value that is not finite.
    pub non_finite: Vec<String>,
    /// Whether an output that controls the car is there.
    pub has_control_output: bool,
    /// Everything added since: artifact, verdicts, times.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// Provenance of a build; never published.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BuildRecord {
    /// The model, by source ID.
    pub id: ModelId,
    /// What the device and the host report.
    #[serde(flatten)]
    pub provenance: Map<String, Value>,
}

/// A stage of the workflow that can fail for one model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Sources from the repository.
    Extract,
    /// Artifact from sources.
    Compile,
    /// Run of the artifact.
    Validate,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Extract => "extract",
            Self::Compile => "compile",
            Self::Validate => "validate",
        })
    }
}

/// The only status of a failure record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Failed {
    /// It failed.
    #[default]
    #[serde(rename = "failed")]
    Failed,
}

/// Why a model is not where it should be.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FailureRecord {
    /// The model, by source ID.
    pub id: ModelId,
    /// Always `failed`.
    pub status: Failed,
    /// What happened, in one sentence.
    pub error: String,
    /// The stage that failed; absent in records of other tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage: Option<Stage>,
    /// A stable word for the kind of failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// What to do next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Fields of other tools.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl FailureRecord {
    /// The record of a failure.
    pub fn new(id: ModelId, stage: Stage, error: impl Into<String>) -> Self {
        Self {
            id,
            status: Failed::Failed,
            error: error.into(),
            stage: Some(stage),
            kind: None,
            hint: None,
            extra: Map::new(),
        }
    }
}

macro_rules! record {
    ($($name:ident = $kind:literal),+) => {
        $(impl Record for $name {
            const KIND: &'static str = $kind;
            fn id(&self) -> &ModelId { &self.id }
        })+
    };
}
record! {
    SourceRecord = "source", ArtifactRecord = "artifact", ValidationRecord = "validation", BuildRecord = "build",
    FailureRecord = "failure"
}

impl crate::Workspace {
    /// Removes a model's failure record after `stage` succeeded; that of another stage stays.
    ///
    /// # Errors
    /// [`crate::WorkspaceError::Fs`] where it cannot be removed.
    pub fn clear_failure(&self, id: &ModelId, stage: Stage) -> Result<(), crate::WorkspaceError> {
        match self.record::<FailureRecord>(id) {
            Ok(None) => Ok(()),
            Ok(Some(record)) if record.stage.is_some_and(|failed| failed != stage) => Ok(()),
            // One that cannot be read says nothing any more, once the model is well.
            Ok(Some(_)) | Err(_) => self.remove_record::<FailureRecord>(id),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{InitOptions, Workspace};
    use camino::Utf8Path;

    fn workspace() -> (tempfile::TempDir, Workspace) {
        let dir = tempfile::tempdir().unwrap();
        let root = Utf8Path::from_path(dir.path()).unwrap().join("ws");
        let (workspace, _) = Workspace::init(&root, &InitOptions::default()).unwrap();
        (dir, workspace)
    }

    fn id() -> ModelId {
        ModelId::new("tr1422").unwrap()
    }

    #[test]
    fn fields_of_other_tools_survive() {
        let (_dir, workspace) = workspace();
        let text = format!(
            r#"{{"id":"tr1422","status":"skipped","path":"/x/tr1422_driving_tinygrad.pkl","size":3,
                "sha256":"{}","multipart":false,"note":{{"by":"someone"}}}}"#,
            "ab".repeat(32)
        );
        durable_fs::write_atomic(workspace.record_file::<ArtifactRecord>(&id()), text.as_bytes()).unwrap();
        let mut record: ArtifactRecord = workspace.record(&id()).unwrap().unwrap();
        record.release_id = Some(ModelId::new("tr14223").unwrap());
        workspace.save(&record).unwrap();
        let text = std::fs::read_to_string(workspace.record_file::<ArtifactRecord>(&id())).unwrap();
        assert!(
            text.contains("\"by\": \"someone\"") && text.contains("\"release_id\": \"tr14223\""),
            "{text}"
        );
        assert_eq!(workspace.record::<ArtifactRecord>(&id()).unwrap().unwrap(), record);
        assert_eq!(workspace.recorded::<ArtifactRecord>().unwrap(), [id()]);
    }

    #[test]
    fn a_failure_goes_when_its_own_stage_succeeds() {
        let (_dir, workspace) = workspace();
        workspace.save(&FailureRecord::new(id(), Stage::Compile, "no clang")).unwrap();
        workspace.clear_failure(&id(), Stage::Extract).unwrap();
        assert_eq!(workspace.record::<FailureRecord>(&id()).unwrap().unwrap().error, "no clang");
        workspace.clear_failure(&id(), Stage::Compile).unwrap();
        assert_eq!(workspace.record::<FailureRecord>(&id()).unwrap(), None);
    }

    #[test]
    fn the_failure_record_has_the_fields_that_others_read() {
        let record = FailureRecord::new(id(), Stage::Extract, "why");
        let json = serde_json::to_value(record).unwrap();
        assert_eq!(
            json,
            serde_json::json!({"id": "tr1422", "status": "failed", "error": "why", "stage": "extract"})
        );
    }

    #[test]
    fn damaged_and_foreign_records_are_refused() {
        let (_dir, workspace) = workspace();
        let file = workspace.record_file::<FailureRecord>(&id());
        durable_fs::write_atomic(&file, b"{").unwrap();
        let refused = workspace.record::<FailureRecord>(&id()).unwrap_err().to_string();
        assert!(refused.contains("tr1422_failure.json is not valid"), "{refused}");
        let other = FailureRecord::new(ModelId::new("other").unwrap(), Stage::Extract, "why");
        durable_fs::write_json(&file, &other).unwrap();
        let refused = workspace.record::<FailureRecord>(&id()).unwrap_err().to_string();
        assert!(refused.contains("of other, not of tr1422"), "{refused}");
    }
}
