//! One supervised run of the driver.
//!
//! What can go wrong: the process hangs, is killed, leaves compilers behind, writes something else than events, closes its
//! pipe and lives on, or exits without a last event. The result counts only when a `done` event *and* exit status 0 are
//! there; everything else is an error that quotes the end of the log.

use std::{
    fs::{File, OpenOptions},
    io::{BufRead, BufReader, Read, Seek, SeekFrom},
    os::unix::process::ExitStatusExt,
    process::{Command, ExitStatus, Stdio},
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, RecvTimeoutError, sync_channel},
    },
    time::{Duration, Instant},
};

use camino::{Utf8Path, Utf8PathBuf};
use durable_fs::{FsError, write_json};
use serde::Serialize;
use serde_json::Value;

use super::{
    DriverError, DriverEvent, FailureKind, RunContext, StageState, embedded::unpack_supervisor,
    group::ProcessGroup,
};
use crate::environment::Environment;

/// How often cancellation and the watchdog are looked at.
const TICK: Duration = Duration::from_millis(100);
/// How long a driver that has closed its event pipe may take to exit.
const EXIT_TIME: Duration = Duration::from_secs(30);
/// Lines of the log that an error quotes.
const QUOTED_LINES: usize = 12;
/// The default of [`Driver::quiet_limit`]: the longest silence between two events that is not taken for a hang. Loading a
/// large model on a device is the longest stage that has none.
pub const QUIET_LIMIT: Duration = Duration::from_secs(20 * 60);

/// A driver that is ready to run requests.
#[derive(Debug, Clone)]
pub struct Driver {
    /// The interpreter.
    pub python: Utf8PathBuf,
    /// The driver's entry file.
    pub entry: Utf8PathBuf,
    /// A private directory for requests; the working directory of the process.
    pub scratch: Utf8PathBuf,
    /// Variables of the process.
    pub environment: Environment,
    /// Receives, appended, everything that the process prints except events.
    pub log: Utf8PathBuf,
    /// The longest accepted silence between two events.
    pub quiet_limit: Duration,
    /// The CPU that the process is pinned to, where it is.
    pub cpu: Option<usize>,
}

/// How a run ended, before it is judged.
enum Ending {
    Closed,
    Cancelled,
    Stalled,
}

#[derive(Default)]
struct Heard {
    done: Option<Value>,
    failed: Option<(FailureKind, String, Value)>,
    stage: Option<String>,
}

impl Driver {
    /// Runs `request` (operation `op`) and returns the result of its `done` event. Every event is passed to `on_event`; the
    /// run ends early when `cancel` is set.
    ///
    /// # Errors
    /// [`DriverError`]; no process of the run is left in any case.
    pub fn run(
        &self,
        op: &'static str,
        request: &impl Serialize,
        cancel: &AtomicBool,
        on_event: &mut dyn FnMut(&DriverEvent),
    ) -> Result<Value, DriverError> {
        let file = self.scratch.join(format!("{op}.json"));
        write_json(&file, request)?;
        let (log, log_start) = open_log(&self.log)?;
        let mut command = self.command(&file, log)?;
        let start = |source| DriverError::Start { python: self.python.clone(), source };
        let mut group = ProcessGroup::start(&mut command, self.cpu).map_err(start)?;
        // Held open for the length of the run: where this process is killed, the driver sees the end of its input and ends.
        let _alive = group.take_stdin();
        let stdout = group.take_stdout().ok_or_else(|| start(std::io::Error::other("no event pipe")))?;
        let mut heard = Heard::default();
        let ending = supervise(&lines_of(stdout), self.quiet_limit, cancel, &mut heard, on_event);
        if matches!(ending, Ending::Closed) {
            wait_for_exit(&group, cancel).map_err(start)?;
        }
        let status = group.end().map_err(start)?;
        let tail = tail_of(&self.log, log_start).unwrap_or_default();
        let stage = heard.stage.take().unwrap_or_else(|| "start".to_owned());
        let context = Box::new(RunContext { op, stage, log: self.log.clone(), tail });
        match ending {
            Ending::Cancelled => Err(DriverError::Cancelled { op }),
            Ending::Stalled => Err(DriverError::Stalled { seconds: self.quiet_limit.as_secs(), context }),
            Ending::Closed if cancel.load(Ordering::Relaxed) && !status.success() => {
                Err(DriverError::Cancelled { op })
            }
            Ending::Closed => judge(heard, status, context),
        }
    }

