//! Driver monitoring through `rebuild dm`: four files and their source together, on this machine and over a connection.
#![cfg(target_os = "linux")]
#![expect(clippy::disallowed_methods, reason = "tests make files the plain way")]
#![allow(clippy::unwrap_used, reason = "a test says what is wrong by its panic")]
#![allow(clippy::allow_attributes, reason = "test code outside of #[test] functions")]

mod remote;

use std::{
    collections::BTreeMap,
    fs,
    process::{Command, Stdio},
    time::Duration,
};

use camino::{Utf8Path, Utf8PathBuf};
use e2e::{
    OnnxKind, OnnxRequest, PythonEnvironment, Scenario, Signal, onnx_fixture, run, send_signal, sha256_file,
    wait_for,
};
use remote::Machine;
use serde_json::Value;

const FILES: [&str; 6] = [
    "dm_warp_1344x760_tinygrad.pkl",
    "dm_warp_1928x1208_tinygrad.pkl",
    "dmonitoring_model.onnx",
    "dmonitoring_model_build.json",
    "dmonitoring_model_metadata.pkl",
    "dmonitoring_model_tinygrad.pkl",
];
const SOURCE: OnnxRequest = OnnxRequest::small(OnnxKind::DriverMonitoring, 1);

struct Bench {
    scenario: Scenario,
    onnx: Utf8PathBuf,
    /// The home directory whose SSH configuration knows the device.
    home: Option<Utf8PathBuf>,
    jobs: Utf8PathBuf,
}

impl Bench {
    fn new(root: &Utf8Path, python: &PythonEnvironment, machine: Option<&Machine>) -> Self {
        let scenario = Scenario::create(root, python, &[]).unwrap();
        scenario.init(python, None).unwrap().expect_code(0);
        let home = machine.map(|machine| machine.configure(&scenario));
        let jobs =
            machine.map_or_else(|| scenario.workspace.join(".jobs"), |machine| machine.root().join("jobs"));
        let onnx = root.join("from-elsewhere.onnx");
        fs::copy(onnx_fixture(python, &SOURCE).unwrap(), &onnx).unwrap();
        Self { scenario, onnx, home, jobs }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.scenario.rebuild(arguments);
        if let Some(home) = &self.home {
            command.env("HOME", home).env("USER", remote::user()).env_remove("SSH_AUTH_SOCK");
        }
        command
    }

    /// What `rebuild dm --json` says on stdout, after it ended with `code`.
    fn dm(&self, arguments: &[&str], code: i32) -> Value {
        let mut command = self.command(&["dm", "--json"]);
        let outcome = run(command.args(arguments)).unwrap();
        outcome.expect_code(code);
        outcome.stdout.lines().last().map_or(Value::Null, |line| serde_json::from_str(line).unwrap())
    }

    fn digests(&self) -> BTreeMap<String, String> {
        let dir = self.scenario.workspace.join("driver-monitoring");
        // The record says how long the build took.
        let names =
            self.scenario.list("driver-monitoring").into_iter().filter(|name| !name.ends_with(".json"));
        names.map(|name| (name.clone(), sha256_file(&dir.join(name)).unwrap())).collect()
    }

    /// Job directories on the device.
    fn jobs(&self) -> Vec<Utf8PathBuf> {
        let mut found = Vec::new();
        walk(&self.jobs, &mut found);
        found
    }
}

fn walk(dir: &Utf8Path, found: &mut Vec<Utf8PathBuf>) {
    for entry in dir.read_dir_utf8().into_iter().flatten().flatten().filter(|entry| entry.path().is_dir()) {
        let is_job = entry.file_name().starts_with("dm.");
        if is_job { found.push(entry.path().to_owned()) } else { walk(entry.path(), found) }
    }
}

/// The same on every device.
fn built_kept_repaired_and_resumed(bench: &Bench) {
    let onnx = bench.onnx.as_str();
    assert_eq!(bench.dm(&["--onnx", onnx, "--dry-run"], 0)["action"], "build");
    assert!(bench.scenario.list("driver-monitoring").is_empty() && bench.jobs().is_empty());

    let built = bench.dm(&["--onnx", onnx], 0);
    assert_eq!((&built["outcome"], built["files"].as_array().unwrap().len()), (&Value::from("built"), 4));
    assert_eq!(bench.scenario.list("driver-monitoring"), FILES);
    let first = bench.digests();
    let record = bench.scenario.record("dmonitoring_model_build.json").unwrap();
    for file in record["files"].as_array().unwrap() {
        assert_eq!(file["sha256"], first[file["file"].as_str().unwrap()].as_str());
    }
    assert!(record["device"].is_string() && record["proof"]["checks"].as_array().unwrap().len() == 6);
    assert!(bench.scenario.workspace.join("logs/dmonitoring_model.log").is_file());
    assert_eq!(bench.jobs(), Vec::<Utf8PathBuf>::new());

    // Nothing to do, with the source that is in place.
    assert_eq!(bench.dm(&[], 0)["action"], "current");

    // A damaged file is built again, to the same bytes.
    let warp = bench.scenario.workspace.join("driver-monitoring").join(FILES[0]);
    fs::write(&warp, b"short").unwrap();
    let why = bench.dm(&["--dry-run"], 0);
    assert!(why["why"].as_str().unwrap().contains("not the recorded file"), "{why}");
    assert_eq!(bench.dm(&[], 0)["outcome"], "built");
    assert_eq!(bench.digests(), first);

    // A host that is killed while the device works: the next run takes the job up.
    let mut killed = bench.command(&["dm", "--force"]);
    let mut child = killed.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let running = || bench.jobs().first().is_some_and(|job| job.join("pid.json").exists());
    wait_for("the job to run", Duration::from_secs(60), running).unwrap();
    let process = fs::read_to_string(bench.jobs()[0].join("pid.json")).unwrap();
    send_signal(child.id(), Signal::SIGKILL).unwrap();
    child.wait().unwrap();
    assert_eq!(bench.digests(), first, "a build that did not end has changed nothing");
    fs::write(&warp, b"short").unwrap();
    assert_eq!(bench.dm(&[], 0)["outcome"], "built");
    assert_eq!(bench.digests(), first);
    assert!(!process.is_empty() && bench.jobs().is_empty());

    // What cannot be compiled leaves everything as it was.
    let pointer = bench.scenario.workspace.join("pointer.onnx");
    fs::write(&pointer, "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 3\n").unwrap();
    bench.dm(&["--onnx", pointer.as_str()], 1);
    bench.dm(&["--onnx", "/nonexistent/dm.onnx"], 2);
    bench.dm(&["--target", "external-gpu"], 2);
    assert_eq!(bench.digests(), first);
}

#[test]
fn driver_monitoring_is_built_on_this_machine() {
    let Some(python) = PythonEnvironment::find_or_skip() else { return };
    let keep = tempfile::tempdir().unwrap();
    let root = Utf8Path::from_path(keep.path()).unwrap();
    built_kept_repaired_and_resumed(&Bench::new(root, &python, None));
}

#[test]
fn driver_monitoring_is_built_over_a_connection() {
    let Some(python) = PythonEnvironment::find_or_skip() else { return };
    let Some(machine) = Machine::start(&[]) else { return };
    built_kept_repaired_and_resumed(&Bench::new(&machine.dir().join("host"), &python, Some(&machine)));
}
