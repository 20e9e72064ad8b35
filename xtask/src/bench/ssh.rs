//! Verified transfers over one SSH connection against scp, sftp and rsync, on one OpenSSH server of this machine.
//!
//! Our side is what a rebuild does: a fresh connection with its checks, the file hashed on both ends while it moves, synced and
//! renamed. The peers neither verify nor sync. On the device's side `models` runs under the measuring program, so that its
//! memory is known too.

use std::{cell::RefCell, env, fs, process::Command, time::Duration};

use anyhow::{Context, Result, ensure};
use camino::{Utf8Path, Utf8PathBuf};
use e2e::{FaultProxy, Measured, Sshd, sha256_file, target_directory, wait_for};

use super::{
    Arguments,
    comparison::{Comparison, Report, print_goal},
    incompressible_file, part_directory, release_binary,
};
use crate::process::{cargo, run as run_command};

const SIZE_MIB: u64 = 300;
/// Each way: 20 ms there and back. A link with a delay shows what a small window or few requests in flight cost.
const DELAY: Duration = Duration::from_millis(10);
const PEAK_MIB: f64 = 24.0;
const SMALL_FILES: usize = 300;
const SMALL_SIZE: usize = 5000;
const GCM: &str = "aes128-gcm@openssh.com";

struct Bench<'a> {
    arguments: &'a Arguments,
    transfer: Utf8PathBuf,
    dir: Utf8PathBuf,
    file: Utf8PathBuf,
    sshd: Sshd,
    user: String,
    /// The largest peak of `models` on the device, in MiB, since it was last asked for.
    peak: RefCell<f64>,
}

/// Runs the comparison.
pub fn run(arguments: &Arguments) -> Result<()> {
    let models = release_binary("models")?;
    run_command(cargo("build").args(["--quiet", "--release", "--package", "remote-compile"]).args([
        "--features",
        "ssh",
        "--example",
        "transfer",
    ]))?;
    let dir = part_directory("ssh")?;
    let file = dir.join("file");
    let size = arguments.size_mib.unwrap_or(SIZE_MIB);
    incompressible_file(&file, size)?;
    for made in ["sshd", "device", "small"] {
        let _ = fs::remove_dir_all(dir.join(made));
    }
    install(&models, &dir)?;
    small_files(&dir.join("small"))?;
    let note = format!("{} {}", size << 20, sha256_file(&file)?);
    for name in ["file.expected", "ours.expected"] {
        durable_fs::write_atomic(dir.join(name), note.as_bytes())?;
    }
    let bench = Bench {
        arguments,
        transfer: target_directory()?.join("release/examples/transfer"),
        sshd: Sshd::start(&dir.join("sshd"), &[])?,
        user: env::var("USER").unwrap_or_else(|_| "root".to_owned()),
        dir,
        file,
        peak: RefCell::new(0.0),
    };
    let direct = bench.sshd.port();
    bench.up("up", direct, 0.65)?;
    bench.down("down", direct, 0.65)?;
    bench.small(direct)?;
    let proxy = FaultProxy::start(direct)?;
    proxy.delay(DELAY);
    bench.up("up, 20 ms", proxy.port(), 0.85)?;
    bench.down("down, 20 ms", proxy.port(), 0.85)
}

