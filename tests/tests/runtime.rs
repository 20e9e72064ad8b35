//! `rebuild verify --runtime` on this machine: a real artifact in a store, a stand-in for the device's tree, and the selection
//! that must be what it was, whatever happens.
#![cfg(target_os = "linux")]
#![expect(clippy::disallowed_methods, reason = "tests make files the plain way")]

use std::{
    collections::BTreeMap,
    fs,
    process::{Child, Command, Stdio},
    sync::OnceLock,
    time::Duration,
};

use anyhow::{Context, Result};
use camino::{Utf8Path, Utf8PathBuf};
use e2e::{
    OnnxKind, OnnxRequest, Outcome, PythonEnvironment, Scenario, ScenarioModel, Signal, processes_with,
    repository_root, run, send_signal, wait_for,
};

/// One of each kind that stands for others; most tests take the first.
const MODELS: [ScenarioModel; 5] = [
    split("tr1422", "v11"),
    split("old8", "v8"),
    split("mid12", "v12"),
    split("new15", "v15"),
    ScenarioModel {
        version: "v7",
        ..ScenarioModel::split(
            "sc7",
            &[("driving_supercombo.onnx", OnnxRequest::small(OnnxKind::Supercombo, 63))],
        )
    },
];

const fn split(id: &'static str, version: &'static str) -> ScenarioModel {
    const FILES: [(&str, OnnxRequest); 2] = [
        ("driving_vision.onnx", OnnxRequest::small(OnnxKind::Vision, 61)),
        ("driving_policy.onnx", OnnxRequest::small(OnnxKind::Policy, 62)),
    ];
    ScenarioModel { version, ..ScenarioModel::split(id, &FILES) }
}

/// The models, compiled once.
struct Compiled {
    scenario: Scenario,
    _dir: tempfile::TempDir,
}

fn compiled(python: &PythonEnvironment) -> &'static Compiled {
    static SHARED: OnceLock<Compiled> = OnceLock::new();
    SHARED.get_or_init(|| compile(python).unwrap_or_else(|error| panic!("{error:#}")))
}

fn compile(python: &PythonEnvironment) -> Result<Compiled> {
    let dir = tempfile::tempdir()?;
    let root = Utf8Path::from_path(dir.path()).context("a UTF-8 path")?;
    let scenario = Scenario::create(root, python, &MODELS)?;
    scenario.init(python, None)?.expect_code(0);
    run(&mut scenario.rebuild(&["extract"]))?.expect_code(0);
    run(&mut scenario.rebuild(&["compile"]))?.expect_code(0);
    Ok(Compiled { scenario, _dir: dir })
}

const PATIENCE: Duration = Duration::from_secs(60);

struct Device {
    scenario: Scenario,
    root: Utf8PathBuf,
    before: BTreeMap<String, Vec<u8>>,
    _dir: tempfile::TempDir,
}

