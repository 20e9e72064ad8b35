//! The selection of a device, kept while another model drives, and put back whatever happens.
//!
//! What was selected is written down beside the parameters before anything is changed. Whoever ends (an ordinary end, an
//! error, a panic) puts it back on the way out. A job that is killed cannot; a guard, a process of its own that only waits
//! for the job's end, does it then. Where both die, as in a power cut, the file is still there, and the next start of
//! `models` on that device puts the selection back ([`restore_left_behind`]). A lock that lives as long as its holder says
//! whether somebody still needs the file.

use std::{
    fs, io,
    process::{Child, Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use camino::{Utf8Path, Utf8PathBuf};
use durable_fs::{FileLock, FsError, LockError, sync_dir, write_json};
use serde::{Deserialize, Serialize};
use tinygrad_compile::job::JobProcess;

use crate::{ParamStore, Snapshot, StoreError};

const FILE: &str = ".runtime-verification.json";
const LOCK: &str = ".runtime-verification.lock";
/// What the lock is held for by who only puts a selection back.
const PUTTING_BACK: &str = "putting a selection back";
/// How long a guard tries.
const GUARD_PATIENCE: Duration = Duration::from_secs(300);
const POLL: Duration = Duration::from_millis(50);

/// What was selected, and what was started since.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Kept {
    snapshot: Snapshot,
    /// Leaders of process groups that must not outlive the verification.
    #[serde(default)]
    started: Vec<JobProcess>,
}

/// Why a selection is not kept, or was not put back.
#[derive(Debug, thiserror::Error)]
pub enum KeepError {
    /// Another verification runs.
    #[error("another verification works on this device: {0}")]
    Busy(LockError),
    /// The parameters or the file beside them.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The guard does not start.
    #[error("the guard that puts the selection back cannot be started ({program}): {source}")]
    Guard {
        /// The program.
        program: Utf8PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl From<FsError> for KeepError {
    fn from(error: FsError) -> Self {
        Self::Store(error.into())
    }
}

/// A selection that is put back when this is dropped.
#[derive(Debug)]
pub struct Keeper {
    params: ParamStore,
    kept: Kept,
    guard: Option<Child>,
    restored: bool,
    // Released last, when the selection is back.
    _lock: FileLock,
}

impl Keeper {
    /// Writes down what is selected now; what an earlier verification left is put back first. `guard` is the command of a
    /// process that puts it back when its standard input ends.
    ///
    /// # Errors
    /// [`KeepError`]; nothing is changed then.
    pub fn begin(params: &ParamStore, guard: Option<Command>) -> Result<Self, KeepError> {
        params.check()?;
        let lock = take_lock(params)?;
        restore_from_file(params)?;
        let kept = Kept { snapshot: params.snapshot()?, started: Vec::new() };
        write_json(params.beside(FILE), &kept)?;
        let mut keeper = Self { params: params.clone(), kept, guard: None, restored: false, _lock: lock };
        keeper.guard = guard.map(start_guard).transpose()?;
        Ok(keeper)
    }

    /// What was selected.
    pub fn snapshot(&self) -> &Snapshot {
        &self.kept.snapshot
    }

    /// Notes a process group that must not outlive the verification.
    ///
    /// # Errors
    /// [`KeepError`] where it cannot be written down.
    pub fn note_process(&mut self, pid: u32) -> Result<(), KeepError> {
        self.kept.started.push(JobProcess { pid, start_time: JobProcess::start_time_of(pid) });
        write_json(self.params.beside(FILE), &self.kept)?;
        Ok(())
    }

    /// Puts the selection back.
    ///
    /// # Errors
    /// [`KeepError`]; the guard and the next start of `models` go on trying.
    pub fn restore(mut self) -> Result<(), KeepError> {
        self.put_back()
    }

    fn put_back(&mut self) -> Result<(), KeepError> {
        if !self.restored {
            self.params.restore(&self.kept.snapshot)?;
            remove_file(&self.params)?;
            self.restored = true;
        }
        Ok(())
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // On the way out of an error or a panic; the file stays where this fails, and the guard takes over.
        let _ = self.put_back();
        if let Some(guard) = self.guard.take().filter(|_| self.restored) {
            end_guard(guard);
        }
    }
}

/// Takes the lock; who only puts a selection back is waited for.
fn take_lock(params: &ParamStore) -> Result<FileLock, KeepError> {
    let until = Instant::now() + ParamStore::PATIENCE;
    loop {
        match FileLock::acquire(params.beside(LOCK), "a verification of the runtime") {
            Ok(lock) => return Ok(lock),
            Err(LockError::Fs(error)) => return Err(error.into()),
            Err(LockError::Held { holder: Some(holder), .. })
                if holder.purpose == PUTTING_BACK && Instant::now() < until =>
            {
                sleep(POLL);
            }
            Err(held) => return Err(KeepError::Busy(held)),
        }
    }
}

/// The guard sees the end of its input, finds nothing to do, and ends.
fn end_guard(mut guard: Child) {
    drop(guard.stdin.take());
    let _ = guard.wait();
}

fn start_guard(mut command: Command) -> Result<Child, KeepError> {
    use std::os::unix::process::CommandExt;
    let program = command.get_program().to_string_lossy().as_ref().into();
    // A group of its own: what ends the job and its group must not end the guard.
    command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().map_err(|source| KeepError::Guard { program, source })
}

impl ParamStore {
    fn beside(&self, name: &str) -> Utf8PathBuf {
        let dir = self.dir();
        dir.parent().unwrap_or(dir).join(name)
    }
}

/// Puts back the selection that a killed verification left changed, and ends what it had started. `None` where there is
/// nothing to do, or where a verification runs.
///
/// # Errors
/// [`KeepError`]; the next call tries again.
pub fn restore_left_behind(params: &ParamStore) -> Result<Option<Snapshot>, KeepError> {
    if !params.beside(FILE).exists() {
        return Ok(None);
    }
    match FileLock::acquire(params.beside(LOCK), PUTTING_BACK) {
        Ok(_lock) => restore_from_file(params),
        Err(LockError::Held { .. }) => Ok(None),
        Err(LockError::Fs(error)) => Err(error.into()),
    }
}

/// What a guard does: waits until its input ends, and then puts back what is left to be put back.
///
/// # Errors
/// The last [`KeepError`], after trying for minutes.
pub fn guard(params: &ParamStore, mut input: impl io::Read) -> Result<(), KeepError> {
    let mut nothing = [0; 64];
    while matches!(input.read(&mut nothing), Ok(read) if read > 0) {}
    let until = Instant::now() + GUARD_PATIENCE;
    loop {
        let outcome = restore_left_behind(params);
        let is_done = outcome.is_ok() && !params.beside(FILE).exists();
        if is_done || Instant::now() >= until {
            return outcome.map(drop);
        }
        sleep(POLL);
    }
}

/// The lock must be held.
fn restore_from_file(params: &ParamStore) -> Result<Option<Snapshot>, KeepError> {
    let path = params.beside(FILE);
    let text = match fs::read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        text => text.map_err(FsError::io("read the kept selection", &path))?,
    };
    let kept: Kept = serde_json::from_slice(&text).map_err(|source| FsError::Json { path, source })?;
    kept.started.iter().for_each(end_group);
    params.restore(&kept.snapshot)?;
    remove_file(params)?;
    Ok(Some(kept.snapshot))
}

fn end_group(leader: &JobProcess) {
    use rustix::process::{Pid, Signal, kill_process_group};
    // The start time tells a process that lives on from another one that was given its ID.
    let pid = i32::try_from(leader.pid).ok().and_then(Pid::from_raw);
    if let Some(pid) = pid.filter(|_| leader.start_time.is_some() && leader.is_alive()) {
        let _ = kill_process_group(pid, Signal::KILL);
    }
}

fn remove_file(params: &ParamStore) -> Result<(), FsError> {
    let path = params.beside(FILE);
    match fs::remove_file(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => {
            removed.map_err(FsError::io("remove the kept selection", &path))?;
            let _ = sync_dir(path.parent().unwrap_or(Utf8Path::new("/")))?;
            Ok(())
        }
    }
}

#[cfg(test)]
#[path = "keeper_tests.rs"]
mod tests;
