//! The release namespace: every model of a manifest gets a new ID, its files with it.

use std::collections::BTreeSet;

use indexmap::IndexMap;
use model_catalog::{Manifest, ManifestVersion, ModelId, ReleaseMap};
use serde::{Deserialize, Serialize};

use crate::{
    Additions, ArtifactSet, Folder, ManifestWorkError, Note, Plan, Problem, Snapshot,
    base::refuse_newer_base,
    check::{self, newer_schema},
    reconcile::reconciled_manifest,
    relabel::{Draft, Move},
    selections,
};

/// Why release IDs cannot be given out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NamespaceError {
    /// The suffix is empty.
    #[error("the suffix of a namespace cannot be empty; choose one, such as 3")]
    EmptySuffix,
    /// A release ID would not be valid.
    #[error("{id} cannot get a release ID: {why}; choose another suffix")]
    Invalid {
        /// The source ID.
        id: ModelId,
        /// What is wrong with the candidate.
        why: String,
    },
}

/// Old ID to new ID, one to one, in the order of the manifest.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct IdMap {
    ids: IndexMap<ModelId, ModelId>,
}

impl IdMap {
    /// Gives every ID its release ID: `<id><suffix>`, or `<id><version>` where the former is itself one of the IDs, with `_`
    /// appended while the candidate is given out already. All free `<id><suffix>` are given out before the fallbacks, so the
    /// result does not depend on the order of the IDs.
    ///
    /// # Errors
    /// [`NamespaceError`] for an empty suffix, and where a release ID would not be a valid ID.
    pub fn new<'a>(
        ids: impl IntoIterator<Item = &'a ModelId>,
        version: ManifestVersion,
        suffix: &str,
    ) -> Result<Self, NamespaceError> {
        if suffix.is_empty() {
            return Err(NamespaceError::EmptySuffix);
        }
        let sources: Vec<&ModelId> = ids.into_iter().collect();
        let known: BTreeSet<&str> = sources.iter().map(|id| id.as_str()).collect();
        let mut given: BTreeSet<String> = BTreeSet::new();
        let mut map = IndexMap::new();
        let mut fallbacks = Vec::new();
        for &id in &sources {
            let candidate = format!("{id}{suffix}");
            // Filled in for the fallbacks below: the place in the map is that in the manifest.
            map.insert(id.clone(), id.clone());
            if known.contains(candidate.as_str()) {
                fallbacks.push(id);
            } else {
                map.insert(id.clone(), release_id(id, candidate.clone())?);
                given.insert(candidate);
            }
        }
        for id in fallbacks {
            let mut candidate = format!("{id}{version}");
            while given.contains(&candidate) {
                candidate.push('_');
            }
            map.insert(id.clone(), release_id(id, candidate.clone())?);
            given.insert(candidate);
        }
        Ok(Self { ids: map })
    }

    /// The map with the release IDs of `releases` in the place of its own, for the IDs that it has, and appended for others.
    #[must_use]
    pub fn with_releases(&self, releases: &ReleaseMap) -> Self {
        let mut ids = self.ids.clone();
        ids.extend(releases.entries.iter().map(|(source, release)| (source.clone(), release.clone())));
        Self { ids }
    }

    /// The release ID of a source.
    pub fn release_of(&self, id: &ModelId) -> Option<&ModelId> {
        self.ids.get(id)
    }

    /// The source that got this release ID.
    pub fn source_of(&self, release: &ModelId) -> Option<&ModelId> {
        self.ids.iter().find(|(_, new)| *new == release).map(|(old, _)| old)
    }

    /// Old and new IDs, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&ModelId, &ModelId)> {
        self.ids.iter()
    }

    /// Parses the text of an ID map.
    ///
    /// # Errors
    /// The JSON error where it is not an object of valid IDs.
    pub fn from_json(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// The text of an ID map's file.
    pub fn to_json(&self) -> String {
        crate::relabel::json_text(self)
    }
}

fn release_id(id: &ModelId, candidate: String) -> Result<ModelId, NamespaceError> {
    ModelId::new(candidate)
        .map_err(|error| NamespaceError::Invalid { id: id.clone(), why: error.to_string() })
}

/// What to namespace, and how.
#[derive(Debug, Clone, Copy)]
pub struct NamespaceRequest<'a> {
    /// The manifest whose models get release IDs.
    pub base: &'a Manifest,
    /// The version of the namespace and of the manifest that is written.
    pub version: ManifestVersion,
    /// What is appended to an ID.
    pub suffix: &'a str,
    /// Only the files of these models are renamed; the manifest lists all the same. `None` renames all that are there.
    pub completed: Option<&'a [ModelId]>,
    /// The release map and additions that reconciliation will apply: a manifest that was reconciled already stays so.
    pub releases: &'a ReleaseMap,
    /// See [`Self::releases`].
    pub additions: &'a Additions,
}

