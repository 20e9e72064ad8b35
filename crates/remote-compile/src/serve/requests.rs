//! One request after it was read.

use std::{
    fs::{self, File},
    io::{self, Read, Write},
    sync::{PoisonError, mpsc::Receiver},
    thread::sleep,
    time::{Duration, Instant},
};

use camino::{Utf8Path, Utf8PathBuf};
use durable_fs::{Expected, FsError, Sha256, write_atomic};
use model_catalog::{RelPath, Sha256Digest};
use serde::Serialize;
use tinygrad_compile::job::{JobProcess, PID_FILE, RESULT_FILE};

use super::{
    Own, Service, facts,
    lease::{Lease, file_fault},
};
use crate::{
    device::{Device, DeviceError, JobName, JobState},
    link::{
        Done, Fault, JobList, LINK_PROTOCOL, Look, LookState, Offered, Request, Sending, Sent, Welcome,
        frame::{DATA, Frame, HEADER, Kind},
        partial::{PartialError, PartialFile},
    },
};

/// Space that stays free beside a file.
const SPACE_MARGIN: u64 = 16 << 20;
/// How long an older connection may take to let go of a file.
const LET_GO: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(50);
/// The longest wait for news of a job.
const MAX_WAIT: Duration = Duration::from_secs(20);

enum Failed {
    Fault(Fault),
    Stream(io::Error),
}

impl From<Fault> for Failed {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl From<FsError> for Failed {
    fn from(error: FsError) -> Self {
        Self::Fault(file_fault(&error))
    }
}

impl From<DeviceError> for Failed {
    fn from(error: DeviceError) -> Self {
        Self::Fault(match error {
            DeviceError::NoModels { path, why, .. } => Fault::NoModels { path, why },
            DeviceError::Job { job, what, why, .. } => Fault::Job { job, what: what.to_owned(), why },
            DeviceError::Reserved { holder, .. } => Fault::Reserved { holder },
            DeviceError::Fs(error) => file_fault(&error),
            other => Fault::Request { why: other.to_string() },
        })
    }
}

/// Serves one request and sends its last frame.
pub(super) fn answer<W: Write>(
    service: &Service<W>,
    id: u32,
    request: Request,
    data: Option<Receiver<Frame>>,
) -> io::Result<()> {
    let mut call = Call { service, id };
    match call.serve(request, data) {
        Ok(()) => Ok(()),
        Err(Failed::Stream(error)) => Err(error),
        Err(Failed::Fault(fault)) => service.send(id, Kind::Fault, &serde_json::to_vec(&fault)?),
    }
}

struct Call<'a, W> {
    service: &'a Service<W>,
    id: u32,
}

