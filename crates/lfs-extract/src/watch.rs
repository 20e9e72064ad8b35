//! Who watches an extraction and may stop it.

use std::sync::atomic::{AtomicBool, Ordering};

use durable_fs::{NoProgress, Progress};

use crate::ExtractError;

static NEVER: AtomicBool = AtomicBool::new(false);

/// Receives progress and may ask the work to stop. Nothing gets a name after a stop.
#[derive(Clone, Copy)]
pub struct Watch<'a> {
    /// Receives bytes as they are written.
    pub progress: &'a dyn Progress,
    /// Set (by a signal handler, say) to stop the work at the next block.
    pub stop: &'a AtomicBool,
}

impl std::fmt::Debug for Watch<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").field("stop", self.stop).finish_non_exhaustive()
    }
}

impl Watch<'static> {
    /// Nobody watches and nobody stops.
    pub const fn nobody() -> Self {
        Self { progress: &NoProgress, stop: &NEVER }
    }
}

impl<'a> Watch<'a> {
    /// Progress goes to `progress`; a set `stop` ends the work.
    pub const fn new(progress: &'a dyn Progress, stop: &'a AtomicBool) -> Self {
        Self { progress, stop }
    }

    /// Fails once the work was asked to stop.
    pub(crate) fn check(&self) -> Result<(), ExtractError> {
        if self.stop.load(Ordering::Relaxed) { Err(ExtractError::Interrupted) } else { Ok(()) }
    }
}
