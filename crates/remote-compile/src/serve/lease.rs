//! Who may use the device.
//!
//! A lock file excludes two connections; the lease beside it also bridges the time in which a host that lost its connection
//! makes a new one. It names its owner, and is stale when nobody renewed it.

use std::{
    fs, io,
    sync::atomic::{AtomicU64, Ordering},
    thread::sleep,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use camino::{Utf8Path, Utf8PathBuf};
use durable_fs::{FileLock, FsError, LockError, write_json};
use serde::{Deserialize, Serialize};
use tinygrad_compile::job::JobProcess;

use crate::link::Fault;

const LOCK: &str = ".lock";
const LEASE: &str = ".lease.json";
/// A lease that was not renewed for this long is stale.
pub(super) const STALE_AFTER: Duration = Duration::from_secs(180);
const RENEW_EVERY: Duration = Duration::from_secs(15);
/// How long an older connection of the same host may take to end.
const HANDOVER: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(20);

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Record {
    owner: String,
    purpose: String,
    process: JobProcess,
    /// Seconds since 1970 by the device's clock.
    renewed: u64,
}

/// The exclusive use of the device.
#[derive(Debug)]
pub(super) struct Lease {
    _lock: FileLock,
    file: Utf8PathBuf,
    record: Record,
    renewed: AtomicU64,
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn read(dir: &Utf8Path) -> Option<Record> {
    serde_json::from_slice(&fs::read(dir.join(LEASE)).ok()?).ok()
}

fn is_fresh(record: &Record) -> bool {
    // A clock that was set back makes an age of zero, and the lease ends one period after that.
    now().saturating_sub(record.renewed) < STALE_AFTER.as_secs()
}

fn describe(record: &Record) -> String {
    format!(
        "{} for {} (last seen {} s ago)",
        record.owner,
        record.purpose,
        now().saturating_sub(record.renewed)
    )
}

/// Who holds the device, for a report.
pub(super) fn holder(dir: &Utf8Path) -> Option<String> {
    read(dir).map(
        |record| if is_fresh(&record) { describe(&record) } else { format!("{}; stale", describe(&record)) },
    )
}

impl Lease {
    /// Takes the device for `owner`.
    pub(super) fn take(dir: &Utf8Path, owner: &str, purpose: &str) -> Result<Self, Fault> {
        let until = Instant::now() + HANDOVER;
        fs::create_dir_all(dir).map_err(|error| file_fault(&FsError::io("create", dir)(error)))?;
        loop {
            match FileLock::acquire(dir.join(LOCK), &format!("{purpose} of {owner}")) {
                Ok(lock) => return Self::with_lock(lock, dir, owner, purpose),
                Err(LockError::Fs(error)) => return Err(file_fault(&error)),
                Err(LockError::Held { holder, .. }) => {
                    let record = read(dir);
                    match record {
                        // An older connection of this very host, which has not noticed yet that it was cut.
                        Some(record) if record.owner == owner && Instant::now() < until => end(&record),
                        _ => {
                            let holder = record.map_or_else(
                                || {
                                    holder.map_or_else(
                                        || "another connection".to_owned(),
                                        |holder| holder.to_string(),
                                    )
                                },
                                |record| describe(&record),
                            );
                            return Err(Fault::Reserved { holder });
                        }
                    }
                }
            }
            sleep(POLL);
        }
    }

    fn with_lock(lock: FileLock, dir: &Utf8Path, owner: &str, purpose: &str) -> Result<Self, Fault> {
        if let Some(record) = read(dir)
            && record.owner != owner
            && is_fresh(&record)
        {
            return Err(Fault::Reserved { holder: format!("{}; it may come back", describe(&record)) });
        }
        let pid = std::process::id();
        let record = Record {
            owner: owner.to_owned(),
            purpose: purpose.to_owned(),
            process: JobProcess { pid, start_time: JobProcess::start_time_of(pid) },
            renewed: now(),
        };
        let file = dir.join(LEASE);
        write_json(&file, &record).map_err(|error| file_fault(&error))?;
        let renewed = AtomicU64::new(record.renewed);
        Ok(Self { _lock: lock, file, record, renewed })
    }

    /// Says that the host is still there.
    pub(super) fn renew_if_due(&self) {
        let now = now();
        if now.saturating_sub(self.renewed.load(Ordering::Relaxed)) >= RENEW_EVERY.as_secs() {
            let record = Record { renewed: now, ..self.record.clone() };
            // Where it cannot be written now, it is tried at the next sign of life.
            if write_json(&self.file, &record).is_ok() {
                self.renewed.store(now, Ordering::Relaxed);
            }
        }
    }

    /// Gives the device back.
    pub(super) fn release(self) -> Result<(), Fault> {
        match fs::remove_file(&self.file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(file_fault(&FsError::io("remove", &self.file)(error)))
            }
            _ => Ok(()),
        }
    }
}

/// Asks the process of an older connection to end.
fn end(record: &Record) {
    if record.process.is_alive()
        && record.process.pid != std::process::id()
        && let Some(pid) = i32::try_from(record.process.pid).ok().and_then(rustix::process::Pid::from_raw)
    {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    }
}

pub(super) fn file_fault(error: &FsError) -> Fault {
    Fault::File { why: error.to_string(), disk_full: error.kind() == durable_fs::FsErrorKind::DiskFull }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn age(dir: &Utf8Path, seconds: u64) {
        let mut record = read(dir).unwrap();
        record.renewed -= seconds;
        write_json(dir.join(LEASE), &record).unwrap();
    }

    #[test]
    fn the_lease_bridges_a_lost_connection_and_grows_stale() {
        let keep = tempfile::tempdir().unwrap();
        let dir = Utf8Path::from_path(keep.path()).unwrap();
        let lease = Lease::take(dir, "me@mac", "compile").unwrap();
        let Fault::Reserved { holder } = Lease::take(dir, "other@pc", "compile").unwrap_err() else {
            panic!()
        };
        assert!(holder.contains("me@mac for compile"), "{holder}");
        drop(lease);
        assert!(matches!(Lease::take(dir, "other@pc", "compile"), Err(Fault::Reserved { .. })));
        drop(Lease::take(dir, "me@mac", "compile").unwrap());
        age(dir, STALE_AFTER.as_secs() + 1);
        assert!(holder_text(dir).contains("stale"));
        Lease::take(dir, "other@pc", "compile").unwrap().release().unwrap();
        Lease::take(dir, "me@mac", "compile").unwrap();
    }

    fn holder_text(dir: &Utf8Path) -> String {
        super::holder(dir).unwrap()
    }
}
