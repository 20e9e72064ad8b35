//! A child process that leads a process group of its own, and is never left behind.

use std::{
    io,
    os::unix::process::CommandExt,
    process::{Child, ChildStdin, ChildStdout, Command, ExitStatus},
    thread::sleep,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

/// How long a group may take to end after SIGTERM before it is killed.
const GRACE: Duration = Duration::from_secs(2);
const POLL: Duration = Duration::from_millis(4);

/// A running child and the group that it leads.
#[derive(Debug)]
pub struct ProcessGroup {
    child: Child,
    leader: Pid,
    ended: bool,
}

impl ProcessGroup {
    /// Starts `command` as the leader of a new group, so that a Ctrl-C on the terminal reaches only us and a kill reaches
    /// all that the child started.
    ///
    /// With `cpu` the child and its threads run on that CPU alone, where it exists.
    ///
    /// # Errors
    /// [`io::Error`] where it does not start.
    pub fn start(command: &mut Command, cpu: Option<usize>) -> io::Result<Self> {
        let child = on_cpu(cpu, || command.process_group(0).spawn())?;
        let leader = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let leader = leader.ok_or_else(|| io::Error::other("the system gave an impossible process ID"))?;
        Ok(Self { child, leader, ended: false })
    }

    /// Process ID of the leader, and of the group.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The child's standard output, where it was piped and not taken before.
    pub fn take_stdout(&mut self) -> Option<ChildStdout> {
        self.child.stdout.take()
    }

    /// The child's standard input, where it was piped and not taken before.
    pub fn take_stdin(&mut self) -> Option<ChildStdin> {
        self.child.stdin.take()
    }

    /// Whether the leader has exited. It is not reaped, so its ID cannot be given to another process before the group is
    /// killed.
    fn has_exited(&self) -> io::Result<bool> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        Ok(waitid(WaitId::Pid(self.leader), options)?.is_some())
    }

    /// Waits until the leader has exited or `deadline` has passed.
    ///
    /// # Errors
    /// [`io::Error`] where the system does not say.
    pub fn wait_until(&self, deadline: Instant) -> io::Result<bool> {
        loop {
            if self.has_exited()? {
                return Ok(true);
            }
            if Instant::now() >= deadline {
                return Ok(false);
            }
            sleep(POLL);
        }
    }

    /// Ends what is left of the group and reaps the leader: with SIGTERM first where the leader still runs.
    ///
    /// # Errors
    /// [`io::Error`] where its status cannot be had.
    pub fn end(&mut self) -> io::Result<ExitStatus> {
        if !self.has_exited()? {
            let _ = kill_process_group(self.leader, Signal::TERM);
            self.wait_until(Instant::now() + GRACE)?;
        }
        // Also after an ordinary exit: a compiler that the leader started must not outlive it.
        let _ = kill_process_group(self.leader, Signal::KILL);
        self.ended = true;
        self.child.wait()
    }
}

/// Does `work` with this thread pinned, which a child inherits. Pinning is for speed: a machine that refuses it goes on.
#[cfg(target_os = "linux")]
fn on_cpu<T>(cpu: Option<usize>, work: impl FnOnce() -> T) -> T {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
    let before = cpu.and_then(|_| sched_getaffinity(None).ok());
    if let Some(cpu) = cpu.filter(|&cpu| before.is_some() && cpu < CpuSet::MAX_CPU) {
        let mut one = CpuSet::new();
        one.set(cpu);
        let _ = sched_setaffinity(None, &one);
    }
    let result = work();
    if let Some(before) = before {
        let _ = sched_setaffinity(None, &before);
    }
    result
}

#[cfg(not(target_os = "linux"))]
fn on_cpu<T>(_cpu: Option<usize>, work: impl FnOnce() -> T) -> T {
    work()
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        if !self.ended {
            let _ = kill_process_group(self.leader, Signal::KILL);
            let _ = self.child.wait();
        }
    }
}
