//! What is in a workspace, read once before a plan is made.

use std::{collections::BTreeMap, fs, io};

use artifact_parts::parse_checksum;
use camino::{Utf8Path, Utf8PathBuf};
use durable_fs::{FsError, Progress, hash_file, list_apple_doubles, list_dir};
use model_catalog::{ArtifactFile, ArtifactName, ManifestVersion, ModelId, Sha256Digest, SourceMap, Target};
use rebuild_workspace::{ArtifactRecord, MultipartList, Stamp, Workspace};

use crate::{Folder, Identities, ManifestWorkError};

/// A whole artifact on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Whole {
    /// Its size and time.
    pub stamp: Stamp,
    /// SHA-256 of its content.
    pub sha256: Sha256Digest,
}

/// The files of one artifact in one folder.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ArtifactSet {
    /// The whole file.
    pub whole: Option<Whole>,
    /// The numbers of its parts.
    pub parts: Vec<usize>,
    /// The text of the checksum file.
    pub checksum: Option<String>,
}

impl ArtifactSet {
    /// The digest in the checksum file, where it is one of the artifact `id`.
    pub fn checksum_digest(&self, id: &ModelId) -> Option<Sha256Digest> {
        let (digest, name) = parse_checksum(self.checksum.as_deref()?)?;
        (name == ArtifactName::new(id.clone()).to_string()).then_some(digest)
    }

    /// SHA-256 of the artifact: that of the whole file, else the one in the checksum.
    pub fn digest(&self, id: &ModelId) -> Option<Sha256Digest> {
        self.whole.map(|whole| whole.sha256).or_else(|| self.checksum_digest(id))
    }

    /// The names of the set's files.
    pub fn file_names(&self, id: &ModelId) -> Vec<String> {
        let name = ArtifactName::new(id.clone());
        let mut names: Vec<String> = self.whole.iter().map(|_| name.to_string()).collect();
        names.extend(
            self.parts.iter().map(|&part| ArtifactFile::Part(name.clone(), part).renamed(id.clone())),
        );
        names.extend(self.checksum.iter().map(|_| name.checksum_name()));
        names
    }
}

/// Everything that a plan is computed from.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The artifacts of each folder, by the ID in their names.
    pub folders: BTreeMap<Folder, BTreeMap<ModelId, ArtifactSet>>,
    /// macOS sidecar files, relative to the workspace.
    pub sidecars: Vec<Utf8PathBuf>,
    /// The multipart list.
    pub multipart: MultipartList,
    /// Artifact records, by source ID.
    pub records: BTreeMap<ModelId, ArtifactRecord>,
    /// The source maps.
    pub sources: SourceMap,
    /// What the workspace's artifacts are compiled for.
    pub target: Target,
    /// What was renamed in the namespace that is worked on.
    pub identities: Identities,
    /// The text of the namespace's manifest, where there is one.
    pub manifest: Option<String>,
    /// The text of the namespace's ID map, where there is one.
    pub id_map: Option<String>,
}

impl Snapshot {
    /// The snapshot of an empty workspace.
    pub fn empty(target: Target) -> Self {
        Self {
            folders: BTreeMap::new(),
            sidecars: Vec::new(),
            multipart: MultipartList::default(),
            records: BTreeMap::new(),
            sources: SourceMap::default(),
            target,
            identities: Identities::default(),
            manifest: None,
            id_map: None,
        }
    }

    /// Reads a workspace. A file whose size and time are recorded is taken by its record; others are hashed, and `progress`
    /// is advanced by their bytes. The caller holds the workspace's lock and has finished an earlier plan.
    ///
    /// # Errors
    /// [`ManifestWorkError`] names the file that cannot be read.
    pub fn take(
        workspace: &Workspace,
        version: ManifestVersion,
        sources: SourceMap,
        progress: &dyn Progress,
    ) -> Result<Self, ManifestWorkError> {
        let mut snapshot = Self {
            multipart: MultipartList::load(workspace)?,
            sources,
            identities: Identities::load(workspace, version)?,
            manifest: read_text(&workspace.manifest_file(version))?,
            id_map: read_text(&workspace.id_map_file(version))?,
            ..Self::empty(workspace.config()?.target.unwrap_or(Target::Qcom))
        };
        for id in workspace.recorded::<ArtifactRecord>()? {
            if let Some(record) = workspace.record::<ArtifactRecord>(&id)? {
                snapshot.records.insert(id, record);
            }
        }
        for folder in Folder::ALL {
            let dir = workspace.root().join(folder.as_str());
            let sets = snapshot.read_folder(folder, &dir, progress)?;
            snapshot.folders.insert(folder, sets);
            snapshot.sidecars.extend(list_apple_doubles(&dir)?.into_iter().map(|name| folder.file(name)));
        }
        Ok(snapshot)
    }

    /// The artifacts of a folder.
    pub fn sets(&self, folder: Folder) -> impl Iterator<Item = (&ModelId, &ArtifactSet)> {
        self.folders.get(&folder).into_iter().flatten()
    }

    /// The files of one artifact.
    pub fn set(&self, folder: Folder, id: &ModelId) -> Option<&ArtifactSet> {
        self.folders.get(&folder)?.get(id)
    }

    /// The record of the artifact whose file has this ID in its name.
    pub fn record_of_file(&self, id: &ModelId) -> Option<&ArtifactRecord> {
        self.records.values().find(|record| record.artifact_id() == id)
    }

    fn read_folder(
        &self,
        folder: Folder,
        dir: &Utf8Path,
        progress: &dyn Progress,
    ) -> Result<BTreeMap<ModelId, ArtifactSet>, ManifestWorkError> {
        let mut sets: BTreeMap<ModelId, ArtifactSet> = BTreeMap::new();
        for name in list_dir(dir)? {
            let Some(file) = ArtifactFile::parse(&name) else { continue };
            let id = file.artifact().id().clone();
            let set = sets.entry(id.clone()).or_default();
            match file {
                ArtifactFile::Whole(_) => {
                    set.whole = self.read_whole(folder, &dir.join(&name), &id, progress)?
                }
                ArtifactFile::Part(_, number) => set.parts.push(number),
                ArtifactFile::Checksum(_) => {
                    let path = dir.join(&name);
                    set.checksum = Some(fs::read_to_string(&path).map_err(FsError::io("read", &path))?);
                }
            }
        }
        Ok(sets)
    }

    fn read_whole(
        &self,
        folder: Folder,
        path: &Utf8Path,
        id: &ModelId,
        progress: &dyn Progress,
    ) -> Result<Option<Whole>, ManifestWorkError> {
        let Some(stamp) = Stamp::of(path)? else { return Ok(None) };
        let by_record = || {
            let record = self.record_of_file(id).filter(|_| folder == Folder::Compiled)?;
            (record.stamp() == Some(stamp)).then_some(record.sha256)
        };
        let by_identity = || {
            let known = |known: &&crate::Identity| {
                known.folder == folder
                    && known.stamp == Some(stamp)
                    && (known.release == *id || known.source == *id)
            };
            self.identities.entries().iter().find(known).map(|known| known.sha256)
        };
        let sha256 = match by_record().or_else(by_identity) {
            Some(sha256) => sha256,
            None => hash_file(path, progress)?.0,
        };
        Ok(Some(Whole { stamp, sha256 }))
    }
}

fn read_text(path: &Utf8Path) -> Result<Option<String>, FsError> {
    match fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        text => text.map(Some).map_err(FsError::io("read", path)),
    }
}
