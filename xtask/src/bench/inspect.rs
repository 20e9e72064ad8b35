//! Inspecting artifacts of 22 MB to 1 GB, and a dense stream, against `pickletools.genops`.

use std::{
    fs::{self, File},
    io::{BufReader, BufWriter, Read, Seek, SeekFrom, Write},
    process::Command,
};

use anyhow::{Context, Result};
use artifact_pickle::{Graph, InspectOptions, Limits, PayloadKind, inspect};
use camino::{Utf8Path, Utf8PathBuf};
use e2e::target_directory;

use super::{
    Arguments,
    comparison::{Comparison, print_goal},
    part_directory, release_binary,
};
use crate::process::run as run_command;

/// Sizes of the ladder in MiB. The smallest is a real artifact's usual size.
const LADDER: [u64; 3] = [22, 200, 1024];
/// Items of the dense list: each is an opcode of two bytes.
const DENSE: u64 = 4 << 20;

pub fn run(arguments: &Arguments) -> Result<()> {
    let models = release_binary("models")?;
    let dir = part_directory("inspect")?;
    let python = target_directory()?.join("venv/bin/python3");
    let artifact = compiled(&models, &dir, &python)?;
    let facts = inspect(&artifact, &InspectOptions::default())?.file;
    println!("artifact: {} MB, {} opcodes", facts.size / 1_000_000, facts.opcodes);
    ladder(arguments, &models, &dir, &python, &artifact)?;
    dense(arguments, &models, &dir, &python)?;
    rate(&dir)
}

/// A real artifact: a supercombo compiled for the CPU, made once.
fn compiled(models: &Utf8Path, dir: &Utf8Path, python: &Utf8Path) -> Result<Utf8PathBuf> {
    let artifact = dir.join("bench_driving_tinygrad.pkl");
    if artifact.exists() {
        return Ok(artifact);
    }
    let staged = dir.join("in");
    fs::create_dir_all(&staged).with_context(|| format!("make {staged}"))?;
    let onnx = staged.join("bench_driving_supercombo.onnx");
    run_command(Command::new(python).args(["fixtures/make_onnx.py", "supercombo", onnx.as_str()]))?;
    run_command(Command::new(models).args([
        "--model",
        "bench",
        "--target",
        "cpu",
        "--no-split",
        "--input-dir",
        staged.as_str(),
        "--output-dir",
        dir.as_str(),
        "--python",
        python.as_str(),
    ]))?;
    Ok(artifact)
}

fn ladder(
    arguments: &Arguments,
    models: &Utf8Path,
    dir: &Utf8Path,
    python: &Utf8Path,
    artifact: &Utf8Path,
) -> Result<()> {
    let mut comparison = Comparison::new("inspect", arguments.runs);
    for mib in LADDER {
        let grown = dir.join(format!("ladder_{mib}.pkl"));
        grow(artifact, &grown, mib << 20)?;
        comparison =
            comparison.side(format!("models inspect, {mib} MiB"), || Ok(()), inspecting(models, &grown));
    }
    let peer = genops(python, &dir.join(format!("ladder_{}.pkl", LADDER[0])));
    let report = comparison.side("genops, 22 MiB", || Ok(()), peer).measure()?;
    report.print("genops, 22 MiB")?;
    report.goal("models inspect, 22 MiB", "genops, 22 MiB", 0.25)?;
    // 15 ms and 60 ms where genops alone takes 34 ms for such an artifact: a busy machine slows both.
    for (side, limit) in [("models inspect, 22 MiB", 0.015), ("models inspect, 1024 MiB", 0.060)] {
        report.time_goal(side, limit)?;
    }
    report.memory_goal("models inspect, 1024 MiB", 32.0)
}

fn dense(arguments: &Arguments, models: &Utf8Path, dir: &Utf8Path, python: &Utf8Path) -> Result<()> {
    let file = dir.join("dense.pkl");
    let mut stream = b"\x80\x04](".to_vec();
    for item in 0..DENSE {
        stream.extend_from_slice(&[b'K', (item % 250) as u8]);
        if item % 1000 == 999 {
            stream.extend_from_slice(b"e(");
        }
    }
    stream.extend_from_slice(b"e.");
    durable_fs::write_atomic(&file, &stream)?;
    let mut ours = inspecting(models, &file);
    // The list is no artifact, but nothing in it is refused: exit code 0.
    ours.arg("--json");
    let report = Comparison::new("dense stream", arguments.runs.min(3))
        .side("models inspect", || Ok(()), ours)
        .side("genops", || Ok(()), genops(python, &file))
        .measure()?;
    report.print("genops")?;
    report.goal("models inspect", "genops", 0.02)
}

/// Opcodes a second of the reader alone, in this process.
fn rate(dir: &Utf8Path) -> Result<()> {
    let bytes = fs::read(dir.join("dense.pkl")).context("read the dense stream")?;
    let start = std::time::Instant::now();
    let graph = Graph::read_bytes(&bytes, &Limits::default())?;
    let millions = graph.opcodes() as f64 / start.elapsed().as_secs_f64() / 1e6;
    let what = "reader >= 10 million opcodes/s (this build)";
    print_goal(what, &format!("{millions:.0} million"), millions >= 10.0);
    Ok(())
}

fn inspecting(models: &Utf8Path, file: &Utf8Path) -> Command {
    let mut command = Command::new(models);
    command.args(["inspect", file.as_str()]);
    command
}

fn genops(python: &Utf8Path, file: &Utf8Path) -> Command {
    let mut command = Command::new(python);
    let walk = "import pickletools, sys\nfor _ in pickletools.genops(open(sys.argv[1], 'rb')): pass";
    command.args(["-c", walk, file.as_str()]);
    command
}

/// A copy whose largest buffer is as long as it takes for the file to have `size` bytes. The new bytes are a hole.
fn grow(from: &Utf8Path, to: &Utf8Path, size: u64) -> Result<()> {
    let mut source = BufReader::new(File::open(from)?);
    let graph = Graph::read(&mut source, &Limits::default())?;
    let plain = graph.payloads().iter().filter(|payload| payload.kind == PayloadKind::Bytes);
    let largest = plain.max_by_key(|payload| payload.len).context("the artifact carries buffers")?;
    let rest = fs::metadata(from)?.len() - largest.len;
    // A payload of more than 255 bytes: one byte of opcode, four of length.
    let opcode = largest.offset - 5;
    let len = size.saturating_sub(rest);
    let mut out = BufWriter::new(tempfile::NamedTempFile::new_in(to.parent().context("has a folder")?)?);
    source.rewind()?;
    std::io::copy(&mut source.by_ref().take(opcode), &mut out)?;
    out.write_all(&[0x8e])?;
    out.write_all(&len.to_le_bytes())?;
    out.seek(SeekFrom::Current(i64::try_from(len)?))?;
    source.seek(SeekFrom::Start(largest.offset + largest.len))?;
    std::io::copy(&mut source, &mut out)?;
    out.into_inner().map_err(|error| error.into_error())?.persist(to)?;
    Ok(())
}
