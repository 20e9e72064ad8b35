//! A private directory for one compile, in the output directory so that its artifact can be renamed into place.

use camino::{Utf8Path, Utf8PathBuf};
use durable_fs::{FsError, is_process_alive};
use tempfile::TempDir;

use crate::CompileError;

/// Start of the directory's name; the process ID follows, so that leftovers of dead processes can be told.
const PREFIX: &str = ".compiling-";

/// The directory; removed when dropped.
#[derive(Debug)]
pub(crate) struct Scratch {
    _dir: TempDir,
    path: Utf8PathBuf,
}

impl Scratch {
    /// Makes the directory in `parent` (which is made where it is missing) and removes leftovers of dead processes.
    pub(crate) fn create(parent: &Utf8Path) -> Result<Self, CompileError> {
        std::fs::create_dir_all(parent).map_err(FsError::io("make the directory", parent))?;
        // Drivers are started in this directory with absolute paths.
        let parent = parent.canonicalize_utf8().map_err(FsError::io("find", parent))?;
        crate::placement::recover(&parent)?;
        sweep(&parent);
        let prefix = format!("{PREFIX}{}-", std::process::id());
        let dir = tempfile::Builder::new()
            .prefix(&prefix)
            .tempdir_in(&parent)
            .map_err(FsError::io("make a working directory in", &parent))?;
        let path = Utf8PathBuf::from_path_buf(dir.path().to_owned())
            .unwrap_or_else(|_| unreachable!("below a UTF-8 path"));
        Ok(Self { _dir: dir, path })
    }

    pub(crate) fn path(&self) -> &Utf8Path {
        &self.path
    }
}

/// Removes what dead processes left. A leftover that cannot be removed only takes space, so it is no error.
fn sweep(parent: &Utf8Path) {
    let Ok(entries) = parent.read_dir_utf8() else { return };
    for entry in entries.flatten() {
        let writer =
            entry.file_name().strip_prefix(PREFIX).and_then(|rest| rest.split('-').next()?.parse().ok());
        if writer.is_some_and(|pid| !is_process_alive(pid)) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_leftovers_of_dead_processes_go() {
        let guard = tempfile::tempdir().unwrap();
        let dir = Utf8Path::from_path(guard.path()).unwrap();
        std::fs::create_dir(dir.join(".compiling-999999999-x")).unwrap();
        std::fs::create_dir(dir.join("kept")).unwrap();
        let first = Scratch::create(dir).unwrap();
        let second = Scratch::create(&dir.join("new")).unwrap();
        assert!(first.path().is_dir() && second.path().is_dir() && dir.join("kept").is_dir());
        assert!(!dir.join(".compiling-999999999-x").exists());
        let path = first.path().to_owned();
        drop(first);
        assert!(!path.exists());
    }
}
