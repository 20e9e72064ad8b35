//! Programs that are run to their end within a limit, with everything that they started.

use std::{
    io::{self, Read, Write},
    os::unix::process::CommandExt,
    process::{Child, Command, Stdio},
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    time::{Duration, Instant},
};

/// How a program ended.
#[derive(Debug)]
pub(crate) enum Ended {
    /// By itself, with success or not; what it wrote to its output.
    ByItself(bool, Vec<u8>),
    /// It did not end within the limit, and was killed.
    Late,
    /// The work was asked to stop, and it was killed.
    Stopped,
}

/// How often a program that runs is looked at.
const LOOK: Duration = Duration::from_millis(10);

/// Makes the program the leader of a process group, so that [`kill_group`] reaches its children too.
pub(crate) fn in_own_group(command: &mut Command) -> &mut Command {
    command.process_group(0)
}

/// Kills a program that was started by [`in_own_group`] and what it started, and reaps it.
pub(crate) fn kill_group(child: &mut Child) {
    // Whoever has ended already is past killing.
    let pid = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw);
    if let Some(pid) = pid {
        let _ = rustix::process::kill_process_group(pid, rustix::process::Signal::KILL);
    }
    let _ = child.kill();
    let _ = child.wait();
}

/// Gives `command` a short `input` and waits until it has ended and closed its output, for `limit` at most. Its error output goes
/// nowhere.
pub(crate) fn run_within(
    command: &mut Command,
    input: &[u8],
    limit: Duration,
    stop: &AtomicBool,
) -> io::Result<Ended> {
    let begun = Instant::now();
    let mut child =
        in_own_group(command).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        // One that does not want it says so by how it ends.
        let _ = stdin.write_all(input);
    }
    let (sender, output) = mpsc::channel();
    if let Some(mut stdout) = child.stdout.take() {
        // The thread outlives this call where a stranger to the group holds the pipe; it holds nothing else.
        std::thread::spawn(move || {
            let mut read = Vec::new();
            let whole = stdout.read_to_end(&mut read).map(|_| read);
            let _ = sender.send(whole);
        });
    }
    let mut read = None;
    loop {
        if read.is_none() {
            read = output.recv_timeout(LOOK).ok();
        } else {
            std::thread::sleep(LOOK);
        }
        if read.is_some()
            && let Some(status) = child.try_wait()?
        {
            return Ok(Ended::ByItself(status.success(), read.unwrap_or_else(|| Ok(Vec::new()))?));
        }
        let stopped = stop.load(Ordering::Relaxed);
        if stopped || begun.elapsed() >= limit {
            kill_group(&mut child);
            return Ok(if stopped { Ended::Stopped } else { Ended::Late });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static NEVER: AtomicBool = AtomicBool::new(false);

    fn shell(script: &str, limit: Duration, stop: &AtomicBool) -> Ended {
        run_within(Command::new("sh").args(["-c", script]), b"question\n", limit, stop).unwrap()
    }

    #[test]
    fn what_it_says_is_read_and_its_status_kept() {
        let long = Duration::from_secs(30);
        let Ended::ByItself(true, said) = shell("cat; echo answer", long, &NEVER) else { panic!() };
        assert_eq!(said, b"question\nanswer\n");
        assert!(matches!(shell("exit 3", long, &NEVER), Ended::ByItself(false, said) if said.is_empty()));
    }

    #[test]
    fn one_that_hangs_is_killed_with_its_children() {
        let dir = tempfile::tempdir().unwrap();
        let pids = dir.path().join("pids");
        // The grandchild holds the output open after its parent has ended.
        let script = format!("sleep 600 & echo $! > '{}'; exit 0", pids.display());
        let begun = Instant::now();
        assert!(matches!(shell(&script, Duration::from_millis(300), &NEVER), Ended::Late));
        assert!(begun.elapsed() < Duration::from_secs(20));
        let pid: i32 = std::fs::read_to_string(pids).unwrap().trim().parse().unwrap();
        assert!(has_ended(pid), "{pid} runs on");
        let stop = AtomicBool::new(true);
        assert!(matches!(shell("sleep 600", Duration::from_secs(600), &stop), Ended::Stopped));
    }

    /// Whether a killed process is gone or a zombie that its new parent has not reaped yet.
    fn has_ended(pid: i32) -> bool {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(10) {
            let state = Command::new("ps").args(["-o", "state=", "-p", &pid.to_string()]).output().unwrap();
            let state = String::from_utf8(state.stdout).unwrap();
            if state.trim().is_empty() || state.trim().starts_with('Z') {
                return true;
            }
            std::thread::sleep(LOOK);
        }
        false
    }
}
