//! `multipart.json`: the artifacts that are uploaded in parts.

use std::{fs, io};

use durable_fs::{FsError, write_json};
use model_catalog::{ModelId, Sha256Digest};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{Workspace, WorkspaceError};

/// One artifact in parts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MultipartEntry {
    /// The model, by the ID in the file names.
    pub id: ModelId,
    /// File name of the whole artifact.
    pub filename: String,
    /// Its size in bytes.
    pub size: u64,
    /// Its SHA-256.
    pub sha256: Sha256Digest,
    /// File names of the parts, in order.
    pub parts: Vec<String>,
    /// Fields of other tools.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// The list of a workspace, sorted by file name.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MultipartList {
    /// The entries.
    pub entries: Vec<MultipartEntry>,
}

impl MultipartList {
    /// Reads the list of a workspace; empty where there is none.
    ///
    /// # Errors
    /// [`WorkspaceError::Fs`] where it cannot be read or is not valid.
    pub fn load(workspace: &Workspace) -> Result<Self, WorkspaceError> {
        let path = workspace.multipart_file();
        match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            text => {
                let text = text.map_err(FsError::io("read", &path))?;
                Ok(serde_json::from_slice(&text).map_err(|source| FsError::Json { path, source })?)
            }
        }
    }

    /// Replaces the list of a workspace, where it differs.
    ///
    /// # Errors
    /// [`WorkspaceError::Fs`] where it cannot be written.
    pub fn save(&self, workspace: &Workspace) -> Result<(), WorkspaceError> {
        if Self::load(workspace).is_ok_and(|old| old == *self) && workspace.multipart_file().exists() {
            return Ok(());
        }
        write_json(workspace.multipart_file(), self)?;
        Ok(())
    }

    /// Puts the entry in the place of the one with its file name.
    pub fn insert(&mut self, entry: MultipartEntry) {
        self.remove(&entry.filename);
        let at = self.entries.partition_point(|other| other.filename < entry.filename);
        self.entries.insert(at, entry);
    }

    /// Removes the entry of an artifact that is no longer in parts.
    pub fn remove(&mut self, filename: &str) {
        self.entries.retain(|entry| entry.filename != filename);
    }
}