/// Computes what namespacing would change.
///
/// # Errors
/// [`ManifestWorkError::Namespace`] where release IDs cannot be given out, [`ManifestWorkError::UnknownCompleted`] where a
/// completed ID is not in the manifest. Everything else that stands against it is a [`Problem`] of the plan.
pub fn plan_namespace(
    snapshot: &Snapshot,
    request: &NamespaceRequest<'_>,
) -> Result<Plan, ManifestWorkError> {
    let ids =
        IdMap::new(request.base.models.iter().map(|entry| entry.id()), request.version, request.suffix)?;
    let chosen = chosen_ids(&ids, request.completed)?;
    let mut draft = Draft::new(snapshot, request.version);
    refuse_newer_base(&mut draft, request.base);
    let final_ids = recorded_releases(&ids, snapshot);

    let mut not_compiled = Vec::new();
    for id in &chosen {
        let release = final_ids.release_of(id).unwrap_or(id);
        let mut found = false;
        for folder in Folder::ALL {
            found |= namespace_files(&mut draft, snapshot, folder, id, release, &final_ids);
        }
        if !found && request.completed.is_some() {
            not_compiled.push(id.clone());
        }
    }
    if !not_compiled.is_empty() {
        draft.problems.push(Problem::NotCompiled { ids: not_compiled });
    }
    draft.relabel();

    let manifest = write_manifest(&mut draft, snapshot, request, &ids)?;
    draft.write_if_changed(
        &format!("source-maps/model_id_namespace_{}.json", request.version),
        &ids.to_json(),
        snapshot.id_map.as_deref(),
    );
    let sources = final_ids.with_releases(&present_releases(&manifest, request.releases));
    check::release(&mut draft, snapshot, &manifest, &sources);
    let fates = selections(&final_ids, manifest.models.iter().map(|entry| entry.id()));
    Ok(draft.finish(format!("namespace {}", request.version), fates))
}

/// The release map's entries whose release ID the manifest lists.
fn present_releases(manifest: &Manifest, releases: &ReleaseMap) -> ReleaseMap {
    let listed = |(_, release): &(&ModelId, &ModelId)| manifest.get(release).is_some();
    let entries =
        releases.entries.iter().filter(listed).map(|(old, new)| (old.clone(), new.clone())).collect();
    ReleaseMap { entries }
}

fn chosen_ids(ids: &IdMap, completed: Option<&[ModelId]>) -> Result<Vec<ModelId>, ManifestWorkError> {
    let Some(completed) = completed else { return Ok(ids.iter().map(|(old, _)| old.clone()).collect()) };
    let unknown: Vec<ModelId> = completed.iter().filter(|id| ids.release_of(id).is_none()).cloned().collect();
    if unknown.is_empty() {
        Ok(completed.to_vec())
    } else {
        Err(ManifestWorkError::UnknownCompleted { ids: unknown })
    }
}

/// The ID map as it is after what was recorded: a model that reconciliation gave another release ID keeps that one.
fn recorded_releases(ids: &IdMap, snapshot: &Snapshot) -> IdMap {
    let recorded = |(old, new): (&ModelId, &ModelId)| {
        (old.clone(), snapshot.identities.release_of(old).unwrap_or(new).clone())
    };
    IdMap { ids: ids.iter().map(recorded).collect() }
}

/// Plans the move of one model's files in one folder; whether there are any, under the old or the new ID.
fn namespace_files(
    draft: &mut Draft<'_>,
    snapshot: &Snapshot,
    folder: Folder,
    id: &ModelId,
    release: &ModelId,
    releases: &IdMap,
) -> bool {
    let released = snapshot.set(folder, release);
    if let Some(set) = released.filter(|_| id != release) {
        draft.adopt(folder, id, release, set);
    }
    match snapshot.set(folder, id) {
        Some(set) if !is_another_release(snapshot, id, set, releases) => {
            draft.moves.push(Move { folder, from: id.clone(), to: release.clone(), source: id.clone() });
            true
        }
        _ => released.is_some(),
    }
}

/// Whether an artifact has this ID in its name because that is another model's release ID.
fn is_another_release(snapshot: &Snapshot, id: &ModelId, set: &ArtifactSet, releases: &IdMap) -> bool {
    let Some(digest) = set.digest(id) else { return false };
    let by_identity =
        snapshot.identities.with_content(digest).any(|known| known.release == *id && known.source != *id);
    let by_record = || {
        snapshot.records.values().any(|record| {
            record.id != *id
                && record.sha256 == digest
                && record.release_id.as_ref() == Some(id)
                && releases.release_of(&record.id) == Some(id)
        })
    };
    by_identity || by_record()
}

fn write_manifest(
    draft: &mut Draft<'_>,
    snapshot: &Snapshot,
    request: &NamespaceRequest<'_>,
    ids: &IdMap,
) -> Result<Manifest, ManifestWorkError> {
    let path = format!("manifests/model_names_{}.json", request.version);
    let mut plain = request.base.clone();
    for entry in &mut plain.models {
        let release = ids.release_of(entry.id()).unwrap_or(entry.id()).clone();
        entry.set_id(release);
    }
    // What would come of it is read back, so that a duplicate is found before it is written.
    let plain = Manifest::from_json(&plain.to_json())?;
    let mut notes = Vec::new();
    let reconciled =
        reconciled_manifest(&plain, ids, request.releases, request.additions, request.version, &mut notes);
    let wanted = match &snapshot.manifest {
        Some(present) if *present == reconciled.to_json() => reconciled,
        // Files that reconciliation renamed are listed as it would list them, without a run in between.
        _ if was_reconciled(snapshot, ids) => {
            draft.notes.extend(notes);
            reconciled
        }
        _ => plain,
    };
    if let Some(found) = newer_schema(snapshot.manifest.as_deref()) {
        draft.problems.push(Problem::Newer { path: path.into(), found });
    } else {
        draft.write_if_changed(&path, &wanted.to_json(), snapshot.manifest.as_deref());
    }
    Ok(wanted)
}

fn was_reconciled(snapshot: &Snapshot, ids: &IdMap) -> bool {
    let elsewhere = |known: &crate::Identity| ids.release_of(&known.source) != Some(&known.release);
    snapshot.identities.entries().iter().any(elsewhere)
}

impl Note {
    /// Whether the note is about the manifest's own entries.
    pub fn is_about_manifest(&self) -> bool {
        matches!(self, Self::Added { .. } | Self::Relisted { .. } | Self::Dropped { .. })
    }
}
