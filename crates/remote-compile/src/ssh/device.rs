//! The device, as the rest of the crate sees it.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::sleep,
    time::{Duration, Instant},
};

use camino::Utf8Path;
use durable_fs::{Expected, Progress, Written};
use model_catalog::RelPath;
use tokio::runtime::{Builder, Runtime};

use super::{
    SshError, SshOptions,
    channel::{Channel, Piece},
    once::Once,
    session, transfer,
};
use crate::{
    device::{Device, DeviceError, DeviceFacts, JobName, JobState, JobView, Reservation, Upload},
    link::{Done, Facts, JobList, Look, LookState, Request},
    safety::DeviceAddress,
};

/// How long a look at a running job waits for news on the device.
const NEWS: Duration = Duration::from_millis(2000);
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(8);
/// Small files that are under way at a time.
const AT_ONCE: usize = 12;
/// How long a request waits for an older connection to let go of a file.
const BUSY_PAUSE: Duration = Duration::from_millis(300);

/// A device at the other end of an SSH connection.
pub struct SshDevice {
    address: Arc<DeviceAddress>,
    options: SshOptions,
    runtime: Runtime,
    channel: Mutex<Option<Arc<Channel>>>,
    // The purpose for which the device is reserved; a new connection reserves it again.
    reserved: Mutex<Option<String>>,
    was_reached: AtomicBool,
}

impl std::fmt::Debug for SshDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SshDevice").field("address", &self.address).finish_non_exhaustive()
    }
}

pub(super) fn runtime() -> Result<Runtime, SshError> {
    // One thread: what decrypts, takes frames apart and hands them on would otherwise wake each other for every packet.
    Builder::new_multi_thread().worker_threads(1).enable_all().build().map_err(SshError::Runtime)
}

fn guard<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

struct SshReservation<'d>(&'d SshDevice);

impl Reservation for SshReservation<'_> {}

impl Drop for SshReservation<'_> {
    fn drop(&mut self) {
        guard(&self.0.reserved).take();
        // Where the device cannot be told now, the lease runs out there.
        let open = guard(&self.0.channel).clone().filter(|channel| !channel.is_gone());
        if let Some(channel) = open {
            let _ = channel.ask::<Done>(&Request::Release);
        }
    }
}

impl SshDevice {
    /// The device at a checked address. Nothing is sent before the first request.
    ///
    /// # Errors
    /// [`SshError::Runtime`] where the connection's threads cannot be started.
    pub fn new(address: DeviceAddress, options: SshOptions) -> Result<Self, SshError> {
        Ok(Self {
            address: Arc::new(address),
            options,
            runtime: runtime()?,
            channel: Mutex::default(),
            reserved: Mutex::default(),
            was_reached: AtomicBool::new(false),
        })
    }

    /// Everything that the device says of itself.
    ///
    /// # Errors
    /// [`SshError`] where it cannot be asked.
    pub fn facts(&self) -> Result<Facts, SshError> {
        self.persist(|channel| channel.ask(&Request::Probe))
    }

    /// The connection, made where there is none.
    fn channel(&self) -> Result<Arc<Channel>, SshError> {
        let mut kept = guard(&self.channel);
        if let Some(channel) = kept.as_ref().filter(|channel| !channel.is_gone()) {
            return Ok(Arc::clone(channel));
        }
        *kept = None;
        let opened = self.runtime.block_on(async {
            let session = session::connect(&self.address, &self.options).await?;
            let opening = Channel::open(session, &self.address, &self.options);
            let late = |_| Err(SshError::lost(&self.address.describe(), "`models` does not answer"));
            tokio::time::timeout(self.options.connect_timeout, opening).await.unwrap_or_else(late)
        })?;
        let channel = Arc::new(opened);
        if let Some(purpose) = guard(&self.reserved).clone() {
            // What was begun is ended even where the device has driven off: only new work is refused.
            channel.ask::<Done>(&Request::Reserve { purpose, while_driving: true })?;
        }
        self.was_reached.store(true, Ordering::Relaxed);
        *kept = Some(Arc::clone(&channel));
        Ok(channel)
    }

