//! The whole workflow on two small models: sources, artifacts, proof, parts, manifests, release names.

use std::{collections::BTreeMap, fs, process::Command, sync::OnceLock};

use anyhow::{Context, Result};
use camino::{Utf8Path, Utf8PathBuf};
use e2e::{
    ModelSource, OnnxKind, OnnxRequest, PythonEnvironment, Scenario, ScenarioModel, repository_root, run,
    sha256_bytes, sha256_file,
};
use serde_json::Value;

const MODELS: [ScenarioModel; 2] = [
    ScenarioModel::split(
        "tr1422",
        &[
            ("driving_vision.onnx", OnnxRequest::small(OnnxKind::Vision, 11)),
            ("driving_policy.onnx", OnnxRequest::small(OnnxKind::Policy, 12)),
        ],
    ),
    ScenarioModel {
        id: "rdf2",
        name: "Regret Driven Framework V2 👀📡",
        version: "v15",
        listed: false,
        source: ModelSource {
            directory: "openpilot/selfdrive/modeld/models",
            plain: true,
            files: &[("driving_supercombo.onnx", OnnxRequest::small(OnnxKind::Supercombo, 13))],
        },
    },
];

/// A catalog that has been compiled and validated once; the tests that only look share it.
struct Compiled {
    scenario: Scenario,
    python: PythonEnvironment,
    _dir: tempfile::TempDir,
}

fn compiled() -> Option<&'static Compiled> {
    static SHARED: OnceLock<Compiled> = OnceLock::new();
    let python = PythonEnvironment::find_or_skip()?;
    Some(SHARED.get_or_init(|| compile_catalog(python).unwrap_or_else(|error| panic!("{error:#}"))))
}

fn compile_catalog(python: PythonEnvironment) -> Result<Compiled> {
    let dir = tempfile::tempdir()?;
    let root = Utf8Path::from_path(dir.path()).context("a UTF-8 path")?;
    let scenario = Scenario::create(root, &python, &MODELS)?;
    scenario.init(&python, Some(4))?.expect_code(0);
    for command in ["extract", "compile", "validate"] {
        run(&mut scenario.rebuild(&[command]))?.expect_code(0);
    }
    Ok(Compiled { scenario, python, _dir: dir })
}

/// A private copy of the compiled workspace, for tests that change it.
fn copy_of(compiled: &Compiled) -> Result<(tempfile::TempDir, Scenario)> {
    let dir = tempfile::tempdir()?;
    let root = Utf8Path::from_path(dir.path()).context("a UTF-8 path")?.to_owned();
    let source = &compiled.scenario.workspace;
    run(Command::new("cp").args(["-a", source.as_str(), root.as_str()]))?.expect_code(0);
    Ok((dir, compiled.scenario.with_workspace(root.join("workspace"))))
}

fn artifact(scenario: &Scenario, id: &str) -> Utf8PathBuf {
    scenario.workspace.join("compiled").join(format!("{id}_driving_tinygrad.pkl"))
}

/// Every file below a directory with its digest.
fn digests(dir: &Utf8Path) -> Result<BTreeMap<String, String>> {
    let mut found = BTreeMap::new();
    for entry in dir.read_dir_utf8().with_context(|| format!("look into {dir}"))? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            let below = digests(entry.path())?;
            found.extend(
                below.into_iter().map(|(name, digest)| (format!("{}/{name}", entry.file_name()), digest)),
            );
        } else {
            found.insert(entry.file_name().to_owned(), sha256_file(entry.path())?);
        }
    }
    Ok(found)
}

