//! Files over the channel: streamed, hashed on both ends, continued from what has verifiably arrived.

use std::{
    collections::VecDeque,
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    sync::atomic::Ordering,
};

use bytes::{Bytes, BytesMut};
use camino::Utf8Path;
use durable_fs::{Expected, FsError, Progress, Sha256, Written};
use model_catalog::{RelPath, Sha256Digest};

use super::{
    SshError, SshOptions,
    channel::{Channel, Piece},
};
use crate::{
    device::JobName,
    link::{
        Done, Offered, Request, Sending, Sent,
        frame::{DATA, HEADER, Kind},
        partial::{PartialError, PartialFile, remove_partials},
    },
};

/// Smaller files are sent without asking what is there: the question would take longer.
pub(super) const ASK_FROM: u64 = 1 << 20;

/// A file to be sent, with the size and digest that it must have.
struct Source<'a> {
    path: &'a Utf8Path,
    file: File,
    size: u64,
    sha256: Sha256Digest,
}

impl<'a> Source<'a> {
    fn open(path: &'a Utf8Path, expected: Expected) -> Result<Self, FsError> {
        let file = File::open(path).map_err(FsError::io("open", path))?;
        let size = file.metadata().map_err(FsError::io("open", path))?.len();
        if let Some(expected) = expected.size.filter(|expected| *expected != size) {
            return Err(FsError::Size { path: path.to_owned(), expected, actual: size });
        }
        let sha256 = match expected.sha256 {
            Some(sha256) => sha256,
            None => durable_fs::hash_file(path, &durable_fs::NoProgress)?.0,
        };
        Ok(Self { path, file, size, sha256 })
    }

    /// Hashes the first `count` bytes.
    fn hash_head(&mut self, count: u64) -> Result<Sha256, FsError> {
        let mut hash = Sha256::new();
        let mut head = (&mut self.file).take(count);
        let mut block = vec![0; durable_fs::BLOCK];
        loop {
            match head.read(&mut block).map_err(FsError::io("read", self.path))? {
                0 => return Ok(hash),
                read => hash.update(&block[..read]),
            }
        }
    }

    fn seek(&mut self, to: u64) -> Result<(), FsError> {
        self.file.seek(SeekFrom::Start(to)).map_err(FsError::io("read", self.path))?;
        Ok(())
    }
}

/// Sends a file into a job.
pub(super) fn put(
    channel: &Channel,
    options: &SshOptions,
    job: &JobName,
    from: &Utf8Path,
    to: &RelPath,
    expected: Expected,
    progress: &dyn Progress,
) -> Result<(), SshError> {
    let mut source = Source::open(from, expected)?;
    let (size, sha256) = (source.size, source.sha256);
    let mut start = (0, Sha256::new());
    if size >= ASK_FROM {
        match channel.ask(&Request::Offer { job: job.to_string(), path: to.clone(), size, sha256 })? {
            Offered::Whole => {
                progress.advance(size);
                return Ok(());
            }
            Offered::Prefix { size: have, sha256: theirs } if have <= size => {
                let head = source.hash_head(have)?;
                if head.clone().finish() == theirs {
                    start = (have, head);
                }
            }
            Offered::Prefix { .. } | Offered::Nothing => {}
        }
    }
    progress.advance(start.0);
    source.seek(start.0)?;
    send(channel, options, job, to, source, start, progress)
}

fn send(
    channel: &Channel,
    options: &SshOptions,
    job: &JobName,
    to: &RelPath,
    mut source: Source<'_>,
    (from, mut hash): (u64, Sha256),
    progress: &dyn Progress,
) -> Result<(), SshError> {
    let (size, sha256) = (Some(source.size), Some(source.sha256));
    let mut call =
        channel.begin(&Request::Put { job: job.to_string(), path: to.clone(), size, sha256, from })?;
    let (mut length, mut blocks) = (from, Blocks::default());
    loop {
        let mut block = blocks.take();
        let read = match fill(&mut source.file, &mut block[HEADER..]) {
            Ok(read) => read,
            Err(error) => {
                // The device would wait for the rest, and keep the file for this transfer.
                call.send(Kind::Abandon, b"")?;
                return Err(FsError::io("read", source.path)(error).into());
            }
        };
        if read == 0 {
            break;
        }
        if options.stop.load(Ordering::Relaxed) {
            call.send(Kind::Abandon, b"")?;
            return Err(SshError::Stopped);
        }
        block.truncate(HEADER + read);
        hash.update(&block[HEADER..]);
        length += read as u64;
        call.early_fault()?;
        blocks.give_back(call.send_block(block)?);
        progress.advance(read as u64);
    }
    // A source that changed under way is found here as well as on the device.
    let digest = hash.finish();
    let expected = Expected::exactly(source.size, source.sha256);
    if let Err(changed) = expected.check(source.path, length, digest) {
        call.send(Kind::Abandon, b"")?;
        return Err(changed.into());
    }
    call.send_json(Kind::End, &Sent { size: length, sha256: digest })?;
    call.answer::<Done>()?;
    Ok(())
}

