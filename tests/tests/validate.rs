//! Validation of real artifacts, good ones and ones with planted faults. What was planted must be named, a failed check must
//! end with its code, and nothing that looks like a pass may be left.

use std::{fs, process::Command, sync::OnceLock};

use anyhow::{Context, Result};
use artifact_pickle::{Graph, Limits, Payload};
use camino::{Utf8Path, Utf8PathBuf};
use e2e::{
    OnnxKind, OnnxRequest, Outcome, PythonEnvironment, Scenario, ScenarioModel, onnx_fixture, run,
    sha256_file,
};
use serde_json::{Value, json};

/// `mixed` has the policy of `good` and the vision of another model.
const MODELS: [ScenarioModel; 2] = [
    ScenarioModel::split(
        "good",
        &[
            ("driving_vision.onnx", OnnxRequest::small(OnnxKind::Vision, 11)),
            ("driving_policy.onnx", OnnxRequest::small(OnnxKind::Policy, 12)),
        ],
    ),
    ScenarioModel::split(
        "mixed",
        &[
            ("driving_vision.onnx", OnnxRequest::small(OnnxKind::Vision, 21)),
            ("driving_policy.onnx", OnnxRequest::small(OnnxKind::Policy, 12)),
        ],
    ),
];

struct Compiled {
    scenario: Scenario,
    python: PythonEnvironment,
    _dir: tempfile::TempDir,
}

/// Both models compiled once. Weights are kept as they are in the ONNX where images are not asked for.
fn compiled() -> Option<&'static Compiled> {
    static SHARED: OnceLock<Compiled> = OnceLock::new();
    let python = PythonEnvironment::find_or_skip()?;
    Some(SHARED.get_or_init(|| compile(python).unwrap_or_else(|error| panic!("{error:#}"))))
}

fn compile(python: PythonEnvironment) -> Result<Compiled> {
    let dir = tempfile::tempdir()?;
    let root = Utf8Path::from_path(dir.path()).context("a UTF-8 path")?;
    let scenario = Scenario::create(root, &python, &MODELS)?;
    scenario.init(&python, None)?.expect_code(0);
    for command in ["extract", "compile"] {
        run(plain(&mut scenario.rebuild(&[command])))?.expect_code(0);
    }
    Ok(Compiled { scenario, python, _dir: dir })
}

/// The same flags for compiling and running.
fn plain(command: &mut Command) -> &mut Command {
    command.envs([("IMAGE", "0"), ("FLOAT16", "0")])
}

/// A private copy of the compiled workspace.
fn copied() -> Result<Option<(tempfile::TempDir, Scenario)>> {
    let Some(compiled) = compiled() else { return Ok(None) };
    let dir = tempfile::tempdir()?;
    let root = Utf8Path::from_path(dir.path()).context("a UTF-8 path")?.to_owned();
    let source = &compiled.scenario.workspace;
    run(Command::new("cp").args(["-a", source.as_str(), root.as_str()]))?.expect_code(0);
    Ok(Some((dir, compiled.scenario.with_workspace(root.join("workspace")))))
}

fn artifact(scenario: &Scenario, id: &str) -> Utf8PathBuf {
    scenario.workspace.join(format!("compiled/{id}_driving_tinygrad.pkl"))
}

fn validate(scenario: &Scenario, arguments: &[&str]) -> Result<Outcome> {
    let arguments = [&["validate", "--model", "good"], arguments].concat();
    run(plain(&mut scenario.rebuild(&arguments)))
}

/// Contents of buffers, the largest first.
fn payloads(path: &Utf8Path) -> Result<Vec<Payload>> {
    let graph = Graph::read(&mut fs::File::open(path)?, &Limits::default())?;
    let mut found = graph.payloads().to_vec();
    found.sort_by_key(|payload| std::cmp::Reverse(payload.len));
    Ok(found)
}

/// Changes an artifact and, as if it had been compiled like this, its record.
fn plant(scenario: &Scenario, change: impl FnOnce(&mut Vec<u8>)) -> Result<()> {
    let path = artifact(scenario, "good");
    let mut bytes = fs::read(&path)?;
    change(&mut bytes);
    durable_fs::write_atomic(&path, &bytes)?;
    let record = scenario.workspace.join("results/good_artifact.json");
    let mut value = scenario.record("good_artifact.json")?;
    value["sha256"] = json!(sha256_file(&path)?);
    value["size"] = json!(bytes.len());
    durable_fs::write_json(&record, &value)?;
    Ok(())
}

