//! Whether the disk that a path names is mounted.

use std::fs;

use camino::{Utf8Path, Utf8PathBuf};

/// Where systems mount removable disks, and how many levels below it the disk's own directory may be.
const MOUNT_ROOTS: [(&str, usize); 3] = [("/Volumes", 1), ("/media", 2), ("/run/media", 2)];

/// The mount point that should exist for `path` but does not; `None` where the path is not on a removable disk or the disk
/// is there.
pub(crate) fn missing_mount(path: &Utf8Path, is_mounted: impl Fn(&Utf8Path) -> bool) -> Option<Utf8PathBuf> {
    let (root, levels) = MOUNT_ROOTS.iter().find(|(root, _)| path.starts_with(root))?;
    let below = path.strip_prefix(root).ok()?;
    let mut candidate = Utf8PathBuf::from(*root);
    let mut last = None;
    for part in below.components().take(*levels) {
        candidate.push(part);
        if is_mounted(&candidate) {
            return None;
        }
        last = Some(candidate.clone());
    }
    last
}

/// Whether a directory is where a disk is mounted: it is on another device than its parent, or it is a link (as the
/// system disk is under `/Volumes`).
#[cfg(unix)]
pub(crate) fn is_mount_point(path: &Utf8Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let Ok(own) = fs::symlink_metadata(path) else { return false };
    if own.file_type().is_symlink() {
        return fs::metadata(path).is_ok_and(|target| target.is_dir());
    }
    let parent = path.parent().and_then(|parent| fs::metadata(parent).ok());
    own.is_dir() && parent.is_some_and(|parent| parent.dev() != own.dev())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removable_disks_have_to_be_there() {
        let mounted = |point: &'static str| move |path: &Utf8Path| path == point;
        let path = Utf8Path::new("/Volumes/T5/StarPilot/x");
        assert_eq!(missing_mount(path, mounted("/nowhere")).unwrap(), "/Volumes/T5");
        assert_eq!(missing_mount(path, mounted("/Volumes/T5")), None);
        let user = Utf8Path::new("/media/me/disk/ws");
        assert_eq!(missing_mount(user, mounted("/media/me/disk")), None);
        assert_eq!(missing_mount(user, mounted("/media/me/disk/ws")).unwrap(), "/media/me/disk");
        assert_eq!(missing_mount(Utf8Path::new("/home/me/ws"), mounted("/")), None);
        assert_eq!(missing_mount(Utf8Path::new("/mediate/ws"), mounted("/")), None);
    }

    #[test]
    fn an_ordinary_directory_is_no_mount_point() {
        let dir = tempfile::tempdir().unwrap();
        let path = Utf8Path::from_path(dir.path()).unwrap();
        assert!(!is_mount_point(path) || path.parent().is_none());
        assert!(!is_mount_point(&path.join("absent")));
    }
}
