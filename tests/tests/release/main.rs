//! A release from end to end: a workspace that passes the gate, its publication to two repositories, and devices that fetch.

mod fetch;
mod people;
mod publish;
mod verify;

use std::{collections::BTreeMap, fs, process::Command, sync::OnceLock};

use anyhow::{Context, Result};
use camino::{Utf8Path, Utf8PathBuf};
use e2e::{
    Nginx, OnnxKind, OnnxRequest, Outcome, PythonEnvironment, Resources, Scenario, ScenarioModel, find_nginx,
    onnx_fixture, report_skip, run, sha256_bytes, sha256_file, target_directory,
};
use serde_json::Value;

/// Two models of the catalog (manifests always list `deeprl3v2`) and a recovered one.
const MODELS: [ScenarioModel; 3] = [
    ScenarioModel::split(
        "tr1422",
        &[
            ("driving_vision.onnx", OnnxRequest::small(OnnxKind::Vision, 51)),
            ("driving_policy.onnx", OnnxRequest::small(OnnxKind::Policy, 52)),
        ],
    ),
    ScenarioModel {
        version: "v15",
        listed: false,
        ..ScenarioModel::split(
            "deeprl3v2",
            &[
                ("driving_vision.onnx", OnnxRequest::small(OnnxKind::Vision, 53)),
                ("driving_policy.onnx", OnnxRequest::small(OnnxKind::Policy, 54)),
            ],
        )
    },
    ScenarioModel {
        name: "Regret Driven Framework V2 👀📡",
        version: "v15",
        listed: false,
        ..ScenarioModel::split(
            "rdf2",
            &[("driving_supercombo.onnx", OnnxRequest::small(OnnxKind::Supercombo, 55))],
        )
    },
];
/// Their release IDs.
const RELEASED: [&str; 3] = ["tr14223", "deeprl3v23", "rdf23"];
const DM: OnnxRequest = OnnxRequest::small(OnnxKind::DriverMonitoring, 56);

/// A workspace that may be released, made once; every test has its own copy.
struct Made {
    scenario: Scenario,
    python: PythonEnvironment,
    _dir: tempfile::TempDir,
}

/// A copy of it, and a resource repository.
struct Bench {
    scenario: Scenario,
    python: PythonEnvironment,
    root: Utf8PathBuf,
    _dir: tempfile::TempDir,
}

/// The workspace, or `None` after the line that counts the calling test as skipped.
fn made() -> Option<&'static Made> {
    static SHARED: OnceLock<Made> = OnceLock::new();
    let python = PythonEnvironment::find_or_skip()?;
    Some(SHARED.get_or_init(|| make(python).unwrap_or_else(|error| panic!("{error:#}"))))
}

fn make(python: PythonEnvironment) -> Result<Made> {
    let dir = tempfile::tempdir()?;
    let root = Utf8Path::from_path(dir.path()).context("a UTF-8 path")?;
    let scenario = Scenario::create(root, &python, &MODELS)?;
    // Supercombos of this size are in parts, split models are not.
    scenario.init(&python, Some(PART_LIMIT_MIB))?.expect_code(0);
    for command in ["extract", "compile", "validate", "manifest"] {
        run(&mut scenario.rebuild(&[command]))?.expect_code(0);
    }
    let base = scenario.workspace.join("manifests/model_names_v22.json");
    let namespace =
        ["namespace", "--base-manifest", base.as_str(), "--manifest-version", "v23", "--suffix", "3"];
    run(&mut scenario.rebuild(&namespace))?.expect_code(0);
    run(&mut scenario.rebuild(&["reconcile"]))?.expect_code(0);
    compile_driver_monitoring(&scenario, &python, root)?;
    Ok(Made { scenario, python, _dir: dir })
}

/// Artifacts over this size are in parts.
const PART_LIMIT_MIB: u64 = 7;

