//! Progress drawn as bars, written as plain lines, or written as JSON lines.

use std::{
    io::Write,
    sync::Mutex,
    thread::{self, ThreadId},
    time::{Duration, Instant},
};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use serde_json::json;

use crate::{seconds_text, size_text};

/// Work shorter than this leaves no plain line: what is over before it can be read is noise.
const WORTH_A_LINE: Duration = Duration::from_millis(500);
/// How often long work says that it lives, in plain and JSON lines.
const SIGN_OF_LIFE: Duration = Duration::from_secs(10);
/// What is counted in one go beyond this was there already: a transfer that is continued, a file that is equal. It is done,
/// and says nothing about the rate.
const JUMP: u64 = 4 << 20;

/// One piece of work that goes on.
#[derive(Debug)]
pub(crate) struct Work {
    label: String,
    total: Option<u64>,
    done: u64,
    began: Instant,
    last_line: Instant,
    /// What was moved, in all and until the last line.
    moved: u64,
    moved_before: u64,
    bar: Option<ProgressBar>,
}

impl Work {
    pub(crate) fn begin(label: &str, total: Option<u64>, bars: Option<&MultiProgress>) -> Self {
        let bar = bars.map(|bars| {
            let bar = bars.add(total.map_or_else(ProgressBar::no_length, ProgressBar::new));
            let template = if total.is_some() {
                "{msg} {bar:30} {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec} {eta}"
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
        Self {
            label: label.to_owned(),
            total,
            done: 0,
            began,
            last_line: began,
            moved: 0,
            moved_before: 0,
            bar,
        }
    }

    pub(crate) fn relabel(&self, label: &str) {
        if let Some(bar) = &self.bar {
            bar.set_message(label.to_owned());
        }
    }

    /// Counts, and returns the plain text and the JSON of a sign of life where one is due.
    pub(crate) fn advance(&mut self, amount: u64) -> Option<(String, String)> {
        self.done += amount;
        if amount <= JUMP {
            self.moved += amount;
        }
        if let Some(bar) = &self.bar {
            bar.inc(amount);
            return None;
        }
        let due = self.last_line.elapsed() >= SIGN_OF_LIFE;
        due.then(|| {
            let lines = (self.sign_of_life(), self.as_json("advance"));
            (self.last_line, self.moved_before) = (Instant::now(), self.moved);
            lines
        })
    }

    fn sign_of_life(&self) -> String {
        let mut text = format!("{}: {}", self.label, size_text(self.done));
        if let Some(total) = self.total {
            text.push_str(&format!(" of {}", size_text(total)));
        }
        if let Some(rate) = self.rate() {
            text.push_str(&format!(", {}/s", size_text(rate)));
        }
        if let Some(left) = self.seconds_left() {
            text.push_str(&format!(", {} left", seconds_text(left)));
        }
        text
    }

    /// Bytes a second since the last line.
    fn rate(&self) -> Option<u64> {
        let (moved, seconds) = (self.moved - self.moved_before, self.last_line.elapsed().as_secs_f64());
        (moved > 0 && seconds > 0.0).then(|| (moved as f64 / seconds) as u64).filter(|rate| *rate > 0)
    }

    fn seconds_left(&self) -> Option<f64> {
        let left = self.total?.saturating_sub(self.done);
        Some(left as f64 / self.rate()? as f64)
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
        let rounded = |seconds: f64| (seconds * 1e3).round() / 1e3;
        let mut line = json!({"event": "progress", "state": state, "label": self.label, "done": self.done,
            "total": self.total, "seconds": rounded(self.began.elapsed().as_secs_f64())});
        if state == "advance" {
            line["bytes_per_second"] = self.rate().into();
            line["seconds_left"] = self.seconds_left().map(rounded).into();
        }
        line.to_string()
    }
}

/// The work that goes on, innermost last, with the thread that began it: work that several threads do at a time is theirs
/// each, and what a thread counts belongs to its own.
#[derive(Debug, Default)]
pub(crate) struct Stack(Mutex<Vec<(ThreadId, Work)>>);

impl Stack {
    fn with<T>(&self, change: impl FnOnce(&mut Vec<(ThreadId, Work)>) -> T) -> T {
        // A panic elsewhere while counting leaves a count that is off, nothing worse.
        change(&mut self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }

    pub(crate) fn push(&self, work: Work) {
        self.with(|stack| stack.push((thread::current().id(), work)));
    }

    /// Changes the innermost work of this thread; one that has begun none helps the thread that began last.
    pub(crate) fn innermost<T>(&self, change: impl FnOnce(&mut Work) -> T) -> Option<T> {
        self.with(|stack| {
            let at = own(stack).or(stack.len().checked_sub(1))?;
            stack.get_mut(at).map(|(_, work)| change(work))
        })
    }

    /// Takes the innermost work of this thread.
    pub(crate) fn pop(&self) -> Option<Work> {
        self.with(|stack| own(stack).map(|at| stack.remove(at).1))
    }
}

fn own(stack: &[(ThreadId, Work)]) -> Option<usize> {
    let this = thread::current().id();
    stack.iter().rposition(|(thread, _)| *thread == this)
}

/// Writes a line; a closed pipe is nobody's failure.
pub(crate) fn write_line(mut out: impl Write, line: &str) {
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(seconds: u64, total: Option<u64>) -> Work {
        let mut work = Work::begin("a.onnx to comma", total, None);
        work.last_line = work.last_line.checked_sub(Duration::from_secs(seconds)).unwrap();
        work
    }

    #[test]
    fn long_work_says_how_fast_it_is_and_when_it_ends() {
        let mut work = after(20, Some(100 << 20));
        let (text, json) = work.advance(4 << 20).unwrap();
        assert!(text.starts_with("a.onnx to comma: 4.0 MiB of 100.0 MiB, 20"), "{text}");
        assert!(text.contains(" KiB/s, 8 min ") && text.ends_with(" left"), "{text}");
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert!((200_000..=209_716).contains(&json["bytes_per_second"].as_u64().unwrap()), "{json}");
        assert!((479.0..505.0).contains(&json["seconds_left"].as_f64().unwrap()), "{json}");
        assert!(work.advance(1).is_none(), "the next line has time");
    }

    #[test]
    fn what_a_thread_counts_and_ends_is_its_own() {
        let stack = Stack::default();
        stack.push(Work::begin("compile", None, None));
        thread::scope(|scope| {
            scope.spawn(|| {
                // A thread without work of its own helps whoever began last.
                stack.innermost(|work| work.advance(1));
                assert!(stack.pop().is_none());
                stack.push(Work::begin("transfer", Some(10), None));
                stack.innermost(|work| work.advance(4));
            });
        });
        stack.innermost(|work| work.advance(2));
        let compile = stack.pop().unwrap();
        assert_eq!((compile.label.as_str(), compile.done), ("compile", 3));
        assert!(stack.pop().is_none());
    }

    #[test]
    fn what_was_there_already_is_done_and_not_fast() {
        let mut work = after(10, Some(100 << 20));
        let (text, _) = work.advance(90 << 20).unwrap();
        assert!(text.starts_with("a.onnx to comma: 90.0 MiB of 100.0 MiB") && !text.contains("/s"), "{text}");
        let mut work = after(10, None);
        let (text, json) = work.advance(1 << 20).unwrap();
        assert!(text.contains("/s") && !text.contains("left"), "{text}");
        assert!(json.contains("\"seconds_left\":null"), "{json}");
    }
}