#[test]
fn records_say_where_everything_came_from() -> Result<()> {
    let Some(Compiled { scenario, .. }) = compiled() else { return Ok(()) };
    let source = scenario.record("tr1422_source.json")?;
    assert_eq!(source["ref"], scenario.commits[0].1);
    assert_eq!(source["input_format"], "split");
    assert_eq!(source["files"].as_array().map(Vec::len), Some(2));
    for file in source["files"].as_array().into_iter().flatten() {
        let path = Utf8Path::new(file["path"].as_str().unwrap_or_default());
        assert_eq!(file["sha256"], sha256_file(path)?, "{path}");
        let directory = "selfdrive/modeld/models";
        assert!(file["git_path"].as_str().is_some_and(|path| path.starts_with(directory)), "{file}");
    }
    for (id, model_type) in [("tr1422", "vision_policy"), ("rdf2", "supercombo")] {
        let record = scenario.record(&format!("{id}_artifact.json"))?;
        assert_eq!((&record["id"], &record["status"]), (&Value::from(id), &Value::from("compiled")));
        assert_eq!(record["sha256"], sha256_file(&artifact(scenario, id))?);
        assert_eq!(record["size"], fs::metadata(artifact(scenario, id))?.len());
        assert_eq!(record["multipart"], true);
        let validation = scenario.record(&format!("{id}_validation.json"))?;
        assert_eq!(validation["model_type"], model_type);
        assert_eq!(
            (&validation["missing"], &validation["non_finite"]),
            (&Value::from([""; 0]), &Value::from([""; 0]))
        );
        assert_eq!(validation["has_control_output"], true);
        let build = scenario.record(&format!("{id}_build.json"))?;
        assert!(build["seconds"].is_object(), "{build}");
        assert!(scenario.workspace.join(format!("logs/{id}.log")).is_file());
    }
    assert!(scenario.list("results").iter().all(|name| !name.ends_with("_failure.json")));
    Ok(())
}

#[test]
fn artifacts_over_the_limit_lie_ready_in_parts_with_their_checksum() -> Result<()> {
    let Some(Compiled { scenario, .. }) = compiled() else { return Ok(()) };
    let ready = scenario.workspace.join("ready-for-resources");
    let names = scenario.list("ready-for-resources");
    let multipart: Value = serde_json::from_str(&fs::read_to_string(ready.join("multipart.json"))?)?;
    for id in ["tr1422", "rdf2"] {
        let whole = fs::read(artifact(scenario, id))?;
        let name = format!("{id}_driving_tinygrad.pkl");
        let parts: Vec<&String> =
            names.iter().filter(|part| part.starts_with(&format!("{name}.p"))).collect();
        assert!(parts.len() > 1 && !names.contains(&name), "{names:?}");
        let mut joined = Vec::new();
        for (number, part) in parts.iter().enumerate() {
            assert_eq!(**part, format!("{name}.p{number:02}"));
            joined.extend(fs::read(ready.join(part))?);
        }
        assert_eq!(sha256_bytes(&joined), sha256_bytes(&whole));
        let checksum = fs::read_to_string(ready.join(format!("{name}.sha256")))?;
        assert_eq!(checksum, format!("{}  {name}\n", sha256_bytes(&whole)));
        let entry =
            multipart.as_array().into_iter().flatten().find(|entry| entry["id"] == id).context("an entry")?;
        assert_eq!(entry["filename"], name);
        assert_eq!(entry["sha256"], sha256_bytes(&whole));
        assert_eq!(entry["parts"].as_array().map(Vec::len), Some(parts.len()));
    }
    Ok(())
}

#[test]
fn artifacts_run_in_a_process_with_only_tinygrad_and_numpy() -> Result<()> {
    let Some(Compiled { scenario, python, .. }) = compiled() else { return Ok(()) };
    let expected = [
        ("tr1422", "vision_policy", serde_json::json!([[1, 1576], [1, 1000]])),
        ("rdf2", "supercombo", serde_json::json!([[1, 2580]])),
    ];
    for (id, model_type, shapes) in expected {
        let mut command = Command::new(&python.python);
        command.args(["-I", repository_root().join("tests/python/stand_in_runtime.py").as_str()]);
        let outcome = run(command.arg(artifact(scenario, id)))?;
        outcome.expect_code(0);
        let said = &outcome.json_lines()?[0];
        assert_eq!(
            (&said["model_type"], &said["foreign"]),
            (&Value::from(model_type), &Value::from([""; 0])),
            "{said}"
        );
        for camera in ["1928x1208", "1344x760"] {
            let camera = &said["cameras"][camera];
            assert_eq!(camera["shapes"], shapes);
            for property in ["float32", "finite", "frames_matter", "history_matters"] {
                assert_eq!(camera[property], true, "{id}: {property}: {said}");
            }
        }
    }
    Ok(())
}