impl Device {
    fn make(python: &PythonEnvironment) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let root = Utf8Path::from_path(dir.path()).context("a UTF-8 path")?.to_owned();
        let made = &compiled(python).scenario;
        run(Command::new("cp").args(["-a", made.workspace.as_str(), root.as_str()]))?.expect_code(0);
        let scenario = made.with_workspace(root.join("workspace"));
        let device = Self { scenario, root: root.join("device"), before: BTreeMap::new(), _dir: dir };
        device.furnish(python)?;
        let before = device.params()?;
        Ok(Self { before, ..device })
    }

    fn furnish(&self, python: &PythonEnvironment) -> Result<()> {
        for name in ["tree/cereal", "params/d", "shm/d", "models"] {
            fs::create_dir_all(self.root.join(name))?;
        }
        let from = repository_root().join("tests/python/runtime_tree");
        for name in ["cereal/__init__.py", "cereal/messaging.py", "runtime.py"] {
            fs::copy(from.join(name), self.root.join("tree").join(name))?;
        }
        for (name, value) in [
            ("Model", "mine3"),
            ("DrivingModel", "mine3"),
            ("ModelVersion", "v9"),
            ("DrivingModelName", "Mine"),
            ("AvailableModels", &MODELS.map(|model| model.id).join(",")),
            ("ModelVersions", &MODELS.map(|model| model.version).join(",")),
        ] {
            fs::write(self.root.join("params/d").join(name), value)?;
        }
        for model in MODELS {
            let artifact = format!("{}_driving_tinygrad.pkl", model.id);
            fs::copy(
                self.scenario.workspace.join("compiled").join(&artifact),
                self.root.join("models").join(&artifact),
            )?;
        }
        let config = self.scenario.workspace.join("rebuild.toml");
        let text = format!(
            "{}\n[runtime]\nroot = \"{root}/tree\"\nstore = \"{root}/models\"\nparams = \"{root}/params/d\"\n\
             volatile_params = \"{root}/shm/d\"\npython = \"{python}\"\n\
             programs = [{{ name = \"modeld\", command = [\"{{python}}\", \"runtime.py\", \"{root}/params/d\"] }}]\n",
            fs::read_to_string(&config)?,
            root = self.root,
            python = python.python,
        );
        Ok(fs::write(config, text)?)
    }

    fn params(&self) -> Result<BTreeMap<String, Vec<u8>>> {
        let mut params = BTreeMap::new();
        for entry in self.root.join("params/d").read_dir_utf8()? {
            let path = entry?.into_path();
            params.insert(path.file_name().unwrap_or_default().to_owned(), fs::read(&path)?);
        }
        Ok(params)
    }

    fn command(&self, behaviour: &str, more: &[&str]) -> Result<Command> {
        fs::write(self.root.join("tree/behaviour"), behaviour)?;
        let _ = fs::remove_dir_all(self.root.join("tree/bus"));
        let _ = fs::remove_file(self.root.join("tree/seen"));
        let mut words = vec!["verify", "--runtime", "--startup-seconds", "20"];
        words.extend(more);
        Ok(self.scenario.rebuild(&words))
    }

    fn verify(&self, behaviour: &str) -> Result<Outcome> {
        let outcome = run(&mut self.command(behaviour, &["--model", "tr1422", "--seconds", "3", "--json"])?)?;
        self.is_as_before(&outcome.transcript())?;
        Ok(outcome)
    }

    #[track_caller]
    fn is_as_before(&self, why: &str) -> Result<()> {
        wait_for("the selection to be put back", PATIENCE, || {
            self.params().is_ok_and(|now| now == self.before)
                && !self.root.join("params/.runtime-verification.json").exists()
        })
        .with_context(|| why.to_owned())?;
        wait_for("the programs to end", PATIENCE, || self.programs().is_empty())
    }

    fn programs(&self) -> Vec<u32> {
        processes_with(&["runtime.py", self.root.as_str()])
    }

    /// A verification whose model has just begun to drive.
    fn driving(&self) -> Result<Child> {
        let mut command = self.command("good", &["--model", "tr1422", "--seconds", "600"])?;
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn()?;
        wait_for("the model to drive", PATIENCE, || self.root.join("tree/bus/modelV2").exists())?;
        assert_eq!(fs::read_to_string(self.root.join("params/d/Model"))?, "tr1422");
        Ok(child)
    }

    fn jobs(&self) -> Vec<u32> {
        processes_with(&["models job", self.scenario.workspace.as_str()])
    }
}

fn checks(outcome: &Outcome) -> Vec<String> {
    let lines = outcome.json_lines().unwrap_or_default();
    let findings =
        lines.first().and_then(|line| line["run"]["findings"].as_array().cloned()).unwrap_or_default();
    findings.iter().filter_map(|finding| Some(finding["check"].as_str()?.to_owned())).collect()
}

#[test]
fn a_model_drives_or_is_said_not_to_and_the_selection_is_put_back() -> Result<()> {
    let Some(python) = PythonEnvironment::find_or_skip() else { return Ok(()) };
    let device = Device::make(&python)?;

    let good = device.verify("good")?;
    good.expect_code(0);
    let line = good.json_lines()?.remove(0);
    assert_eq!((&line["passed"], &line["run"]["camera"]), (&true.into(), &serde_json::json!([1344, 760])));
    assert_eq!(line["run"]["restored"], "mine3");
    assert_eq!(line["cameras_unseen"], serde_json::json!([[1928, 1208]]));
    assert_eq!(
        fs::read_to_string(device.root.join("tree/seen"))?,
        "tr1422\n",
        "it was selected while it drove"
    );
    let record = device.scenario.record("tr1422_runtime.json")?;
    assert_eq!(record["runs"]["1344x760"]["passed"], true);

    for (behaviour, check) in [
        ("nan", "non_finite"),
        ("die", "died"),
        ("fallback", "fell_back"),
        ("silent", "silent"),
        ("no_driver", "silent"),
    ] {
        let outcome = device.verify(behaviour)?;
        outcome.expect_code(1);
        let found = checks(&outcome);
        assert!(found.iter().any(|found| found == check), "{behaviour}: {found:?}\n{}", outcome.transcript());
    }
    let both = run(&mut device.command("good", &["--model", "tr1422", "--seconds", "3", "--both-cameras"])?)?;
    both.expect_code(1);
    assert!(both.stdout.contains("not yet seen on 1928x1208"), "{}", both.transcript());

    // Refusals touch nothing.
    fs::write(device.root.join("params/d/IsOnroad"), "1")?;
    let on_road = run(&mut device.command("good", &["--model", "tr1422"])?)?;
    on_road.expect_code(3);
    assert!(on_road.stderr.contains("on the road"), "{}", on_road.transcript());
    fs::remove_file(device.root.join("params/d/IsOnroad"))?;
    let installed = device.root.join("models/tr1422_driving_tinygrad.pkl");
    let bytes = fs::read(&installed)?;
    fs::write(&installed, &bytes[..bytes.len() - 1])?;
    let other = device.verify("good")?;
    other.expect_code(1);
    assert!(other.stderr.contains("not installed as it was compiled"), "{}", other.transcript());
    fs::write(&installed, bytes)?;
    fs::write(device.root.join("params/d/ModelVersions"), "v12,v8,v12,v15,v7")?;
    let wrong = run(&mut device.command("good", &["--model", "tr1422"])?)?;
    wrong.expect_code(1);
    assert!(wrong.stderr.contains("would run its built-in model"), "{}", wrong.transcript());
    assert!(!device.root.join("tree/seen").exists(), "nothing was started");
    Ok(())
}

