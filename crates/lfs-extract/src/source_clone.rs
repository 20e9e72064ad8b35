//! A clone of the source repository, opened for reading.

use camino::{Utf8Path, Utf8PathBuf};

use crate::{ExtractError, UserGitConfig, alternates, object_store::ObjectStore, user_config::GitConfig};

/// A git repository with the models' history: a clone, a linked worktree, or a bare repository. It is never written.
pub struct SourceClone {
    path: Utf8PathBuf,
    /// Refs.
    repository: gix::Repository,
    /// The user's configuration and the clone's.
    config: GitConfig,
    /// The clone's own objects, or those of a store beside it that has the clone as its alternate.
    reader: Reader,
    object_dir: Utf8PathBuf,
    lfs_dirs: Vec<Utf8PathBuf>,
}

/// Objects, for trees (through gix) and for blobs (as streams).
pub(crate) struct Reader {
    pub(crate) repository: gix::Repository,
    pub(crate) objects: ObjectStore,
}

impl std::fmt::Debug for SourceClone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SourceClone")
            .field("path", &self.path)
            .field("lfs_dirs", &self.lfs_dirs)
            .finish_non_exhaustive()
    }
}

/// Opens a repository with its own configuration alone: the environment takes no part, and the user's configuration, where it
/// was handed over, stands beside it.
fn options() -> gix::open::Options {
    let mut permissions = gix::open::Permissions::isolated();
    permissions.config.includes = true;
    gix::open::Options::isolated().permissions(permissions)
}

fn open_repository(path: &Utf8Path) -> Result<gix::Repository, ExtractError> {
    let mut repository = gix::open_opts(path.as_std_path(), options())
        .map_err(|error| ExtractError::NotARepository { path: path.to_owned(), why: error.to_string() })?;
    // A missing object would otherwise make every further look-up read the pack directories again.
    repository.objects.refresh_never();
    repository.object_cache_size_if_unset(TREE_CACHE);
    Ok(repository)
}

impl SourceClone {
    /// Opens the repository at `path`: a working tree, a linked worktree, a bare repository or a `.git` directory.
    ///
    /// # Errors
    /// [`ExtractError::CloneMissing`] where nothing is there, [`ExtractError::NotARepository`] where it is something else.
    pub fn open(path: impl Into<Utf8PathBuf>) -> Result<Self, ExtractError> {
        Self::open_with(path, &UserGitConfig::default())
    }

    /// As [`Self::open`], with the user's git configuration beside the clone's own: `lfs.url`, `lfs.storage`,
    /// `remote.*.lfsurl` and `url.*.insteadOf` count as they do for git-lfs.
    ///
    /// # Errors
    /// Those of [`Self::open`]; [`ExtractError`] where a file of the configuration cannot be read.
    pub fn open_with(path: impl Into<Utf8PathBuf>, user: &UserGitConfig) -> Result<Self, ExtractError> {
        let path = path.into();
        if !path.exists() {
            return Err(ExtractError::CloneMissing { path });
        }
        let repository = open_repository(&path)?;
        let not_one = |why: String| ExtractError::NotARepository { path: path.clone(), why };
        let common = utf8(repository.common_dir()).map_err(not_one)?;
        let object_dir = utf8(repository.objects.store_ref().path()).map_err(not_one)?;
        let object_dirs = alternates::object_dirs(&object_dir).map_err(not_one)?;
        let config = GitConfig::read(user, &repository)?;
        let moved = config.string("lfs.storage");
        let mut lfs_dirs = alternates::lfs_dirs(&common, moved.as_deref(), &object_dirs);
        lfs_dirs.extend(alternates::local_remote_dirs(&config, &path));
        let objects = ObjectStore::open(object_dirs)?;
        let reader = Reader { repository: repository.clone(), objects };
        Ok(Self { path, repository, config, reader, object_dir, lfs_dirs })
    }

    /// Reads objects from the bare repository `store`, which has this clone's objects as its alternate.
    pub(crate) fn read_through(&mut self, store: &Utf8Path) -> Result<(), ExtractError> {
        let repository = open_repository(store)?;
        let not_one = |why: String| ExtractError::NotARepository { path: store.to_owned(), why };
        let object_dirs = alternates::object_dirs(&store.join("objects")).map_err(not_one)?;
        self.reader = Reader { repository, objects: ObjectStore::open(object_dirs)? };
        Ok(())
    }

    /// The path that was opened.
    pub fn path(&self) -> &Utf8Path {
        &self.path
    }

    /// The directories in which LFS objects are looked for, in order: `lfs.storage` or the common git directory's, those of
    /// the alternates, then those of remotes on this machine.
    pub fn lfs_object_dirs(&self) -> &[Utf8PathBuf] {
        &self.lfs_dirs
    }

    pub(crate) fn lfs_dirs_mut(&mut self) -> &mut Vec<Utf8PathBuf> {
        &mut self.lfs_dirs
    }

    /// The clone's own object directory.
    pub(crate) fn object_dir(&self) -> &Utf8Path {
        &self.object_dir
    }

    /// The clone, for refs.
    pub(crate) fn repository(&self) -> &gix::Repository {
        &self.repository
    }

    /// The settings that count for the clone.
    pub(crate) fn config(&self) -> &GitConfig {
        &self.config
    }

    pub(crate) fn reader(&self) -> &Reader {
        &self.reader
    }

    pub(crate) fn objects(&self) -> &ObjectStore {
        &self.reader.objects
    }
}

/// Bytes of trees kept in memory between look-ups. Commits of one history share most of their trees.
const TREE_CACHE: usize = 4 * 1024 * 1024;

fn utf8(path: &std::path::Path) -> Result<Utf8PathBuf, String> {
    Utf8PathBuf::from_path_buf(path.to_owned()).map_err(|path| format!("{} is not UTF-8", path.display()))
}
