//! The source maps in use, and the manifests that they are read with.

use std::fs;

use camino::{Utf8Path, Utf8PathBuf};
use durable_fs::{FsError, list_dir};
use model_catalog::{BehaviorVersion, InputFormat, Manifest, ModelId, SourceMap};

use crate::{Workspace, WorkspaceError};

/// The source maps that this version carries: file name and JSON text.
pub const EMBEDDED_SOURCE_MAPS: [(&str, &str); 2] = [
    ("model_source_map_v22.json", include_str!("../../../data/model_source_map_v22.json")),
    ("model_source_map_v23.json", include_str!("../../../data/model_source_map_v23.json")),
];

/// The release IDs of recovered sources, as JSON text.
pub const EMBEDDED_RELEASE_MAP: &str = include_str!("../../../data/model_release_map_v23.json");

/// What else lies in the same folder and is no source map: what the namespace writes, and release maps.
const OTHER_MAPS: [&str; 2] = ["model_id_namespace_", "model_release_map_"];

/// The source maps in `given`, or those of the workspace where none is given, merged in the order of their names.
///
/// # Errors
/// [`WorkspaceError::SourceMap`] names the map that is not valid or contradicts another; [`WorkspaceError::NoSourceMap`]
/// where there is none.
pub fn load_source_maps(workspace: &Workspace, given: &[Utf8PathBuf]) -> Result<SourceMap, WorkspaceError> {
    let files = if given.is_empty() { maps_in_use(workspace)? } else { given.to_vec() };
    if files.is_empty() {
        return Err(WorkspaceError::NoSourceMap { path: workspace.source_maps_dir() });
    }
    let mut merged = SourceMap::default();
    for path in files {
        let text = fs::read_to_string(&path).map_err(FsError::io("read the source map", &path))?;
        SourceMap::from_json(&text)
            .and_then(|map| merged.merge(map))
            .map_err(|source| WorkspaceError::SourceMap { path, source })?;
    }
    Ok(merged)
}

fn maps_in_use(workspace: &Workspace) -> Result<Vec<Utf8PathBuf>, WorkspaceError> {
    let dir = workspace.source_maps_dir();
    let names = list_dir(&dir)?;
    let is_other = |name: &String| OTHER_MAPS.iter().any(|prefix| name.starts_with(prefix));
    let is_map = |name: &String| name.ends_with(".json") && !is_other(name);
    Ok(names.into_iter().filter(is_map).map(|name| dir.join(name)).collect())
}

/// Reads a manifest.
///
/// # Errors
/// [`WorkspaceError::Fs`] where it cannot be read, [`WorkspaceError::Manifest`] where it is not valid.
pub fn load_manifest(path: &Utf8Path) -> Result<Manifest, WorkspaceError> {
    let text = fs::read_to_string(path).map_err(FsError::io("read the manifest", path))?;
    Manifest::from_json(&text).map_err(|source| WorkspaceError::Manifest { path: path.to_owned(), source })
}

/// The behaviour version that a model is compiled with: that of the base manifest; else the one of supercombos (and of the
/// one that joined the catalog without an entry there); else none.
pub fn version_of(base: Option<&Manifest>, id: &ModelId, format: InputFormat) -> Option<BehaviorVersion> {
    // A manifest whose versions are not valid was refused when it was read.
    let listed = base.and_then(|manifest| manifest.get(id)).and_then(|entry| entry.version().ok().flatten());
    let is_v15 = format == InputFormat::Supercombo || id.as_str() == "deeprl3v2";
    listed.or_else(|| is_v15.then_some(BehaviorVersion::from_number(15)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::InitOptions;
    use model_catalog::ReleaseMap;

    #[test]
    fn the_embedded_maps_are_whole() {
        let maps = EMBEDDED_SOURCE_MAPS.map(|(_, text)| SourceMap::from_json(text).unwrap());
        assert_eq!((maps[0].entries.len(), maps[1].entries.len()), (62, 11));
        let rdf2 = &maps[1].entries[&ModelId::new("rdf2").unwrap()];
        assert_eq!(rdf2.input_format, InputFormat::Supercombo);
        let releases = ReleaseMap::from_json(EMBEDDED_RELEASE_MAP).unwrap();
        assert_eq!(releases.entries.len(), 29);
    }

    #[test]
    fn a_workspace_reads_both_maps_and_not_the_id_map() {
        let dir = tempfile::tempdir().unwrap();
        let root = Utf8Path::from_path(dir.path()).unwrap().join("ws");
        let (workspace, _) = Workspace::init(&root, &InitOptions::default()).unwrap();
        let maps = workspace.source_maps_dir();
        durable_fs::write_atomic(maps.join("model_id_namespace_v23.json"), br#"{"a": "a3"}"#).unwrap();
        durable_fs::write_atomic(maps.join("._model_source_map_v22.json"), b"\0\x05\x16\x07").unwrap();
        assert_eq!(load_source_maps(&workspace, &[]).unwrap().entries.len(), 73);
        let other = dir.path().join("other.json");
        let other = Utf8PathBuf::from_path_buf(other).unwrap();
        durable_fs::write_atomic(&other, br#"{"x": {"ref": "main", "input_format": "split"}}"#).unwrap();
        assert_eq!(load_source_maps(&workspace, &[other]).unwrap().entries.len(), 1);
    }

    #[test]
    fn versions_come_from_the_manifest() {
        let text = r#"{"models": [{"id": "a", "version": "v8"}, {"id": "deeprl3v2", "version": "v12"}]}"#;
        let manifest = Manifest::from_json(text).unwrap();
        let of = |base, id, format| version_of(base, &ModelId::new(id).unwrap(), format);
        let version = |base, id| of(base, id, InputFormat::Split).map(BehaviorVersion::number);
        assert_eq!(version(Some(&manifest), "a"), Some(8));
        assert_eq!(version(Some(&manifest), "b"), None);
        assert_eq!(version(Some(&manifest), "deeprl3v2"), Some(12));
        assert_eq!(version(None, "deeprl3v2"), Some(15));
        assert_eq!(of(None, "rdf2", InputFormat::Supercombo), Some(BehaviorVersion::from_number(15)));
    }
}
