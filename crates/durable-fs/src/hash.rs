//! SHA-256 computed while bytes pass: as a reader, as a writer, or on a second thread.

use std::{
    io::{self, Read, Write},
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    thread::JoinHandle,
};

use model_catalog::Sha256Digest;
use sha2::Digest as _;

use crate::BLOCK;

/// An incremental SHA-256.
#[derive(Debug, Clone, Default)]
pub struct Sha256(sha2::Sha256);

impl Sha256 {
    /// An empty hash.
    pub fn new() -> Self {
        Self::default()
    }

    /// The digest of `bytes`.
    pub fn digest(bytes: &[u8]) -> Sha256Digest {
        let mut hash = Self::new();
        hash.update(bytes);
        hash.finish()
    }

    /// Adds `bytes`.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The digest of everything added.
    pub fn finish(self) -> Sha256Digest {
        Sha256Digest::from_bytes(self.0.finalize().into())
    }
}

/// Hashes and counts what is read through it.
#[derive(Debug)]
pub struct HashingReader<R> {
    inner: R,
    hash: Sha256,
    len: u64,
}

impl<R> HashingReader<R> {
    /// Hashes what is read from `inner`.
    pub fn new(inner: R) -> Self {
        Self { inner, hash: Sha256::new(), len: 0 }
    }

    /// Digest and count of the bytes read so far, and the inner reader.
    pub fn finish(self) -> (Sha256Digest, u64, R) {
        (self.hash.finish(), self.len, self.inner)
    }
}

impl<R: Read> Read for HashingReader<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buf)?;
        self.hash.update(&buf[..read]);
        self.len += read as u64;
        Ok(read)
    }
}

/// Hashes and counts what is written through it.
#[derive(Debug)]
pub struct HashingWriter<W> {
    inner: W,
    hash: Sha256,
    len: u64,
}

impl<W> HashingWriter<W> {
    /// Hashes what is written to `inner`.
    pub fn new(inner: W) -> Self {
        Self { inner, hash: Sha256::new(), len: 0 }
    }

    /// Digest and count of the bytes written so far, and the inner writer.
    pub fn finish(self) -> (Sha256Digest, u64, W) {
        (self.hash.finish(), self.len, self.inner)
    }
}

impl<W: Write> Write for HashingWriter<W> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(buf)?;
        self.hash.update(&buf[..written]);
        self.len += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// How many blocks may wait for the hashing thread: with [`BLOCK`] bytes each, the bound on its memory.
const QUEUED_BLOCKS: usize = 6;

/// SHA-256 on a second thread, so that hashing hides behind reading and writing.
///
/// Blocks are handed over in a bounded ring and come back for reuse: memory stays below one megabyte at any size. Small
/// writes are gathered into whole blocks. Dropping the hasher ends its thread.
#[derive(Debug)]
pub struct ThreadedHasher {
    full: Option<SyncSender<Vec<u8>>>,
    empty: Receiver<Vec<u8>>,
    current: Vec<u8>,
    spare: usize,
    len: u64,
    thread: Option<JoinHandle<Sha256Digest>>,
}

impl Default for ThreadedHasher {
    fn default() -> Self {
        Self::new()
    }
}

impl ThreadedHasher {
    /// Starts the hashing thread.
    pub fn new() -> Self {
        Self::continuing(Sha256::new(), 0)
    }

    /// Starts the hashing thread after `len` bytes that `hash` has already taken in.
    pub fn continuing(mut hash: Sha256, len: u64) -> Self {
        let (full, work) = sync_channel::<Vec<u8>>(QUEUED_BLOCKS);
        let (give_back, empty) = sync_channel::<Vec<u8>>(QUEUED_BLOCKS + 1);
        let thread = std::thread::spawn(move || {
            for mut block in work {
                hash.update(&block);
                block.clear();
                // The other end may be gone while the last blocks are hashed; the buffer is then simply freed.
                let _ = give_back.try_send(block);
            }
            hash.finish()
        });
        Self {
            full: Some(full),
            empty,
            current: Vec::with_capacity(BLOCK),
            spare: QUEUED_BLOCKS,
            len,
            thread: Some(thread),
        }
    }

    /// Adds `bytes`; waits where the hashing thread is a full ring behind.
    pub fn update(&mut self, mut bytes: &[u8]) {
        self.len += bytes.len() as u64;
        while !bytes.is_empty() {
            let fits = bytes.len().min(BLOCK - self.current.len());
            self.current.extend_from_slice(&bytes[..fits]);
            bytes = &bytes[fits..];
            if self.current.len() == BLOCK {
                self.hand_over();
            }
        }
    }

    fn hand_over(&mut self) {
        let next = match self.empty.try_recv() {
            Ok(block) => block,
            Err(_) if self.spare > 0 => {
                self.spare -= 1;
                Vec::with_capacity(BLOCK)
            }
            Err(_) => self.empty.recv().unwrap_or_else(|_| Vec::with_capacity(BLOCK)),
        };
        let block = std::mem::replace(&mut self.current, next);
        if let Some(full) = &self.full {
            // A send fails only after the thread has panicked; `finish` reports that.
            let _ = full.send(block);
        }
    }

    /// Bytes added so far.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether nothing was added so far.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Waits for the thread and returns the digest of everything added.
    ///
    /// # Panics
    /// Where the hashing thread panicked.
    pub fn finish(mut self) -> Sha256Digest {
        let last = std::mem::take(&mut self.current);
        if let (false, Some(full)) = (last.is_empty(), &self.full) {
            let _ = full.send(last);
        }
        self.full = None;
        let digest = self.thread.take().map(JoinHandle::join);
        match digest {
            Some(Ok(digest)) => digest,
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            None => unreachable!("finish consumes the hasher, so the thread is still there"),
        }
    }
}

impl Drop for ThreadedHasher {
    fn drop(&mut self) {
        self.full = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_empty_digest_is_the_published_one() {
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(Sha256::digest(b"").to_string(), empty);
        assert_eq!(ThreadedHasher::new().finish().to_string(), empty);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn all_ways_agree(pieces in proptest::collection::vec((0usize..300_000, any::<u8>()), 0..12)) {
            let mut whole = Vec::new();
            let mut threaded = ThreadedHasher::new();
            let mut writer = HashingWriter::new(io::sink());
            for (len, byte) in pieces {
                let piece = vec![byte; len];
                threaded.update(&piece);
                writer.write_all(&piece).unwrap();
                whole.extend(piece);
            }
            let expected = Sha256::digest(&whole);
            let mut reader = HashingReader::new(whole.as_slice());
            io::copy(&mut reader, &mut io::sink()).unwrap();
            prop_assert_eq!(threaded.len(), whole.len() as u64);
            prop_assert_eq!(threaded.finish(), expected);
            prop_assert_eq!(writer.finish().0, expected);
            prop_assert_eq!(reader.finish().0, expected);
        }
    }
}
