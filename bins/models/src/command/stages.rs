//! Stages of a compile as progress.

use console_report::{Console, Mode, seconds_text};
use durable_fs::Progress;
use tinygrad_compile::{
    CompileEvent,
    driver::{DriverEvent, StageState},
};

/// A stage shorter than this leaves no line.
const WORTH_A_LINE: f64 = 0.5;

/// Shows the operation that goes on (stages of one may overlap) and leaves a line for each stage that took its time.
pub struct Stages<'c> {
    console: &'c Console,
    op: Option<&'static str>,
}

impl<'c> Stages<'c> {
    /// Shows on `console`.
    pub fn new(console: &'c Console) -> Self {
        Self { console, op: None }
    }

    /// Shows an event.
    pub fn show(&mut self, event: &CompileEvent) {
        self.console.event(event);
        if self.op != Some(event.op) {
            self.close();
            self.console.begin(event.op, None);
            self.op = Some(event.op);
        }
        if let (DriverEvent::Note { message }, false) = (&event.event, self.console.is_json()) {
            self.console.note(message);
        }
        let DriverEvent::Stage { stage, state, seconds, .. } = &event.event else { return };
        // An operation of one stage gets its line when it ends.
        let is_whole = stage == event.op;
        let label = if is_whole { stage.clone() } else { format!("{}: {stage}", event.op) };
        match (state, seconds) {
            (StageState::Start, _) => self.console.relabel(&label),
            (StageState::End, Some(seconds))
                if !is_whole && *seconds >= WORTH_A_LINE && self.console.mode() == Mode::Plain =>
            {
                self.console.note(&format!("{label} ({})", seconds_text(*seconds)));
            }
            (StageState::End, _) => {}
        }
    }

    fn close(&mut self) {
        if self.op.take().is_some() {
            self.console.end();
        }
    }
}

impl Drop for Stages<'_> {
    fn drop(&mut self) {
        self.close();
    }
}
