//! A catalog through a remote device: wall clock against the sum of the compile times, on a link of a set rate.

use std::{fs, process::Command, time::Instant};

use anyhow::{Context, Result, ensure};
use camino::{Utf8Path, Utf8PathBuf};
use e2e::{
    Binaries, FaultProxy, OnnxKind, OnnxRequest, PythonEnvironment, Scenario, ScenarioModel, Sshd,
    run as run_command,
};

use super::{Arguments, comparison::print_goal, release_binary};

const POLICY: &str = "driving_policy.onnx";
const VISION: &str = "driving_vision.onnx";

macro_rules! model {
    ($id:literal, $seed:literal) => {
        ScenarioModel::split(
            $id,
            &[
                (VISION, OnnxRequest::small(OnnxKind::Vision, $seed)),
                (POLICY, OnnxRequest::small(OnnxKind::Policy, $seed + 1)),
            ],
        )
    };
}

const MODELS: [ScenarioModel; 6] = [
    model!("ca1", 81),
    model!("cb2", 83),
    model!("cc3", 85),
    model!("cd4", 87),
    model!("ce5", 89),
    model!("cf6", 91),
];
/// Wall clock over the sum of the compile times, at most.
const OVERHEAD: f64 = 1.03;
/// All six models, warm.
const SECONDS: f64 = 20.0;
/// MiB a second of a link that moves one model in less than its compile time.
const RATE_MIB: u64 = 10;

/// Runs the comparison.
pub fn run(arguments: &Arguments) -> Result<()> {
    let python = PythonEnvironment::find().map_err(anyhow::Error::msg)?;
    let keep = tempfile::tempdir()?;
    let root = Utf8Path::from_path(keep.path()).context("a UTF-8 path")?;
    let sshd = Sshd::start(&root.join("sshd"), &[])?;
    let proxy = FaultProxy::start(sshd.port())?;
    proxy.throttle(arguments.rate_mib.unwrap_or(RATE_MIB) << 20);
    let binaries = Binaries { rebuild: release_binary("rebuild")?, models: release_binary("models")? };
    let scenario = Scenario::create(root, &python, &MODELS)?.with_binaries(binaries);
    let home = prepare(root, &scenario, &python, &sshd, proxy.port())?;
    rebuild(&scenario, &home, &["extract"])?;
    // The first run fills the caches of kernels and warps; the measured ones are warm.
    rebuild(&scenario, &home, &["compile"])?;
    let mut ratios = Vec::new();
    for round in 1..=arguments.runs.max(1) {
        let began = Instant::now();
        rebuild(&scenario, &home, &["compile", "--force"])?;
        let wall = began.elapsed().as_secs_f64();
        let compiles = compile_seconds(&scenario)?;
        println!("round {round}: {wall:.2} s for {compiles:.2} s of compiling");
        ratios.push((wall / compiles, wall));
    }
    ratios.sort_by(|one, other| one.0.total_cmp(&other.0));
    let (ratio, wall) = ratios[ratios.len() / 2];
    print_goal(
        &format!("wall clock <= {OVERHEAD} x the sum of the compile times"),
        &format!("{ratio:.3}"),
        ratio <= OVERHEAD,
    );
    print_goal(&format!("six models in {SECONDS:.0} s"), &format!("{wall:.1} s"), wall <= SECONDS);
    Ok(())
}

/// Sets the workspace up for the device behind `port`; returns a home directory whose SSH configuration knows it.
fn prepare(
    root: &Utf8Path,
    scenario: &Scenario,
    python: &PythonEnvironment,
    sshd: &Sshd,
    port: u16,
) -> Result<Utf8PathBuf> {
    scenario.init(python, None)?.expect_code(0);
    let device = root.join("device");
    let home = root.join("home");
    for dir in [&device, &home.join(".ssh")] {
        fs::create_dir_all(dir)?;
    }
    run_command(
        Command::new("cp").args([scenario.models().get_program(), device.join("models").as_os_str()]),
    )?
    .expect_code(0);
    durable_fs::write_atomic(home.join(".ssh/known_hosts"), sshd.known_hosts_line(port)?.as_bytes())?;
    durable_fs::write_atomic(
        home.join(".ssh/config"),
        format!("IdentityFile {}\n", sshd.user_key()).as_bytes(),
    )?;
    let name = format!("{}@127.0.0.1:{port}", user());
    let path = scenario.workspace.join("rebuild.toml");
    let old = fs::read_to_string(&path)?;
    let old: Vec<&str> = old.lines().filter(|line| !line.starts_with("device =")).collect();
    let text = format!(
        "device = {name:?}\nallow_devices = [{name:?}]\ndevice_root = {:?}\n{}\n",
        device.as_str(),
        old.join("\n")
    );
    durable_fs::write_atomic(&path, text.as_bytes())?;
    Ok(home)
}

fn user() -> String {
    std::env::var("USER").unwrap_or_else(|_| "root".to_owned())
}

fn rebuild(scenario: &Scenario, home: &Utf8Path, arguments: &[&str]) -> Result<()> {
    let outcome = run_command(
        scenario.rebuild(arguments).env("HOME", home).env("USER", user()).env_remove("SSH_AUTH_SOCK"),
    )?;
    ensure!(outcome.code == Some(0), "{}", outcome.transcript());
    Ok(())
}

/// What the build records say of the time that the compiles took: the stages as a whole, without the parts of them.
fn compile_seconds(scenario: &Scenario) -> Result<f64> {
    let mut sum = 0.0;
    for model in MODELS {
        let record = scenario.record(&format!("{}_build.json", model.id))?;
        let seconds = record["seconds"].as_object().context("a build record has its seconds")?;
        let stages = seconds.iter().filter(|(name, _)| !name.contains('.'));
        sum += stages.filter_map(|(_, seconds)| seconds.as_f64()).sum::<f64>();
    }
    Ok(sum)
}