/// Check and slice of every failure in the record.
fn failures(scenario: &Scenario) -> Result<Vec<(String, String)>> {
    let record = scenario.record("good_validation.json")?;
    assert_eq!(record["passed"], false, "{record}");
    let verdicts = record["verdicts"].as_array().context("verdicts")?.clone();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let failed = verdicts.iter().filter(|verdict| verdict["severity"] == "failure");
    Ok(failed.map(|verdict| (text(&verdict["check"]), text(&verdict["slice"]))).collect())
}

fn names(failures: &[(String, String)], check: &str, slice: &str) -> bool {
    failures.iter().any(|failure| (failure.0.as_str(), failure.1.as_str()) == (check, slice))
}

#[test]
fn a_good_artifact_passes_once_and_again_where_something_changed() -> Result<()> {
    let Some((_dir, scenario)) = copied()? else { return Ok(()) };
    let Some(python) = PythonEnvironment::reference_or_skip() else { return Ok(()) };
    validate(&scenario, &["--reference", "--reference-python", python.as_str(), "--soak", "0.1"])?
        .expect_code(0);
    let record = scenario.record("good_validation.json")?;
    assert_eq!(record["passed"], true, "{record}");
    assert_eq!(record["reference"]["precision"], "float32");
    let slices = record["reference"]["slices"].as_array().context("slices")?;
    assert_eq!(slices.len(), 13);
    for slice in slices {
        assert!(slice["relative"].as_f64().is_some_and(|error| error < 1e-3), "{slice}");
        assert!(slice["correlation"].as_f64().is_some_and(|found| found > 0.9999), "{slice}");
    }
    assert_eq!(record["weights"]["equal"], record["weights"]["weights"], "{}", record["weights"]);
    assert!(record["soak"].as_array().is_some_and(|windows| windows.len() >= 8), "{}", record["soak"]);
    let temperature = record["temperature_celsius"].as_object().context("temperatures")?;
    assert!(temperature.contains_key("before") && temperature.contains_key("after"), "{temperature:?}");
    assert!(record["peak_bytes"].as_u64().is_some_and(|peak| peak > 1 << 20));
    let facts = run(scenario.models().arg("about"))?.json_lines()?;
    assert_eq!(record["driver_sha256"], facts[0]["driver_sha256"]);

    // Less is asked for, then another budget.
    let again = validate(&scenario, &[])?;
    assert!(again.expect_code(0).transcript().contains("good: passed before"), "{}", again.transcript());
    let slow = validate(&scenario, &["--step-p50-ms", "0.001", "--load-seconds", "inf"])?;
    slow.expect_code(1);
    // With a budget a drift fails too, and on a busy machine there may be one.
    let mut found = failures(&scenario)?;
    found.retain(|(check, _)| check != "drift");
    assert_eq!(found, [("slow".to_owned(), String::new()), ("slow".to_owned(), String::new())]);

    // A pass is of one file: with a bit flipped afterwards there is neither a pass nor a record of one.
    validate(&scenario, &[])?.expect_code(0);
    let path = artifact(&scenario, "good");
    let mut bytes = fs::read(&path)?;
    let largest = payloads(&path)?[0];
    bytes[(largest.offset + largest.len / 2) as usize] ^= 1;
    durable_fs::write_atomic(&path, &bytes)?;
    let changed = validate(&scenario, &[])?;
    assert!(changed.expect_code(1).transcript().contains("is not the artifact that was recorded"));
    assert!(!scenario.list("results").contains(&"good_validation.json".to_owned()));
    fs::remove_file(&path)?;
    validate(&scenario, &[])?.expect_code(1);
    Ok(())
}

