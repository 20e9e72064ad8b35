//! The device's side of a connection: `models` serves a host over its standard input and output.
//!
//! It lives as long as the connection. Jobs do not: they are processes of their own, and what is left of a transfer stays for
//! the next connection. What can go wrong: the host vanishes without a word (after [`crate::link::SILENCE`] this side ends
//! and gives the device back), an older connection of the same host still holds the device (it is ended), a request names a
//! job or a path outside of the jobs' directory (it is refused; names are parsed, never pasted).

mod facts;
mod lease;
mod requests;

use std::{
    collections::HashMap,
    io::{self, BufReader, Read, Write},
    os::fd::AsFd,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicUsize, Ordering},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    time::Duration,
};

use camino::{Utf8Path, Utf8PathBuf};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use self::lease::Lease;
use crate::{
    device::{DeviceError, LocalDevice, LocalOptions},
    link::{
        MAGIC, Request, SILENCE,
        frame::{self, Frame, Kind},
    },
};

/// Requests that may be served at a time.
const MAX_REQUESTS: usize = 32;
/// Data frames of one upload that may wait for the disk.
const QUEUED_FRAMES: usize = 16;
/// What a pipe may hold without special rights.
#[cfg(target_os = "linux")]
const PIPE: usize = 1 << 20;

/// How the device's side is set up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServeOptions {
    /// The directory of the jobs.
    pub jobs_dir: Utf8PathBuf,
    /// The `models` binary that runs jobs.
    pub models: Utf8PathBuf,
    /// Version of this program.
    pub version: String,
    /// Root of the StarPilot tree, for the Python and the tinygrad that a compile would use.
    pub openpilot: Utf8PathBuf,
    /// Directories of parameters, where `IsOnroad` is looked for.
    pub params_dirs: Vec<Utf8PathBuf>,
}

/// What all requests of a connection share.
struct Service<W> {
    /// The jobs of the host at the other end, known once it has said who it is: hosts never see each other's.
    own: OnceLock<Own>,
    options: ServeOptions,
    lease: Mutex<Option<Lease>>,
    output: Mutex<W>,
    active: AtomicUsize,
    /// Memory of data frames that can be used again: fresh memory costs the kernel more than the bytes in it.
    spare: Mutex<Vec<Vec<u8>>>,
}

/// What belongs to the host at the other end.
struct Own {
    owner: String,
    jobs_dir: Utf8PathBuf,
    device: LocalDevice,
}

/// Hexadecimal digits of an owner's digest in the name of its directory.
const OWNER_DIGITS: usize = 16;

impl<W: Write> Service<W> {
    /// Where the host's jobs are; the directory is made with the first of them.
    fn begin_for(&self, owner: String) -> Result<&Own, DeviceError> {
        if let Some(own) = self.own.get() {
            return Ok(own);
        }
        let digest = durable_fs::Sha256::digest(owner.as_bytes()).to_string();
        let jobs_dir = self.options.jobs_dir.join(&digest[..OWNER_DIGITS]);
        let local = LocalOptions { jobs_dir: jobs_dir.clone(), models: self.options.models.clone() };
        let device = LocalDevice::new(local)?;
        Ok(self.own.get_or_init(|| Own { owner, jobs_dir, device }))
    }

    fn send(&self, request: u32, kind: Kind, body: &[u8]) -> io::Result<()> {
        self.send_frame(&frame::encode(request, kind, body))
    }

    /// Sends a data frame whose first bytes were kept free for its header.
    fn send_block(&self, request: u32, block: &mut [u8]) -> io::Result<()> {
        frame::stamp(block, request, Kind::Data);
        self.send_frame(block)
    }

    fn send_frame(&self, frame: &[u8]) -> io::Result<()> {
        let mut output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        output.write_all(frame)?;
        output.flush()
    }

    fn spare(&self) -> std::sync::MutexGuard<'_, Vec<Vec<u8>>> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes back the memory of a data frame.
    fn give_back(&self, body: Vec<u8>) {
        let mut spare = self.spare();
        if spare.len() < QUEUED_FRAMES && body.len() == frame::DATA {
            spare.push(body);
        }
    }
}

/// The directories in `dir`, except hidden ones.
fn directories(dir: &Utf8Path) -> Vec<Utf8PathBuf> {
    let entries =
        dir.read_dir_utf8().map_or_else(|_| Vec::new(), |list| list.filter_map(Result::ok).collect());
    let paths = entries.into_iter().filter(|entry| !entry.file_name().starts_with('.'));
    paths.map(|entry| entry.path().to_owned()).filter(|path| path.is_dir()).collect()
}

