//! Progress of a transfer that may begin anew: each byte counts once.

use std::sync::atomic::{AtomicU64, Ordering};

use durable_fs::Progress;

/// Hands on what goes beyond the farthest point that an earlier try had reached.
pub(super) struct Once<'p> {
    progress: &'p dyn Progress,
    reported: AtomicU64,
    position: AtomicU64,
}

impl<'p> Once<'p> {
    pub(super) fn new(progress: &'p dyn Progress) -> Self {
        Self { progress, reported: AtomicU64::new(0), position: AtomicU64::new(0) }
    }

    /// The next try begins at the file's beginning.
    pub(super) fn again(&self) {
        self.position.store(0, Ordering::Relaxed);
    }
}

impl Progress for Once<'_> {
    fn begin(&self, label: &str, total: Option<u64>) {
        self.progress.begin(label, total);
    }

    fn advance(&self, amount: u64) {
        let position = self.position.fetch_add(amount, Ordering::Relaxed) + amount;
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
    struct Counted(AtomicU64);

    impl Progress for Counted {
        fn begin(&self, _label: &str, _total: Option<u64>) {}
        fn advance(&self, amount: u64) {
            self.0.fetch_add(amount, Ordering::Relaxed);
        }
        fn end(&self) {}
    }

    #[test]
    fn a_second_try_counts_what_is_new() {
        let counted = Counted::default();
        let once = Once::new(&counted);
        once.advance(10);
        once.again();
        once.advance(6);
        assert_eq!(counted.0.load(Ordering::Relaxed), 10);
        once.advance(7);
        assert_eq!(counted.0.load(Ordering::Relaxed), 13);
    }
}
