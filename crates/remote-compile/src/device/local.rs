//! This machine as a device.
//!
//! Everything is as on a device at the other end of a connection: files are copied and verified, `models job` is a process
//! of its own that goes on when this one is killed, and what was staged is removed. Jobs lie in one directory, one folder
//! each.

use std::{
    collections::HashMap,
    fs::{self, File},
    io::{self, Read, Seek, SeekFrom},
    process::Child,
    sync::{Mutex, PoisonError},
    thread::sleep,
    time::{Duration, Instant},
};

use camino::{Utf8Path, Utf8PathBuf};
use durable_fs::{Expected, FileLock, FsError, LockError, Progress, Written, copy_file, write_atomic};
use model_catalog::RelPath;
use tinygrad_compile::job::{EVENTS_FILE, RESULT_FILE};

use super::{
    Device, DeviceError, DeviceFacts, JobName, JobState, JobView, Reservation,
    local_process::{self, JobProcess},
};

/// The name of this machine as a device.
const LOCAL: &str = "local";
/// How long a look at a running job waits for news, and how often it looks.
const NEWS: Duration = Duration::from_millis(200);
const POLL: Duration = Duration::from_millis(10);
/// Event bytes that one look returns at most.
const MAX_EVENTS: u64 = 1 << 20;
/// A result is some kilobytes; more than this is damaged.
const MAX_RESULT: u64 = 64 << 20;

/// How the local device is set up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalOptions {
    /// The directory of the jobs; it is made when something is put there.
    pub jobs_dir: Utf8PathBuf,
    /// The `models` binary.
    pub models: Utf8PathBuf,
}

/// This machine as a device.
#[derive(Debug)]
pub struct LocalDevice {
    options: LocalOptions,
    // Processes that this one started: reaped here, so that none stays as a zombie that looks alive.
    children: Mutex<HashMap<JobName, Child>>,
}

struct LocalReservation {
    _lock: FileLock,
}

impl Reservation for LocalReservation {}

impl LocalDevice {
    /// The local device. Nothing is written until the device is reserved or a job is put there.
    ///
    /// # Errors
    /// [`DeviceError::NoModels`] where there is no such binary.
    pub fn new(options: LocalOptions) -> Result<Self, DeviceError> {
        if !options.models.is_file() {
            return Err(no_models(&options.models, "there is no such file".to_owned()));
        }
        Ok(Self { options, children: Mutex::default() })
    }

    fn dir(&self, job: &JobName) -> Utf8PathBuf {
        self.options.jobs_dir.join(job.as_str())
    }

    fn file(&self, job: &JobName, path: &RelPath) -> Result<Utf8PathBuf, FsError> {
        let file = self.dir(job).join(path.as_str());
        let parent = file.parent().unwrap_or(&file);
        fs::create_dir_all(parent).map_err(FsError::io("create", parent))?;
        Ok(file)
    }

    fn children(&self) -> std::sync::MutexGuard<'_, HashMap<JobName, Child>> {
        self.children.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How the child that runs a job ended, where it is ours and has ended.
    fn reap(&self, job: &JobName) -> Option<std::process::ExitStatus> {
        self.children().get_mut(job).and_then(|child| child.try_wait().ok().flatten())
    }

    fn state(&self, job: &JobName) -> Result<JobState, DeviceError> {
        let dir = self.dir(job);
        if !dir.is_dir() {
            return Ok(JobState::Absent);
        }
        let ended = self.reap(job);
        let is_child = self.children().contains_key(job);
        if let Some(result) = read_result(&dir)? {
            return Ok(JobState::Finished(result));
        }
        match (ended, JobProcess::of(&dir)) {
            (Some(status), _) => {
                Ok(JobState::Died { why: format!("`models` ended with {status}{}", tail(&dir)) })
            }
            (None, _) if is_child => Ok(JobState::Running),
            (None, Some(process)) if process.is_alive() => Ok(JobState::Running),
            (None, Some(_)) => {
                // It may have written its result between the two looks.
                Ok(match read_result(&dir)? {
                    Some(result) => JobState::Finished(result),
                    None => JobState::Died { why: format!("its process is gone{}", tail(&dir)) },
                })
            }
            (None, None) => Ok(JobState::Staged),
        }
    }
}

fn no_models(path: &Utf8Path, why: String) -> DeviceError {
    DeviceError::NoModels {
        device: LOCAL.to_owned(),
        path: path.to_owned(),
        why,
        advice: "build it (cargo build --bin models), or name it with `models = \"...\"` in rebuild.toml",
    }
}

fn read_result(dir: &Utf8Path) -> Result<Option<Vec<u8>>, FsError> {
    read_limited(&dir.join(RESULT_FILE), 0, MAX_RESULT)
}

/// At most `limit` bytes of a file from `offset`; `None` where there is no such file.
fn read_limited(path: &Utf8Path, offset: u64, limit: u64) -> Result<Option<Vec<u8>>, FsError> {
    let mut file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file.map_err(FsError::io("open", path))?,
    };
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(offset))
        .and_then(|_| file.take(limit).read_to_end(&mut bytes))
        .map_err(FsError::io("read", path))?;
    Ok(Some(bytes))
}

/// The end of what `models` itself printed, which is where a crash says why.
fn tail(dir: &Utf8Path) -> String {
    let bytes =
        read_limited(&dir.join(local_process::OUTPUT), 0, 64 << 10).ok().flatten().unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let last = lines[lines.len().saturating_sub(3)..].join(" | ");
    if last.is_empty() { String::new() } else { format!(": {last}") }
}

