//! The directories that hold git and LFS objects: the clone's own and those of its alternates.

use camino::{Utf8Path, Utf8PathBuf};

use crate::user_config::GitConfig;

/// The object directory itself and its alternates, theirs included.
pub(crate) fn object_dirs(objects: &Utf8Path) -> Result<Vec<Utf8PathBuf>, String> {
    let here = std::env::current_dir().map_err(|error| error.to_string())?;
    let alternates = gix::odb::alternate::resolve(objects.as_std_path().to_owned(), &here)
        .map_err(|error| format!("its alternates cannot be read: {error}"))?;
    let mut dirs = vec![objects.to_owned()];
    dirs.extend(alternates.into_iter().filter_map(|dir| Utf8PathBuf::from_path_buf(dir).ok()));
    Ok(dirs)
}

/// The directories with LFS objects (`<dir>/ab/cd/<oid>`). `moved` is the value of `lfs.storage`; relative to the common git
/// directory, as git-lfs reads it. An alternate's LFS objects stand beside its git objects.
pub(crate) fn lfs_dirs(
    common: &Utf8Path,
    moved: Option<&str>,
    object_dirs: &[Utf8PathBuf],
) -> Vec<Utf8PathBuf> {
    let own = moved.map_or_else(|| common.join("lfs"), |dir| common.join(dir)).join("objects");
    let mut dirs = vec![own];
    // Objects may lie in the usual place from before `lfs.storage` was set.
    dirs.push(common.join("lfs/objects"));
    dirs.extend(object_dirs.iter().skip(1).filter_map(|dir| Some(dir.parent()?.join("lfs/objects"))));
    let mut seen = std::collections::BTreeSet::new();
    dirs.retain(|dir| seen.insert(dir.clone()));
    dirs
}

/// The LFS objects of remotes that are directories on this machine, where git-lfs looks too.
pub(crate) fn local_remote_dirs(config: &GitConfig, clone: &Utf8Path) -> Vec<Utf8PathBuf> {
    let remote_urls = config.remote_names().into_iter().filter_map(|name| config.remote_url(&name));
    let paths = remote_urls.filter_map(|url| match url.strip_prefix("file://") {
        Some(path) => Some(Utf8PathBuf::from(path)),
        None if url.starts_with(['/', '.']) => Some(clone.join(url)),
        None => None,
    });
    let dirs = paths.flat_map(|path| [path.join(".git/lfs/objects"), path.join("lfs/objects")]);
    dirs.filter(|dir| dir.is_dir()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn storage_may_be_moved_and_alternates_follow() {
        let common = Utf8Path::new("/r/.git");
        let objects = [Utf8PathBuf::from("/r/.git/objects"), Utf8PathBuf::from("/base/.git/objects")];
        assert_eq!(lfs_dirs(common, None, &objects), ["/r/.git/lfs/objects", "/base/.git/lfs/objects"]);
        assert_eq!(lfs_dirs(common, Some("/big"), &objects[..1]), ["/big/objects", "/r/.git/lfs/objects"]);
        assert_eq!(lfs_dirs(common, Some("here"), &[])[0], "/r/.git/here/objects");
    }
}
