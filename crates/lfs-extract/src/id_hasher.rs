//! Git's object ID, computed on a thread of its own while the blob is written.

use std::{
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    thread::JoinHandle,
};

use durable_fs::BLOCK;
use sha1::{Digest as _, Sha1};

/// Blocks that may wait for the thread: the bound on its memory.
const QUEUED: usize = 4;

/// Computes the ID of one blob. Dropping it ends the thread.
pub(crate) struct IdHasher {
    full: Option<SyncSender<Vec<u8>>>,
    empty: Receiver<Vec<u8>>,
    current: Vec<u8>,
    spare: usize,
    thread: Option<JoinHandle<[u8; 20]>>,
}

impl IdHasher {
    /// Begins with the header of a blob of `size` bytes.
    pub(crate) fn new(size: u64) -> Self {
        let (full, work) = sync_channel::<Vec<u8>>(QUEUED);
        let (give_back, empty) = sync_channel::<Vec<u8>>(QUEUED + 1);
        let thread = std::thread::spawn(move || {
            let mut hash = Sha1::new();
            hash.update(format!("blob {size}\0"));
            for mut block in work {
                hash.update(&block);
                block.clear();
                // Nobody takes the last ones back.
                let _ = give_back.try_send(block);
            }
            hash.finalize().into()
        });
        Self {
            full: Some(full),
            empty,
            current: Vec::with_capacity(BLOCK),
            spare: QUEUED,
            thread: Some(thread),
        }
    }

    /// Adds `bytes`; waits where the thread is behind.
    pub(crate) fn update(&mut self, mut bytes: &[u8]) {
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
            Err(_) => self.empty.recv().unwrap_or_default(),
        };
        let block = std::mem::replace(&mut self.current, next);
        if let Some(full) = &self.full {
            // A send fails only after the thread has panicked, which `finish` reports.
            let _ = full.send(block);
        }
    }

    /// The ID of what was added.
    pub(crate) fn finish(mut self) -> gix::ObjectId {
        self.hand_over();
        self.full = None;
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(digest)) => gix::ObjectId::from(digest),
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            None => unreachable!("finish consumes the hasher, so the thread is still there"),
        }
    }
}

impl Drop for IdHasher {
    fn drop(&mut self) {
        self.full = None;
        if let Some(thread) = self.thread.take() {
            // A panic was reported or does not matter any more.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_those_of_git() {
        let id = |bytes: &[u8]| {
            let mut hasher = IdHasher::new(bytes.len() as u64);
            hasher.update(bytes);
            hasher.finish()
        };
        assert_eq!(id(b"").to_string(), "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");
        assert_eq!(id(b"hello\n").to_string(), "ce013625030ba8dba906f756967f9e9ca394464a");
        let long = vec![7; 3 * BLOCK + 5];
        let whole = gix::objs::compute_hash(gix::hash::Kind::Sha1, gix::objs::Kind::Blob, &long).unwrap();
        assert_eq!(id(&long), whole);
    }
}