impl Device for LocalDevice {
    fn name(&self) -> &str {
        LOCAL
    }

    fn probe(&self) -> Result<DeviceFacts, DeviceError> {
        let about = local_process::about(&self.options.models)
            .map_err(|error| no_models(&self.options.models, error.to_string()))?;
        let jobs_dir = &self.options.jobs_dir;
        // The directory itself may be still to come.
        let place = jobs_dir.ancestors().find(|dir| dir.is_dir()).unwrap_or(jobs_dir);
        let space = rustix::fs::statvfs(place.as_std_path())
            .map_err(|error| FsError::io("ask for the free space of", place)(error.into()))?;
        Ok(DeviceFacts {
            architecture: std::env::consts::ARCH.to_owned(),
            models_version: about.version,
            driver_sha256: about.driver_sha256,
            free_bytes: space.f_bavail.saturating_mul(space.f_frsize),
            has_qcom_gpu: Utf8Path::new("/dev/kgsl-3d0").exists(),
        })
    }

    fn reserve(&self, purpose: &str) -> Result<Box<dyn Reservation + '_>, DeviceError> {
        let jobs_dir = &self.options.jobs_dir;
        fs::create_dir_all(jobs_dir).map_err(FsError::io("create", jobs_dir))?;
        match FileLock::acquire(jobs_dir.join(".lock"), purpose) {
            Ok(lock) => Ok(Box::new(LocalReservation { _lock: lock })),
            Err(LockError::Held { holder, .. }) => Err(DeviceError::Reserved {
                device: LOCAL.to_owned(),
                holder: holder.map_or_else(|| "another process".to_owned(), |holder| holder.to_string()),
            }),
            Err(LockError::Fs(error)) => Err(error.into()),
        }
    }

    fn jobs_are_own(&self) -> bool {
        true
    }

    fn jobs(&self) -> Result<Vec<JobName>, DeviceError> {
        let dir = &self.options.jobs_dir;
        let mut jobs = Vec::new();
        if !dir.is_dir() {
            return Ok(jobs);
        }
        for entry in dir.read_dir_utf8().map_err(FsError::io("list", dir))? {
            let entry = entry.map_err(FsError::io("list", dir))?;
            jobs.extend(entry.file_name().parse::<JobName>());
        }
        Ok(jobs)
    }

    fn put(
        &self,
        job: &JobName,
        from: &Utf8Path,
        to: &RelPath,
        expected: Expected,
        progress: &dyn Progress,
    ) -> Result<(), DeviceError> {
        copy_file(from, &self.file(job, to)?, expected, progress)?;
        Ok(())
    }

    fn put_bytes(&self, job: &JobName, bytes: &[u8], to: &RelPath) -> Result<(), DeviceError> {
        write_atomic(self.file(job, to)?, bytes)?;
        Ok(())
    }

    fn get(
        &self,
        job: &JobName,
        from: &RelPath,
        to: &Utf8Path,
        expected: Expected,
        progress: &dyn Progress,
    ) -> Result<Written, DeviceError> {
        Ok(copy_file(&self.dir(job).join(from.as_str()), to, expected, progress)?)
    }

    fn start(&self, job: &JobName) -> Result<(), DeviceError> {
        match self.state(job)? {
            JobState::Running | JobState::Finished(_) => return Ok(()),
            JobState::Absent | JobState::Staged | JobState::Died { .. } => {}
        }
        self.children().remove(job);
        let child = local_process::start(&self.options.models, &self.dir(job))
            .map_err(|error| no_models(&self.options.models, error.to_string()))?;
        self.children().insert(job.clone(), child);
        Ok(())
    }

    fn look(&self, job: &JobName, offset: u64) -> Result<JobView, DeviceError> {
        let until = Instant::now() + NEWS;
        loop {
            let state = self.state(job)?;
            let file = self.dir(job).join(EVENTS_FILE);
            let events = read_limited(&file, offset, MAX_EVENTS)?.unwrap_or_default();
            if state != JobState::Running || !events.is_empty() || Instant::now() >= until {
                return Ok(JobView { state, events });
            }
            sleep(POLL);
        }
    }

    fn cancel(&self, job: &JobName) -> Result<(), DeviceError> {
        if self.state(job)? != JobState::Running {
            return Ok(());
        }
        let refused = |why: String| DeviceError::Job {
            device: LOCAL.to_owned(),
            job: job.to_string(),
            what: "cancelled",
            why,
        };
        let child = self.children().get(job).map(Child::id);
        let process = JobProcess::of(&self.dir(job)).or_else(|| child.and_then(JobProcess::of_child));
        let process = process.ok_or_else(|| refused("its process is not known".to_owned()))?;
        process
            .end(|| self.reap(job).is_some() || !process.is_alive())
            .map_err(|error| refused(error.to_string()))
    }

    fn remove(&self, job: &JobName) -> Result<(), DeviceError> {
        self.cancel(job)?;
        self.children().remove(job);
        let dir = self.dir(job);
        match fs::remove_dir_all(&dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            result => Ok(result.map_err(FsError::io("remove the job", &dir))?),
        }
    }
}

#[cfg(test)]
#[path = "local_tests.rs"]
mod tests;
