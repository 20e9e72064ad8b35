//! Peak memory on a 300 MB file stays far below its size.

#![expect(clippy::print_stdout, reason = "a test's figures are worth reading when it is run alone")]

use std::{fs, process::Command};

use anyhow::{Context, Result};
use camino::{Utf8Path, Utf8PathBuf};
use e2e::{
    Measurer, OnnxKind, OnnxRequest, PythonEnvironment, Scenario, ScenarioModel, onnx_fixture, sha256_file,
};

const LIMIT_MIB: f64 = 64.0;
const LARGE: OnnxRequest = OnnxRequest::small(OnnxKind::Vision, 31).with_size_mib(300);
const MODELS: [ScenarioModel; 1] = [ScenarioModel::split(
    "large",
    &[("driving_vision.onnx", LARGE), ("driving_policy.onnx", OnnxRequest::small(OnnxKind::Policy, 32))],
)];

fn measure(command: &Command, what: &str) -> Result<()> {
    let (outcome, measured) = Measurer::new([env!("CARGO_BIN_EXE_measure-child")]).run(command)?;
    outcome.expect_code(0);
    let peak = measured.peak_mib();
    assert!(peak < LIMIT_MIB, "{what} took {peak:.1} MiB at its peak");
    println!("{what}: {peak:.1} MiB, {:.2} s", measured.wall_seconds);
    Ok(())
}

fn temporary() -> Result<(tempfile::TempDir, Utf8PathBuf)> {
    let dir = tempfile::tempdir()?;
    let root = Utf8Path::from_path(dir.path()).context("a UTF-8 path")?.to_owned();
    Ok((dir, root))
}

#[test]
fn extract_holds_no_model_in_memory() -> Result<()> {
    let Some(python) = PythonEnvironment::find_or_skip() else { return Ok(()) };
    for plain in [false, true] {
        let (_dir, root) = temporary()?;
        let mut models = MODELS;
        models[0].source.plain = plain;
        let scenario = Scenario::create(&root, &python, &models)?;
        if plain {
            scenario.history.git(["repack", "-adq", "--depth=0", "--window=0"])?;
        }
        scenario.init(&python, None)?.expect_code(0);
        measure(
            &scenario.rebuild(&["extract"]),
            if plain { "extract (packed)" } else { "extract (LFS object)" },
        )?;
        let extracted = scenario.workspace.join("onnx/large/large_driving_vision.onnx");
        assert_eq!(sha256_file(&extracted)?, sha256_file(&onnx_fixture(&python, &LARGE)?)?);
    }
    Ok(())
}

#[test]
fn split_and_join_hold_no_artifact_in_memory() -> Result<()> {
    let Some(python) = PythonEnvironment::find_or_skip() else { return Ok(()) };
    let (_dir, root) = temporary()?;
    let models = e2e::Binaries::locate()?.models;
    let name = "large_driving_tinygrad.pkl";
    let whole = root.join(name);
    copy(&onnx_fixture(&python, &LARGE)?, &whole)?;

    let mut split = Command::new(&models);
    measure(split.args(["--split-artifact", whole.as_str(), "--chunk-size-mib", "95"]), "split")?;
    let digest = sha256_file(&whole)?;
    assert_eq!(fs::read_to_string(root.join(format!("{name}.sha256")))?, format!("{digest}  {name}\n"));
    assert_eq!(fs::metadata(root.join(format!("{name}.p00")))?.len(), 95 << 20);
    fs::remove_file(&whole)?;

    let mut join = Command::new(&models);
    measure(join.args(["join", whole.as_str()]), "join")?;
    assert_eq!(sha256_file(&whole)?, digest);
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "an input in a private directory")]
fn copy(from: &Utf8Path, to: &Utf8Path) -> Result<()> {
    fs::copy(from, to).map(drop).with_context(|| format!("copy {from} to {to}"))
}
