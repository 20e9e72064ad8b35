//! A job from request to result: put there, started, watched, and taken up again after anything that can interrupt it.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread::sleep,
    time::{Duration, Instant},
};

use camino::{Utf8Path, Utf8PathBuf};
use durable_fs::{Expected, Progress, Sha256};
use model_catalog::{ModelId, RelPath};
use serde_json::Value;
use tinygrad_compile::job::{INPUT_DIR, JobError, JobKind, JobRequest, JobResult, JobStatus, REQUEST_FILE};

use crate::device::{Device, DeviceError, JobName, JobState, Upload};

/// How long a device may be out of reach before its job is given up for this run; the job itself goes on.
pub const PATIENCE: Duration = Duration::from_secs(600);
/// Pauses between two tries to reach a device: the last one repeats.
const PAUSES: [Duration; 4] =
    [Duration::from_millis(500), Duration::from_secs(2), Duration::from_secs(5), Duration::from_secs(15)];
/// The word of a refusal in records.
pub const REFUSED: &str = "refused";
/// How long a started job may be without a process before it is started again: the connection may have been lost between the
/// order and the process, or the process before it said that it is there. Two of one job exclude each other.
const BEGINS_WITHIN: Duration = Duration::from_secs(15);
const STAGED_PAUSE: Duration = Duration::from_millis(100);
/// How often a job whose process died is started again.
const RESTARTS: u32 = 1;

/// Why a job gave no result of use.
#[derive(Debug, thiserror::Error)]
pub enum JobFailure {
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The job ran and says why it could not be done.
    #[error("{}", .0.message)]
    Failed(JobError),
    /// The job's process died, and again when it was started anew.
    #[error("job {job} died on {device}: {why}")]
    Died {
        /// The device.
        device: String,
        /// The job.
        job: String,
        /// What is known of its end.
        why: String,
    },
    /// The result cannot be read, or is of another kind than was asked for.
    #[error(
        "job {job} on {device} left a result that cannot be used: {why}; install the same version of `models` there"
    )]
    Result {
        /// The device.
        device: String,
        /// The job.
        job: String,
        /// What is wrong.
        why: String,
    },
    /// The run was interrupted; the job was cancelled.
    #[error("interrupted")]
    Interrupted,
}

impl JobFailure {
    /// A stable word for records.
    pub fn kind(&self) -> &str {
        match self {
            Self::Device(DeviceError::Unreachable { .. }) => "unreachable",
            Self::Device(DeviceError::Reserved { .. }) => "reserved",
            Self::Device(DeviceError::Refused { .. }) => REFUSED,
            Self::Device(_) => "device",
            Self::Failed(error) => &error.kind,
            Self::Died { .. } => "died",
            Self::Result { .. } => "protocol",
            Self::Interrupted => "interrupted",
        }
    }

    /// What to do next, where something can be said.
    pub fn hint(&self) -> Option<&str> {
        match self {
            Self::Failed(error) => error.hint.as_deref(),
            Self::Died { .. } => Some("see the log; run again to try once more"),
            _ => None,
        }
    }

    /// Whether a machine and not the model is at fault.
    pub fn is_environment(&self) -> bool {
        match self {
            Self::Device(error) => error.is_environment(),
            Self::Failed(error) => error.environment,
            Self::Result { .. } => true,
            Self::Died { .. } | Self::Interrupted => false,
        }
    }
}

/// One input file of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobInput {
    /// The file on this machine.
    pub from: Utf8PathBuf,
    /// Its name below the job's input directory.
    pub name: RelPath,
    /// What it has to be.
    pub expected: Expected,
}

/// A job as it will be put on a device.
#[derive(Debug, Clone)]
pub struct PreparedJob {
    /// Its name, which contains the digest of the request.
    pub name: JobName,
    request: Vec<u8>,
    inputs: Vec<JobInput>,
    /// About how many bytes it makes.
    makes: u64,
}

