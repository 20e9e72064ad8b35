//! `cargo xtask bench PART`: our figure, the peer's, and the ratio, from one run on one machine.
//!
//! One module a part. A part makes its inputs under the target directory, describes each side as a command to
//! [`comparison::Comparison`], and states its goals; the comparison runs the sides in turn and prints medians.

mod catalog;
mod comparison;
mod compile;
mod extract;
mod inspect;
mod parts;
mod ssh;

use std::process::Command;

use anyhow::{Context, Result};
use camino::Utf8PathBuf;
use clap::{Args, ValueEnum};
use e2e::target_directory;

use crate::process::{cargo, run as run_command};

/// Options of `cargo xtask bench`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// What to measure.
    part: Part,
    /// Measured rounds; each runs every side once.
    #[arg(long, default_value_t = 7)]
    runs: usize,
    /// Size of the main input in MiB, where the part has one.
    #[arg(long)]
    size_mib: Option<u64>,
    /// Rate of the link in MiB a second, where the part has one.
    #[arg(long)]
    rate_mib: Option<u64>,
}

/// The parts that can be measured; a later one is one more line here and in [`run`].
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Part {
    /// A catalog through a remote device, against the sum of its compile times.
    Catalog,
    /// Compiles: cold, warm, in a batch, driver monitoring, against a plain driver run.
    Compile,
    /// Extraction of sources from a clone.
    Extract,
    /// Split and join of an artifact.
    Parts,
    /// Transfers to and from a device, against scp, sftp and rsync.
    Ssh,
    /// Reading an artifact without loading it, against Python's own walker.
    Inspect,
}

/// Runs the comparison of one part.
pub fn run(arguments: &Arguments) -> Result<()> {
    match arguments.part {
        Part::Catalog => catalog::run(arguments),
        Part::Compile => compile::run(arguments),
        Part::Extract => extract::run(arguments),
        Part::Parts => parts::run(arguments),
        Part::Ssh => ssh::run(arguments),
        Part::Inspect => inspect::run(arguments),
    }
}

/// The release build of a package's binary, brought up to date.
fn release_binary(package: &str) -> Result<Utf8PathBuf> {
    run_command(cargo("build").args(["--quiet", "--release", "--package", package]))?;
    Ok(target_directory()?.join("release").join(package))
}

/// A directory for a part's inputs and outputs, kept between runs.
fn part_directory(part: &str) -> Result<Utf8PathBuf> {
    let dir = target_directory()?.join("bench").join(part);
    std::fs::create_dir_all(&dir).with_context(|| format!("make {dir}"))?;
    Ok(dir)
}

/// A file of `mib` MiB that does not compress, made where it is absent.
fn incompressible_file(path: &Utf8PathBuf, mib: u64) -> Result<()> {
    if std::fs::metadata(path).is_ok_and(|found| found.len() == mib << 20) {
        return Ok(());
    }
    // A cipher's key stream: quick, incompressible, the same on every machine.
    run_command(&mut shell(&format!(
        "head -c {} /dev/zero | openssl enc -aes-128-ctr -K 0123456789abcdef0123456789abcdef -iv 00000000000000000000000000000000 > '{path}'",
        mib << 20
    )))
}

/// A peer that is a pipeline. The text comes from this program only.
fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-e", "-c", script]);
    command
}
