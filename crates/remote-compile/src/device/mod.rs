//! What every build device can do, be it this machine or one at the other end of a connection.
//!
//! A device holds jobs: directories with inputs, a request, an event file, a log and a result. A job is started once and
//! then runs on its own; the host looks at it by polling, so that a lost connection or a killed host loses nothing. A
//! job's name contains the digest of its request: the same name is the same work, so a host that finds a job of that name
//! takes it over, running or finished, and every other job of the same model is an orphan.

mod error;
mod job_name;
mod local;
mod local_process;
mod remembered;

use camino::{Utf8Path, Utf8PathBuf};
use durable_fs::{Expected, Progress, Written};
use model_catalog::RelPath;

pub use error::DeviceError;
pub use job_name::{JobName, JobNameError};
pub use local::{LocalDevice, LocalOptions};
pub use remembered::RememberedDevice;

/// Where a job stands. Only what the device itself says counts: a host that lost its connection knows nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobState {
    /// The device has no such job.
    Absent,
    /// Its files are being put there; it was not started.
    Staged,
    /// It runs.
    Running,
    /// It has ended and left its result, the text of `result.json`.
    Finished(Vec<u8>),
    /// It was started and its process is gone without a result: killed, or the device restarted.
    Died {
        /// What is known of its end, such as a signal or the last lines of its log.
        why: String,
    },
}

/// What a look at a job shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobView {
    /// Where it stands. The state is read before the events, so that the events of a finished job are complete.
    pub state: JobState,
    /// Bytes of its event file from the offset that was asked for; they may end in the middle of a line.
    pub events: Vec<u8>,
}

/// What a device says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DeviceFacts {
    /// Machine architecture, such as `aarch64`.
    pub architecture: String,
    /// Version of `models` on the device.
    pub models_version: String,
    /// SHA-256 of the compile driver that it carries.
    pub driver_sha256: String,
    /// Bytes free where jobs are kept.
    pub free_bytes: u64,
    /// Whether the Snapdragon GPU is there.
    pub has_qcom_gpu: bool,
}

/// A file to be put into a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upload {
    /// The file on this machine.
    pub from: Utf8PathBuf,
    /// Its path in the job.
    pub to: RelPath,
    /// What it has to be.
    pub expected: Expected,
}

impl Upload {
    /// The file's name, for people.
    pub fn name(&self) -> &str {
        self.to.as_str().rsplit('/').next().unwrap_or_default()
    }
}

/// The exclusive use of a device, given back when dropped.
pub trait Reservation: Send {}

/// A machine that compiles and runs artifacts.
///
/// Paths of files are relative to the job's directory. Every transfer streams through a temporary name, is hashed on the
/// way, checked and renamed; a file that is already there and equal is not moved again.
pub trait Device: Send + Sync {
    /// The device as people write it: `local`, `comma@192.168.3.109`.
    fn name(&self) -> &str;

    /// What the device is and has.
    ///
    /// # Errors
    /// [`DeviceError`] where it cannot be asked.
    fn probe(&self) -> Result<DeviceFacts, DeviceError>;

    /// Takes the device for this host, until the reservation is dropped.
    ///
    /// # Errors
    /// [`DeviceError::Reserved`] names who holds it.
    fn reserve(&self, purpose: &str) -> Result<Box<dyn Reservation + '_>, DeviceError>;

    /// Whether every job on the device is of this host's workspace, so that one that nobody waits for may be ended.
    fn jobs_are_own(&self) -> bool {
        false
    }

    /// The jobs on the device, in no order.
    ///
    /// # Errors
    /// [`DeviceError`] where they cannot be listed.
    fn jobs(&self) -> Result<Vec<JobName>, DeviceError>;

    /// Puts the file `from` of this machine into a job, making the job's directory where it is absent.
    ///
    /// # Errors
    /// [`DeviceError`]; the job has the whole file or none.
    fn put(
        &self,
        job: &JobName,
        from: &Utf8Path,
        to: &RelPath,
        expected: Expected,
        progress: &dyn Progress,
    ) -> Result<(), DeviceError>;

    /// Puts several files into a job; each is a piece of work of its own to `progress`. A device that is far away has many
    /// small ones under way at a time.
    ///
    /// # Errors
    /// [`DeviceError`] of the first file that failed; the job then has some of the files, each of them whole.
    fn put_all(&self, job: &JobName, files: &[Upload], progress: &dyn Progress) -> Result<(), DeviceError> {
        for file in files {
            progress.begin(&format!("{} to {}", file.name(), self.name()), file.expected.size);
            let put = self.put(job, &file.from, &file.to, file.expected, progress);
            progress.end();
            put?;
        }
        Ok(())
    }

    /// Puts small bytes into a job, such as its request.
    ///
    /// # Errors
    /// [`DeviceError`]; the job has the whole file or none.
    fn put_bytes(&self, job: &JobName, bytes: &[u8], to: &RelPath) -> Result<(), DeviceError>;

    /// Brings a file of a job to `to` on this machine.
    ///
    /// # Errors
    /// [`DeviceError`]; what was at `to` is then as it was.
    fn get(
        &self,
        job: &JobName,
        from: &RelPath,
        to: &Utf8Path,
        expected: Expected,
        progress: &dyn Progress,
    ) -> Result<Written, DeviceError>;

    /// Starts `models job` on the job's directory, which must hold its request. Nothing happens where the job already runs or
    /// has a result.
    ///
    /// # Errors
    /// [`DeviceError`] where it cannot be started.
    fn start(&self, job: &JobName) -> Result<(), DeviceError>;

    /// Looks at a job: where it stands, and its events from byte `offset` on. May wait a moment for news.
    ///
    /// # Errors
    /// [`DeviceError`] where the device cannot be asked; that says nothing about the job.
    fn look(&self, job: &JobName, offset: u64) -> Result<JobView, DeviceError>;

    /// Ends a running job and everything that it started. Nothing happens where it does not run.
    ///
    /// # Errors
    /// [`DeviceError`] where its processes could not be ended.
    fn cancel(&self, job: &JobName) -> Result<(), DeviceError>;

    /// Removes a job with all its files, and sees that they are gone. A running job is cancelled first.
    ///
    /// # Errors
    /// [`DeviceError`] where something remains.
    fn remove(&self, job: &JobName) -> Result<(), DeviceError>;
}