/// What a compile adds to the bytes of its sources: kernels, warps, and what a tree's own compiler leaves in its buffers. An
/// artifact holds the weights as the ONNX has them, so a quarter and this are more than any was seen to take.
const BESIDE_WEIGHTS: u64 = 16 << 20;

impl PreparedJob {
    /// The job of this request for `model`.
    ///
    /// # Panics
    /// Never: requests always serialise, and their kinds are lower-case words.
    pub fn new(model: &ModelId, request: &JobRequest, inputs: Vec<JobInput>) -> Self {
        let kind = request.kind.as_str();
        let makes = match request.kind {
            JobKind::Compile(_) | JobKind::Dm(_) => {
                let sources = size_of(&inputs);
                sources + sources / 4 + BESIDE_WEIGHTS
            }
            JobKind::Run(_) | JobKind::Runtime(_) | JobKind::DmRun(_) => 0,
        };
        let request = serde_json::to_vec_pretty(request)
            .unwrap_or_else(|_| unreachable!("a request is plain data and always serialises"));
        let name = JobName::new(kind, model, Sha256::digest(&request))
            .unwrap_or_else(|_| unreachable!("the kinds of work are lower-case words"));
        Self { name, request, inputs, makes }
    }
}

fn size_of(inputs: &[JobInput]) -> u64 {
    inputs.iter().filter_map(|input| input.expected.size).sum()
}

/// What the work around a job is given.
pub struct Watch<'w> {
    /// Set to stop.
    pub cancel: &'w AtomicBool,
    /// Transfers.
    pub progress: &'w dyn Progress,
}

impl Watch<'_> {
    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancel.load(Ordering::Relaxed)
    }

    fn check(&self) -> Result<(), JobFailure> {
        if self.is_cancelled() { Err(JobFailure::Interrupted) } else { Ok(()) }
    }
}

/// A path inside a job.
pub(crate) fn job_path(directory: &str, name: &str) -> Result<RelPath, DeviceError> {
    RelPath::new(format!("{directory}/{name}"))
        .map_err(|error| DeviceError::Protocol { device: "the job".to_owned(), why: error.to_string() })
}

/// Puts a job on the device and starts it, unless it is there already, running or finished: then it is taken up.
///
/// # Errors
/// [`JobFailure`]; a job that was not started is removed again, unless the device is out of reach or the run was interrupted.
pub fn begin(device: &dyn Device, job: &PreparedJob, watch: &Watch<'_>) -> Result<(), JobFailure> {
    match prepare(device, job, watch)? {
        Prepared::Ready => Ok(device.start(&job.name)?),
        Prepared::Begun => Ok(()),
    }
}

/// How a job stands on a device that was prepared for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prepared {
    /// It is there and waits to be started.
    Ready,
    /// It runs or has ended: an earlier run started it.
    Begun,
}

/// Puts a job on the device, ready to be started. What is there of it already is not moved again, and a job that runs or has
/// ended is left as it is.
///
/// # Errors
/// [`JobFailure`]; what was put there is removed again, unless the device is out of reach or the run was interrupted: then
/// the next run goes on from it.
pub fn prepare(device: &dyn Device, job: &PreparedJob, watch: &Watch<'_>) -> Result<Prepared, JobFailure> {
    let missing = match device.look(&job.name, 0)?.state {
        JobState::Running | JobState::Finished(_) => return Ok(Prepared::Begun),
        JobState::Died { .. } => {
            device.remove(&job.name)?;
            size_of(&job.inputs)
        }
        JobState::Absent => size_of(&job.inputs),
        // Some of its files are there, and it does not say which: each of the others is checked on its own.
        JobState::Staged => 0,
    };
    require_space(device, missing + job.makes)?;
    let staged = stage(device, job, watch);
    match &staged {
        Ok(()) | Err(JobFailure::Interrupted | JobFailure::Device(DeviceError::Unreachable { .. })) => {}
        // What was put there is of no use; that it cannot be removed is less news than why it failed.
        Err(_) => drop(device.remove(&job.name)),
    }
    staged.map(|()| Prepared::Ready)
}

