//! The checks themselves.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader, Write},
    process::{Command, Stdio},
    time::Instant,
};

use anyhow::{Context, Result, bail};
use camino::Utf8PathBuf;
use e2e::{repository_root, target_directory};

use super::tally::Tally;
use crate::{
    process::{cargo, find_program, run},
    setup::Environment,
};

/// Formatting, clippy, documentation and dependency rules.
pub fn lint(tally: &mut Tally) {
    step(tally, "cargo fmt", || run(cargo("fmt").args(["--all", "--check"])));
    step(tally, "cargo clippy", || {
        run(cargo("clippy").args(["--locked", "--workspace", "--all-targets", "--", "-D", "warnings"]))
    });
    step(tally, "cargo doc", || {
        let mut doc = cargo("doc");
        run(doc.args(["--locked", "--workspace", "--no-deps", "--quiet"]).env("RUSTDOCFLAGS", "-D warnings"))
    });
    if find_program("cargo-deny").is_some() {
        step(tally, "cargo deny", || run(cargo("deny").args(["check", "bans", "licenses", "sources"])));
    } else {
        tally.skip("cargo deny", "cargo-deny is not installed (`cargo install cargo-deny`)");
    }
}

/// The modules of the driver's tests in two halves, which run at the same time: a test waits for processes more than it
/// computes. The second pattern takes whatever the first leaves.
const DRIVER_TESTS: [&str; 2] = ["test_[a-d]*.py", "test_[!a-d]*.py"];

/// The compile driver's own tests, in the environment that artifacts are compiled in.
pub fn python(tally: &mut Tally, environment: &Environment) {
    let title = "driver tests";
    let started = Instant::now();
    println!("== {title}");
    let outcomes = std::thread::scope(|scope| {
        let halves = DRIVER_TESTS.map(|pattern| scope.spawn(move || driver_tests(environment, pattern)));
        halves.map(|half| half.join().unwrap_or_else(|_| Err(anyhow::anyhow!("the runner panicked"))))
    });
    for outcome in outcomes {
        let failed_before = tally.failed();
        match outcome {
            Err(error) => tally.fail(format!("FAILED: {title}: {error:#}")),
            Ok(outcome) => {
                tally.unittest(&outcome.stderr);
                if outcome.code != Some(0) {
                    println!("{}", outcome.transcript());
                    if tally.failed() == failed_before {
                        tally.fail(format!("FAILED: {title} ended with {:?}", outcome.code));
                    }
                }
            }
        }
    }
    println!("   {:.0} s", started.elapsed().as_secs_f64());
}

fn driver_tests(environment: &Environment, pattern: &str) -> Result<e2e::Outcome> {
    let mut command = Command::new(&environment.python);
    command.args(["-m", "unittest", "discover", "--start-directory", "tests", "--top-level-directory", "."]);
    command
        .args(["--pattern", pattern])
        .current_dir(repository_root().join("crates/tinygrad-compile/driver"))
        .env("PYTHONDONTWRITEBYTECODE", "1");
    with_clang(&mut command, environment);
    e2e::run(&mut command)
}

/// `cargo test` over the workspace; the binaries under test are built first, once.
pub fn rust(tally: &mut Tally, environment: &Environment, thorough: bool) {
    step(tally, "cargo build of the binaries", || {
        run(cargo("build").args(["--locked", "--quiet", "--workspace", "--bins"]))
    });
    let started = Instant::now();
    println!("== cargo test");
    let failed_before = tally.failed();
    if let Err(error) = cargo_test(tally, environment, thorough)
        && tally.failed() == failed_before
    {
        tally.fail(format!("FAILED: {error:#}"));
    }
    println!("   {:.0} s", started.elapsed().as_secs_f64());
}

fn step(tally: &mut Tally, title: &str, check: impl FnOnce() -> Result<()>) {
    println!("== {title}");
    let started = Instant::now();
    tally.check(title, check());
    println!("   {:.0} s", started.elapsed().as_secs_f64());
}

fn with_clang(command: &mut Command, environment: &Environment) {
    if let Some(clang) = &environment.clang {
        command.env("CC", clang);
    }
}

/// Runs the tests; everything goes into a log, what matters to the terminal.
fn cargo_test(tally: &mut Tally, environment: &Environment, thorough: bool) -> Result<()> {
    let mut command = cargo("test");
    command.args(["--locked", "--workspace", "--no-fail-fast", "--", "--show-output"]);
    command.env("E2E_BINARIES_READY", "1").stdout(Stdio::piped());
    if thorough {
        command.env("THOROUGH", "1");
    }
    with_clang(&mut command, environment);
    let (path, mut log) = log_file()?;
    let mut child = command.spawn().context("start cargo test")?;
    let mut view = View::default();
    let stdout = child.stdout.take().context("cargo test's stdout was piped")?;
    for line in BufReader::new(stdout).split(b'\n') {
        let line = String::from_utf8_lossy(&line.context("read cargo test's stdout")?).into_owned();
        writeln!(log, "{line}").with_context(|| format!("write {path}"))?;
        tally.cargo_line(&line);
        if view.shows(&line) {
            println!("{line}");
        }
    }
    let status = child.wait().context("wait for cargo test")?;
    if !status.success() {
        bail!("cargo test ended with {status}; its whole output is in {path}");
    }
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "a log that grows while it is read")]
fn log_file() -> Result<(Utf8PathBuf, File)> {
    let dir = target_directory()?.join("test-logs");
    fs::create_dir_all(&dir).with_context(|| format!("make {dir}"))?;
    let path = dir.join("cargo-test.txt");
    let file = File::create(&path).with_context(|| format!("create {path}"))?;
    Ok((path, file))
}

/// Which lines of libtest's output a person wants to see: results and failures, not the output of tests that passed.
#[derive(Debug, Default)]
struct View {
    section: Section,
}

#[derive(Debug, Default, PartialEq)]
enum Section {
    #[default]
    Results,
    Successes,
    Failures,
}

impl View {
    fn shows(&mut self, line: &str) -> bool {
        match line {
            "successes:" => self.section = Section::Successes,
            "failures:" => self.section = Section::Failures,
            _ if line.starts_with("test result: ") => self.section = Section::Results,
            _ => {}
        }
        match self.section {
            Section::Failures => true,
            Section::Successes => false,
            Section::Results => {
                line.starts_with("test result: ") || (line.starts_with("test ") && !line.ends_with(" ... ok"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_of_passed_tests_is_not_shown() {
        let mut view = View::default();
        let lines = [
            ("test a ... ok", false),
            ("test b ... FAILED", true),
            ("successes:", false),
            ("noise", false),
            ("failures:", true),
            ("why", true),
            ("test result: FAILED. 1 passed; 1 failed", true),
            ("", false),
        ];
        for (line, shown) in lines {
            assert_eq!(view.shows(line), shown, "{line}");
        }
    }
}
