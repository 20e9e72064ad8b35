//! Splitting and joining an artifact against the tools that write equal bytes.

use std::{fs, process::Command};

use anyhow::{Context, Result};
use camino::Utf8Path;

use super::{Arguments, comparison::Comparison, incompressible_file, part_directory, release_binary, shell};

const CHUNK_MIB: u64 = 95;

pub fn run(arguments: &Arguments) -> Result<()> {
    let models = release_binary("models")?;
    let dir = part_directory("parts")?;
    let artifact = dir.join("bench_driving_tinygrad.pkl");
    incompressible_file(&artifact, arguments.size_mib.unwrap_or(1024))?;
    split(arguments, &models, &dir, &artifact)?;
    join(arguments, &models, &dir, &artifact)
}

fn split(arguments: &Arguments, models: &Utf8Path, dir: &Utf8Path, artifact: &Utf8Path) -> Result<()> {
    let (ours, peer) = (dir.join("ours"), dir.join("peer"));
    let mut command = Command::new(models);
    command.args(["--split-artifact", artifact.as_str(), "--output-dir", ours.as_str()]);
    let pieces = format!("split -b {CHUNK_MIB}M -d '{artifact}' '{peer}/part.'");
    let hash = format!("openssl dgst -sha256 '{artifact}'");
    let report = Comparison::new("split", arguments.runs)
        .side("models split", || fresh(&ours), command)
        .side("split + openssl", || fresh(&peer), shell(&format!("{pieces}; {hash}")))
        .side("split + openssl + sync", || fresh(&peer), shell(&format!("{pieces}; {hash}; sync '{peer}'/*")))
        .side("openssl dgst", || Ok(()), shell(&hash))
        .side("cp", || fresh(&peer), shell(&format!("cp '{artifact}' '{peer}/copy'")))
        .measure()?;
    report.print("openssl dgst")?;
    report.goal("models split", "openssl dgst", 1.0)?;
    report.goal("models split", "split + openssl", 0.6)?;
    report.memory_goal("models split", 8.0)
}

fn join(arguments: &Arguments, models: &Utf8Path, dir: &Utf8Path, artifact: &Utf8Path) -> Result<()> {
    let (parts, joined) = (dir.join("ours"), dir.join("joined"));
    let out = joined.join(artifact.file_name().unwrap_or("joined.pkl"));
    let mut command = Command::new(models);
    command.args([
        "join",
        parts.join(artifact.file_name().unwrap_or_default()).as_str(),
        "--output",
        out.as_str(),
    ]);
    let cat = format!("cat '{parts}'/*.p[0-9][0-9] > '{out}'; openssl dgst -sha256 '{out}'");
    let report = Comparison::new("join", arguments.runs)
        .side("models join", || fresh(&joined), command)
        .side("cat + openssl", || fresh(&joined), shell(&cat))
        .side("openssl dgst", || Ok(()), shell(&format!("openssl dgst -sha256 '{artifact}'")))
        .measure()?;
    report.print("cat + openssl")?;
    report.goal("models join", "cat + openssl", 1.0)?;
    report.memory_goal("models join", 8.0)
}

/// An empty directory: an overwritten file is not a first write.
fn fresh(dir: &Utf8Path) -> Result<()> {
    if dir.exists() {
        fs::remove_dir_all(dir).with_context(|| format!("remove {dir}"))?;
    }
    fs::create_dir_all(dir).with_context(|| format!("make {dir}"))
}
