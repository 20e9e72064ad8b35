//! Progress of long work, reported by libraries and drawn by binaries.

use std::{
    io::{self, Read},
    sync::atomic::{AtomicU64, Ordering},
};

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

/// Progress of work that may begin again: each byte counts once, and never more than there are.
pub struct ProgressOnce<'p> {
    progress: &'p dyn Progress,
    total: u64,
    position: AtomicU64,
    reported: AtomicU64,
}

impl std::fmt::Debug for ProgressOnce<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProgressOnce")
            .field("total", &self.total)
            .field("position", &self.position)
            .field("reported", &self.reported)
            .finish_non_exhaustive()
    }
}

impl<'p> ProgressOnce<'p> {
    /// Hands on to `progress` what goes beyond the farthest point that was reached before; `total` bytes where that is known.
    pub fn new(progress: &'p dyn Progress, total: Option<u64>) -> Self {
        let total = total.unwrap_or(u64::MAX);
        Self { progress, total, position: AtomicU64::new(0), reported: AtomicU64::new(0) }
    }

    /// What is reported from now on counts from the beginning.
    pub fn begin_again(&self) {
        self.position.store(0, Ordering::Relaxed);
    }
}

impl Progress for ProgressOnce<'_> {
    fn begin(&self, label: &str, total: Option<u64>) {
        self.progress.begin(label, total);
    }

    fn advance(&self, amount: u64) {
        let position = self.position.fetch_add(amount, Ordering::Relaxed).saturating_add(amount);
        let position = position.min(self.total);
        let reported = self.reported.fetch_max(position, Ordering::Relaxed);
        if position > reported {
            self.progress.advance(position - reported);
        }
    }

    fn end(&self) {
        self.progress.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Sum(AtomicU64);

    impl Progress for Sum {
        fn begin(&self, _label: &str, _total: Option<u64>) {}
        fn advance(&self, amount: u64) {
            self.0.fetch_add(amount, Ordering::Relaxed);
        }
        fn end(&self) {}
    }

    #[test]
    fn bytes_that_come_again_count_once_and_surplus_ones_not_at_all() {
        let sum = Sum::default();
        let seen = || sum.0.load(Ordering::Relaxed);
        let once = ProgressOnce::new(&sum, Some(100));
        once.advance(40);
        once.begin_again();
        once.advance(30);
        assert_eq!(seen(), 40);
        once.advance(30);
        assert_eq!(seen(), 60);
        once.begin_again();
        once.advance(500);
        assert_eq!(seen(), 100);
    }
}