/// Refuses a job whose files and artifact would not fit, before the first of them is moved.
fn require_space(device: &dyn Device, needed: u64) -> Result<(), DeviceError> {
    if needed == 0 {
        return Ok(());
    }
    let free = device.probe()?.free_bytes;
    if free < needed {
        return Err(DeviceError::Space { device: device.name().to_owned(), needed, free });
    }
    Ok(())
}

fn stage(device: &dyn Device, job: &PreparedJob, watch: &Watch<'_>) -> Result<(), JobFailure> {
    let upload = |input: &JobInput| {
        let to = job_path(INPUT_DIR, input.name.as_str())?;
        Ok(Upload { from: input.from.clone(), to, expected: input.expected })
    };
    let files = job.inputs.iter().map(upload).collect::<Result<Vec<_>, DeviceError>>()?;
    watch.check()?;
    device.put_all(&job.name, &files, watch.progress)?;
    watch.check()?;
    // The request comes last: with it the job is complete.
    let request = RelPath::new(REQUEST_FILE).unwrap_or_else(|_| unreachable!("the name is a plain one"));
    device.put_bytes(&job.name, &job.request, &request)?;
    Ok(())
}

/// Watches a started job until it has ended. A device that is out of reach is asked again for as long as [`PATIENCE`]; a job
/// whose process died is started once more; an interruption cancels the job.
///
/// # Errors
/// [`JobFailure`]; every state other than "finished with a good result" is one.
pub fn supervise(
    device: &dyn Device,
    job: &JobName,
    watch: &Watch<'_>,
    on_event: &mut dyn FnMut(&Value),
) -> Result<JobResult, JobFailure> {
    supervise_within(device, job, BEGINS_WITHIN, watch, on_event)
}

fn supervise_within(
    device: &dyn Device,
    job: &JobName,
    begins_within: Duration,
    watch: &Watch<'_>,
    on_event: &mut dyn FnMut(&Value),
) -> Result<JobResult, JobFailure> {
    let mut offset = 0;
    let mut lines = Lines::default();
    let mut restarts = 0;
    let mut not_begun: Option<Instant> = None;
    loop {
        if watch.check().is_err() {
            device.cancel(job)?;
            return Err(JobFailure::Interrupted);
        }
        let view = reach(watch, || device.look(job, offset))?;
        offset += view.events.len() as u64;
        let has_news = !view.events.is_empty();
        lines.feed(&view.events, on_event);
        match view.state {
            JobState::Running => not_begun = None,
            JobState::Staged => {
                if not_begun.get_or_insert_with(Instant::now).elapsed() >= begins_within {
                    device.start(job)?;
                    not_begun = None;
                }
                // A look waits for news of running jobs only. An interruption is seen above.
                let _ = wait(STAGED_PAUSE, watch);
            }
            // Events come in limited portions: the rest is read before the result counts.
            JobState::Finished(_) if has_news => {}
            JobState::Finished(text) => return read_result(device, job, &text),
            JobState::Died { .. } if restarts < RESTARTS => {
                restarts += 1;
                device.start(job)?;
            }
            JobState::Died { why } => {
                return Err(JobFailure::Died { device: device.name().to_owned(), job: job.to_string(), why });
            }
            JobState::Absent => {
                let why = "its directory is gone".to_owned();
                return Err(JobFailure::Died { device: device.name().to_owned(), job: job.to_string(), why });
            }
        }
    }
}

/// Repeats `ask` while the device is out of reach.
fn reach<T>(watch: &Watch<'_>, mut ask: impl FnMut() -> Result<T, DeviceError>) -> Result<T, JobFailure> {
    let until = Instant::now() + PATIENCE;
    let mut pauses = PAUSES.iter().chain(std::iter::repeat(&PAUSES[PAUSES.len() - 1]));
    loop {
        match ask() {
            Err(error @ DeviceError::Unreachable { .. }) if Instant::now() < until => {
                let pause = pauses.next().copied().unwrap_or(PAUSES[0]);
                if wait(pause, watch).is_err() {
                    return Err(error.into());
                }
            }
            answer => return Ok(answer?),
        }
    }
}

