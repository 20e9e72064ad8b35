//! Progress drawn as bars, written as plain lines, or written as JSON lines.

use std::{
    io::Write,
    sync::Mutex,
    time::{Duration, Instant},
};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use serde_json::json;

use crate::{seconds_text, size_text};

/// Work shorter than this leaves no plain line: what is over before it can be read is noise.
const WORTH_A_LINE: Duration = Duration::from_millis(500);
/// How often long work says that it lives, in plain and JSON lines.
const SIGN_OF_LIFE: Duration = Duration::from_secs(10);

/// One piece of work that goes on.
#[derive(Debug)]
pub(crate) struct Work {
    label: String,
    total: Option<u64>,
    done: u64,
    began: Instant,
    last_line: Instant,
    bar: Option<ProgressBar>,
}

impl Work {
    pub(crate) fn begin(label: &str, total: Option<u64>, bars: Option<&MultiProgress>) -> Self {
        let bar = bars.map(|bars| {
            let bar = bars.add(total.map_or_else(ProgressBar::no_length, ProgressBar::new));
            let template = if total.is_some() {
                "{msg} {bar:30} {binary_bytes}/{binary_total_bytes} {eta}"
            } else {
                "{spinner} {msg} {elapsed}"
            };
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style);
            }
            bar.enable_steady_tick(Duration::from_millis(120));
            bar.with_message(label.to_owned())
        });
        let began = Instant::now();
        Self { label: label.to_owned(), total, done: 0, began, last_line: began, bar }
    }

    pub(crate) fn relabel(&self, label: &str) {
        if let Some(bar) = &self.bar {
            bar.set_message(label.to_owned());
        }
    }

    /// Counts, and returns the plain text of a sign of life where one is due.
    pub(crate) fn advance(&mut self, amount: u64) -> Option<String> {
        self.done += amount;
        if let Some(bar) = &self.bar {
            bar.inc(amount);
            return None;
        }
        let due = self.last_line.elapsed() >= SIGN_OF_LIFE;
        due.then(|| {
            self.last_line = Instant::now();
            let total = self.total.map(|total| format!(" of {}", size_text(total))).unwrap_or_default();
            format!("{}: {}{total}", self.label, size_text(self.done))
        })
    }

    /// Ends the work and returns its plain line where it took long enough for one.
    pub(crate) fn end(self) -> Option<String> {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
        let took = self.began.elapsed();
        let amount = if self.done > 0 { format!(", {}", size_text(self.done)) } else { String::new() };
        (took >= WORTH_A_LINE)
            .then(|| format!("{} ({}{amount})", self.label, seconds_text(took.as_secs_f64())))
    }

    pub(crate) fn as_json(&self, state: &str) -> String {
        json!({"event": "progress", "state": state, "label": self.label, "done": self.done, "total": self.total,
            "seconds": (self.began.elapsed().as_secs_f64() * 1e3).round() / 1e3})
        .to_string()
    }
}

/// The work that goes on, innermost last.
#[derive(Debug, Default)]
pub(crate) struct Stack(Mutex<Vec<Work>>);

impl Stack {
    pub(crate) fn with<T>(&self, change: impl FnOnce(&mut Vec<Work>) -> T) -> T {
        // A panic elsewhere while counting leaves a count that is off, nothing worse.
        change(&mut self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }
}

/// Writes a line; a closed pipe is nobody's failure.
pub(crate) fn write_line(mut out: impl Write, line: &str) {
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}
