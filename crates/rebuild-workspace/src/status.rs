//! Where each model stands.

use durable_fs::NoProgress;
use model_catalog::{BehaviorVersion, ImageHistoryPipeline, ModelId, SourceEntry, Target};
use serde::Serialize;

use crate::{
    ArtifactRecord, ArtifactState, FailureRecord, Fingerprint, SourceRecord, SourceState, ValidationRecord,
    Workspace, WorkspaceError, artifact_state, source_state,
};

/// Where one model stands in the workflow.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ModelStatus {
    /// The model, by source ID.
    pub id: ModelId,
    /// Its release ID, once namespaced.
    pub release_id: Option<ModelId>,
    /// `current`, or why the sources have to be extracted.
    pub sources: String,
    /// `current`, `outdated`, `unrecorded`, or why the artifact has to be built.
    pub artifact: String,
    /// Size of the artifact in bytes, where there is one.
    pub size: Option<u64>,
    /// `passed`, `failed`, `stale` (of another artifact) or `none`.
    pub validation: &'static str,
    /// The failure that stands, with its stage.
    pub failure: Option<String>,
}

/// Where a model of the source map stands. A damaged record counts as a failure of the model, not of the command.
///
/// # Errors
/// [`WorkspaceError::Fs`] where a file cannot be looked at.
pub fn model_status(
    workspace: &Workspace,
    id: &ModelId,
    entry: &SourceEntry,
    version: Option<BehaviorVersion>,
    pipeline: ImageHistoryPipeline,
    target: Target,
) -> Result<ModelStatus, WorkspaceError> {
    let sources: Option<SourceRecord> = workspace.record(id)?;
    let artifact: Option<ArtifactRecord> = workspace.record(id)?;
    let source_text = match source_state(workspace, sources.as_ref(), entry, None, &NoProgress)? {
        SourceState::Current => "current".to_owned(),
        SourceState::Extract(why) => why,
    };
    let artifact_text = match &sources {
        None => "no sources".to_owned(),
        Some(sources) => {
            let wanted = Fingerprint::of_sources(sources, version, pipeline, target);
            match artifact_state(workspace, id, artifact.as_ref(), &wanted, &NoProgress)? {
                ArtifactState::Current { outdated, .. } if outdated.is_empty() => "current".to_owned(),
                ArtifactState::Current { .. } => "outdated".to_owned(),
                ArtifactState::Unrecorded { .. } => "unrecorded".to_owned(),
                ArtifactState::Build(reasons) => {
                    reasons.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
                }
            }
        }
    };
    let validation = validation_text(workspace.record(id)?.as_ref(), artifact.as_ref());
    let failure = workspace.record::<FailureRecord>(id)?.map(|record| match record.stage {
        Some(stage) => format!("{stage}: {}", record.error),
        None => record.error,
    });
    Ok(ModelStatus {
        id: id.clone(),
        release_id: artifact.as_ref().and_then(|record| record.release_id.clone()),
        sources: source_text,
        artifact: artifact_text,
        size: artifact.map(|record| record.size),
        validation,
        failure,
    })
}

fn validation_text(record: Option<&ValidationRecord>, artifact: Option<&ArtifactRecord>) -> &'static str {
    let Some(record) = record else { return "none" };
    let validated = record.extra.get("artifact_sha256").and_then(serde_json::Value::as_str);
    match artifact {
        Some(artifact) if validated.is_some_and(|digest| digest == artifact.sha256.to_string()) => {}
        _ => return "stale",
    }
    let passed = record.missing.is_empty()
        && record.non_finite.is_empty()
        && record.has_control_output
        && record.extra.get("passed").is_none_or(|passed| passed == true);
    if passed { "passed" } else { "failed" }
}
