//! The workspace's own LFS objects, by content: models with equal objects share one.

use std::fs;

use camino::{Utf8Path, Utf8PathBuf};
use durable_fs::FsError;
use model_catalog::Sha256Digest;

/// A directory of objects, each under its own digest. What has a name in it was verified before it got the name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectCache {
    objects: Utf8PathBuf,
}

impl ObjectCache {
    /// The cache in `dir`, which is made when the first object arrives.
    pub fn new(dir: impl AsRef<Utf8Path>) -> Self {
        Self { objects: dir.as_ref().join("objects") }
    }

    /// The directory of objects, laid out as git-lfs lays out its own.
    pub fn objects(&self) -> &Utf8Path {
        &self.objects
    }

    /// Where an object is, or will be.
    pub fn path(&self, oid: Sha256Digest) -> Utf8PathBuf {
        object_path(&self.objects, oid)
    }

    /// Makes the directory of an object and returns its path.
    pub(crate) fn prepare(&self, oid: Sha256Digest) -> Result<Utf8PathBuf, FsError> {
        let path = self.path(oid);
        let parent = path.parent().unwrap_or(&self.objects);
        fs::create_dir_all(parent).map_err(FsError::io("make the directory", parent))?;
        Ok(path)
    }
}

/// `<dir>/ab/cd/<oid>`.
pub(crate) fn object_path(dir: &Utf8Path, oid: Sha256Digest) -> Utf8PathBuf {
    let oid = oid.to_string();
    dir.join(&oid[..2]).join(&oid[2..4]).join(&oid)
}