/// Enlarges the pipes between this process and the SSH server, where they are pipes: each fill and each drain of one wakes a
/// process, and a large one is filled and drained less often.
#[cfg(target_os = "linux")]
fn widen(pipe: impl AsFd) {
    // A socket is no pipe, and a user may have used up the memory for pipes: then it stays as it is.
    let _ = rustix::pipe::fcntl_setpipe_size(pipe, PIPE);
}

#[cfg(not(target_os = "linux"))]
fn widen(_: impl AsFd) {}

/// Serves until the host ends the connection or is silent for too long.
///
/// # Errors
/// [`io::Error`] of the streams, or where the jobs' directory cannot be made.
pub fn serve(
    input: impl Read + AsFd,
    mut output: impl Write + AsFd + Send + 'static,
    options: ServeOptions,
) -> io::Result<()> {
    widen(&input);
    widen(&output);
    output.write_all(MAGIC)?;
    output.flush()?;
    let service = Arc::new(Service {
        own: OnceLock::new(),
        options,
        lease: Mutex::new(None),
        output: Mutex::new(output),
        active: AtomicUsize::new(0),
        spare: Mutex::default(),
    });
    // Small frames come many at a time; the body of a large one is read past the buffer.
    let mut input = BufReader::with_capacity(64 * 1024, Watched { input, silence: SILENCE });
    let mut uploads: HashMap<u32, SyncSender<Frame>> = HashMap::new();
    let ended = loop {
        let spare = service.spare().pop().unwrap_or_default();
        match frame::read(&mut input, spare) {
            Ok(Some(frame)) => dispatch(&service, &mut uploads, frame)?,
            Ok(None) => break Ok(()),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break Ok(()),
            Err(error) => break Err(error),
        }
        let lease = service.lease.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lease) = &*lease {
            lease.renew_if_due();
        }
    };
    // The lease stays where the host did not give the device back: it is about to connect again.
    drop(uploads);
    ended
}

fn dispatch<W: Write + Send + 'static>(
    service: &Arc<Service<W>>,
    uploads: &mut HashMap<u32, SyncSender<Frame>>,
    frame: Frame,
) -> io::Result<()> {
    match frame.kind {
        Kind::Ping => service.send(frame.request, Kind::Ping, b""),
        Kind::Data => {
            if let Some(upload) = uploads.get(&frame.request) {
                // An upload that failed no longer listens; its fault has been sent.
                let _ = upload.send(frame);
            }
            Ok(())
        }
        Kind::End | Kind::Abandon => {
            if let Some(upload) = uploads.remove(&frame.request) {
                let _ = upload.send(frame);
            }
            Ok(())
        }
        Kind::Request => begin(service, uploads, frame),
        Kind::Begin | Kind::Reply | Kind::Fault => Err(io::Error::other("a host does not answer")),
    }
}

fn begin<W: Write + Send + 'static>(
    service: &Arc<Service<W>>,
    uploads: &mut HashMap<u32, SyncSender<Frame>>,
    frame: Frame,
) -> io::Result<()> {
    let id = frame.request;
    let refuse = |why: String| {
        let fault = serde_json::to_vec(&crate::link::Fault::Request { why })?;
        service.send(id, Kind::Fault, &fault)
    };
    let request: Request = match serde_json::from_slice(&frame.body) {
        Ok(request) => request,
        Err(error) => return refuse(error.to_string()),
    };
    if service.active.load(Ordering::SeqCst) >= MAX_REQUESTS {
        return refuse("too many requests at a time".to_owned());
    }
    let data = data_of(&request, uploads, id);
    service.active.fetch_add(1, Ordering::SeqCst);
    let service = Arc::clone(service);
    std::thread::Builder::new().name(format!("request-{id}")).spawn(move || {
        // A stream that fails ends the connection; the reading side sees that too.
        let _ = requests::answer(&service, id, request, data);
        service.active.fetch_sub(1, Ordering::SeqCst);
    })?;
    Ok(())
}

/// The channel of an upload's data.
fn data_of(
    request: &Request,
    uploads: &mut HashMap<u32, SyncSender<Frame>>,
    id: u32,
) -> Option<Receiver<Frame>> {
    if !matches!(request, Request::Put { .. }) {
        return None;
    }
    let (sender, receiver) = sync_channel(QUEUED_FRAMES);
    uploads.insert(id, sender);
    Some(receiver)
}

/// An input that fails when nothing arrives for too long.
struct Watched<R> {
    input: R,
    silence: Duration,
}

impl<R: Read + AsFd> Read for Watched<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let timeout = Timespec::try_from(self.silence).map_err(io::Error::other)?;
        loop {
            let mut watched = [PollFd::new(&self.input, PollFlags::IN)];
            match poll(&mut watched, Some(&timeout)) {
                Ok(0) => {
                    return Err(io::Error::new(
                        io::ErrorKind::TimedOut,
                        "the host has been silent for too long",
                    ));
                }
                Ok(_) => return self.input.read(buf),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}
