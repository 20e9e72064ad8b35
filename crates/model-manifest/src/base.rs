//! The base manifest: the one before, without what described its artifacts.

use camino::Utf8Path;
use model_catalog::{Manifest, ManifestVersion};
use serde_json::Value;

use crate::{
    Additions, ManifestWorkError, Note, Plan, Problem, Snapshot,
    check::{entry_agrees, newer_schema},
    relabel::Draft,
};

/// Fields that described the artifacts of the manifest before; artifacts are now found by name and checked by their own
/// checksum.
const DROPPED: [&str; 5] =
    ["artifact_format", "artifact_size", "artifact_sha256", "artifact_url", "artifact_urls"];

/// What to make a base manifest of.
#[derive(Debug, Clone, Copy)]
pub struct BaseRequest<'a> {
    /// The manifest before.
    pub base: &'a Manifest,
    /// The version of the manifest that is written.
    pub version: ManifestVersion,
    /// The models that it gains.
    pub additions: &'a Additions,
}

/// The base manifest: descriptions of artifacts dropped, tagged models marked for the external GPU, additions appended.
pub fn base_manifest(snapshot: &Snapshot, request: &BaseRequest<'_>) -> (Manifest, Vec<Note>) {
    let mut manifest = request.base.clone();
    for entry in &mut manifest.models {
        for field in DROPPED {
            entry.remove(field);
        }
        if snapshot.sources.entries.get(entry.id()).is_some_and(|source| source.uses_external_gpu) {
            entry.set("uses_external_gpu", Value::Bool(true));
        }
    }
    let added = request.additions.apply(request.version, &mut manifest);
    for entry in manifest.models.iter_mut().filter(|entry| added.contains(entry.id())) {
        if snapshot.sources.entries.get(entry.id()).is_some_and(|source| source.uses_external_gpu) {
            entry.set("uses_external_gpu", Value::Bool(true));
        }
    }
    (manifest, added.into_iter().map(|id| Note::Added { id }).collect())
}

/// A base manifest that this version does not understand would be written out under a name that it does.
pub(crate) fn refuse_newer_base(draft: &mut Draft<'_>, base: &Manifest) {
    if let Some(found) = newer_schema(Some(&base.to_json())) {
        draft.problems.push(Problem::Newer { path: "the base manifest".into(), found });
    }
}

/// Computes the plan that writes the base manifest. The snapshot is that of the base manifest's version.
///
/// # Errors
/// None so far; what stands against it is a [`Problem`] of the plan.
pub fn plan_base(snapshot: &Snapshot, request: &BaseRequest<'_>) -> Result<Plan, ManifestWorkError> {
    let mut draft = Draft::new(snapshot, request.version);
    let (manifest, notes) = base_manifest(snapshot, request);
    draft.notes = notes;
    for entry in &manifest.models {
        entry_agrees(&mut draft.problems, snapshot, entry, entry.id());
    }
    let path = format!("manifests/model_names_{}.json", request.version);
    refuse_newer_base(&mut draft, request.base);
    match newer_schema(snapshot.manifest.as_deref()) {
        Some(found) => draft.problems.push(Problem::Newer { path: Utf8Path::new(&path).into(), found }),
        None => draft.write_if_changed(&path, &manifest.to_json(), snapshot.manifest.as_deref()),
    }
    Ok(draft.finish(format!("manifest {}", request.version), Vec::new()))
}