#[test]
fn compiling_again_gives_the_same_bytes() -> Result<()> {
    let Some(compiled) = compiled() else { return Ok(()) };
    let (_dir, scenario) = copy_of(compiled)?;
    let before = digests(&scenario.workspace.join("compiled"))?;
    run(&mut scenario.rebuild(&["compile", "--force"]))?.expect_code(0);
    assert_eq!(digests(&scenario.workspace.join("compiled"))?, before);
    Ok(())
}

#[test]
fn a_rerun_skips_what_is_current_and_changes_nothing() -> Result<()> {
    let Some(compiled) = compiled() else { return Ok(()) };
    let (_dir, scenario) = copy_of(compiled)?;
    let before = digests(&scenario.workspace)?;
    for command in ["extract", "compile", "validate"] {
        run(&mut scenario.rebuild(&[command]))?.expect_code(0);
    }
    assert_eq!(digests(&scenario.workspace)?, before);
    Ok(())
}

#[test]
fn a_truncated_artifact_counts_as_absent_and_is_made_again() -> Result<()> {
    let Some(compiled) = compiled() else { return Ok(()) };
    let (_dir, scenario) = copy_of(compiled)?;
    let path = artifact(&scenario, "tr1422");
    let (before, other) = (sha256_file(&path)?, fs::metadata(artifact(&scenario, "rdf2"))?.modified()?);
    fs::OpenOptions::new().write(true).open(&path)?.set_len(1000)?;
    run(&mut scenario.rebuild(&["compile"]))?.expect_code(0);
    assert_eq!(sha256_file(&path)?, before);
    assert_eq!(
        fs::metadata(artifact(&scenario, "rdf2"))?.modified()?,
        other,
        "the other model was not touched"
    );
    Ok(())
}

#[test]
fn a_release_gives_every_file_its_name_and_a_second_run_finds_nothing_to_do() -> Result<()> {
    let Some(compiled) = compiled() else { return Ok(()) };
    let (_dir, scenario) = copy_of(compiled)?;
    run(&mut scenario.rebuild(&["manifest"]))?.expect_code(0);
    let v22 = scenario.manifest("v22")?;
    let entry = v22["models"].as_array().into_iter().flatten().find(|entry| entry["id"] == "tr1422");
    let entry = entry.context("tr1422 in v22")?.as_object().context("an object")?;
    assert_ne!(entry.get("uses_external_gpu"), Some(&Value::Bool(true)));
    assert!(!entry.keys().any(|field| field.starts_with("artifact_")), "{entry:?}");

    release(&scenario)?;
    let ids = scenario.manifest("v23")?["models"].as_array().context("models")?.clone();
    let ids: Vec<&str> = ids.iter().filter_map(|entry| entry["id"].as_str()).collect();
    assert_eq!(ids, ["tr14223", "deeprl3v23", "rdf23"]);
    let ready = scenario.list("ready-for-resources");
    for id in ["tr14223", "rdf23"] {
        let name = format!("{id}_driving_tinygrad.pkl");
        assert!(artifact(&scenario, id).is_file());
        assert!(ready.contains(&format!("{name}.p00")), "{ready:?}");
        let checksum =
            fs::read_to_string(scenario.workspace.join(format!("ready-for-resources/{name}.sha256")))?;
        assert!(checksum.ends_with(&format!("  {name}\n")), "{checksum}");
    }
    let after = digests(&scenario.workspace)?;
    release(&scenario)?;
    assert_eq!(digests(&scenario.workspace)?, after);

    let record = scenario.record("rdf2_artifact.json")?;
    assert_eq!((&record["id"], &record["release_id"]), (&Value::from("rdf2"), &Value::from("rdf23")));
    run(&mut scenario.rebuild(&["compile", "--model", "rdf23"]))?.expect_code(0);
    assert_eq!(digests(&scenario.workspace)?, after, "a renamed artifact is still current, by either ID");
    Ok(())
}

fn release(scenario: &Scenario) -> Result<()> {
    let base = scenario.workspace.join("manifests/model_names_v22.json");
    let arguments =
        ["namespace", "--base-manifest", base.as_str(), "--manifest-version", "v23", "--suffix", "3"];
    run(&mut scenario.rebuild(&arguments))?.expect_code(0);
    run(&mut scenario.rebuild(&["reconcile"]))?.expect_code(0);
    Ok(())
}
