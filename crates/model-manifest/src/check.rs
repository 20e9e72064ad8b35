//! Whether what comes of a plan agrees with itself, the source map and the artifacts.

use std::collections::{BTreeMap, BTreeSet};

use model_catalog::{Manifest, ManifestEntry, ModelId, Target};

use crate::{Folder, IdMap, Note, Problem, Snapshot, relabel::Draft, selection::ALIASES};

/// The schema version that this version rewrites; a manifest without the field has it.
const SCHEMA: u64 = 1;

/// The device's built-in model, which no downloaded one may be named like.
const BUILT_IN: &str = "rdf";

/// The schema version of a manifest's text, where it is newer than what is understood.
pub(crate) fn newer_schema(text: Option<&str>) -> Option<u64> {
    let value: serde_json::Value = serde_json::from_str(text?).ok()?;
    value.get("schema_version").and_then(serde_json::Value::as_u64).filter(|&found| found > SCHEMA)
}

/// Checks a release: its manifest, and the names that the files will have. `sources` gives each source ID its release ID.
pub(crate) fn release(draft: &mut Draft<'_>, snapshot: &Snapshot, manifest: &Manifest, sources: &IdMap) {
    let ids: Vec<&ModelId> = manifest.models.iter().map(ManifestEntry::id).collect();
    one_name_each(&mut draft.problems, ids.iter().copied());
    for folder in Folder::ALL {
        let names: Vec<ModelId> = draft.names(folder).cloned().collect();
        one_name_each(&mut draft.problems, names.iter());
    }
    draft.problems.dedup();
    for entry in &manifest.models {
        let source = sources.source_of(entry.id()).unwrap_or(entry.id());
        reserved(&mut draft.problems, entry.id(), source);
        entry_agrees(&mut draft.problems, snapshot, entry, source);
    }
    completeness(draft, &ids);
}

fn one_name_each<'a>(problems: &mut Vec<Problem>, ids: impl Iterator<Item = &'a ModelId>) {
    let mut seen: BTreeMap<String, &ModelId> = BTreeMap::new();
    for id in ids {
        if let Some(first) = seen.insert(id.as_str().to_lowercase(), id) {
            let problem = Problem::SameId { first: first.clone(), second: id.clone() };
            if !problems.contains(&problem) {
                problems.push(problem);
            }
        }
    }
}

fn reserved(problems: &mut Vec<Problem>, id: &ModelId, source: &ModelId) {
    let why = if id.as_str() == BUILT_IN {
        "it is the built-in model of devices"
    } else if ALIASES.iter().any(|&(alias, _)| alias == id.as_str()) {
        "devices take it for another model's alias"
    } else if id.is_local() {
        "local-* IDs are a person's own models"
    } else {
        return;
    };
    problems.push(Problem::Reserved { id: id.clone(), source_id: source.clone(), why });
}

/// The external-GPU tag, the target and the behaviour version of one entry.
pub(crate) fn entry_agrees(
    problems: &mut Vec<Problem>,
    snapshot: &Snapshot,
    entry: &ManifestEntry,
    source: &ModelId,
) {
    // Field types were checked when the manifest was read.
    let tagged = entry.uses_external_gpu().unwrap_or(false);
    if let Some(source_entry) = snapshot.sources.entries.get(source)
        && source_entry.uses_external_gpu != tagged
    {
        let source_map = source_entry.uses_external_gpu;
        problems.push(Problem::GpuTag { id: source.clone(), manifest: tagged, source_map });
    }
    let Some(record) = snapshot.records.get(source).or_else(|| snapshot.record_of_file(entry.id())) else {
        return;
    };
    let expected = if tagged { Target::ExternalGpu } else { snapshot.target };
    if let Some(artifact) = record.target.filter(|&artifact| artifact != expected) {
        problems.push(Problem::Target { id: source.clone(), artifact, expected });
    }
    let Some(fingerprint) = &record.fingerprint else { return };
    if let Ok(Some(manifest)) = entry.version()
        && fingerprint.version != Some(manifest)
    {
        problems.push(Problem::Version { id: source.clone(), manifest, artifact: fingerprint.version });
    }
}

/// Every entry has its artifact and every artifact its entry, or is listed.
fn completeness(draft: &mut Draft<'_>, listed: &[&ModelId]) {
    let present: BTreeSet<ModelId> =
        Folder::ALL.iter().flat_map(|&folder| draft.names(folder).cloned()).collect();
    let missing: Vec<ModelId> =
        listed.iter().filter(|id| !present.contains(**id)).map(|&id| id.clone()).collect();
    let listed: BTreeSet<&ModelId> = listed.iter().copied().collect();
    let unlisted: Vec<ModelId> = present.into_iter().filter(|id| !listed.contains(id)).collect();
    if !missing.is_empty() {
        draft.notes.push(Note::Missing { ids: missing });
    }
    if !unlisted.is_empty() {
        draft.notes.push(Note::Unlisted { ids: unlisted });
    }
}
