//! The parameters of a device: a directory of files, one per key, replaced atomically under a lock.
//!
//! Other programs of the device read and write the same files, so their order of work is kept: the value is written beside
//! the directory and synced, then the lock is taken, the file renamed over the key and the directory synced. What can go
//! wrong: a program that holds the lock for ever (an error after [`ParamStore::PATIENCE`], nothing changed), a kill between
//! two keys of one selection (see [`crate::Snapshot`]), a value that is huge or no text.

use std::{
    fs::{self, File},
    io::{self, Read},
    thread::sleep,
    time::{Duration, Instant},
};

use camino::{Utf8Path, Utf8PathBuf};
use durable_fs::{FileLock, FsError, LockError, sweep_temporaries, sync_dir, write_atomic};

use crate::{Param, StoreError};

/// The largest value that is read.
const MAX_VALUE: u64 = 1 << 20;
const POLL: Duration = Duration::from_millis(5);
/// Name of the lock file, in the parent of the directory, as the device's own programs have it.
const LOCK: &str = ".lock";

/// Where a device keeps its parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParamStore {
    dir: Utf8PathBuf,
    volatile: Utf8PathBuf,
    patience: Duration,
}

impl ParamStore {
    /// Directory of the parameters on a device.
    pub const DIR: &'static str = "/data/params/d";
    /// Directory of the volatile ones.
    pub const VOLATILE_DIR: &'static str = "/dev/shm/params/d";
    /// How long another program may hold the lock.
    pub const PATIENCE: Duration = Duration::from_secs(10);

    /// The parameters in `dir`, the volatile ones in `volatile`.
    pub fn new(dir: impl Into<Utf8PathBuf>, volatile: impl Into<Utf8PathBuf>) -> Self {
        Self { dir: dir.into(), volatile: volatile.into(), patience: Self::PATIENCE }
    }

    /// The same with another patience.
    #[must_use]
    pub fn with_patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// The file of a parameter.
    pub fn file(&self, param: Param) -> Utf8PathBuf {
        self.dir_of(param).join(param.as_str())
    }

    /// The directory of the parameters that outlive a restart.
    pub fn dir(&self) -> &Utf8Path {
        &self.dir
    }

    fn dir_of(&self, param: Param) -> &Utf8Path {
        if param.is_volatile() { &self.volatile } else { &self.dir }
    }

    /// Refuses a machine without parameters.
    ///
    /// # Errors
    /// [`StoreError::NoParams`].
    pub fn check(&self) -> Result<(), StoreError> {
        if self.dir.is_dir() { Ok(()) } else { Err(StoreError::NoParams { dir: self.dir.clone() }) }
    }

    /// The bytes of a parameter; `None` where it is not set.
    ///
    /// # Errors
    /// [`StoreError::TooLarge`], or [`StoreError::Fs`] where it cannot be read.
    pub fn get(&self, param: Param) -> Result<Option<Vec<u8>>, StoreError> {
        let path = self.file(param);
        let file = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file.map_err(FsError::io("open the parameter", &path))?,
        };
        let size = file.metadata().map_err(FsError::io("look at the parameter", &path))?.len();
        if size > MAX_VALUE {
            return Err(StoreError::TooLarge { path, size });
        }
        let mut value = Vec::new();
        file.take(MAX_VALUE).read_to_end(&mut value).map_err(FsError::io("read the parameter", &path))?;
        Ok(Some(value))
    }

    /// The text of a parameter without surrounding space; `None` where it is not set or empty.
    ///
    /// # Errors
    /// [`StoreError::NotText`], and the errors of [`Self::get`].
    pub fn text(&self, param: Param) -> Result<Option<String>, StoreError> {
        let Some(value) = self.get(param)? else { return Ok(None) };
        let text = String::from_utf8(value).map_err(|_| StoreError::NotText { path: self.file(param) })?;
        // Some programs end a value with a NUL.
        let text = text.trim_matches(|c: char| c == '\0' || c.is_whitespace()).to_owned();
        Ok(Some(text).filter(|text| !text.is_empty()))
    }

    /// Whether the device is on the road; one whose parameter cannot be read counts as on the road.
    pub fn is_on_road(&self) -> bool {
        let dirs = [&self.dir, &self.volatile];
        dirs.into_iter().any(|dir| match fs::read(dir.join(Param::IsOnroad.as_str())) {
            Ok(value) => value.first() == Some(&b'1'),
            Err(error) => error.kind() != io::ErrorKind::NotFound,
        })
    }

    /// Replaces a parameter.
    ///
    /// # Errors
    /// [`StoreError`]; the old value then stands.
    pub fn put(&self, param: Param, value: &[u8]) -> Result<(), StoreError> {
        self.locked(
            param,
            |beside| {
                let path = self.file(param);
                fs::rename(beside, &path).map_err(FsError::io("replace the parameter", &path))
            },
            Some(value),
        )
    }

    /// Removes a parameter, where it is set.
    ///
    /// # Errors
    /// [`StoreError`]; the value then stands.
    pub fn remove(&self, param: Param) -> Result<(), StoreError> {
        self.locked(
            param,
            |_| {
                let path = self.file(param);
                match fs::remove_file(&path) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                    result => result.map_err(FsError::io("remove the parameter", &path)),
                }
            },
            None,
        )
    }

    /// Writes `value` beside the directory, then does `change` under the lock and syncs the directory.
    fn locked(
        &self,
        param: Param,
        change: impl FnOnce(&Utf8Path) -> Result<(), FsError>,
        value: Option<&[u8]>,
    ) -> Result<(), StoreError> {
        let dir = self.dir_of(param);
        if !dir.is_dir() {
            return Err(StoreError::NoParams { dir: dir.to_owned() });
        }
        // The directory may be a link, as the device makes it; beside it is beside the link.
        let parent = dir.parent().unwrap_or(dir);
        let beside = parent.join(format!(".value-{param}-{}", std::process::id()));
        if let Some(value) = value {
            sweep_temporaries(parent)?;
            write_atomic(&beside, value)?;
        }
        let lock = self.lock(param, &parent.join(LOCK));
        let changed = lock.and_then(|_lock| {
            change(&beside)?;
            let _ = sync_dir(dir)?;
            Ok(())
        });
        if changed.is_err() && value.is_some() {
            let _ = fs::remove_file(&beside);
        }
        changed
    }

    fn lock(&self, param: Param, path: &Utf8Path) -> Result<FileLock, StoreError> {
        let until = Instant::now() + self.patience;
        loop {
            match FileLock::acquire(path, "a parameter of the model store") {
                Ok(lock) => return Ok(lock),
                Err(LockError::Fs(error)) => return Err(error.into()),
                Err(LockError::Held { path, holder }) if Instant::now() >= until => {
                    return Err(StoreError::Locked { param, path, holder });
                }
                Err(LockError::Held { .. }) => sleep(POLL),
            }
        }
    }
}

#[cfg(test)]
#[path = "params_tests.rs"]
mod tests;
