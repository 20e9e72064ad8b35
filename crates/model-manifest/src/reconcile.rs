//! Reconciliation: recovered models and stray names are brought into one release namespace.

use std::collections::BTreeSet;

use model_catalog::{Manifest, ManifestVersion, ModelId, ReleaseMap, Sha256Digest};

use crate::{
    Additions, ArtifactSet, Folder, IdMap, ManifestWorkError, Note, Plan, Problem, Snapshot,
    check::{self, newer_schema},
    relabel::{Draft, Move},
    selections,
};

/// What to reconcile with.
#[derive(Debug, Clone, Copy)]
pub struct ReconcileRequest<'a> {
    /// The namespace.
    pub version: ManifestVersion,
    /// Source ID to release ID.
    pub releases: &'a ReleaseMap,
    /// The models that the manifest gains.
    pub additions: &'a Additions,
}

/// Computes what reconciling would change.
///
/// # Errors
/// [`ManifestWorkError::NoManifest`] where the namespace has no manifest yet. Everything else that stands against it is a
/// [`Problem`] of the plan.
pub fn plan_reconcile(
    snapshot: &Snapshot,
    request: &ReconcileRequest<'_>,
) -> Result<Plan, ManifestWorkError> {
    let path = format!("manifests/model_names_{}.json", request.version);
    let Some(text) = snapshot.manifest.as_deref() else {
        return Err(ManifestWorkError::NoManifest { path: path.into() });
    };
    let mut draft = Draft::new(snapshot, request.version);
    let invalid = |path: &str, why: String| Problem::Invalid { path: path.into(), why };
    let ids = match snapshot.id_map.as_deref().map(IdMap::from_json) {
        Some(Err(error)) => {
            let path = format!("source-maps/model_id_namespace_{}.json", request.version);
            draft.problems.push(invalid(&path, error.to_string()));
            IdMap::default()
        }
        Some(Ok(ids)) => ids,
        None => IdMap::default(),
    };
    for sidecar in &snapshot.sidecars {
        draft.remove(sidecar.clone());
    }
    for folder in Folder::ALL {
        for (id, set) in snapshot.sets(folder) {
            reconcile_files(&mut draft, snapshot, request.releases, &ids, folder, id, set);
        }
    }
    draft.relabel();

    let manifest = match Manifest::from_json(text) {
        Ok(manifest) => manifest,
        Err(error) => {
            draft.problems.push(invalid(&path, error.to_string()));
            return Ok(draft.finish(format!("reconcile {}", request.version), Vec::new()));
        }
    };
    let mut notes = Vec::new();
    let wanted = reconciled_manifest(
        &manifest,
        &ids,
        request.releases,
        request.additions,
        request.version,
        &mut notes,
    );
    draft.notes.extend(notes);
    match newer_schema(Some(text)) {
        Some(found) => draft.problems.push(Problem::Newer { path: path.into(), found }),
        None => draft.write_if_changed(&path, &wanted.to_json(), Some(text)),
    }
    let sources = ids.with_releases(request.releases);
    check::release(&mut draft, snapshot, &wanted, &sources);
    let listed = |id: &ModelId| wanted.get(id).is_some();
    let old: Vec<_> = sources.iter().filter(|(_, new)| listed(new)).collect();
    let fates = selections(&old.into_iter().collect(), wanted.models.iter().map(|entry| entry.id()));
    Ok(draft.finish(format!("reconcile {}", request.version), fates))
}

impl<'a> FromIterator<(&'a ModelId, &'a ModelId)> for IdMap {
    fn from_iter<I: IntoIterator<Item = (&'a ModelId, &'a ModelId)>>(pairs: I) -> Self {
        let entries = pairs.into_iter().map(|(old, new)| (old.clone(), new.clone())).collect();
        Self::default().with_releases(&ReleaseMap { entries })
    }
}