impl<W: Write> Call<'_, W> {
    fn serve(&mut self, request: Request, data: Option<Receiver<Frame>>) -> Result<(), Failed> {
        if let Request::Hello { owner, .. } = request {
            self.service.begin_for(owner)?;
            let version = self.service.options.version.clone();
            return self.reply(&Welcome { protocol: LINK_PROTOCOL, version });
        }
        let device = &self.own()?.device;
        match request {
            Request::Hello { .. } => {}
            Request::Probe => return self.reply(&facts::gather(device, &self.service.options)?),
            Request::Jobs => {
                let jobs = device.jobs()?.into_iter().map(|job| job.to_string()).collect();
                return self.reply(&JobList { jobs });
            }
            Request::Offer { job, path, size, sha256 } => {
                let offered = self.offer(&job_name(&job)?, &path, size, sha256)?;
                return self.reply(&offered);
            }
            Request::Get { job, path, from, prefix } => {
                return self.get(&job_name(&job)?, &path, from, prefix);
            }
            Request::Look { job, offset, wait_ms } => return self.look(&job_name(&job)?, offset, wait_ms),
            Request::Put { job, path, size, sha256, from } => {
                let data = data.ok_or_else(|| Fault::Request { why: "no data".to_owned() })?;
                self.put(&job_name(&job)?, &path, Expected { size, sha256 }, from, &data)?;
            }
            Request::Reserve { purpose, while_driving } => {
                self.refuse_on_road(while_driving)?;
                self.reserve(&purpose)?;
            }
            Request::Release => {
                let held = self.lease().take();
                held.map_or(Ok(()), Lease::release)?;
            }
            Request::Start { job, while_driving } => {
                self.refuse_on_road(while_driving)?;
                device.start(&job_name(&job)?)?;
            }
            Request::Cancel { job } => device.cancel(&job_name(&job)?)?,
            Request::Remove { job } => device.remove(&job_name(&job)?)?,
        }
        self.reply(&Done {})
    }

    fn send(&self, kind: Kind, body: &[u8]) -> Result<(), Failed> {
        self.service.send(self.id, kind, body).map_err(Failed::Stream)
    }

    fn reply(&self, answer: &impl Serialize) -> Result<(), Failed> {
        let body = serde_json::to_vec(answer).map_err(|error| Failed::Stream(error.into()))?;
        self.send(Kind::Reply, &body)
    }

    /// Asked anew for each job: a run of hours outlasts a stop.
    fn refuse_on_road(&self, while_driving: bool) -> Result<(), Fault> {
        if !while_driving && facts::is_on_road(&self.service.options.params_dirs) {
            return Err(Fault::OnRoad);
        }
        Ok(())
    }

    fn lease(&self) -> std::sync::MutexGuard<'_, Option<Lease>> {
        self.service.lease.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn own(&self) -> Result<&Own, Fault> {
        let own = self.service.own.get();
        own.ok_or_else(|| Fault::Request {
            why: "a host says who it is before it asks for anything".to_owned(),
        })
    }

    fn reserve(&self, purpose: &str) -> Result<(), Failed> {
        let own = self.own()?;
        if self.lease().is_none() {
            let lease = Lease::take(&self.service.options.jobs_dir, &own.owner, purpose)?;
            // Another host's job may have outlived its lease: one compile at a time.
            if let Some(job) = running_elsewhere(&self.service.options.jobs_dir, &own.jobs_dir) {
                lease.release()?;
                return Err(
                    Fault::Reserved { holder: format!("the running job {job} of another host") }.into()
                );
            }
            *self.lease() = Some(lease);
        }
        Ok(())
    }

    /// Where a file of a job lies; its directory is made.
    fn place(&self, job: &JobName, path: &RelPath) -> Result<Utf8PathBuf, Failed> {
        let file = self.own()?.jobs_dir.join(job.as_str()).join(path.as_str());
        let dir = file.parent().unwrap_or(&file);
        fs::create_dir_all(dir).map_err(FsError::io("create", dir))?;
        Ok(file)
    }

    fn offer(
        &self,
        job: &JobName,
        path: &RelPath,
        size: u64,
        sha256: Sha256Digest,
    ) -> Result<Offered, Failed> {
        let file = self.place(job, path)?;
        if fs::metadata(&file).is_ok_and(|found| found.len() == size)
            && durable_fs::hash_file(&file, &durable_fs::NoProgress)?.0 == sha256
        {
            return Ok(Offered::Whole);
        }
        let partial = open_partial(&file, size, sha256)?;
        let (have, digest) = partial.prefix();
        require_space(&self.service.options.jobs_dir, size - have)?;
        Ok(if have == 0 { Offered::Nothing } else { Offered::Prefix { size: have, sha256: digest } })
    }

    fn put(
        &self,
        job: &JobName,
        path: &RelPath,
        expected: Expected,
        from: u64,
        data: &Receiver<Frame>,
    ) -> Result<(), Failed> {
        let file = self.place(job, path)?;
        let (Some(size), Some(sha256)) = (expected.size, expected.sha256) else {
            return put_small(&file, data);
        };
        let mut partial = open_partial(&file, size, sha256)?;
        if from == 0 {
            partial.restart()?;
        } else if partial.len() != from {
            return Err(Fault::Busy { why: format!("{path} has changed since it was offered") }.into());
        }
        loop {
            let Ok(frame) = data.recv() else { return Err(cut()) };
            match frame.kind {
                Kind::Data => {
                    partial.write(&frame.body)?;
                    self.service.give_back(frame.body);
                }
                Kind::End => break,
                _ => return Err(cut()),
            }
        }
        partial.commit(expected)?;
        Ok(())
    }

    fn get(
        &self,
        job: &JobName,
        path: &RelPath,
        from: u64,
        prefix: Option<Sha256Digest>,
    ) -> Result<(), Failed> {
        let name = self.own()?.jobs_dir.join(job.as_str()).join(path.as_str());
        let mut file = File::open(&name).map_err(FsError::io("open", &name))?;
        let size = file.metadata().map_err(FsError::io("open", &name))?.len();
        let mut block = vec![0; HEADER + DATA];
        let mut hash = Sha256::new();
        let mut start = 0;
        if from > 0 && from <= size {
            let mut head = Sha256::new();
            hash_bytes(&mut file, from, &mut block, &mut head).map_err(FsError::io("read", &name))?;
            if Some(head.clone().finish()) == prefix {
                (hash, start) = (head, from);
            } else {
                io::Seek::rewind(&mut file).map_err(FsError::io("read", &name))?;
            }
        }
        let begin = serde_json::to_vec(&Sending { from: start, size })
            .map_err(|error| Failed::Stream(error.into()))?;
        self.send(Kind::Begin, &begin)?;
        let mut sent = start;
        loop {
            match fill(&mut file, &mut block[HEADER..]).map_err(FsError::io("read", &name))? {
                0 => break,
                read => {
                    hash.update(&block[HEADER..HEADER + read]);
                    sent += read as u64;
                    let frame = &mut block[..HEADER + read];
                    self.service.send_block(self.id, frame).map_err(Failed::Stream)?;
                }
            }
        }
        self.reply(&Sent { size: sent, sha256: hash.finish() })
    }

    fn look(&self, job: &JobName, offset: u64, wait_ms: u64) -> Result<(), Failed> {
        let device = &self.own()?.device;
        let until = Instant::now() + Duration::from_millis(wait_ms).min(MAX_WAIT);
        let view = loop {
            let view = device.look(job, offset)?;
            if view.state != JobState::Running || !view.events.is_empty() || Instant::now() >= until {
                break view;
            }
        };
        let (state, result) = match view.state {
            JobState::Absent => (LookState::Absent, Vec::new()),
            JobState::Staged => (LookState::Staged, Vec::new()),
            JobState::Running => (LookState::Running, Vec::new()),
            JobState::Died { why } => (LookState::Died(why), Vec::new()),
            JobState::Finished(result) => (LookState::Finished, result),
        };
        let result_bytes = result.len();
        for bytes in [result, view.events] {
            for piece in bytes.chunks(DATA) {
                self.send(Kind::Data, piece)?;
            }
        }
        self.reply(&Look { state, result_bytes })
    }
}

