//! The programs that a verification starts: those of the runtime, and the sampler.

use std::{
    fs::{File, OpenOptions},
    io::{self, BufRead, BufReader},
    process::{ChildStdin, Command, Stdio},
    sync::mpsc::{Receiver, sync_channel},
    time::Instant,
};

use camino::Utf8Path;
use durable_fs::{FsError, write_atomic};
use tinygrad_compile::{
    driver::ProcessGroup,
    job::{RuntimeJob, RuntimeSite},
};

use super::watch::Line;

/// The sampler, carried in the binary.
const SAMPLER: &str = include_str!("../../python/sampler.py");
const SAMPLER_FILE: &str = "sampler.py";
/// Stands for the interpreter in a command.
const PYTHON: &str = "{python}";

/// A running program; it and what it started are ended when this is dropped.
pub(super) struct Running {
    pub(super) name: String,
    pub(super) group: ProcessGroup,
}

impl Running {
    /// Whether it has ended, which none of them may.
    pub(super) fn has_ended(&self) -> bool {
        self.group.wait_until(Instant::now()).unwrap_or(true)
    }
}

/// The sampler and what it says.
pub(super) struct Sampler {
    pub(super) running: Running,
    pub(super) lines: Receiver<Line>,
    // Closing it ends the sampler.
    _input: Option<ChildStdin>,
}

fn log(site: &RuntimeSite<'_>) -> Result<File, FsError> {
    let opened = OpenOptions::new().create(true).append(true).open(&site.log);
    opened.map_err(FsError::io("open the log", &site.log))
}

/// A command in the tree, whose packages come first.
fn in_tree(program: &str, job: &RuntimeJob, site: &RuntimeSite<'_>) -> Command {
    let mut path = job.root.to_string();
    if let Some(more) = site.variables.get("PYTHONPATH").filter(|more| !more.is_empty()) {
        path = format!("{path}:{more}");
    }
    let mut command = Command::new(program);
    command.current_dir(&job.root).env("PYTHONPATH", path).env("PYTHONUNBUFFERED", "1");
    command
}

/// Starts the program `index` of the job.
pub(super) fn start(job: &RuntimeJob, site: &RuntimeSite<'_>, index: usize) -> io::Result<Running> {
    let process = &job.processes[index];
    let words: Vec<String> =
        process.command.iter().map(|word| word.replace(PYTHON, site.python.as_str())).collect();
    let [program, arguments @ ..] = words.as_slice() else {
        return Err(io::Error::other("its command is empty"));
    };
    // A path is one of the tree.
    let program = if program.contains('/') { job.root.join(program).to_string() } else { program.clone() };
    let log = log(site).map_err(io::Error::other)?;
    let mut command = in_tree(&program, job, site);
    command.args(arguments).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    Ok(Running { name: process.name.clone(), group: ProcessGroup::start(&mut command, None)? })
}

/// Starts the sampler.
pub(super) fn start_sampler(job: &RuntimeJob, site: &RuntimeSite<'_>) -> io::Result<Sampler> {
    let file = site.dir.join(SAMPLER_FILE);
    write_atomic(&file, SAMPLER.as_bytes()).map_err(io::Error::other)?;
    let log = log(site).map_err(io::Error::other)?;
    let mut command = in_tree(site.python.as_str(), job, site);
    command.arg(file.as_str()).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
    let mut group = ProcessGroup::start(&mut command, None)?;
    let input = group.take_stdin();
    let output = group.take_stdout().ok_or_else(|| io::Error::other("it has no output"))?;
    let (sender, lines) = sync_channel(256);
    std::thread::spawn(move || {
        for line in BufReader::new(output).split(b'\n') {
            let Ok(line) = line else { return };
            // What is no line of the sampler is a library's chatter.
            if let Ok(line) = serde_json::from_slice(&line)
                && sender.send(line).is_err()
            {
                return;
            }
        }
    });
    let running = Running { name: "the sampler".to_owned(), group };
    Ok(Sampler { running, lines, _input: input })
}

/// The last lines of the log.
pub(super) fn tail(log: &Utf8Path) -> String {
    const LINES: usize = 6;
    let text = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text[text.len().saturating_sub(4096)..]).into_owned();
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(LINES)..].join(" | ")
}