#[test]
fn a_flipped_byte_is_named_before_and_after_the_record() -> Result<()> {
    let Some((_dir, scenario)) = copied()? else { return Ok(()) };
    let path = artifact(&scenario, "good");
    let largest = payloads(&path)?[0];
    // The lowest byte of a value in the middle: no output shows it.
    let at = (largest.offset + largest.len / 8 * 4) as usize;
    let untouched = fs::read(&path)?;
    let mut flipped = untouched.clone();
    flipped[at] ^= 1;
    durable_fs::write_atomic(&path, &flipped)?;
    let outcome = validate(&scenario, &[])?;
    assert!(outcome.expect_code(1).transcript().contains("is not the artifact that was recorded"));
    assert!(!scenario.list("results").contains(&"good_validation.json".to_owned()));
    assert_eq!(scenario.record("good_failure.json")?["kind"], "not_recorded");

    durable_fs::write_atomic(&path, &untouched)?;
    plant(&scenario, |bytes| bytes[at] ^= 1)?;
    let outcome = validate(&scenario, &[])?;
    let text = outcome.expect_code(1).transcript();
    assert_eq!(failures(&scenario)?, [("weights".to_owned(), String::new())]);
    assert!(text.contains("1 of ") && text.contains("of the weight"), "{text}");
    Ok(())
}

#[test]
fn a_new_vision_with_an_old_policy_is_named() -> Result<()> {
    let Some((_dir, scenario)) = copied()? else { return Ok(()) };
    let Some(python) = PythonEnvironment::reference_or_skip() else { return Ok(()) };
    let other = fs::read(artifact(&scenario, "mixed"))?;
    plant(&scenario, |bytes| *bytes = other)?;
    validate(&scenario, &["--reference", "--reference-python", python.as_str()])?.expect_code(1);
    let failures = failures(&scenario)?;
    assert!(names(&failures, "sources", ""), "{failures:?}");
    for slice in ["pose", "lead", "hidden_state", "lane_lines_prob"] {
        assert!(names(&failures, "reference", slice), "{slice}: {failures:?}");
    }
    // The policy is its own, and is given what the artifact's vision saw.
    assert!(!names(&failures, "reference", "plan"), "{failures:?}");
    Ok(())
}

#[test]
fn a_value_that_is_no_number_is_named_with_its_slice() -> Result<()> {
    let Some((_dir, scenario)) = copied()? else { return Ok(()) };
    let bias = payloads(&artifact(&scenario, "good"))?.into_iter().find(|payload| payload.len == 4 * 1576);
    let at = bias.context("the vision's bias")?.offset as usize + 4 * 90;
    plant(&scenario, |bytes| bytes[at..at + 4].copy_from_slice(&f32::NAN.to_le_bytes()))?;
    validate(&scenario, &[])?.expect_code(1);
    let failures = failures(&scenario)?;
    assert!(names(&failures, "non_finite", "pose"), "{failures:?}");
    assert_eq!(scenario.record("good_validation.json")?["non_finite"], json!(["pose"]));
    Ok(())
}

#[test]
fn swapped_slices_are_named() -> Result<()> {
    let Some((_dir, scenario)) = copied()? else { return Ok(()) };
    // Names of four letters, each once in the stream: nothing moves.
    plant(&scenario, |bytes| {
        let place = |name: &[u8]| bytes.windows(6).position(|six| six[..2] == [0x8c, 4] && six[2..] == *name);
        let (pose, lead) = (place(b"pose").unwrap_or_default() + 2, place(b"lead").unwrap_or_default() + 2);
        assert!(pose > 2 && lead > 2);
        bytes[pose..pose + 4].copy_from_slice(b"lead");
        bytes[lead..lead + 4].copy_from_slice(b"pose");
    })?;
    validate(&scenario, &[])?.expect_code(1);
    let failures = failures(&scenario)?;
    assert!(names(&failures, "slices", "pose") && names(&failures, "slices", "lead"), "{failures:?}");
    Ok(())
}

#[test]
fn the_warps_of_the_cameras_swapped_leave_no_pass() -> Result<()> {
    let Some((_dir, scenario)) = copied()? else { return Ok(()) };
    let key = |width: u32, height: u32| {
        [&b"J"[..], &width.to_le_bytes(), &b"J"[..], &height.to_le_bytes(), &[0x86][..]].concat()
    };
    let (large, small) = (key(1928, 1208), key(1344, 760));
    plant(&scenario, |bytes| {
        let place =
            |key: &[u8]| bytes.windows(key.len()).position(|window| window == key).unwrap_or_default();
        let (first, second) = (place(&large), place(&small));
        assert!(first > 0 && second > 0);
        bytes[first..first + large.len()].copy_from_slice(&small);
        bytes[second..second + small.len()].copy_from_slice(&large);
    })?;
    let outcome = validate(&scenario, &[])?;
    let text = outcome.expect_code(1).transcript();
    assert!(text.contains("must not be loaded") && text.contains("1928x1208: input frame"), "{text}");
    assert_eq!(scenario.record("good_failure.json")?["kind"], "file");
    assert!(!scenario.list("results").contains(&"good_validation.json".to_owned()));
    Ok(())
}

