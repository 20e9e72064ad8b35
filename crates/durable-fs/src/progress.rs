//! Progress of long work, reported by libraries and drawn by binaries.

use std::io::{self, Read};

/// Receives the progress of one piece of work. Implementations draw a bar, print a line or write JSON; all methods may be
/// called from several threads.
pub trait Progress: Send + Sync {
    /// Work named `label` begins; `total` bytes (or items) where that is known.
    fn begin(&self, label: &str, total: Option<u64>);
    /// `amount` more bytes (or items) are done.
    fn advance(&self, amount: u64);
    /// The work named last has ended, well or not.
    fn end(&self);
}

/// Progress that nobody watches.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoProgress;

impl Progress for NoProgress {
    fn begin(&self, _label: &str, _total: Option<u64>) {}
    fn advance(&self, _amount: u64) {}
    fn end(&self) {}
}

/// A reader that reports what passes through it.
pub struct ProgressReader<'p, R> {
    inner: R,
    progress: &'p dyn Progress,
}

impl<'p, R> ProgressReader<'p, R> {
    /// Reports every read from `inner` to `progress`.
    pub fn new(inner: R, progress: &'p dyn Progress) -> Self {
        Self { inner, progress }
    }
}

impl<R: Read> Read for ProgressReader<'_, R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buf)?;
        self.progress.advance(read as u64);
        Ok(read)
    }
}
