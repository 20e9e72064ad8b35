//! An artifact that came home: in `compiled/`, recorded, and ready for upload.

use std::{
    fs, io,
    sync::{Mutex, PoisonError},
};

use artifact_parts::{ChunkSize, PartLimit, PartsError, SplitRequest, checksum_name, find_parts, split};
use camino::{Utf8Path, Utf8PathBuf};
use durable_fs::{Expected, FsError, Progress, copy_file, sync_dir};
use model_catalog::{ArtifactName, ModelId};
use rebuild_workspace::{ArtifactRecord, MultipartEntry, MultipartList, Stamp, Workspace, WorkspaceError};

/// Held while the list of artifacts in parts is changed: several models get ready at a time, and other processes are kept out
/// by the workspace's lock.
static LIST: Mutex<()> = Mutex::new(());

/// Why an artifact could not be made ready for upload.
#[derive(Debug, thiserror::Error)]
pub enum HomeError {
    /// It could not be split.
    #[error(transparent)]
    Parts(#[from] PartsError),
    /// The workspace failed.
    #[error(transparent)]
    Workspace(#[from] WorkspaceError),
}

impl From<FsError> for HomeError {
    fn from(error: FsError) -> Self {
        Self::Workspace(error.into())
    }
}

/// The form in which an artifact lies in `ready-for-resources/`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ready {
    /// File names of the parts; empty where the artifact is whole.
    pub parts: Vec<String>,
}

/// The rule by which artifacts get parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartRule {
    /// Over this size an artifact gets parts.
    pub limit: PartLimit,
    /// The size of a part.
    pub chunk: ChunkSize,
}

impl PartRule {
    /// Parts of the usual size, or of the limit's where that is lower.
    pub fn new(limit: PartLimit) -> Self {
        Self { limit, chunk: ChunkSize::default().within(limit) }
    }
}

/// Whether the upload folder holds the recorded artifact in the right form; looks at names and sizes only.
///
/// # Errors
/// [`HomeError`] where the folder cannot be listed.
pub fn is_ready(workspace: &Workspace, record: &ArtifactRecord, rule: PartRule) -> Result<bool, HomeError> {
    let name = ArtifactName::new(record.artifact_id().clone()).to_string();
    let dir = workspace.ready_dir();
    let whole = Stamp::of(&dir.join(&name))?;
    let parts = find_parts(&dir, &name)?;
    let checksum = dir.join(checksum_name(&name)).is_file();
    let needs_parts = rule.limit.needs_parts(record.size);
    if needs_parts != record.multipart {
        return Ok(false);
    }
    if !needs_parts {
        return Ok(parts.is_empty() && !checksum && whole.is_some_and(|stamp| stamp.size == record.size));
    }
    let size: u64 = parts.values().map(|part| part.size).sum();
    let right_parts = rule.chunk.count(&name, record.size).is_ok_and(|count| count == parts.len());
    let listed = MultipartList::load(workspace)?.entries.iter().any(|entry| entry.filename == name);
    Ok(whole.is_none() && checksum && listed && right_parts && size == record.size)
}

/// Puts a compiled artifact into the upload folder: whole, or in parts with a checksum instead of it.
///
/// # Errors
/// [`HomeError`] where it cannot be written, or is not the recorded one.
pub fn make_ready(
    workspace: &Workspace,
    id: &ModelId,
    expected: Expected,
    rule: PartRule,
    progress: &dyn Progress,
) -> Result<Ready, HomeError> {
    let name = ArtifactName::new(id.clone()).to_string();
    let compiled = workspace.compiled_file(id);
    let ready = workspace.ready_dir().join(&name);
    let size = expected.size.unwrap_or_default();
    if rule.limit.needs_parts(size) {
        progress.begin(&format!("splitting {name}"), Some(size));
        let parts = split_into(&compiled, &workspace.ready_dir(), expected, rule.chunk, progress);
        progress.end();
        let (parts, sha256) = parts?;
        let entry = MultipartEntry {
            id: id.clone(),
            filename: name,
            size,
            sha256,
            parts: parts.clone(),
            extra: serde_json::Map::new(),
        };
        change_list(workspace, |list| list.insert(entry))?;
        remove_if_there(&ready)?;
        return Ok(Ready { parts });
    }
    progress
        .begin(&format!("{name} to {}", workspace.ready_dir().file_name().unwrap_or_default()), Some(size));
    let copied = copy_file(&compiled, &ready, expected, progress);
    progress.end();
    copied?;
    remove_parts(&workspace.ready_dir(), &name)?;
    change_list(workspace, |list| list.remove(&name))?;
    Ok(Ready { parts: Vec::new() })
}

/// Takes an artifact out of the upload folder, in whatever form it is there.
///
/// # Errors
/// [`HomeError`] where something of it cannot be removed.
pub(crate) fn withdraw(workspace: &Workspace, id: &ModelId) -> Result<(), HomeError> {
    let name = ArtifactName::new(id.clone()).to_string();
    let dir = workspace.ready_dir();
    remove_parts(&dir, &name)?;
    if remove_if_there(&dir.join(&name))? {
        let _ = sync_dir(&dir)?;
    }
    change_list(workspace, |list| list.remove(&name))
}

fn change_list(workspace: &Workspace, change: impl FnOnce(&mut MultipartList)) -> Result<(), HomeError> {
    let _held = LIST.lock().unwrap_or_else(PoisonError::into_inner);
    let mut list = MultipartList::load(workspace)?;
    change(&mut list);
    Ok(list.save(workspace)?)
}

fn split_into(
    compiled: &Utf8Path,
    into: &Utf8Path,
    expected: Expected,
    chunk: ChunkSize,
    progress: &dyn Progress,
) -> Result<(Vec<String>, model_catalog::Sha256Digest), HomeError> {
    let request = SplitRequest { source: compiled, into, name: None, chunk, expected, part_digests: false };
    let set = split(&request, progress)?;
    Ok((set.parts.into_iter().map(|part| part.name).collect(), set.sha256))
}

fn remove_parts(dir: &Utf8Path, name: &str) -> Result<(), HomeError> {
    // The checksum goes first: parts without one are no set that a reader would take.
    let mut removed = remove_if_there(&dir.join(checksum_name(name)))?;
    for part in find_parts(dir, name)?.into_values() {
        removed |= remove_if_there(&dir.join(part.name))?;
    }
    if removed {
        let _ = sync_dir(dir)?;
    }
    Ok(())
}

fn remove_if_there(path: &Utf8PathBuf) -> Result<bool, FsError> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(FsError::io("remove", path)(error)),
    }
}

#[cfg(test)]
#[path = "home_tests.rs"]
mod tests;