    /// A device that was never there may be the wrong one; one that was is likely to come back.
    fn patience(&self) -> Duration {
        if self.was_reached.load(Ordering::Relaxed) {
            self.options.patience
        } else {
            self.options.first_patience
        }
    }

    /// Does `work`, on a new connection where the old one was lost. Every request can be repeated.
    fn persist<T>(&self, work: impl Fn(&Channel) -> Result<T, SshError>) -> Result<T, SshError> {
        let mut pause = FIRST_PAUSE;
        let mut until = Instant::now() + self.patience();
        loop {
            let error = match self.channel() {
                Err(error) => error,
                Ok(channel) => {
                    // From here on the device was reachable: the patience is for each loss of its own.
                    let reached = Instant::now();
                    match work(&channel) {
                        Ok(done) => return Ok(done),
                        Err(error) => {
                            if reached.elapsed() > LONGEST_PAUSE {
                                (pause, until) = (FIRST_PAUSE, Instant::now() + self.options.patience);
                            }
                            error
                        }
                    }
                }
            };
            if Instant::now() >= until || self.options.stop.load(Ordering::Relaxed) {
                return Err(error);
            }
            if error.wants_patience() {
                sleep(BUSY_PAUSE);
            } else if error.wants_reconnect() {
                sleep(pause);
                pause = (pause * 2).min(LONGEST_PAUSE);
            } else {
                return Err(error);
            }
        }
    }

    /// Small files spend their time waiting, for the link and for the device's disk: several wait at a time.
    fn put_at_once(
        &self,
        job: &JobName,
        files: &[&Upload],
        progress: &dyn Progress,
    ) -> Result<(), DeviceError> {
        let next = AtomicUsize::new(0);
        let put_some = || {
            while let Some(file) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
                if let Err(error) = self.put(job, &file.from, &file.to, file.expected, progress) {
                    // The others end with what they have begun.
                    next.store(files.len(), Ordering::Relaxed);
                    return Err(error);
                }
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let lanes: Vec<_> = (0..AT_ONCE.min(files.len())).map(|_| scope.spawn(put_some)).collect();
            let ends: Vec<_> = lanes.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
            ends.into_iter().try_for_each(|end| end.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        })
    }

    fn ask_done(&self, request: &Request) -> Result<(), DeviceError> {
        let done = self.persist(|channel| channel.ask::<Done>(request));
        done.map(|Done {}| ()).map_err(|error| self.error(error))
    }

    fn error(&self, error: SshError) -> DeviceError {
        error.into_device_error(self.address.asked())
    }
}

fn look(channel: &Channel, job: &JobName, offset: u64) -> Result<JobView, SshError> {
    let wait_ms = u64::try_from(NEWS.as_millis()).unwrap_or(u64::MAX);
    let mut call = channel.begin(&Request::Look { job: job.to_string(), offset, wait_ms })?;
    let mut bytes = Vec::new();
    loop {
        match call.next()? {
            Piece::Data(data) => data.iter().for_each(|piece| bytes.extend_from_slice(piece)),
            Piece::Reply(body) => {
                let look: Look = call.decode(&body)?;
                if look.result_bytes > bytes.len() {
                    return Err(call.unexpected());
                }
                let events = bytes.split_off(look.result_bytes);
                let state = match look.state {
                    LookState::Absent => JobState::Absent,
                    LookState::Staged => JobState::Staged,
                    LookState::Running => JobState::Running,
                    LookState::Finished => JobState::Finished(bytes),
                    LookState::Died(why) => JobState::Died { why },
                };
                return Ok(JobView { state, events });
            }
            Piece::Begin(_) | Piece::Fault(_) => return Err(call.unexpected()),
        }
    }
}

impl Device for SshDevice {
    fn name(&self) -> &str {
        self.address.asked()
    }

    fn probe(&self) -> Result<DeviceFacts, DeviceError> {
        let facts = self.facts().map_err(|error| self.error(error))?;
        Ok(DeviceFacts {
            architecture: facts.architecture,
            models_version: facts.models_version,
            driver_sha256: facts.driver_sha256,
            free_bytes: facts.free_bytes,
            has_qcom_gpu: facts.has_qcom_gpu,
        })
    }

