//! What was renamed, recorded by content: a recorded file keeps its identity whatever its name.

use std::{fmt, fs, io};

use camino::{Utf8Path, Utf8PathBuf};
use durable_fs::FsError;
use model_catalog::{ManifestVersion, ModelId, Sha256Digest};
use rebuild_workspace::{Stamp, Workspace};
use serde::{Deserialize, Serialize};

/// The two folders in which artifacts are named by ID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Folder {
    /// `compiled/`.
    #[serde(rename = "compiled")]
    Compiled,
    /// `ready-for-resources/`.
    #[serde(rename = "ready-for-resources")]
    Ready,
}

impl Folder {
    /// Both folders.
    pub const ALL: [Self; 2] = [Self::Compiled, Self::Ready];

    /// The folder's name in the workspace.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Compiled => "compiled",
            Self::Ready => "ready-for-resources",
        }
    }

    /// The path of a file in the folder, relative to the workspace.
    pub fn file(self, name: impl AsRef<Utf8Path>) -> Utf8PathBuf {
        Utf8Path::new(self.as_str()).join(name)
    }
}

impl fmt::Display for Folder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// One artifact that got its release ID.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The model before.
    pub source: ModelId,
    /// The model in the release.
    pub release: ModelId,
    /// Where the artifact lies.
    pub folder: Folder,
    /// SHA-256 of the whole artifact.
    pub sha256: Sha256Digest,
    /// Size and time of the whole file, so that a rerun need not hash it; absent where only parts lie there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stamp: Option<Stamp>,
}

/// The recorded artifacts of one release namespace, sorted by source and folder.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Identities {
    entries: Vec<Identity>,
}

impl Identities {
    /// The file of a namespace, relative to the workspace.
    pub fn file(version: ManifestVersion) -> Utf8PathBuf {
        Utf8PathBuf::from(format!("results/release_identities_{version}.json"))
    }

    /// Reads those of a workspace; none where there is no file.
    ///
    /// # Errors
    /// [`FsError`] where the file cannot be read or is not valid.
    pub fn load(workspace: &Workspace, version: ManifestVersion) -> Result<Self, FsError> {
        let path = workspace.root().join(Self::file(version));
        match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            text => {
                let text = text.map_err(FsError::io("read", &path))?;
                serde_json::from_slice(&text).map_err(|source| FsError::Json { path, source })
            }
        }
    }

    /// The recorded artifacts.
    pub fn entries(&self) -> &[Identity] {
        &self.entries
    }

    /// Those with this content.
    pub fn with_content(&self, sha256: Sha256Digest) -> impl Iterator<Item = &Identity> {
        self.entries.iter().filter(move |identity| identity.sha256 == sha256)
    }

    /// The release ID that a source got.
    pub fn release_of(&self, source: &ModelId) -> Option<&ModelId> {
        self.entries.iter().find(|identity| identity.source == *source).map(|identity| &identity.release)
    }

    /// Records an artifact in the place of an earlier one of the same model and folder.
    pub fn insert(&mut self, identity: Identity) {
        let key = |identity: &Identity| (identity.source.clone(), identity.folder);
        match self.entries.binary_search_by_key(&key(&identity), key) {
            Ok(at) => self.entries[at] = identity,
            Err(at) => self.entries.insert(at, identity),
        }
    }
}
