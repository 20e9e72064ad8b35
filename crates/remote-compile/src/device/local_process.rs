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
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process};
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

/// What `models --version` prints.
pub(super) fn version(models: &Utf8Path) -> io::Result<String> {
    let output = Command::new(models).arg("--version").stdin(Stdio::null()).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    match text.split_whitespace().last() {
        Some(version) if output.status.success() => Ok(version.to_owned()),
        _ => Err(io::Error::other(format!("--version ended with {}", output.status))),
    }
}

#[derive(Deserialize)]
struct PidFile {
    pid: i32,
    #[serde(default)]
    start_time: serde_json::Value,
}

/// A process that runs a job, told from another one of the same ID by when it started.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct JobProcess {
    pid: Pid,
    start_time: Option<String>,
}

fn plain(value: &serde_json::Value) -> Option<String> {
    match value {
        serde_json::Value::String(text) => Some(text.clone()),
        serde_json::Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// When a process started, in clock ticks since the start of the system; `None` where the system does not say.
fn start_time(pid: Pid) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    // The second field is the program's name in brackets and may contain anything; the 22nd is the start time.
    stat.rsplit_once(')')?.1.split_whitespace().nth(19).map(str::to_owned)
}

impl JobProcess {
    /// The process that `pid.json` of a job names.
    pub(super) fn of(dir: &Utf8Path) -> Option<Self> {
        let file: PidFile = serde_json::from_slice(&fs::read(dir.join("pid.json")).ok()?).ok()?;
        Some(Self { pid: Pid::from_raw(file.pid)?, start_time: plain(&file.start_time) })
    }

    /// A child of this process.
    pub(super) fn of_child(id: u32) -> Option<Self> {
        let pid = Pid::from_raw(i32::try_from(id).ok()?)?;
        Some(Self { pid, start_time: start_time(pid) })
    }

    /// Whether the process still runs, and is not another one that was given its ID.
    pub(super) fn is_alive(&self) -> bool {
        if test_kill_process(self.pid).is_err_and(|error| error == rustix::io::Errno::SRCH) {
            return false;
        }
        match (&self.start_time, start_time(self.pid)) {
            (Some(recorded), Some(found)) => *recorded == found,
            _ => true,
        }
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