fn compile_driver_monitoring(scenario: &Scenario, python: &PythonEnvironment, root: &Utf8Path) -> Result<()> {
    let input = root.join("dm");
    fs::create_dir_all(&input)?;
    copy(&onnx_fixture(python, &DM)?, &input.join("dmonitoring_model.onnx"))?;
    let out = scenario.workspace.join("driver-monitoring");
    let mut command = scenario.models();
    command.args(["--dm", "--target", "cpu", "--python", python.python.as_str()]);
    command.args(["--input-dir", input.as_str(), "--output-dir", out.as_str()]);
    run(command.args(["--cache-dir", target_directory()?.join("e2e-cache").as_str()]))?.expect_code(0);
    Ok(())
}

impl Bench {
    /// A copy of the workspace that may be released; `None` where this machine cannot make one.
    fn new() -> Result<Option<Self>> {
        let Some(made) = made() else { return Ok(None) };
        let dir = tempfile::tempdir()?;
        let root = Utf8Path::from_path(dir.path()).context("a UTF-8 path")?.to_owned();
        let source = &made.scenario.workspace;
        run(Command::new("cp").args(["-a", source.as_str(), root.as_str()]))?.expect_code(0);
        let scenario = made.scenario.with_workspace(root.join("workspace"));
        Ok(Some(Self { scenario, python: made.python.clone(), root, _dir: dir }))
    }

    /// The bench with a resource repository; `None` where there is no nginx either.
    fn with_resources() -> Result<Option<(Self, Resources)>> {
        if let Err(reason) = find_nginx() {
            report_skip(&format!("{reason:#}"));
            return Ok(None);
        }
        let Some(bench) = Self::new()? else { return Ok(None) };
        let resources = Resources::create(&bench.root.join("resources"))?;
        Ok(Some((bench, resources)))
    }

    fn path(&self, relative: &str) -> Utf8PathBuf {
        self.scenario.workspace.join(relative)
    }

    fn put(&self, relative: &str, text: &str) -> Result<()> {
        put(&self.path(relative), text.as_bytes())
    }

    fn remove(&self, relative: &str) -> Result<()> {
        let path = self.path(relative);
        fs::remove_file(&path).with_context(|| format!("remove {path}"))
    }

    fn verify(&self, arguments: &[&str]) -> Result<Outcome> {
        run(&mut self.scenario.rebuild(&[&["verify"], arguments].concat()))
    }

    /// `rebuild publish` to both remotes.
    fn publish(&self, resources: &Resources, arguments: &[&str]) -> Result<Outcome> {
        run(&mut self.publish_command(resources, arguments))
    }

    fn publish_command(&self, resources: &Resources, arguments: &[&str]) -> Command {
        let mut command = self.scenario.rebuild(&["publish", "--repository", resources.clone_dir().as_str()]);
        // A host that serves something wrong is not waited for.
        command.args(resources.remote_arguments()).args(["--settle-seconds", "0"]).args(arguments);
        command
    }

    /// Every file of the workspace with its digest, without the logs.
    fn digests(&self) -> Result<BTreeMap<Utf8PathBuf, String>> {
        let mut found = BTreeMap::new();
        let mut open = vec![self.scenario.workspace.clone()];
        while let Some(dir) = open.pop() {
            for entry in dir.read_dir_utf8()? {
                let entry = entry?;
                if entry.file_type()?.is_dir() {
                    open.push(entry.path().to_owned());
                } else {
                    found.insert(entry.path().to_owned(), sha256_file(entry.path())?);
                }
            }
        }
        Ok(found)
    }
}

fn pkl(id: &str) -> String {
    format!("{id}_driving_tinygrad.pkl")
}

#[expect(clippy::disallowed_methods, reason = "files that the test plants")]
fn put(path: &Utf8Path, bytes: &[u8]) -> Result<()> {
    fs::write(path, bytes).with_context(|| format!("write {path}"))
}

#[expect(clippy::disallowed_methods, reason = "an input in a private directory")]
fn copy(from: &Utf8Path, to: &Utf8Path) -> Result<()> {
    fs::copy(from, to).map(drop).with_context(|| format!("copy {from} to {to}"))
}