fn job_name(text: &str) -> Result<JobName, Fault> {
    text.parse().map_err(|error: crate::device::JobNameError| Fault::Request { why: error.to_string() })
}

/// A job of another host that still runs.
fn running_elsewhere(jobs_dir: &Utf8Path, own: &Utf8Path) -> Option<String> {
    let owners = super::directories(jobs_dir).into_iter().filter(|dir| dir != own);
    owners.flat_map(|owner| super::directories(&owner)).find_map(|job| {
        let process: JobProcess = serde_json::from_slice(&fs::read(job.join(PID_FILE)).ok()?).ok()?;
        let runs = process.is_alive() && !job.join(RESULT_FILE).exists();
        runs.then(|| job.file_name().unwrap_or_default().to_owned())
    })
}

fn cut() -> Failed {
    Failed::Fault(Fault::Busy { why: "the transfer was cut".to_owned() })
}

fn put_small(file: &Utf8Path, data: &Receiver<Frame>) -> Result<(), Failed> {
    let mut bytes = Vec::new();
    loop {
        let Ok(frame) = data.recv() else { return Err(cut()) };
        match frame.kind {
            Kind::Data => bytes.extend_from_slice(&frame.body),
            Kind::End => break,
            _ => return Err(cut()),
        }
        if bytes.len() > crate::link::frame::MAX_BODY {
            return Err(
                Fault::Request { why: "the file is too large to come without a digest".to_owned() }.into()
            );
        }
    }
    write_atomic(file, &bytes)?;
    Ok(())
}

/// Opens an arriving file, waiting a moment for an older connection to let go of it.
fn open_partial(file: &Utf8Path, size: u64, sha256: Sha256Digest) -> Result<PartialFile, Failed> {
    let until = Instant::now() + LET_GO;
    loop {
        match PartialFile::open(file, size, sha256) {
            Ok(partial) => return Ok(partial),
            Err(PartialError::Fs(error)) => return Err(error.into()),
            Err(PartialError::Busy) if Instant::now() < until => sleep(POLL),
            Err(PartialError::Busy) => {
                return Err(Fault::Busy { why: format!("an older connection still writes {file}") }.into());
            }
        }
    }
}

fn require_space(dir: &Utf8Path, needed: u64) -> Result<(), Failed> {
    let space = rustix::fs::statvfs(dir.as_std_path())
        .map_err(|error| FsError::io("ask for the free space of", dir)(error.into()))?;
    let free = space.f_bavail.saturating_mul(space.f_frsize);
    let needed = needed + SPACE_MARGIN;
    if free < needed { Err(Fault::Space { needed, free }.into()) } else { Ok(()) }
}

fn hash_bytes(file: &mut File, count: u64, block: &mut [u8], hash: &mut Sha256) -> io::Result<()> {
    let mut left = count;
    while left > 0 {
        let want = usize::try_from(left).unwrap_or(block.len()).min(block.len());
        let read = file.read(&mut block[..want])?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        hash.update(&block[..read]);
        left -= read as u64;
    }
    Ok(())
}

/// Fills `block` as far as the file goes.
fn fill(file: &mut File, block: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < block.len() {
        match file.read(&mut block[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