    fn command(&self, request: &Utf8Path, log: File) -> Result<Command, DriverError> {
        let mut command = Command::new(&self.python);
        command.arg(&self.entry).arg(request).current_dir(&self.scratch);
        for name in &self.environment.remove {
            command.env_remove(name);
        }
        command.envs(&self.environment.set).env("DRIVER_WATCHES_STDIN", "1");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
        Ok(command)
    }
}

/// A program that knows no events: a tree's own compiler.
pub(crate) struct Program<'p> {
    /// What it does, for errors.
    pub(crate) op: &'static str,
    /// The program with its arguments, directory and environment.
    pub(crate) command: Command,
    /// A private directory, for what runs the program.
    pub(crate) scratch: &'p Utf8Path,
    /// Receives what it prints.
    pub(crate) log: &'p Utf8Path,
    /// The longest accepted time in which the log does not grow.
    pub(crate) quiet_limit: Duration,
    /// The CPU that the process is pinned to, where it is.
    pub(crate) cpu: Option<usize>,
}

impl Program<'_> {
    /// Runs it to its end. A growing log is its sign of life. It ends with this process, however that ends.
    pub(crate) fn run(mut self, cancel: &AtomicBool) -> Result<(), DriverError> {
        let (log, log_start) = open_log(self.log)?;
        let output = log.try_clone().map_err(FsError::io("open the log", self.log))?;
        self.command = supervised(&self.command, self.scratch)?;
        self.command.stdin(Stdio::piped()).stdout(output).stderr(log);
        let python: Utf8PathBuf = self.command.get_program().to_string_lossy().as_ref().into();
        let start = |source| DriverError::Start { python: python.clone(), source };
        let mut group = ProcessGroup::start(&mut self.command, self.cpu).map_err(start)?;
        // Held open for the length of the run: its end is what ends the program where this process is killed.
        let _alive = group.take_stdin();
        let ending = self.watch(&group, cancel).map_err(start)?;
        let status = group.end().map_err(start)?;
        let tail = tail_of(self.log, log_start).unwrap_or_default();
        let stage = "tree".to_owned();
        let context = Box::new(RunContext { op: self.op, stage, log: self.log.to_owned(), tail });
        match ending {
            Ending::Cancelled => Err(DriverError::Cancelled { op: self.op }),
            Ending::Stalled => Err(DriverError::Stalled { seconds: self.quiet_limit.as_secs(), context }),
            Ending::Closed if status.success() => Ok(()),
            Ending::Closed => Err(DriverError::Died {
                status: status_text(status),
                killed: status.signal() == Some(9),
                context,
            }),
        }
    }

    fn watch(&self, group: &ProcessGroup, cancel: &AtomicBool) -> std::io::Result<Ending> {
        let (mut size, mut last) = (0, Instant::now());
        while !group.wait_until(Instant::now() + TICK)? {
            let now = self.log.metadata().map_or(size, |metadata| metadata.len());
            if now != size {
                (size, last) = (now, Instant::now());
            }
            if cancel.load(Ordering::Relaxed) {
                return Ok(Ending::Cancelled);
            }
            if last.elapsed() >= self.quiet_limit {
                return Ok(Ending::Stalled);
            }
        }
        Ok(Ending::Closed)
    }
}

