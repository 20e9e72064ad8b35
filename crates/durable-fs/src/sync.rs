//! fsync, with an answer for filesystems that do not support it.

use std::{
    fs::File,
    io,
    sync::atomic::{AtomicBool, Ordering},
};

use camino::Utf8Path;

use crate::FsError;

/// Whether bytes are known to have reached the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Durability {
    /// The filesystem confirmed the sync.
    Synced,
    /// The filesystem does not support fsync (seen with exFAT drivers): the file was written, but a power cut may lose it.
    Unsupported,
}

/// Set once a filesystem has refused fsync; binaries warn once when it is set.
static SYNC_UNSUPPORTED: AtomicBool = AtomicBool::new(false);

impl Durability {
    /// Whether any sync of this process found a filesystem without fsync. Binaries warn of it once.
    pub fn was_ever_unsupported() -> bool {
        SYNC_UNSUPPORTED.load(Ordering::Relaxed)
    }
}

/// The errors with which filesystems say that they know no fsync: EINVAL, ENOTSUP, ENOTTY ("inappropriate ioctl").
fn is_unsupported(error: &io::Error) -> bool {
    use rustix::io::Errno;
    error.raw_os_error().is_some_and(|code| {
        [Errno::INVAL, Errno::NOTSUP, Errno::OPNOTSUPP, Errno::NOTTY]
            .iter()
            .any(|errno| errno.raw_os_error() == code)
    })
}

fn accept(result: io::Result<()>) -> io::Result<Durability> {
    match result {
        Ok(()) => Ok(Durability::Synced),
        Err(error) if is_unsupported(&error) => {
            SYNC_UNSUPPORTED.store(true, Ordering::Relaxed);
            Ok(Durability::Unsupported)
        }
        Err(error) => Err(error),
    }
}

/// Syncs the content and length of an open file.
///
/// # Errors
/// Every I/O error except that the filesystem does not support fsync.
pub fn sync_file(file: &File, path: &Utf8Path) -> Result<Durability, FsError> {
    accept(file.sync_all()).map_err(FsError::io("sync", path))
}

/// Syncs a directory, so that renames and removals in it survive a power cut.
///
/// # Errors
/// Every I/O error except that the filesystem does not support fsync on directories.
pub fn sync_dir(dir: &Utf8Path) -> Result<Durability, FsError> {
    let dir = if dir.as_str().is_empty() { Utf8Path::new(".") } else { dir };
    let open = File::open(dir).map_err(FsError::io("open the directory", dir))?;
    accept(open.sync_all()).map_err(FsError::io("sync the directory", dir))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_fsync_is_told_apart_from_failing_fsync() {
        let unsupported = io::Error::from(rustix::io::Errno::NOTTY);
        assert_eq!(accept(Err(unsupported)).unwrap(), Durability::Unsupported);
        assert!(Durability::was_ever_unsupported());
        assert!(accept(Err(io::Error::from(rustix::io::Errno::IO))).is_err());
        assert_eq!(accept(Ok(())).unwrap(), Durability::Synced);
    }
}
