//! What an extraction would take, from where, and how many bytes: computed before anything is written.

use std::collections::BTreeSet;

use camino::Utf8PathBuf;
use model_catalog::{ComponentFile, InputFormat, ModelId, RelPath, Sha256Digest, SourceEntry};
use verified_download::HttpUrl;

use crate::{
    Endpoint, ExtractError, GitId, MAX_POINTER_SIZE, ObjectCache, Pointer, SourceBlob, SourceClone,
    object_cache::object_path,
};

/// Where a component's bytes come from.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ByteSource {
    /// The blob itself is the ONNX.
    GitBlob {
        /// The pack or loose object file.
        path: Utf8PathBuf,
        /// Whether it is stored as a delta, which is put together from its base first.
        delta: bool,
    },
    /// The blob is a pointer, and its object lies in an LFS cache.
    LfsCache {
        /// The object's file.
        path: Utf8PathBuf,
    },
    /// The blob is a pointer, and its object was fetched into the workspace's cache.
    LfsFetched {
        /// The object's file.
        path: Utf8PathBuf,
        /// The address that served it, without secrets.
        url: String,
    },
    /// The blob is a pointer, and its object is not on this machine.
    LfsServer {
        /// The servers to ask, in order.
        endpoints: Vec<Endpoint>,
        /// Where it was looked for.
        looked_in: Vec<Utf8PathBuf>,
        /// A file of the object's name that is not the object.
        damaged: Option<Utf8PathBuf>,
    },
}

impl ByteSource {
    /// Whether the bytes are still to come over the network.
    pub fn is_remote(&self) -> bool {
        matches!(self, Self::LfsServer { .. })
    }
}

impl std::fmt::Display for ByteSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::GitBlob { path, delta: false } => write!(f, "git blob in {path}"),
            Self::GitBlob { path, delta: true } => write!(f, "git blob (delta) in {path}"),
            Self::LfsCache { path } => write!(f, "LFS object {path}"),
            Self::LfsFetched { url, .. } => write!(f, "LFS object from {url}"),
            Self::LfsServer { endpoints, .. } => match endpoints.as_slice() {
                [] => f.write_str("LFS object that no configured server has"),
                [first, rest @ ..] => {
                    write!(f, "LFS object from {}", first.url)?;
                    rest.iter().try_for_each(|endpoint| write!(f, " or {}", endpoint.url))
                }
            },
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

    /// Bytes that are still to come over the network.
    pub fn remote_size(&self) -> u64 {
        self.files.iter().filter(|file| file.source.is_remote()).map(|file| file.size).sum()
    }
}

impl SourceClone {
    /// Looks for LFS objects in `cache` too, after the clone's own places.
    pub fn add_object_cache(&mut self, cache: &ObjectCache) {
        self.lfs_dirs_mut().push(cache.objects().to_owned());
    }

    /// Resolves the entry's ref and finds every component with its bytes. Nothing is written, and no server is asked: an
    /// object that is not on this machine is planned as [`ByteSource::LfsServer`].
    ///
    /// # Errors
    /// [`ExtractError`]: each way in which the sources can be unavailable is a variant of its own.
    pub fn plan_model(&self, id: &ModelId, entry: &SourceEntry) -> Result<ModelPlan, ExtractError> {
        self.plan_with_mirrors(id, entry, &[])
    }

    pub(crate) fn plan_with_mirrors(
        &self,
        id: &ModelId,
        entry: &SourceEntry,
        mirrors: &[HttpUrl],
    ) -> Result<ModelPlan, ExtractError> {
        let commit = self.resolve(&entry.git_ref)?;
        let sources = self.find_sources(commit, entry.input_format, entry.variant())?;
        let mut endpoints = None;
        let files = sources
            .into_iter()
            .map(|source| {
                let mut file = self.plan_file(source)?;
                if let ByteSource::LfsServer { endpoints: wanted, .. } = &mut file.source {
                    if endpoints.is_none() {
                        endpoints = Some(self.lfs_endpoints(commit, mirrors)?);
                    }
                    wanted.extend(endpoints.iter().flatten().cloned());
                }
                Ok(file)
            })
            .collect::<Result<_, ExtractError>>()?;
        Ok(ModelPlan {
            id: id.clone(),
            git_ref: entry.git_ref.clone(),
            commit,
            input_format: entry.input_format,
            files,
        })
    }

    fn plan_file(&self, source: SourceBlob) -> Result<PlannedFile, ExtractError> {
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
        Ok(match pointer {
            None => planned(size, None, as_blob),
            Some(pointer) => {
                let source = self.find_lfs_object(&pointer, &BTreeSet::new());
                planned(pointer.size, Some(pointer.oid), source)
            }
        })
    }

    /// The first cache that has an object of the pointer's name and size. A file of another size is a damaged or unfinished
    /// download and does not count, nor does one among `damaged`.
    pub(crate) fn find_lfs_object(&self, pointer: &Pointer, damaged: &BTreeSet<Utf8PathBuf>) -> ByteSource {
        let looked_in: Vec<Utf8PathBuf> =
            self.lfs_object_dirs().iter().map(|dir| object_path(dir, pointer.oid)).collect();
        let size_of = |path: &Utf8PathBuf| {
            path.metadata().ok().filter(std::fs::Metadata::is_file).map(|found| found.len())
        };
        let is_usable = |path: &&Utf8PathBuf| size_of(path) == Some(pointer.size) && !damaged.contains(*path);
        match looked_in.iter().find(is_usable) {
            Some(good) => ByteSource::LfsCache { path: good.clone() },
            None => {
                let damaged = looked_in.iter().find(|path| size_of(path).is_some()).cloned();
                ByteSource::LfsServer { endpoints: Vec::new(), looked_in, damaged }
            }
        }
    }
}