fn wait(pause: Duration, watch: &Watch<'_>) -> Result<(), JobFailure> {
    let until = Instant::now() + pause;
    while Instant::now() < until {
        watch.check()?;
        sleep(Duration::from_millis(20).min(pause));
    }
    Ok(())
}

/// Whether a job has ended and left a result of use.
pub(crate) fn has_result(device: &dyn Device, job: &JobName) -> bool {
    let state = device.look(job, 0).map(|view| view.state);
    matches!(state, Ok(JobState::Finished(text)) if read_result(device, job, &text).is_ok())
}

fn read_result(device: &dyn Device, job: &JobName, text: &[u8]) -> Result<JobResult, JobFailure> {
    let refused =
        |why: String| JobFailure::Result { device: device.name().to_owned(), job: job.to_string(), why };
    let result: JobResult = serde_json::from_slice(text).map_err(|error| refused(error.to_string()))?;
    match result.status {
        JobStatus::Ok if result.kind == job.kind() => Ok(result),
        JobStatus::Ok => Err(refused(format!("it is the result of a {} job", result.kind))),
        JobStatus::Cancelled => Err(JobFailure::Interrupted),
        JobStatus::Failed => Err(match result.error {
            Some(error) => JobFailure::Failed(error),
            None => refused("it failed without saying why".to_owned()),
        }),
    }
}

/// Whole lines out of portions of bytes.
#[derive(Debug, Default)]
struct Lines(Vec<u8>);

impl Lines {
    fn feed(&mut self, bytes: &[u8], on_event: &mut dyn FnMut(&Value)) {
        self.0.extend_from_slice(bytes);
        let Some(end) = self.0.iter().rposition(|&byte| byte == b'\n') else { return };
        let rest = self.0.split_off(end + 1);
        for line in self.0.split(|&byte| byte == b'\n') {
            // A line that is no JSON is of a newer version or was cut by a crash: events are news, not results.
            if let Ok(event) = serde_json::from_slice(line) {
                on_event(&event);
            }
        }
        self.0 = rest;
    }
}

/// Removes the jobs that nobody waits for: all that are not in `wanted`. A running one is ended where it is of this workspace
/// or of a model in `wanted`; that of another host is left alone.
///
/// # Errors
/// [`DeviceError::Reserved`] where the device works for another host; [`DeviceError`] where a job cannot be removed.
pub fn sweep_jobs(device: &dyn Device, wanted: &[JobName]) -> Result<Vec<JobName>, DeviceError> {
    let mut removed = Vec::new();
    for job in device.jobs()?.into_iter().filter(|job| !wanted.contains(job)) {
        let is_superseded = wanted.iter().any(|other| other.model() == job.model());
        if !device.jobs_are_own() && !is_superseded && device.look(&job, 0)?.state == JobState::Running {
            let device = device.name().to_owned();
            return Err(DeviceError::Reserved { device, holder: format!("job {job} of another workspace") });
        }
        device.remove(&job)?;
        removed.push(job);
    }
    Ok(removed)
}

/// Removes a job whose outcome is known. That it could not be removed must not take the outcome's place: what remains is
/// returned as a sentence for people, and a later sweep removes it.
pub fn clear_away(device: &dyn Device, job: &JobName) -> Option<String> {
    let error = device.remove(job).err()?;
    Some(format!("job {job} is still on {}: {error}; the next run removes it", device.name()))
}

/// Brings a job's log home. A job without one (it failed before its driver began) leaves what is known as the log.
///
/// # Errors
/// [`DeviceError`] where the log cannot be written here.
pub fn fetch_log(device: &dyn Device, job: &JobName, to: &Utf8Path) -> Result<(), DeviceError> {
    let log = RelPath::new(tinygrad_compile::job::LOG_FILE)
        .unwrap_or_else(|_| unreachable!("the name is a plain one"));
    device.get(job, &log, to, Expected::default(), &durable_fs::NoProgress).map(drop)
}

#[cfg(test)]
#[path = "supervise_tests.rs"]
mod tests;