#[test]
fn one_model_of_each_kind_drives_in_turn() -> Result<()> {
    let Some(python) = PythonEnvironment::find_or_skip() else { return Ok(()) };
    let device = Device::make(&python)?;
    let outcome = run(&mut device.command("good", &["--seconds", "2", "--json"])?)?;
    outcome.expect_code(0);
    let lines = outcome.json_lines()?;
    let passed: Vec<_> = lines.iter().map(|line| (line["id"].as_str(), line["passed"].as_bool())).collect();
    // In the order of what they stand for.
    let order = ["old8", "tr1422", "mid12", "new15", "sc7"];
    assert_eq!(passed, order.map(|id| (Some(id), Some(true))), "{}", outcome.transcript());
    let seen = fs::read_to_string(device.root.join("tree/seen"))?;
    assert_eq!(seen.lines().collect::<Vec<_>>(), order);
    device.is_as_before(&outcome.transcript())?;
    for id in order {
        let record = device.scenario.record(&format!("{id}_runtime.json"))?;
        assert_eq!(record["runs"]["1344x760"]["restored"], "mine3", "{record}");
    }
    Ok(())
}

#[test]
fn whatever_is_killed_the_selection_is_put_back() -> Result<()> {
    let Some(python) = PythonEnvironment::find_or_skip() else { return Ok(()) };
    let device = Device::make(&python)?;

    let mut child = device.driving()?;
    send_signal(child.id(), Signal::SIGINT)?;
    assert_eq!(child.wait()?.code(), Some(4));
    device.is_as_before("Ctrl-C")?;

    let mut child = device.driving()?;
    let jobs = device.jobs();
    assert_eq!(jobs.len(), 1, "{jobs:?}");
    send_signal(jobs[0], Signal::SIGKILL)?;
    // The host sees a job that died; with it gone nobody but the guard can help.
    send_signal(child.id(), Signal::SIGKILL)?;
    child.wait()?;
    device.is_as_before("the job was killed")?;

    let mut child = device.driving()?;
    send_signal(child.id(), Signal::SIGKILL)?;
    child.wait()?;
    let jobs = device.jobs();
    assert_eq!(jobs.len(), 1, "the job outlives its host: {jobs:?}");
    send_signal(jobs[0], Signal::SIGTERM)?;
    device.is_as_before("the host was killed, then the job ended")?;

    // As after a power cut: job, guard and programs are gone at once, and only the file is left.
    let mut child = device.driving()?;
    send_signal(child.id(), Signal::SIGKILL)?;
    child.wait()?;
    let guards = processes_with(&["restore-selection", device.root.as_str()]);
    assert_eq!(guards.len(), 1, "{guards:?}");
    for process in guards.into_iter().chain(device.jobs()).chain(device.programs()) {
        send_signal(process, Signal::SIGKILL)?;
    }
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(fs::read_to_string(device.root.join("params/d/Model"))?, "tr1422");
    let params = device.root.join("params/d");
    let restored =
        run(device.scenario.models().args(["restore-selection", "--params-dir", params.as_str()]))?;
    restored.expect_code(0);
    assert!(restored.stdout.contains("mine3 is selected again"), "{}", restored.transcript());
    device.is_as_before("the next start")?;
    Ok(())
}
