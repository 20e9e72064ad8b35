//! A clone of the source repository, opened for reading.

use camino::{Utf8Path, Utf8PathBuf};

use crate::{ExtractError, alternates, object_store::ObjectStore};

/// A git repository with the models' history: a clone, a linked worktree, or a bare repository. It is never written.
pub struct SourceClone {
    path: Utf8PathBuf,
    repository: gix::Repository,
    objects: ObjectStore,
    lfs_dirs: Vec<Utf8PathBuf>,
}

impl std::fmt::Debug for SourceClone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SourceClone")
            .field("path", &self.path)
            .field("lfs_dirs", &self.lfs_dirs)
            .finish_non_exhaustive()
    }
}

/// Opens a repository with its own configuration alone: neither the environment nor the user's configuration takes part.
fn options() -> gix::open::Options {
    let mut permissions = gix::open::Permissions::isolated();
    permissions.config.includes = true;
    gix::open::Options::isolated().permissions(permissions)
}

impl SourceClone {
    /// Opens the repository at `path`: a working tree, a linked worktree, a bare repository or a `.git` directory.
    ///
    /// # Errors
    /// [`ExtractError::CloneMissing`] where nothing is there, [`ExtractError::NotARepository`] where it is something else.
    pub fn open(path: impl Into<Utf8PathBuf>) -> Result<Self, ExtractError> {
        let path = path.into();
        if !path.exists() {
            return Err(ExtractError::CloneMissing { path });
        }
        let not_one = |why: String| ExtractError::NotARepository { path: path.clone(), why };
        let mut repository =
            gix::open_opts(path.as_std_path(), options()).map_err(|error| not_one(error.to_string()))?;
        // A missing object would otherwise make every further look-up read the pack directories again.
        repository.objects.refresh_never();
        repository.object_cache_size_if_unset(TREE_CACHE);
        let common = utf8(repository.common_dir()).map_err(not_one)?;
        let objects = utf8(repository.objects.store_ref().path()).map_err(not_one)?;
        let object_dirs = alternates::object_dirs(&objects).map_err(not_one)?;
        let moved = repository.config_snapshot().string("lfs.storage").map(|dir| dir.to_string());
        let lfs_dirs = alternates::lfs_dirs(&common, moved.as_deref(), &object_dirs);
        let objects = ObjectStore::open(object_dirs)?;
        Ok(Self { path, repository, objects, lfs_dirs })
    }

    /// The path that was opened.
    pub fn path(&self) -> &Utf8Path {
        &self.path
    }

    /// The directories in which LFS objects are looked for, in order: `lfs.storage` or the common git directory's, then
    /// those of the alternates.
    pub fn lfs_object_dirs(&self) -> &[Utf8PathBuf] {
        &self.lfs_dirs
    }

    pub(crate) fn repository(&self) -> &gix::Repository {
        &self.repository
    }

    pub(crate) fn objects(&self) -> &ObjectStore {
        &self.objects
    }
}

/// Bytes of trees kept in memory between look-ups. Commits of one history share most of their trees.
const TREE_CACHE: usize = 4 * 1024 * 1024;

fn utf8(path: &std::path::Path) -> Result<Utf8PathBuf, String> {
    Utf8PathBuf::from_path_buf(path.to_owned()).map_err(|path| format!("{} is not UTF-8", path.display()))
}