impl Bench<'_> {
    fn ours(&self, verb: &str, port: u16, file: &Utf8Path) -> Result<Command> {
        let known = self.dir.join(format!("known_hosts_{port}"));
        durable_fs::write_atomic(&known, self.sshd.known_hosts_line(port)?.as_bytes())?;
        let mut command = Command::new(&self.transfer);
        let device = format!("{}@127.0.0.1:{port}", self.user);
        command.args([verb, &device, self.sshd.user_key().as_str(), known.as_str()]);
        command.args([self.dir.join("device").as_str(), file.as_str()]);
        Ok(command)
    }

    fn peer(&self, program: &str, port: u16, rest: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(self.sshd.client_options(port)).args(rest);
        command
    }

    fn sftp(&self, port: u16, lines: &str) -> Result<Command> {
        let batch = self.dir.join(format!("batch-{}", lines.split_whitespace().next().unwrap_or("none")));
        durable_fs::write_atomic(&batch, lines.as_bytes())?;
        Ok(self.peer("sftp", port, &["-q", "-b", batch.as_str(), &format!("{}@127.0.0.1", self.user)]))
    }

    fn rsync(&self, port: u16, rest: &[&str]) -> Command {
        let mut command = Command::new("rsync");
        let shell = format!("ssh {}", self.sshd.client_options(port).join(" "));
        command.args(["-a", "--inplace", "-e", &shell]).args(rest);
        command
    }

    fn there(&self, path: &Utf8Path) -> String {
        format!("{}@127.0.0.1:{path}", self.user)
    }

    /// Notes the device's memory of the last run of ours.
    fn note_peak(&self) -> Result<()> {
        let report = self.dir.join("device/report.json");
        if self.dir.join("device/running").exists() {
            // The device's side ends when it sees that the connection has.
            wait_for("the device's side to end", Duration::from_secs(10), || report.exists())?;
            let text = fs::read_to_string(&report).with_context(|| format!("read {report}"))?;
            let measured: Measured = serde_json::from_str(&text)?;
            let mut peak = self.peak.borrow_mut();
            *peak = peak.max(measured.peak_mib());
            for name in ["report.json", "running"] {
                let _ = fs::remove_file(self.dir.join("device").join(name));
            }
        }
        Ok(())
    }

    /// Removes what an earlier round left at either end.
    fn fresh(&self, names: &[&str]) -> Result<()> {
        self.note_peak()?;
        for name in names {
            let path = self.dir.join(name);
            if path.is_dir() {
                fs::remove_dir_all(&path).with_context(|| format!("remove {path}"))?;
            } else {
                let _ = fs::remove_file(path);
            }
        }
        Ok(())
    }

    fn goals(&self, report: &Report, limit: f64) -> Result<()> {
        self.note_peak()?;
        let peak = self.peak.replace(0.0);
        ensure!(peak > 0.0, "`models` has not run on the device's side: nothing was moved");
        report.print("scp")?;
        report.goal("ours", "scp", limit)?;
        report.memory_goal("ours", PEAK_MIB)?;
        print_goal(
            &format!("the device's side peak <= {PEAK_MIB:.0} MiB"),
            &format!("{peak:.1} MiB"),
            peak <= PEAK_MIB,
        );
        Ok(())
    }

    fn up(&self, title: &str, port: u16, limit: f64) -> Result<()> {
        let target = self.dir.join("there");
        let there = self.there(&target);
        let file = self.file.as_str();
        let fresh = || self.fresh(&["device/jobs", "there"]);
        let report = Comparison::new(title, self.arguments.runs)
            .side("ours", fresh, self.ours("put", port, &self.file)?)
            .side("scp", fresh, self.peer("scp", port, &["-q", file, &there]))
            .side("scp, aes-gcm", fresh, self.peer("scp", port, &["-q", "-c", GCM, file, &there]))
            .side("sftp", fresh, self.sftp(port, &format!("put {file} {target}\n"))?)
            .side("rsync", fresh, self.rsync(port, &[file, &there]))
            .measure()?;
        self.goals(&report, limit)
    }

    fn down(&self, title: &str, port: u16, limit: f64) -> Result<()> {
        // What is fetched lies where a job of the device would have it.
        self.fresh(&["device/jobs"])?;
        run_command(&mut self.ours("put", self.sshd.port(), &self.file)?)?;
        self.note_peak()?;
        self.peak.replace(0.0);
        let from = self.there(&self.file);
        let (ours, back) = (self.dir.join("ours"), self.dir.join("back"));
        let fresh = || self.fresh(&["ours", "back"]);
        let report = Comparison::new(title, self.arguments.runs)
            .side("ours", fresh, self.ours("get", port, &ours)?)
            .side("scp", fresh, self.peer("scp", port, &["-q", &from, back.as_str()]))
            .side("scp, aes-gcm", fresh, self.peer("scp", port, &["-q", "-c", GCM, &from, back.as_str()]))
            .side("sftp", fresh, self.sftp(port, &format!("get {} {back}\n", self.file))?)
            .side("rsync", fresh, self.rsync(port, &[&from, back.as_str()]))
            .measure()?;
        self.goals(&report, limit)
    }

    /// Many small files, each verified, synced and renamed.
    fn small(&self, port: u16) -> Result<()> {
        let (small, target) = (self.dir.join("small"), self.dir.join("there"));
        let there = self.there(&target);
        let fresh = || self.fresh(&["device/jobs", "there"]);
        let title = format!("{SMALL_FILES} small files");
        let report = Comparison::new(title, self.arguments.runs)
            .side("ours", fresh, self.ours("put", port, &small)?)
            .side("scp", fresh, self.peer("scp", port, &["-q", "-r", small.as_str(), &there]))
            .side("rsync", fresh, self.rsync(port, &[small.as_str(), &there]))
            .measure()?;
        self.goals(&report, 1.0)
    }
}

/// Puts `models` into the device's root, under the measuring program.
fn install(models: &Utf8Path, dir: &Utf8Path) -> Result<()> {
    let device = dir.join("device");
    fs::create_dir_all(&device)?;
    let measurer = Utf8PathBuf::try_from(env::current_exe()?)?;
    // Jobs lie beside the program.
    let program = device.join("models-program");
    let _ = fs::remove_file(&program);
    fs::hard_link(models, &program).with_context(|| format!("link {program}"))?;
    let script = format!(
        "#!/bin/sh\n: > {device}/running\nexec {measurer} measure-child {device}/report.json {program} \"$@\"\n"
    );
    let path = device.join("models");
    durable_fs::write_atomic(&path, script.as_bytes())?;
    run_command(Command::new("chmod").args(["755", path.as_str()]))
}

fn small_files(dir: &Utf8Path) -> Result<()> {
    fs::create_dir_all(dir)?;
    for number in 0..SMALL_FILES {
        let bytes: Vec<u8> = (0..SMALL_SIZE).map(|at| (at * 31 + number).to_le_bytes()[0]).collect();
        durable_fs::write_atomic(dir.join(format!("file{number}")), &bytes)?;
    }
    Ok(())
}