/// Sends a few bytes into a job.
pub(super) fn put_bytes(
    channel: &Channel,
    job: &JobName,
    bytes: &[u8],
    to: &RelPath,
) -> Result<(), SshError> {
    let request = Request::Put { job: job.to_string(), path: to.clone(), size: None, sha256: None, from: 0 };
    let call = channel.begin(&request)?;
    for piece in bytes.chunks(DATA) {
        call.send(Kind::Data, piece)?;
    }
    call.send_json(Kind::End, &Sent { size: bytes.len() as u64, sha256: Sha256::digest(bytes) })?;
    call.answer::<Done>()?;
    Ok(())
}

/// Brings a file of a job home.
pub(super) fn get(
    channel: &Channel,
    options: &SshOptions,
    job: &JobName,
    from: &RelPath,
    to: &Utf8Path,
    expected: Expected,
    progress: &dyn Progress,
) -> Result<Written, SshError> {
    if let Some(written) = already_here(to, expected)? {
        progress.advance(written.size);
        return Ok(written);
    }
    // Without a digest nothing can be continued; the name then only keeps two transfers apart.
    let (digest, limit) = match (expected.sha256, expected.size) {
        (Some(sha256), Some(size)) => (sha256, size),
        _ => (Sha256::digest(from.as_str().as_bytes()), 0),
    };
    remove_partials(to, Some(digest))?;
    let mut partial = PartialFile::open(to, limit, digest).map_err(|error| match error {
        PartialError::Fs(error) => SshError::Fs(error),
        PartialError::Busy => SshError::Fs(FsError::io("write", to)(io::ErrorKind::ResourceBusy.into())),
    })?;
    let (have, prefix) = partial.prefix();
    let prefix = (have > 0).then_some(prefix);
    let mut call =
        channel.begin(&Request::Get { job: job.to_string(), path: from.clone(), from: have, prefix })?;
    let sending: Sending = match call.next()? {
        Piece::Begin(body) => call.decode(&body)?,
        _ => return Err(call.unexpected()),
    };
    if sending.from == 0 && have > 0 {
        partial.restart()?;
    }
    progress.advance(sending.from);
    loop {
        match call.next()? {
            Piece::Data(pieces) => {
                if options.stop.load(Ordering::Relaxed) {
                    return Err(SshError::Stopped);
                }
                for piece in pieces {
                    partial.write(&piece)?;
                    progress.advance(piece.len() as u64);
                }
            }
            Piece::Reply(body) => {
                let sent: Sent = call.decode(&body)?;
                let wanted = Expected {
                    size: expected.size.or(Some(sent.size)),
                    sha256: expected.sha256.or(Some(sent.sha256)),
                };
                return Ok(partial.commit(wanted)?);
            }
            Piece::Begin(_) | Piece::Fault(_) => return Err(call.unexpected()),
        }
    }
}

/// The file that is already there and equal.
fn already_here(to: &Utf8Path, expected: Expected) -> Result<Option<Written>, FsError> {
    let (Some(size), Some(sha256)) = (expected.size, expected.sha256) else { return Ok(None) };
    if !std::fs::metadata(to).is_ok_and(|found| found.is_file() && found.len() == size) {
        return Ok(None);
    }
    let (found, _) = durable_fs::hash_file(to, &durable_fs::NoProgress)?;
    Ok((found == sha256).then_some(Written { size, sha256, durability: durable_fs::Durability::Synced }))
}

/// Blocks that are used again once they have been sent: fresh memory costs the kernel more than the bytes in it.
#[derive(Default)]
struct Blocks(VecDeque<Bytes>);

impl Blocks {
    /// As many as are under way at a time.
    const KEPT: usize = 16;

    /// A block of a frame's size.
    fn take(&mut self) -> BytesMut {
        let oldest = if self.0.len() < Self::KEPT { None } else { self.0.pop_front() };
        let free = oldest.and_then(|block| block.try_into_mut().ok());
        free.filter(|block| block.len() == HEADER + DATA).unwrap_or_else(|| BytesMut::zeroed(HEADER + DATA))
    }

    fn give_back(&mut self, block: Bytes) {
        self.0.push_back(block);
    }
}

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
