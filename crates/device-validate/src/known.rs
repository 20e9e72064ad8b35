//! What is known of an artifact without running it: what its file says, and whether it is of the workspace's sources.

use std::collections::BTreeMap;

use artifact_pickle::{AbiDescription, Expectations, InspectOptions, Severity, verify};
use camino::Utf8Path;
use durable_fs::{NoProgress, hash_file};
use model_catalog::{Component, ModelMetadata, ModelType, PolicyKey};
use onnx_source::OnnxModel;
use rebuild_workspace::{ArtifactRecord, Fingerprint, SourceRecord, Workspace};

use crate::{Check, ValidateError, Verdict, reference::SourceModel};

/// The findings of a static look at the file. Nothing in it is run, and nothing will be where one of them forbids it: a warp of
/// another camera reads beyond its frame, a foreign class does what it likes. `recorded` is the tinygrad of the build record, which may be one that nothing else knows.
///
/// # Errors
/// [`ValidateError::Refused`] names the worst.
pub(crate) fn about_file(
    path: &Utf8Path,
    expected: &Expectations,
    recorded: Option<&AbiDescription>,
) -> Result<Vec<Verdict>, ValidateError> {
    let refused = |why: String| ValidateError::Refused { path: path.to_owned(), why };
    let options =
        InspectOptions { also: recorded.cloned().into_iter().collect(), ..InspectOptions::default() };
    let verdict = verify(path, &options, expected).map_err(|error| refused(error.to_string()))?;
    if let Some(finding) = verdict.findings.iter().find(|finding| finding.severity == Severity::Error) {
        return Err(refused(finding.to_string()));
    }
    Ok(verdict.findings.iter().map(|finding| Verdict::warning(Check::File, finding.to_string())).collect())
}

/// Whether the artifact was built from the sources that are recorded now, all of them.
pub(crate) fn about_sources(artifact: &ArtifactRecord, sources: Option<&SourceRecord>) -> Vec<Verdict> {
    let (Some(built), Some(sources)) = (&artifact.fingerprint, sources) else {
        let text = "it is not recorded which sources the artifact was built from";
        return vec![Verdict::warning(Check::NotSeen, text)];
    };
    let now = Fingerprint::of_sources(sources, built.version, built.image_history_pipeline, built.target);
    built
        .differences(&now)
        .iter()
        .filter(|difference| !difference.is_outdated_only())
        .map(|difference| {
            let text = format!("the artifact is of other sources than the workspace has: {difference}");
            Verdict::failure(Check::Sources, text)
        })
        .collect()
}

/// The ONNX files of the workspace, by the key that each has in an artifact, and what is wrong with the others: one that is
/// not the file that was extracted is compared with nothing.
pub(crate) fn sources_of(
    workspace: &Workspace,
    sources: &SourceRecord,
    model_type: ModelType,
) -> (Vec<SourceModel>, Vec<Verdict>) {
    let has_on_policy = sources.files.iter().any(|file| file.component == Component::OnPolicy);
    let (mut found, mut wrong) = (Vec::new(), Vec::new());
    for file in &sources.files {
        let Some(key) = key_of(file.component, model_type, has_on_policy) else { continue };
        let path =
            workspace.source_dir(&sources.id).join(sources.component_file(file).workspace_name(&sources.id));
        let why = match hash_file(&path, &NoProgress) {
            Ok((sha256, _)) if sha256 == file.sha256 => {
                found.push(SourceModel { key, path });
                continue;
            }
            Ok(_) => format!("{path} is not the file that was extracted"),
            Err(error) => error.to_string(),
        };
        wrong.push(Verdict::warning(
            Check::NotSeen,
            format!("the artifact is not compared with its source: {why}"),
        ));
    }
    (found, wrong)
}

/// What the ONNX files say of themselves; those that cannot be read are left out, as `extract` and `compile` report them.
pub(crate) fn metadata_of(models: &[SourceModel]) -> BTreeMap<PolicyKey, ModelMetadata> {
    let metadata =
        |model: &SourceModel| Some((model.key, OnnxModel::open(&model.path).ok()?.metadata().ok()?));
    models.iter().filter_map(metadata).collect()
}

/// The primary policy is the on_policy file, else the policy file; what it is called depends on the type.
fn key_of(component: Component, model_type: ModelType, has_on_policy: bool) -> Option<PolicyKey> {
    let primary =
        if model_type == ModelType::VisionMultiPolicy { PolicyKey::OnPolicy } else { PolicyKey::Policy };
    match component {
        Component::Supercombo => Some(PolicyKey::Model),
        Component::Vision => Some(PolicyKey::Vision),
        Component::OffPolicy => Some(PolicyKey::OffPolicy),
        Component::OnPolicy => Some(primary),
        Component::Policy => (!has_on_policy).then_some(primary),
    }
}
