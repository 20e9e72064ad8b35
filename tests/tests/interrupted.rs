//! Ctrl-C and SIGKILL in the middle of a compile: nothing half-written, no process left behind, and a rerun finishes.

#![cfg(target_os = "linux")]

use std::{
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result};
use camino::Utf8Path;
use e2e::{
    OnnxKind, OnnxRequest, PythonEnvironment, Scenario, ScenarioModel, Signal, processes_with, run,
    send_signal, wait_for,
};

const MODELS: [ScenarioModel; 1] = [ScenarioModel::split(
    "tr1422",
    &[
        ("driving_vision.onnx", OnnxRequest::small(OnnxKind::Vision, 51)),
        ("driving_policy.onnx", OnnxRequest::small(OnnxKind::Policy, 52)),
    ],
)];
const PATIENCE: Duration = Duration::from_secs(60);

struct Running {
    scenario: Scenario,
    child: Child,
    dir: tempfile::TempDir,
}

/// A compile whose driver has just been started.
fn compiling() -> Result<Option<Running>> {
    let Some(python) = PythonEnvironment::find_or_skip() else { return Ok(None) };
    let dir = tempfile::tempdir()?;
    let root = Utf8Path::from_path(dir.path()).context("a UTF-8 path")?.to_owned();
    let scenario = Scenario::create(&root, &python, &MODELS)?;
    scenario.init(&python, None)?.expect_code(0);
    run(&mut scenario.rebuild(&["extract"]))?.expect_code(0);
    let mut compile: Command = scenario.rebuild(&["compile"]);
    let child = compile.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    let running = Running { scenario, child, dir };
    wait_for("the driver to start", PATIENCE, || !running.drivers().is_empty())?;
    Ok(Some(running))
}

impl Running {
    fn root(&self) -> &str {
        self.dir.path().to_str().unwrap_or_default()
    }

    fn drivers(&self) -> Vec<u32> {
        processes_with(&["driver.py", self.root()])
    }

    fn finish(&self) -> Result<()> {
        run(&mut self.scenario.rebuild(&["compile"]))?.expect_code(0);
        assert_eq!(self.scenario.list("compiled"), ["tr1422_driving_tinygrad.pkl"]);
        assert_eq!(self.scenario.record("tr1422_artifact.json")?["status"], "compiled");
        let jobs = self.scenario.list(".jobs");
        assert!(jobs.iter().all(|name| name.starts_with(".")), "jobs are removed: {jobs:?}");
        Ok(())
    }
}

#[test]
fn ctrl_c_ends_with_its_own_code_and_leaves_no_driver() -> Result<()> {
    let Some(mut running) = compiling()? else { return Ok(()) };
    send_signal(running.child.id(), Signal::SIGINT)?;
    let status = running.child.wait()?;
    assert_eq!(status.code(), Some(4), "{status}");
    wait_for("the driver to end", PATIENCE, || running.drivers().is_empty())?;
    assert!(running.scenario.list("compiled").is_empty());
    assert!(!running.scenario.list("results").iter().any(|name| name.ends_with("_failure.json")));
    running.finish()
}

#[test]
fn a_killed_command_is_finished_by_the_next() -> Result<()> {
    let Some(mut running) = compiling()? else { return Ok(()) };
    send_signal(running.child.id(), Signal::SIGKILL)?;
    running.child.wait()?;
    assert!(running.scenario.list("compiled").is_empty());
    running.finish()?;
    assert!(running.drivers().is_empty());
    Ok(())
}
