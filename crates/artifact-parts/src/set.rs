//! A set of parts as data, and finding sets by name.

use std::collections::BTreeMap;

use camino::Utf8Path;
use durable_fs::{Expected, FsError, list_dir};
use model_catalog::{PartName, Sha256Digest};
use serde::{Deserialize, Serialize};

use crate::PartsError;

/// One part of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// The part's file name.
    pub name: String,
    /// Its size in bytes.
    pub size: u64,
    /// SHA-256 of its content, where it was computed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<Sha256Digest>,
}

/// A file and its parts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartSet {
    /// The whole file's name.
    pub name: String,
    /// Its size in bytes.
    pub size: u64,
    /// Its SHA-256.
    pub sha256: Sha256Digest,
    /// Its parts, in order.
    pub parts: Vec<Part>,
}

/// What is known of a set before its bytes are read.
#[derive(Debug, Clone, Copy, Default)]
pub struct KnownParts<'a> {
    /// Size and digest of the whole, where known.
    pub whole: Expected,
    /// The parts with their sizes and digests, where a list of them is known.
    pub parts: Option<&'a [Part]>,
    /// Whether the checksum file may be absent. It counts only where the whole's digest is known; otherwise the checksum is
    /// the one thing that tells a whole set from a broken one.
    pub without_checksum: bool,
}

/// The parts of `name` in `dir` by number, found by name, with their sizes.
///
/// # Errors
/// [`PartsError::Fs`] where the directory cannot be read.
pub fn find_parts(dir: &Utf8Path, name: &str) -> Result<BTreeMap<usize, Part>, PartsError> {
    let mut found = BTreeMap::new();
    for file_name in list_dir(dir)? {
        let Some(part) = PartName::parse(&file_name).filter(|part| part.whole() == name) else { continue };
        let path = dir.join(&file_name);
        let size = path.metadata().map_err(FsError::io("read the size of", &path))?.len();
        found.insert(part.number(), Part { name: file_name, size, sha256: None });
    }
    Ok(found)
}

/// The names of all files that have parts or a checksum of parts in `dir`, sorted.
///
/// # Errors
/// [`PartsError::Fs`] where the directory cannot be read.
pub fn sets_in(dir: &Utf8Path) -> Result<Vec<String>, PartsError> {
    let mut names: Vec<String> = list_dir(dir)?
        .iter()
        .filter_map(|file_name| match PartName::parse(file_name) {
            Some(part) => Some(part.whole().to_owned()),
            None => file_name.strip_suffix(".sha256").filter(|name| !name.is_empty()).map(str::to_owned),
        })
        .collect();
    names.sort();
    names.dedup();
    Ok(names)
}

/// Removes the parts of `name` in `dir` and their checksum, the checksum first: parts without one are no set. Returns the
/// removed names; a set that is not there is none.
///
/// # Errors
/// [`PartsError::Fs`] where a file cannot be removed.
pub fn remove_set(dir: &Utf8Path, name: &str) -> Result<Vec<String>, PartsError> {
    let mut removed = Vec::new();
    let parts = find_parts(dir, name)?;
    for file_name in
        std::iter::once(crate::checksum_name(name)).chain(parts.into_values().map(|part| part.name))
    {
        let path = dir.join(&file_name);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            result => result.map_err(FsError::io("remove", &path))?,
        }
        removed.push(file_name);
    }
    if !removed.is_empty() {
        let _ = durable_fs::sync_dir(dir)?;
    }
    Ok(removed)
}

/// `<name>.pNN`.
pub(crate) fn part_name(name: &str, number: usize) -> String {
    format!("{name}.p{number:02}")
}
