//! fsync of a growing file on a second thread, so that the final one finds little to do.

use std::{
    fs::File,
    sync::mpsc::{SyncSender, sync_channel},
    thread::JoinHandle,
};

use durable_fs::StagedFile;

/// A file is synced in the background each time it has grown by this many bytes.
const STRETCH: u64 = 16 * 1024 * 1024;

/// Syncs one growing file. It only gets ahead of the work: what counts is the file's own sync at its end.
pub(crate) struct BackgroundSync {
    stretches: Option<SyncSender<File>>,
    thread: Option<JoinHandle<()>>,
    since: u64,
}

impl BackgroundSync {
    pub(crate) const fn new() -> Self {
        Self { stretches: None, thread: None, since: 0 }
    }

    /// `bytes` more were written to `file`.
    pub(crate) fn grew(&mut self, file: &StagedFile, bytes: usize) {
        self.since += bytes as u64;
        if self.since < STRETCH {
            return;
        }
        self.since = 0;
        if self.stretches.is_none() {
            // Small files never get here, and cost no thread.
            let (stretches, work) = sync_channel::<File>(1);
            self.stretches = Some(stretches);
            self.thread = Some(std::thread::spawn(move || {
                for file in work {
                    // A refusal comes again at the end, where it is reported.
                    let _ = file.sync_data();
                }
            }));
        }
        if let (Some(stretches), Ok(shared)) = (&self.stretches, file.file().try_clone()) {
            // While the thread is busy the stretch simply becomes longer.
            let _ = stretches.try_send(shared);
        }
    }
}

impl Drop for BackgroundSync {
    fn drop(&mut self) {
        self.stretches = None;
        if let Some(thread) = self.thread.take() {
            // It does nothing that can panic.
            let _ = thread.join();
        }
    }
}