#[test]
fn bad_input_leaves_no_record() -> Result<()> {
    let Some((_dir, scenario)) = copied()? else { return Ok(()) };
    let outcome = validate(&scenario, &["--target", "qcom"])?;
    assert!(
        outcome.expect_code(1).transcript().contains("good is compiled for cpu"),
        "{}",
        outcome.transcript()
    );
    let without = compiled().context("compiled")?.python.python.as_str();
    let outcome = validate(&scenario, &["--reference", "--reference-python", without])?;
    let text = outcome.expect_code(5).transcript();
    assert!(text.contains("cannot import onnxruntime") && text.contains("cargo xtask setup"), "{text}");
    for arguments in [
        &["--soak", "-1"][..],
        &["--soak", "x"],
        &["--peak-mib", "0"],
        &["--reference-python", "x"],
        &["--dm"],
    ] {
        validate(&scenario, arguments)?.expect_code(2);
    }
    let outcome = run(&mut scenario.rebuild(&["validate", "--dm"]))?;
    let text = outcome.expect_code(1).transcript();
    assert!(
        text.contains("dmonitoring_model_tinygrad.pkl is missing") && text.contains("models --dm"),
        "{text}"
    );
    let records = scenario.list("results");
    assert!(!records.iter().any(|name| name.contains("validation")), "{records:?}");
    Ok(())
}

#[test]
fn driver_monitoring_is_run_compared_and_judged() -> Result<()> {
    let Some((_dir, scenario)) = copied()? else { return Ok(()) };
    let Some(reference) = PythonEnvironment::reference_or_skip() else { return Ok(()) };
    let python = &compiled().context("compiled")?.python;
    let dir = scenario.workspace.join("driver-monitoring");
    let onnx = onnx_fixture(python, &OnnxRequest::small(OnnxKind::DriverMonitoring, 5))?;
    run(Command::new("cp").args([onnx.as_str(), dir.join("dmonitoring_model.onnx").as_str()]))?
        .expect_code(0);
    let mut models = scenario.models();
    models.args([
        "--dm",
        "--target",
        "cpu",
        "--no-cache",
        "--input-dir",
        dir.as_str(),
        "--output-dir",
        dir.as_str(),
    ]);
    models.env("MODELS_PYTHON", python.python.as_str());
    run(plain(&mut models))?.expect_code(0);
    let validate = || {
        run(plain(&mut scenario.rebuild(&[
            "validate",
            "--dm",
            "--reference",
            "--reference-python",
            reference.as_str(),
        ])))
    };
    validate()?.expect_code(0);
    let record = scenario.record("dmonitoring_dm-validation.json")?;
    assert_eq!(record["passed"], true, "{record}");
    assert_eq!(record["files"].as_object().map(serde_json::Map::len), Some(4));
    assert_eq!(record["reference"]["slices"].as_array().map(Vec::len), Some(20));
    let again = validate()?;
    assert!(again.expect_code(0).transcript().contains("passed before"), "{}", again.transcript());

    // One bit of the model, then a file that is cut.
    let model = dir.join("dmonitoring_model_tinygrad.pkl");
    let at = payloads(&model)?[0];
    let mut bytes = fs::read(&model)?;
    bytes[(at.offset + at.len / 8 * 4) as usize + 3] ^= 0x40;
    durable_fs::write_atomic(&model, &bytes)?;
    validate()?.expect_code(1);
    let record = scenario.record("dmonitoring_dm-validation.json")?;
    let checks =
        record["verdicts"].as_array().context("verdicts")?.iter().map(|verdict| verdict["check"].clone());
    assert!(checks.into_iter().any(|check| check == "weights" || check == "reference"), "{record}");
    durable_fs::write_atomic(&model, &bytes[..bytes.len() / 2])?;
    validate()?.expect_code(1);
    assert!(!scenario.list("results").contains(&"dmonitoring_dm-validation.json".to_owned()));
    Ok(())
}
