//! The process of a local job.

use std::{
    fs::{self, OpenOptions},
    io,
    os::unix::process::CommandExt,
    process::{Child, Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use camino::Utf8Path;
use rustix::process::{Pid, Signal, kill_process_group};
use serde::Deserialize;

/// Where the output of `models` itself goes, in the job's directory.
pub(super) const OUTPUT: &str = "models.out";
/// How long a job may take to end after SIGTERM (its own driver is given part of this) before it is killed.
const GRACE: Duration = Duration::from_secs(8);
const POLL: Duration = Duration::from_millis(10);

/// Starts `models job DIR` as the leader of a process group of its own: a Ctrl-C on the terminal does not reach it, and it
/// goes on when this process is killed.
pub(super) fn start(models: &Utf8Path, dir: &Utf8Path) -> io::Result<Child> {
    let output = OpenOptions::new().create(true).append(true).open(dir.join(OUTPUT))?;
    Command::new(models)
        .arg("job")
        .arg(dir)
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output)
        .process_group(0)
        .spawn()
}

/// What `models about` says.
#[derive(Debug, Deserialize)]
pub(super) struct About {
    pub(super) version: String,
    pub(super) driver_sha256: String,
}

/// Asks `models` what it is.
pub(super) fn about(models: &Utf8Path) -> io::Result<About> {
    let output = Command::new(models).arg("about").stdin(Stdio::null()).output()?;
    if !output.status.success() {
        return Err(io::Error::other(format!("`models about` ended with {}", output.status)));
    }
    serde_json::from_slice(&output.stdout)
        .map_err(|error| io::Error::other(format!("`models about` says what cannot be read: {error}")))
}

/// The process that runs a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct JobProcess {
    pid: Pid,
    recorded: tinygrad_compile::job::JobProcess,
}

impl JobProcess {
    /// The process that `pid.json` of a job names.
    pub(super) fn of(dir: &Utf8Path) -> Option<Self> {
        let text = fs::read(dir.join(tinygrad_compile::job::PID_FILE)).ok()?;
        Self::recorded(serde_json::from_slice(&text).ok()?)
    }

    /// A child of this process.
    pub(super) fn of_child(pid: u32) -> Option<Self> {
        let start_time = tinygrad_compile::job::JobProcess::start_time_of(pid);
        Self::recorded(tinygrad_compile::job::JobProcess { pid, start_time })
    }

    fn recorded(recorded: tinygrad_compile::job::JobProcess) -> Option<Self> {
        Some(Self { pid: Pid::from_raw(i32::try_from(recorded.pid).ok()?)?, recorded })
    }

    /// Whether the process still runs, and is not another one that was given its ID.
    pub(super) fn is_alive(&self) -> bool {
        self.recorded.is_alive()
    }

    /// Ends the process and its group: SIGTERM, and SIGKILL where it does not end in time. `has_ended` says whether it did.
    pub(super) fn end(&self, has_ended: impl Fn() -> bool) -> io::Result<()> {
        for signal in [Signal::TERM, Signal::KILL] {
            match kill_process_group(self.pid, signal) {
                Err(error) if error != rustix::io::Errno::SRCH => return Err(error.into()),
                _ => {}
            }
            let until = Instant::now() + GRACE;
            while Instant::now() < until {
                if has_ended() {
                    return Ok(());
                }
                sleep(POLL);
            }
        }
        Err(io::Error::other(format!("process {} does not end", self.pid.as_raw_nonzero())))
    }
}
