//! Exclusive locks that say who holds them.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io::{Read, Seek, Write},
};

use camino::{Utf8Path, Utf8PathBuf};
use serde::{Deserialize, Serialize};

use crate::FsError;

/// Who holds a lock; written into the lock file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockHolder {
    /// Process ID.
    pub pid: u32,
    /// Name of the machine.
    pub host: String,
    /// What the lock is held for, such as `rebuild extract`.
    pub purpose: String,
    /// When it was taken, RFC 3339 in UTC.
    pub since: String,
}

impl std::fmt::Display for LockHolder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} (process {} on {}, since {})", self.purpose, self.pid, self.host, self.since)
    }
}

/// Why a lock was not taken.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process holds it.
    #[error("{path} is locked by {}; wait for it to end or stop it", holder.as_ref().map_or_else(|| "another process".to_owned(), ToString::to_string))]
    Held {
        /// The lock file.
        path: Utf8PathBuf,
        /// Who holds it, where the file says so.
        holder: Option<LockHolder>,
    },
    /// The lock file cannot be opened or written.
    #[error(transparent)]
    Fs(#[from] FsError),
}

/// An exclusive lock on a file, held until dropped. The system releases it when the process ends in any way, so a lock is
/// never stale; the file stays, as removing it would let two processes lock two files of one name.
#[derive(Debug)]
pub struct FileLock {
    // Held for its lock.
    file: File,
    path: Utf8PathBuf,
}

impl FileLock {
    /// Takes the lock at `path` without waiting, for `purpose`.
    ///
    /// # Errors
    /// [`LockError::Held`] names the holder; [`LockError::Fs`] where the file cannot be used.
    pub fn acquire(path: impl Into<Utf8PathBuf>, purpose: &str) -> Result<Self, LockError> {
        let path = path.into();
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(FsError::io("open the lock file", &path))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let holder = read_holder(&mut file);
                return Err(LockError::Held { path, holder });
            }
            Err(TryLockError::Error(error)) => return Err(FsError::io("lock", &path)(error).into()),
        }
        write_holder(&mut file, purpose).map_err(FsError::io("write the lock file", &path))?;
        Ok(Self { file, path })
    }

    /// The lock file.
    pub fn path(&self) -> &Utf8Path {
        &self.path
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // A free lock names nobody. What a killed holder leaves there is only read while another one holds the lock, and
        // overwritten by then.
        let _ = self.file.set_len(0);
    }
}

fn read_holder(file: &mut File) -> Option<LockHolder> {
    let mut text = String::new();
    file.take(4096).read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

fn write_holder(file: &mut File, purpose: &str) -> std::io::Result<()> {
    let holder = LockHolder {
        pid: std::process::id(),
        host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        purpose: purpose.to_owned(),
        since: jiff::Timestamp::now().to_string(),
    };
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(&serde_json::to_vec(&holder)?)
}

/// Whether a process with this ID exists on this machine (one of another user counts).
pub fn is_process_alive(pid: i32) -> bool {
    rustix::process::Pid::from_raw(pid)
        .is_some_and(|pid| rustix::process::test_kill_process(pid) != Err(rustix::io::Errno::SRCH))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_taker_learns_who_holds_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = Utf8Path::from_path(dir.path()).unwrap().join("lock");
        let first = FileLock::acquire(&path, "rebuild extract").unwrap();
        match FileLock::acquire(&path, "rebuild compile").unwrap_err() {
            LockError::Held { holder: Some(holder), .. } => {
                assert_eq!((holder.pid, holder.purpose.as_str()), (std::process::id(), "rebuild extract"));
            }
            other => panic!("{other}"),
        }
        drop(first);
        FileLock::acquire(&path, "rebuild compile").unwrap();
    }

    #[test]
    fn this_process_lives_and_an_impossible_one_does_not() {
        assert!(is_process_alive(std::process::id() as i32));
        assert!(!is_process_alive(999_999_999));
    }
}