    fn reserve(&self, purpose: &str) -> Result<Box<dyn Reservation + '_>, DeviceError> {
        let while_driving = self.options.while_driving;
        let reserve = |channel: &Channel| {
            let (there, here) = (channel.version(), env!("CARGO_PKG_VERSION"));
            if there != here {
                let why = format!("`models` there is {there} and this is {here}");
                return Err(SshError::Protocol { host: self.address.describe(), why });
            }
            channel.ask::<Done>(&Request::Reserve { purpose: purpose.to_owned(), while_driving })
        };
        self.persist(reserve).map_err(|error| self.error(error))?;
        *guard(&self.reserved) = Some(purpose.to_owned());
        Ok(Box::new(SshReservation(self)))
    }

    fn jobs_are_own(&self) -> bool {
        // The device keeps the jobs of each owner apart.
        true
    }

    fn jobs(&self) -> Result<Vec<JobName>, DeviceError> {
        let list: JobList =
            self.persist(|channel| channel.ask(&Request::Jobs)).map_err(|error| self.error(error))?;
        Ok(list.jobs.iter().filter_map(|name| name.parse().ok()).collect())
    }

    fn put(
        &self,
        job: &JobName,
        from: &Utf8Path,
        to: &RelPath,
        expected: Expected,
        progress: &dyn Progress,
    ) -> Result<(), DeviceError> {
        let progress = Once::new(progress);
        let put = |channel: &Channel| {
            progress.again();
            transfer::put(channel, &self.options, job, from, to, expected, &progress)
        };
        self.persist(put).map_err(|error| self.error(error))
    }

    fn put_all(&self, job: &JobName, files: &[Upload], progress: &dyn Progress) -> Result<(), DeviceError> {
        let is_small = |file: &&Upload| file.expected.size.is_some_and(|size| size < transfer::ASK_FROM);
        let (small, large): (Vec<&Upload>, Vec<&Upload>) = files.iter().partition(is_small);
        for file in large {
            progress.begin(&format!("{} to {}", file.name(), self.name()), file.expected.size);
            let put = self.put(job, &file.from, &file.to, file.expected, progress);
            progress.end();
            put?;
        }
        if small.is_empty() {
            return Ok(());
        }
        let total = small.iter().filter_map(|file| file.expected.size).sum();
        progress.begin(&format!("{} small files to {}", small.len(), self.name()), Some(total));
        let put = self.put_at_once(job, &small, progress);
        progress.end();
        put
    }

    fn put_bytes(&self, job: &JobName, bytes: &[u8], to: &RelPath) -> Result<(), DeviceError> {
        self.persist(|channel| transfer::put_bytes(channel, job, bytes, to))
            .map_err(|error| self.error(error))
    }

    fn get(
        &self,
        job: &JobName,
        from: &RelPath,
        to: &Utf8Path,
        expected: Expected,
        progress: &dyn Progress,
    ) -> Result<Written, DeviceError> {
        let progress = Once::new(progress);
        let get = |channel: &Channel| {
            progress.again();
            transfer::get(channel, &self.options, job, from, to, expected, &progress)
        };
        self.persist(get).map_err(|error| self.error(error))
    }

    fn start(&self, job: &JobName) -> Result<(), DeviceError> {
        let while_driving = self.options.while_driving;
        self.ask_done(&Request::Start { job: job.to_string(), while_driving })
    }

    fn look(&self, job: &JobName, offset: u64) -> Result<JobView, DeviceError> {
        self.persist(|channel| look(channel, job, offset)).map_err(|error| self.error(error))
    }

    fn cancel(&self, job: &JobName) -> Result<(), DeviceError> {
        self.ask_done(&Request::Cancel { job: job.to_string() })
    }

    fn remove(&self, job: &JobName) -> Result<(), DeviceError> {
        self.ask_done(&Request::Remove { job: job.to_string() })
    }
}
