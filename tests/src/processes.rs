//! Other processes of this machine, found by what stands on their command line.

use std::{fs, time::Duration};

use anyhow::{Context, Result, bail};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

/// Sends a signal to a process that the caller started.
///
/// # Errors
/// When there is no such process.
pub fn send_signal(process: u32, signal: Signal) -> Result<()> {
    let pid = Pid::from_raw(i32::try_from(process)?);
    kill(pid, signal).with_context(|| format!("send {signal} to process {process}"))
}

/// Live processes on whose command line all of `words` stand; empty where the system has no `/proc`.
#[must_use]
pub fn processes_with(words: &[&str]) -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    ids.filter(|id| command_line(*id).is_some_and(|line| words.iter().all(|word| line.contains(word))))
        .collect()
}

/// The command line with blanks between its words; `None` for a process that has ended.
fn command_line(process: u32) -> Option<String> {
    let bytes = fs::read(format!("/proc/{process}/cmdline")).ok()?;
    Some(String::from_utf8_lossy(&bytes).replace('\0', " "))
}

/// Waits until `condition` holds.
///
/// # Errors
/// When it does not within `limit`; `what` says what was waited for.
pub fn wait_for(what: &str, limit: Duration, mut condition: impl FnMut() -> bool) -> Result<()> {
    let step = Duration::from_millis(20);
    for _ in 0..limit.as_millis() / step.as_millis() {
        if condition() {
            return Ok(());
        }
        std::thread::sleep(step);
    }
    bail!("waited {} s for {what} in vain", limit.as_secs())
}
