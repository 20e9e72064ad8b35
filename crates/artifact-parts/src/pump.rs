//! One reading of bytes that feeds several digests.
//!
//! The caller's thread reads a block and writes it; the digest of the whole and the digests of the parts are computed on a
//! thread each, from the same block. Blocks live in a fixed ring and are shared, not copied: memory stays near one megabyte
//! at any size.

use std::{
    io::{self, Read},
    sync::{
        Arc,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread::{self, JoinHandle, Thread},
    time::Duration,
};

use durable_fs::{BLOCK, Sha256};
use model_catalog::Sha256Digest;

/// Blocks in the ring: enough to ride out a slow write, few enough to stay in the cache.
const RING: usize = 8;

struct Block {
    bytes: Vec<u8>,
    len: usize,
}

enum Word {
    Bytes(Arc<Block>),
    /// A part ends here.
    Cut,
}

/// A hashing thread.
struct Lane {
    words: Option<SyncSender<Word>>,
    thread: Option<JoinHandle<Vec<Sha256Digest>>>,
}

impl Lane {
    /// Returns a digest for every cut: of everything so far, or of what came since the cut before.
    fn start(reader: Thread, since_cut: bool) -> Self {
        let (words, received) = sync_channel(RING);
        let thread = thread::spawn(move || hash_words(received, &reader, since_cut));
        Self { words: Some(words), thread: Some(thread) }
    }

    fn say(&self, word: Word) {
        if let Some(words) = &self.words {
            // A send fails only after the thread has panicked; `finish` reports that.
            let _ = words.send(word);
        }
    }

    fn finish(&mut self) -> Vec<Sha256Digest> {
        self.words = None;
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(digests)) => digests,
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            None => Vec::new(),
        }
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.words = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn hash_words(words: Receiver<Word>, reader: &Thread, since_cut: bool) -> Vec<Sha256Digest> {
    let mut hash = Sha256::new();
    let mut digests = Vec::new();
    for word in words {
        match word {
            Word::Bytes(block) => {
                hash.update(&block.bytes[..block.len]);
                drop(block);
                reader.unpark();
            }
            Word::Cut if since_cut => digests.push(std::mem::take(&mut hash).finish()),
            Word::Cut => digests.push(hash.clone().finish()),
        }
    }
    digests
}

/// The digests that a [`Pump`] computed, one for each part.
pub(crate) struct Digests {
    /// Of everything up to the end of each part; the last is the whole's.
    pub prefixes: Vec<Sha256Digest>,
    /// Of each part alone; empty where that was not asked for.
    pub parts: Vec<Sha256Digest>,
}

/// The ring of blocks and its hashing threads.
pub(crate) struct Pump {
    ring: Vec<Arc<Block>>,
    next: usize,
    whole: Lane,
    parts: Option<Lane>,
}

impl Pump {
    /// Starts the threads; the calling thread must be the one that reads.
    pub fn start(part_digests: bool) -> Self {
        let reader = thread::current();
        Self {
            ring: Vec::with_capacity(RING),
            next: 0,
            whole: Lane::start(reader.clone(), false),
            parts: part_digests.then(|| Lane::start(reader, true)),
        }
    }

    /// Reads the next block, at most `most` bytes, hands it to the digests and returns it for writing; empty at the end.
    pub fn read(&mut self, reader: &mut impl Read, most: u64) -> io::Result<&[u8]> {
        let index = self.next;
        let want = usize::try_from(most).unwrap_or(BLOCK).min(BLOCK);
        let block = self.free_block(index);
        block.len = read_full(reader, &mut block.bytes[..want])?;
        if block.len > 0 {
            self.next = (index + 1) % RING;
            let block = &self.ring[index];
            self.whole.say(Word::Bytes(Arc::clone(block)));
            if let Some(parts) = &self.parts {
                parts.say(Word::Bytes(Arc::clone(block)));
            }
        }
        let block = &self.ring[index];
        Ok(&block.bytes[..block.len])
    }

    /// Says that a part ends here.
    pub fn cut(&self) {
        self.whole.say(Word::Cut);
        if let Some(parts) = &self.parts {
            parts.say(Word::Cut);
        }
    }

    /// Waits for the digests.
    pub fn finish(mut self) -> Digests {
        let prefixes = self.whole.finish();
        Digests { prefixes, parts: self.parts.as_mut().map(Lane::finish).unwrap_or_default() }
    }

    fn free_block(&mut self, index: usize) -> &mut Block {
        if index == self.ring.len() {
            self.ring.push(Arc::new(Block { bytes: vec![0; BLOCK], len: 0 }));
        }
        while Arc::strong_count(&self.ring[index]) > 1 {
            // The hashing threads wake us when they let go of a block; the timeout is for one that panicked.
            thread::park_timeout(Duration::from_millis(50));
        }
        Arc::get_mut(&mut self.ring[index])
            .unwrap_or_else(|| unreachable!("nobody else makes clones of the ring's blocks"))
    }
}

fn read_full(reader: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match reader.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn digests_are_those_of_the_pieces(pieces in proptest::collection::vec((0usize..400_000, any::<u8>()), 1..6)) {
            let mut pump = Pump::start(true);
            let (mut whole, mut prefixes, mut parts) = (Vec::new(), Vec::new(), Vec::new());
            for (len, byte) in pieces {
                let piece: Vec<u8> = (0..len).map(|at| byte.wrapping_add(at as u8)).collect();
                let mut left = piece.as_slice();
                while !pump.read(&mut left, u64::MAX).unwrap().is_empty() {}
                pump.cut();
                whole.extend_from_slice(&piece);
                prefixes.push(Sha256::digest(&whole));
                parts.push(Sha256::digest(&piece));
            }
            let digests = pump.finish();
            prop_assert_eq!(digests.prefixes, prefixes);
            prop_assert_eq!(digests.parts, parts);
        }
    }
}