/// Finds out which model one artifact is, and plans its move to the release ID.
fn reconcile_files(
    draft: &mut Draft<'_>,
    snapshot: &Snapshot,
    releases: &ReleaseMap,
    ids: &IdMap,
    folder: Folder,
    id: &ModelId,
    set: &ArtifactSet,
) {
    let digest = set.digest(id);
    let source = match digest.map(|digest| recorded_source(snapshot, releases, id, digest)) {
        Some(Recorded::One(source)) => Some(source),
        Some(Recorded::Several(models)) => {
            draft.problems.push(Problem::Ambiguous { folder, id: id.clone(), models });
            return;
        }
        Some(Recorded::Nothing) | None => named_source(releases, ids, id),
    };
    let Some(source) = source else { return };
    let Some(release) = releases.entries.get(&source) else { return };
    if release == id {
        draft.settle(folder, &source, release, set);
    } else {
        draft.moves.push(Move { folder, from: id.clone(), to: release.clone(), source });
    }
}

enum Recorded {
    Nothing,
    One(ModelId),
    Several(Vec<ModelId>),
}

/// The model that an artifact with this content is recorded as. Several models may have one content: then the name decides,
/// the release ID first, as that is what recording gave it.
fn recorded_source(
    snapshot: &Snapshot,
    releases: &ReleaseMap,
    id: &ModelId,
    digest: Sha256Digest,
) -> Recorded {
    let by_identity = snapshot.identities.with_content(digest).map(|known| known.source.clone());
    let by_record = snapshot
        .records
        .values()
        .filter(|record| record.sha256 == digest && record.release_id.is_some())
        .filter(|record| releases.entries.get(&record.id) == record.release_id.as_ref())
        .map(|record| record.id.clone());
    let sources: BTreeSet<ModelId> =
        by_identity.chain(by_record).filter(|source| releases.entries.contains_key(source)).collect();
    let released = sources.iter().find(|source| releases.entries.get(*source) == Some(id));
    if let Some(source) = released.or_else(|| sources.get(id)) {
        return Recorded::One(source.clone());
    }
    let mut sources: Vec<ModelId> = sources.into_iter().collect();
    match sources.len() {
        0 => Recorded::Nothing,
        1 => Recorded::One(sources.remove(0)),
        _ => Recorded::Several(sources),
    }
}

/// The model that an unrecorded artifact is taken for by its name: a source ID, else what the namespace made of one, else a
/// release ID.
fn named_source(releases: &ReleaseMap, ids: &IdMap, id: &ModelId) -> Option<ModelId> {
    if releases.entries.contains_key(id) {
        return Some(id.clone());
    }
    let namespaced = ids.source_of(id).filter(|source| releases.entries.contains_key(*source));
    let released = || releases.entries.iter().find(|(_, release)| *release == id).map(|(source, _)| source);
    namespaced.or_else(released).cloned()
}

/// The manifest after reconciliation: entries whose model has another release ID get it, or go where the manifest lists
/// that ID already; then the additions come.
pub(crate) fn reconciled_manifest(
    manifest: &Manifest,
    ids: &IdMap,
    releases: &ReleaseMap,
    additions: &Additions,
    version: ManifestVersion,
    notes: &mut Vec<Note>,
) -> Manifest {
    // Namespaced ID to release ID; looked up for all entries at once, so that no mapping sees the result of another.
    let other_release = |id: &ModelId| {
        let source = ids.source_of(id)?;
        releases.entries.get(source).filter(|release| *release != id).cloned()
    };
    let mut wanted = manifest.clone();
    let targets: Vec<Option<ModelId>> =
        manifest.models.iter().map(|entry| other_release(entry.id())).collect();
    let staying: BTreeSet<ModelId> = manifest
        .models
        .iter()
        .zip(&targets)
        .filter(|(_, target)| target.is_none())
        .map(|(entry, _)| entry.id().clone())
        .collect();
    let mut at = 0;
    wanted.models.retain_mut(|entry| {
        let target = targets[at].clone();
        at += 1;
        let Some(target) = target else { return true };
        let from = entry.id().clone();
        if staying.contains(&target) {
            notes.push(Note::Dropped { id: from, of: target });
            return false;
        }
        entry.set_id(target.clone());
        notes.push(Note::Relisted { from, to: target });
        true
    });
    notes.extend(additions.apply(version, &mut wanted).into_iter().map(|id| Note::Added { id }));
    wanted
}
