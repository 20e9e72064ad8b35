//! Stages of a compile as progress.

use console_report::Console;
use durable_fs::Progress;
use tinygrad_compile::{
    CompileEvent,
    driver::{DriverEvent, StageState},
};

/// Shows each stage while it goes on; what a failure left open is closed when this is dropped.
pub struct Stages<'c> {
    console: &'c Console,
    open: usize,
}

impl<'c> Stages<'c> {
    /// Shows on `console`.
    pub fn new(console: &'c Console) -> Self {
        Self { console, open: 0 }
    }

    /// Shows an event.
    pub fn show(&mut self, event: &CompileEvent) {
        self.console.event(event);
        let DriverEvent::Stage { stage, state, .. } = &event.event else { return };
        match state {
            StageState::Start => {
                let label = if stage == event.op { stage.clone() } else { format!("{}: {stage}", event.op) };
                self.console.begin(&label, None);
                self.open += 1;
            }
            StageState::End if self.open > 0 => {
                self.console.end();
                self.open -= 1;
            }
            StageState::End => {}
        }
    }
}

impl Drop for Stages<'_> {
    fn drop(&mut self) {
        for _ in 0..self.open {
            self.console.end();
        }
    }
}
