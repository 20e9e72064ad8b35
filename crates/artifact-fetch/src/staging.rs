//! Where files are kept until the artifact is whole.

use std::fs;

use camino::{Utf8Path, Utf8PathBuf};
use durable_fs::{FileLock, FsError, list_dir, sweep_temporaries, sync_dir};

use crate::FetchError;

/// The lock's name inside; it begins with a dot, so that it is never taken for a part.
const LOCK: &str = ".lock";

/// A hidden directory beside the destination, held by one process.
pub(crate) struct Staging {
    dir: Utf8PathBuf,
    _lock: FileLock,
}

impl Staging {
    /// Opens the staging directory of a file, with what an earlier run left there.
    pub fn open(to: &Utf8Path, name: &str) -> Result<Self, FetchError> {
        if !to.is_dir() {
            return Err(FetchError::Destination { path: to.to_owned() });
        }
        let dir = to.join(format!(".fetch-{name}"));
        match fs::create_dir(&dir) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                return Err(FsError::io("create", &dir)(error).into());
            }
            _ => {}
        }
        let lock = FileLock::acquire(dir.join(LOCK), "fetching").map_err(FetchError::Busy)?;
        sweep_temporaries(&dir)?;
        sweep_temporaries(to)?;
        Ok(Self { dir, _lock: lock })
    }

    pub fn dir(&self) -> &Utf8Path {
        &self.dir
    }

    pub fn path(&self, name: &str) -> Utf8PathBuf {
        self.dir.join(name)
    }

    /// Removes staged files that satisfy `unwanted`.
    pub fn remove(&self, unwanted: impl Fn(&str) -> bool) -> Result<(), FetchError> {
        for name in list_dir(&self.dir)?.into_iter().filter(|name| name != LOCK && unwanted(name)) {
            let path = self.dir.join(name);
            fs::remove_file(&path).map_err(FsError::io("remove", &path))?;
        }
        Ok(())
    }

    /// Gives a verified staged file its name in the destination.
    pub fn place(&self, name: &str, to: &Utf8Path) -> Result<(), FetchError> {
        let (from, destination) = (self.dir.join(name), to.join(name));
        fs::rename(&from, &destination).map_err(FsError::io("replace", &destination))?;
        let _ = sync_dir(to)?;
        Ok(())
    }

    /// Lets go of the directory after a failure: what is complete in it stays for the next run, an empty one goes.
    pub fn abandon(self) {
        let empty = list_dir(&self.dir).is_ok_and(|names| names.iter().all(|name| name == LOCK));
        if empty {
            // The failure that led here is the one to report; a directory that stays is found by the next run.
            let _ = fs::remove_dir_all(&self.dir);
        }
    }

    /// Removes the directory: the artifact has its name.
    pub fn close(self) -> Result<(), FetchError> {
        fs::remove_dir_all(&self.dir).map_err(FsError::io("remove", &self.dir))?;
        Ok(())
    }
}
