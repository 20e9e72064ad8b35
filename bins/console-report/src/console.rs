//! The two streams of a binary.

use std::{
    io::{self, IsTerminal},
    process::ExitCode,
};

use durable_fs::Progress;
use indicatif::MultiProgress;
use serde::Serialize;
use serde_json::json;

use crate::{
    Failure,
    exit::GOOD,
    progress::{Stack, Work, write_line},
};

/// How progress and notes are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Bars on a terminal.
    Bars,
    /// One line for each piece of work that took its time.
    Plain,
    /// One JSON object a line, on both streams.
    Json,
}

/// Where a binary writes. It is also the [`Progress`] that libraries report to.
#[derive(Debug)]
pub struct Console {
    mode: Mode,
    verbose: bool,
    bars: MultiProgress,
    work: Stack,
}

impl Console {
    /// Bars where stderr is a terminal, plain lines elsewhere, JSON lines where `json` asks for them; `verbose` adds the
    /// chain of causes to errors.
    pub fn new(json: bool, verbose: bool) -> Self {
        let mode = match (json, io::stderr().is_terminal()) {
            (true, _) => Mode::Json,
            (false, true) => Mode::Bars,
            (false, false) => Mode::Plain,
        };
        Self { mode, verbose, bars: MultiProgress::new(), work: Stack::default() }
    }

    /// How this console shows things.
    pub const fn mode(&self) -> Mode {
        self.mode
    }

    /// Whether `--json` was given.
    pub fn is_json(&self) -> bool {
        self.mode == Mode::Json
    }

    fn stderr(&self, line: &str) {
        self.bars.suspend(|| write_line(io::stderr().lock(), line));
    }

    /// Says something that is no result, on stderr.
    pub fn note(&self, text: &str) {
        match self.mode {
            Mode::Json => self.stderr(&json!({"event": "note", "message": text}).to_string()),
            _ => self.stderr(text),
        }
    }

    /// Warns on stderr.
    pub fn warn(&self, text: &str) {
        match self.mode {
            Mode::Json => self.stderr(&json!({"event": "warning", "message": text}).to_string()),
            _ => self.stderr(&format!("warning: {text}")),
        }
    }

    /// Replaces the label of the innermost work where it is drawn as a bar.
    pub fn relabel(&self, label: &str) {
        self.work.innermost(|work| work.relabel(label));
    }

    /// An event on stderr, in JSON mode only.
    pub fn event(&self, event: &impl Serialize) {
        if let (Mode::Json, Ok(line)) = (self.mode, serde_json::to_string(event)) {
            self.stderr(&line);
        }
    }

    /// A result on stdout: one JSON object in JSON mode, else the text of `human`.
    pub fn result(&self, value: &impl Serialize, human: impl FnOnce() -> String) {
        let line = match self.mode {
            Mode::Json => match serde_json::to_string(value) {
                Ok(line) => line,
                Err(error) => return self.warn(&format!("a result cannot be written as JSON: {error}")),
            },
            _ => human(),
        };
        self.bars.suspend(|| write_line(io::stdout().lock(), &line));
    }

    /// Shows a failure on stderr.
    pub fn show(&self, failure: &Failure) {
        match self.mode {
            Mode::Json => {
                let error = json!({"event": "error", "exit": failure.exit().code(), "class": failure.exit().as_str(),
                    "error": failure});
                self.stderr(&error.to_string());
            }
            _ => self.stderr(&failure.lines(self.verbose)),
        }
    }

    /// Shows the failure of a command, where it failed, and gives its exit code.
    pub fn finish(&self, outcome: Result<(), Failure>) -> ExitCode {
        match outcome {
            Ok(()) => ExitCode::from(GOOD),
            Err(failure) => {
                self.show(&failure);
                failure.exit().into()
            }
        }
    }
}

impl Progress for Console {
    fn begin(&self, label: &str, total: Option<u64>) {
        let work = Work::begin(label, total, (self.mode == Mode::Bars).then_some(&self.bars));
        if self.mode == Mode::Json {
            self.stderr(&work.as_json("begin"));
        }
        self.work.push(work);
    }

    fn advance(&self, amount: u64) {
        if let Some((text, json)) = self.work.innermost(|work| work.advance(amount)).flatten() {
            self.stderr(if self.mode == Mode::Json { &json } else { &text });
        }
    }

    fn end(&self) {
        let Some(work) = self.work.pop() else { return };
        let json = (self.mode == Mode::Json).then(|| work.as_json("end"));
        let plain = work.end();
        let line = match self.mode {
            Mode::Json => json,
            Mode::Plain => plain,
            Mode::Bars => None,
        };
        if let Some(line) = line {
            self.stderr(&line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Exit;

    #[test]
    fn unbalanced_ends_are_harmless() {
        let console = Console::new(true, false);
        console.advance(1);
        console.end();
        console.begin("x", Some(10));
        console.advance(4);
        console.end();
        console.end();
    }

    #[test]
    fn a_failure_becomes_its_exit_code() {
        let console = Console::new(false, false);
        let code = console.finish(Err(Failure::new(Exit::Environment, "test")));
        assert_eq!(format!("{code:?}"), format!("{:?}", ExitCode::from(5)));
        assert_eq!(format!("{:?}", console.finish(Ok(()))), format!("{:?}", ExitCode::from(0)));
    }
}
