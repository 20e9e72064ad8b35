//! `rebuild extract` with objects that only a server has, and `rebuild sources` over what arrived.
#![expect(clippy::unwrap_used, reason = "the server's handler panics on failure")]

#[path = "../../crates/verified-download/tests/fault_server/mod.rs"]
mod fault_server;

use std::fs;

use anyhow::{Context, Result};
use camino::Utf8Path;
use e2e::{
    Blob, OnnxKind, OnnxRequest, PythonEnvironment, Scenario, ScenarioModel, onnx_fixture, run, sha256_file,
};
use fault_server::{Answer, FaultServer, Seen};

const VISION: OnnxRequest = OnnxRequest::small(OnnxKind::Vision, 51);
const POLICY: OnnxRequest = OnnxRequest::small(OnnxKind::Policy, 52);
const LOCAL: ScenarioModel =
    ScenarioModel::split("local-one", &[("driving_vision.onnx", VISION), ("driving_policy.onnx", POLICY)]);

/// An LFS server that has one object, whose downloads break off once.
fn answer(seen: &Seen, before: usize, oid: &str, content: &[u8]) -> Answer {
    if seen.method != "POST" {
        let whole = Answer::serve(seen, content);
        return if before < 2 { whole.cut(1000) } else { whole };
    }
    let question: serde_json::Value = serde_json::from_slice(&seen.body).unwrap();
    let host = seen.header("host").unwrap();
    let objects: Vec<_> = question["objects"].as_array().unwrap().iter().map(|object| {
        if object["oid"] == oid {
            serde_json::json!({"oid": oid, "actions": {"download": {"href": format!("http://{host}/{oid}")}}})
        } else {
            serde_json::json!({"oid": object["oid"], "error": {"code": 404, "message": "no such object"}})
        }
    }).collect();
    Answer::new(200, serde_json::json!({ "objects": objects }).to_string())
}

#[test]
fn what_only_a_server_has_is_fetched_recorded_and_described() -> Result<()> {
    let Some(python) = PythonEnvironment::find_or_skip() else { return Ok(()) };
    let dir = tempfile::tempdir()?;
    let root = Utf8Path::from_path(dir.path()).context("a UTF-8 path")?;
    let scenario = Scenario::create(root, &python, &[LOCAL])?;
    scenario.init(&python, None)?.expect_code(0);
    let onnx = onnx_fixture(&python, &OnnxRequest::small(OnnxKind::Vision, 53))?;
    let oid = sha256_file(&onnx)?;
    let (held, content) = (oid.clone(), fs::read(&onnx)?);
    let server = FaultServer::start(move |seen, before| answer(seen, before, &held, &content));
    let config = format!("[lfs]\n\turl = {}\n", server.url("/models.git/info/lfs"));
    for (id, request) in [("remote", 53), ("gone", 54)] {
        let vision = onnx_fixture(&python, &OnnxRequest::small(OnnxKind::Vision, request))?;
        let files = [
            (".lfsconfig".to_owned(), Blob::Text(config.clone())),
            ("selfdrive/modeld/models/driving_vision.onnx".to_owned(), Blob::DanglingPointer(vision)),
            (
                "selfdrive/modeld/models/driving_policy.onnx".to_owned(),
                Blob::Pointer(onnx_fixture(&python, &POLICY)?),
            ),
        ];
        let commit = scenario.history.commit(id, &files)?;
        scenario.add_source(id, &commit, "split")?;
    }
    let offline = run(&mut scenario.rebuild_mapped(&["extract", "--model", "remote"]))?;
    offline.expect_code(1);
    assert!(server.seen().is_empty(), "offline is offline");
    let settings = scenario.workspace.join("rebuild.toml");
    let text = fs::read_to_string(&settings)?.replace("offline = true", "offline = false");
    durable_fs::write_atomic(&settings, text.as_bytes())?;

    let planned =
        run(&mut scenario.rebuild_mapped(&["extract", "--model", "remote", "--dry-run", "--json"]))?;
    planned.expect_code(0);
    let plan = &planned.json_lines()?[0];
    assert_eq!(plan["to_download"], fs::metadata(&onnx)?.len());
    assert!(plan["files"][0]["source"].as_str().context("a source")?.contains(&server.address));
    assert!(server.seen().is_empty() && !scenario.workspace.join("cache").exists());

    let all = run(&mut scenario.rebuild_mapped(&["extract", "--jobs", "2"]))?;
    all.expect_code(1);
    assert_eq!(sha256_file(&scenario.workspace.join("onnx/remote/remote_driving_vision.onnx"))?, oid);
    let files = &scenario.record("remote_source.json")?["files"];
    assert_eq!(
        (&files[0]["source"]["kind"], &files[1]["source"]["kind"]),
        (&"lfs_server".into(), &"lfs_cache".into())
    );
    let failure = scenario.record("gone_failure.json")?;
    assert_eq!(failure["kind"], "gone_at_server");
    assert!(failure["error"].as_str().context("an error")?.contains("no such object"));
    assert!(scenario.list("onnx/gone").is_empty());

    let described = run(&mut scenario.rebuild_mapped(&["sources", "--json"]))?;
    described.expect_code(0);
    let lines = described.json_lines()?;
    assert_eq!(lines.len(), 4, "two models of two files");
    let vision = lines.iter().find(|line| line["id"] == "remote").context("the remote model")?;
    assert_eq!(vision["slices"]["hidden_state"], serde_json::json!([1064, 1576]));
    Ok(())
}

