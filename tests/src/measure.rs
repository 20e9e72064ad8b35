//! Wall time, CPU time and peak memory of one command.
//!
//! Linux counts the memory of the forking process into the child's peak, so the command is started by a small program of
//! its own ([`Measurer::child_main`]) and never by the test or the benchmark itself.

use std::{
    ffi::{OsStr, OsString},
    process::{Command, ExitCode},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use camino::Utf8PathBuf;
use nix::sys::resource::{UsageWho, getrusage};
use serde::{Deserialize, Serialize};

use crate::{Outcome, run};

/// What one run of a command took.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Measured {
    /// Wall-clock seconds.
    pub wall_seconds: f64,
    /// User and system CPU seconds together.
    pub cpu_seconds: f64,
    /// Largest resident set of the command and of each of its children, in bytes.
    pub peak_bytes: u64,
}

impl Measured {
    /// The peak in MiB.
    #[must_use]
    pub fn peak_mib(&self) -> f64 {
        self.peak_bytes as f64 / (1 << 20) as f64
    }
}

/// Starts commands through the small measuring program.
#[derive(Debug, Clone)]
pub struct Measurer {
    prefix: Vec<OsString>,
}

impl Measurer {
    /// `prefix` is the measuring program with its leading arguments: `measure-child`, which integration tests of this
    /// package find in `CARGO_BIN_EXE_measure-child`, or any program that calls [`Self::child_main`].
    pub fn new(prefix: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        Self { prefix: prefix.into_iter().map(Into::into).collect() }
    }

    /// Runs `command` (its program, arguments, environment and directory; not its streams) and measures it.
    ///
    /// # Errors
    /// When it does not start or leaves no report.
    pub fn run(&self, command: &Command) -> Result<(Outcome, Measured)> {
        let dir = tempfile::tempdir().context("make a directory for the report")?;
        let report = Utf8PathBuf::try_from(dir.path().join("report.json"))?;
        let outcome = run(&mut self.wrapped(command, &report))?;
        let text = std::fs::read_to_string(&report)
            .with_context(|| format!("read the measuring program's report\n{}", outcome.transcript()))?;
        Ok((outcome, serde_json::from_str(&text).context("parse the measuring program's report")?))
    }

    fn wrapped(&self, command: &Command, report: &Utf8PathBuf) -> Command {
        let mut wrapped = Command::new(&self.prefix[0]);
        wrapped.args(&self.prefix[1..]).arg(report).arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => wrapped.env(name, value),
                None => wrapped.env_remove(name),
            };
        }
        if let Some(dir) = command.get_current_dir() {
            wrapped.current_dir(dir);
        }
        wrapped
    }

    /// The measuring program: `REPORT PROGRAM [ARG...]` runs the program on its own streams, writes the report and ends with
    /// the program's exit code (128 + signal after a signal).
    ///
    /// # Errors
    /// When the program does not start or the report cannot be written.
    pub fn child_main(arguments: &[OsString]) -> Result<ExitCode> {
        let [report, program, rest @ ..] = arguments else {
            anyhow::bail!("usage: REPORT PROGRAM [ARG...]");
        };
        let started = Instant::now();
        let mut child = Command::new(program)
            .args(rest)
            .spawn()
            .with_context(|| format!("start {}", OsStr::new(program).display()))?;
        let watch = Watch::start(child.id());
        let status = child.wait().context("wait for the program")?;
        let wall_seconds = started.elapsed().as_secs_f64();
        let sampled = watch.end();
        let mut measured = children_usage(wall_seconds)?;
        if peak_of("self").is_some_and(|own| measured.peak_bytes <= own) {
            // The kernel's figure is this program's: the memory of the forking process counts until the child has replaced it.
            measured.peak_bytes = sampled.unwrap_or(measured.peak_bytes);
        }
        write_report(report, &measured)?;
        let code = std::os::unix::process::ExitStatusExt::signal(&status)
            .map_or(status.code(), |signal| Some(128 + signal));
        Ok(ExitCode::from(u8::try_from(code.unwrap_or(255)).unwrap_or(255)))
    }
}

/// The largest resident set of a process so far, where the system tells it.
fn peak_of(process: &str) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// Asks for a process's peak until it ends; a peak never falls, so the last answer counts.
struct Watch {
    ended: Arc<AtomicBool>,
    thread: JoinHandle<Option<u64>>,
}

impl Watch {
    const INTERVAL: Duration = Duration::from_millis(5);

    fn start(process: u32) -> Self {
        let ended = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&ended);
        let thread = std::thread::spawn(move || {
            let mut peak = None;
            while !told.load(Ordering::Relaxed) {
                peak = peak_of(&process.to_string()).or(peak);
                std::thread::sleep(Self::INTERVAL);
            }
            peak
        });
        Self { ended, thread }
    }

    fn end(self) -> Option<u64> {
        self.ended.store(true, Ordering::Relaxed);
        self.thread.join().ok().flatten()
    }
}

fn children_usage(wall_seconds: f64) -> Result<Measured> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).context("ask for the children's resource usage")?;
    let seconds = |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    // The kernel reports KiB on Linux and bytes on macOS.
    let unit = if cfg!(target_os = "macos") { 1 } else { 1024 };
    Ok(Measured {
        wall_seconds,
        cpu_seconds: seconds(usage.user_time()) + seconds(usage.system_time()),
        peak_bytes: usage.max_rss().unsigned_abs() * unit,
    })
}

#[expect(
    clippy::disallowed_methods,
    reason = "a report in a private temporary directory, read by the parent alone"
)]
fn write_report(path: &OsString, measured: &Measured) -> Result<()> {
    std::fs::write(path, serde_json::to_vec(measured)?).context("write the report")
}
