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
        .side("read, write, hash, read again", || fresh(&peer), reading_twice(artifact, &peer))
        .side("openssl dgst", || Ok(()), shell(&hash))
        .side("cp", || fresh(&peer), shell(&format!("cp '{artifact}' '{peer}/copy'")))
        .side(
            "cp + sync",
            || fresh(&peer),
            shell(&format!("cp '{artifact}' '{peer}/copy'; sync '{peer}/copy'")),
        )
        .side("sha256sum", || Ok(()), shell(&format!("sha256sum '{artifact}'")))
        .measure()?;
    report.print("openssl dgst")?;
    report.goal("models split", "openssl dgst", 1.0)?;
    report.goal("models split", "split + openssl", 0.6)?;
    report.goal("models split", "read, write, hash, read again", 0.4)?;
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

/// The plain script that the tool replaces: each part is read, written and hashed, then everything is read and hashed again.
fn reading_twice(artifact: &Utf8Path, into: &Utf8Path) -> Command {
    const SCRIPT: &str = r#"
import hashlib, sys
source, into, chunk, block = sys.argv[1], sys.argv[2], int(sys.argv[3]) << 20, 1 << 20
with open(source, "rb") as whole:
    number, data = 0, whole.read(block)
    while data:
        part, left = hashlib.sha256(), chunk
        with open(f"{into}/part.p{number:02d}", "wb") as out:
            while data and left > 0:
                out.write(data)
                part.update(data)
                left -= len(data)
                data = whole.read(min(block, left) if left > 0 else block)
        number += 1
digest = hashlib.sha256()
with open(source, "rb") as whole:
    while data := whole.read(block):
        digest.update(data)
print(digest.hexdigest())
"#;
    let mut command = Command::new("python3");
    command.args(["-c", SCRIPT, artifact.as_str(), into.as_str(), &CHUNK_MIB.to_string()]);
    command
}

/// An empty directory: an overwritten file is not a first write.
fn fresh(dir: &Utf8Path) -> Result<()> {
    if dir.exists() {
        fs::remove_dir_all(dir).with_context(|| format!("remove {dir}"))?;
    }
    fs::create_dir_all(dir).with_context(|| format!("make {dir}"))
}