#[test]
fn the_users_git_configuration_names_the_server() -> Result<()> {
    let Some(python) = PythonEnvironment::find_or_skip() else { return Ok(()) };
    let dir = tempfile::tempdir()?;
    let root = Utf8Path::from_path(dir.path()).context("a UTF-8 path")?;
    let scenario = Scenario::create(root, &python, &[LOCAL])?;
    scenario.init(&python, None)?.expect_code(0);
    let onnx = onnx_fixture(&python, &OnnxRequest::small(OnnxKind::Vision, 55))?;
    let oid = sha256_file(&onnx)?;
    let (held, content) = (oid.clone(), fs::read(&onnx)?);
    let server = FaultServer::start(move |seen, before| answer(seen, before, &held, &content));
    let files = [
        (".lfsconfig".to_owned(), Blob::Text("[lfs]\n\turl = hub/models.git/info/lfs\n".to_owned())),
        ("selfdrive/modeld/models/driving_vision.onnx".to_owned(), Blob::DanglingPointer(onnx)),
        (
            "selfdrive/modeld/models/driving_policy.onnx".to_owned(),
            Blob::Pointer(onnx_fixture(&python, &POLICY)?),
        ),
    ];
    let commit = scenario.history.commit("remote", &files)?;
    scenario.add_source("remote", &commit, "split")?;
    let settings = scenario.workspace.join("rebuild.toml");
    let text = fs::read_to_string(&settings)?.replace("offline = true", "offline = false");
    durable_fs::write_atomic(&settings, text.as_bytes())?;
    let home = root.join("home");
    fs::create_dir(&home)?;
    let alias = format!("[url \"{}\"]\n\tinsteadOf = hub/\n", server.url("/"));
    durable_fs::write_atomic(home.join(".gitconfig"), alias.as_bytes())?;

    let extract = ["extract", "--model", "remote"];
    run(&mut scenario.rebuild_mapped(&extract))?.expect_code(1);
    assert!(server.seen().is_empty(), "nobody knows what hub/ is");
    let mut at_home = scenario.rebuild_mapped(&extract);
    run(at_home.env("HOME", &home).env_remove("GIT_CONFIG_GLOBAL"))?.expect_code(0);
    assert_eq!(sha256_file(&scenario.workspace.join("onnx/remote/remote_driving_vision.onnx"))?, oid);
    assert!(server.seen()[0].path.starts_with("/models.git/info/lfs/objects/batch"));
    assert_eq!(fs::read_to_string(home.join(".gitconfig"))?, alias);
    assert_eq!(fs::read_dir(&home)?.count(), 1, "nothing is written there");
    Ok(())
}
