//! What an extraction would take, from where, and how many bytes: computed before anything is written.

use camino::Utf8PathBuf;
use model_catalog::{ComponentFile, InputFormat, ModelId, RelPath, Sha256Digest, SourceEntry};

use crate::{ExtractError, GitId, MAX_POINTER_SIZE, Pointer, SourceBlob, SourceClone};

/// Where a component's bytes come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ByteSource {
    /// The blob itself is the ONNX.
    GitBlob {
        /// The pack or loose object file.
        path: Utf8PathBuf,
        /// Whether it is stored as a delta, which takes memory up to its size.
        delta: bool,
    },
    /// The blob is a pointer, and its object lies in an LFS cache.
    LfsCache {
        /// The object's file.
        path: Utf8PathBuf,
    },
}

impl std::fmt::Display for ByteSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::GitBlob { path, delta: false } => write!(f, "git blob in {path}"),
            Self::GitBlob { path, delta: true } => write!(f, "git blob (delta) in {path}"),
            Self::LfsCache { path } => write!(f, "LFS object {path}"),
        }
    }
}

/// One file of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedFile {
    /// Component and variant.
    pub file: ComponentFile,
    /// The path in the commit's tree.
    pub git_path: RelPath,
    /// The blob: the ONNX or the pointer.
    pub blob: GitId,
    /// Size of the ONNX in bytes.
    pub size: u64,
    /// SHA-256 of the ONNX where a pointer says it; of a plain blob it is known once it was read.
    pub sha256: Option<Sha256Digest>,
    /// Where the bytes come from.
    pub source: ByteSource,
}

/// Everything that an extraction of one model would take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelPlan {
    /// The model.
    pub id: ModelId,
    /// The ref of the source map.
    pub git_ref: String,
    /// The commit that it resolved to.
    pub commit: GitId,
    /// Split or supercombo.
    pub input_format: InputFormat,
    /// The complete set of files, vision or supercombo first.
    pub files: Vec<PlannedFile>,
}

impl ModelPlan {
    /// Bytes of all files together.
    pub fn total_size(&self) -> u64 {
        self.files.iter().map(|file| file.size).sum()
    }
}

impl SourceClone {
    /// Resolves the entry's ref and finds every component with its bytes. Nothing is written.
    ///
    /// # Errors
    /// [`ExtractError`]: each way in which the sources can be unavailable is a variant of its own.
    pub fn plan_model(&self, id: &ModelId, entry: &SourceEntry) -> Result<ModelPlan, ExtractError> {
        let commit = self.resolve(&entry.git_ref)?;
        let sources = self.find_sources(commit, entry.input_format, entry.variant())?;
        let files =
            sources.into_iter().map(|source| self.plan_file(commit, source)).collect::<Result<_, _>>()?;
        Ok(ModelPlan {
            id: id.clone(),
            git_ref: entry.git_ref.clone(),
            commit,
            input_format: entry.input_format,
            files,
        })
    }

    fn plan_file(&self, commit: GitId, source: SourceBlob) -> Result<PlannedFile, ExtractError> {
        let SourceBlob { file, git_path, blob } = source;
        let planned = |size, sha256, source| PlannedFile {
            file,
            git_path: git_path.clone(),
            blob,
            size,
            sha256,
            source,
        };
        let open = self.open_blob(blob.0, git_path.as_str())?;
        let as_blob = ByteSource::GitBlob { path: open.path().to_owned(), delta: open.is_delta() };
        let size = open.size();
        let content = if size <= MAX_POINTER_SIZE {
            open.read_small(MAX_POINTER_SIZE)?.unwrap_or_default()
        } else {
            // One byte more than a pointer may have: what begins like one is then refused as too long.
            open.read_head(MAX_POINTER_SIZE + 1)?
        };
        let pointer = Pointer::parse(&content)
            .map_err(|source| ExtractError::Pointer { git_path: git_path.clone(), source })?;
        let Some(pointer) = pointer else { return Ok(planned(size, None, as_blob)) };
        let path = self.find_lfs_object(&pointer, &git_path, commit)?;
        Ok(planned(pointer.size, Some(pointer.oid), ByteSource::LfsCache { path }))
    }

    /// The first cache that has an object of the pointer's name and size. A file of another size is a damaged or unfinished
    /// download and does not count, unless there is no better one.
    fn find_lfs_object(
        &self,
        pointer: &Pointer,
        git_path: &RelPath,
        commit: GitId,
    ) -> Result<Utf8PathBuf, ExtractError> {
        let oid = pointer.oid.to_string();
        let candidates: Vec<Utf8PathBuf> = self
            .lfs_object_dirs()
            .iter()
            .map(|dir| dir.join(&oid[..2]).join(&oid[2..4]).join(&oid))
            .collect();
        let size_of = |path: &Utf8PathBuf| {
            path.metadata().ok().filter(std::fs::Metadata::is_file).map(|found| found.len())
        };
        if let Some(good) = candidates.iter().find(|path| size_of(path) == Some(pointer.size)) {
            return Ok(good.clone());
        }
        let damaged = candidates.iter().find_map(|path| Some((path.clone(), size_of(path)?)));
        Err(match damaged {
            Some((path, actual)) => ExtractError::LfsObjectDamaged {
                git_path: git_path.clone(),
                source: durable_fs::FsError::Size { path, expected: pointer.size, actual },
            },
            None => ExtractError::LfsObjectMissing {
                oid: pointer.oid,
                size: pointer.size,
                git_path: git_path.clone(),
                commit: commit.to_string(),
                looked_in: candidates,
            },
        })
    }
}