/// `command`, whose program is an interpreter, run by the supervisor in that interpreter.
fn supervised(command: &Command, scratch: &Utf8Path) -> Result<Command, FsError> {
    let supervisor = unpack_supervisor(scratch)?;
    let mut outer = Command::new(command.get_program());
    // Nothing of the tree gets into the supervisor; an interpreter that needs to be told its home is told.
    let has_home = command.get_envs().any(|(name, value)| name == "PYTHONHOME" && value.is_some());
    outer.args(if has_home { ["-S", "-B"] } else { ["-IS", "-B"] });
    outer.arg(supervisor).arg(command.get_program()).args(command.get_args());
    if let Some(dir) = command.get_current_dir() {
        outer.current_dir(dir);
    }
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => outer.env(name, value),
            None => outer.env_remove(name),
        };
    }
    Ok(outer)
}

fn open_log(path: &Utf8Path) -> Result<(File, u64), FsError> {
    let mut log =
        OpenOptions::new().create(true).append(true).open(path).map_err(FsError::io("open the log", path))?;
    let start = log.seek(SeekFrom::End(0)).map_err(FsError::io("open the log", path))?;
    Ok((log, start))
}

/// Reads lines on a thread of its own, which ends with the pipe.
fn lines_of(stdout: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (sender, receiver) = sync_channel(64);
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).split(b'\n') {
            // An error of the pipe is its end; the exit status tells what happened.
            let Ok(line) = line else { return };
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

fn supervise(
    lines: &Receiver<Vec<u8>>,
    quiet_limit: Duration,
    cancel: &AtomicBool,
    heard: &mut Heard,
    on_event: &mut dyn FnMut(&DriverEvent),
) -> Ending {
    let mut last = Instant::now();
    loop {
        if cancel.load(Ordering::Relaxed) {
            return Ending::Cancelled;
        }
        match lines.recv_timeout(TICK) {
            Ok(line) => {
                // What is no event is no sign of progress either.
                if let Ok(event) = serde_json::from_slice::<DriverEvent>(&line) {
                    last = Instant::now();
                    heard.note(&event);
                    on_event(&event);
                }
            }
            Err(RecvTimeoutError::Timeout) if last.elapsed() >= quiet_limit => return Ending::Stalled,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Ending::Closed,
        }
    }
}

impl Heard {
    fn note(&mut self, event: &DriverEvent) {
        match event {
            DriverEvent::Stage { stage, state: StageState::Start, .. } => self.stage = Some(stage.clone()),
            DriverEvent::Done { result } => self.done = Some(result.clone()),
            DriverEvent::Failed { kind, message, detail } => {
                self.failed = Some((*kind, message.clone(), detail.clone()));
            }
            DriverEvent::Stage { .. }
            | DriverEvent::Model { .. }
            | DriverEvent::Note { .. }
            | DriverEvent::Other => {}
        }
    }
}

fn wait_for_exit(group: &ProcessGroup, cancel: &AtomicBool) -> std::io::Result<()> {
    let deadline = Instant::now() + EXIT_TIME;
    while !group.wait_until((Instant::now() + TICK).min(deadline))? {
        if cancel.load(Ordering::Relaxed) || Instant::now() >= deadline {
            break;
        }
    }
    Ok(())
}

fn judge(heard: Heard, status: ExitStatus, context: Box<RunContext>) -> Result<Value, DriverError> {
    match (heard.failed, heard.done) {
        (Some((kind, message, detail)), _) => {
            Err(DriverError::Failed { kind, message, detail: Box::new(detail), context })
        }
        (None, Some(result)) if status.success() => Ok(result),
        _ => Err(DriverError::Died {
            status: status_text(status),
            killed: status.signal() == Some(9),
            context,
        }),
    }
}

fn status_text(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "an unknown status".to_owned(),
    }
}

fn tail_of(log: &Utf8Path, from: u64) -> std::io::Result<String> {
    const QUOTED_BYTES: u64 = 16 * 1024;
    let mut file = File::open(log)?;
    let end = file.seek(SeekFrom::End(0))?;
    file.seek(SeekFrom::Start(from.max(end.saturating_sub(QUOTED_BYTES))))?;
    let mut bytes = Vec::new();
    file.take(QUOTED_BYTES).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    Ok(lines[lines.len().saturating_sub(QUOTED_LINES)..].join("\n"))
}
