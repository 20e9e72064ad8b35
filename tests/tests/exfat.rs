//! A workspace on an external disk: exFAT knows no links, and a Mac leaves its sidecar files there.
#![expect(clippy::unwrap_used, reason = "the server's handler panics on failure")]

#[path = "../../crates/verified-download/tests/fault_server/mod.rs"]
mod fault_server;

use std::{fs, os::unix::fs::MetadataExt};

use anyhow::{Context, Result};
use camino::{Utf8Path, Utf8PathBuf};
use e2e::{
    Blob, ExFat, OnnxKind, OnnxRequest, PythonEnvironment, Scenario, ScenarioModel, onnx_fixture,
    report_skip, repository_root, run, sha256_file,
};
use fault_server::{Answer, FaultServer, Seen};

const VISION: OnnxRequest = OnnxRequest::small(OnnxKind::Vision, 71);
const POLICY: OnnxRequest = OnnxRequest::small(OnnxKind::Policy, 72);
const LOCAL: ScenarioModel =
    ScenarioModel::split("first", &[("driving_vision.onnx", VISION), ("driving_policy.onnx", POLICY)]);

/// An LFS server with one object.
fn answer(seen: &Seen, oid: &str, content: &[u8]) -> Answer {
    if seen.method != "POST" {
        return Answer::serve(seen, content);
    }
    let host = seen.header("host").unwrap();
    let object =
        serde_json::json!({"oid": oid, "actions": {"download": {"href": format!("http://{host}/{oid}")}}});
    Answer::new(200, serde_json::json!({"objects": [object]}).to_string())
}

/// Puts a sidecar beside every file below `dir`, and one into every directory; returns how many.
fn scatter_sidecars(dir: &Utf8Path) -> Result<usize> {
    let sidecar = [&[0x00, 0x05, 0x16, 0x07][..], &[0; 4092]].concat();
    let mut count = 0;
    for entry in dir.read_dir_utf8()? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            count += scatter_sidecars(entry.path())?;
        }
        if !entry.file_name().starts_with("._") {
            durable_fs::write_atomic(dir.join(format!("._{}", entry.file_name())), &sidecar)?;
            count += 1;
        }
    }
    Ok(count)
}

fn files_below(dir: &Utf8Path) -> Result<Vec<Utf8PathBuf>> {
    let mut files = Vec::new();
    for entry in dir.read_dir_utf8()? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            files.extend(files_below(entry.path())?);
        } else {
            files.push(entry.into_path());
        }
    }
    Ok(files)
}

#[test]
fn a_catalog_is_made_on_a_disk_without_links() -> Result<()> {
    let Some(python) = PythonEnvironment::find_or_skip() else { return Ok(()) };
    let dir = tempfile::tempdir()?;
    let root = Utf8Path::from_path(dir.path()).context("a UTF-8 path")?.canonicalize_utf8()?;
    let disk = match ExFat::mount(&root, 512) {
        Ok(disk) => disk,
        Err(why) => {
            report_skip(&format!("no exFAT disk: {why}"));
            return Ok(());
        }
    };
    durable_fs::write_atomic(disk.path().join("probe"), b"x")?;
    assert!(fs::hard_link(disk.path().join("probe"), disk.path().join("link")).is_err(), "it takes links");
    let scenario =
        Scenario::create(&root.join("inputs"), &python, &[LOCAL])?.with_workspace(disk.path().join("ws"));
    scenario.init(&python, Some(1))?.expect_code(0);
    let onnx = onnx_fixture(&python, &OnnxRequest::small(OnnxKind::Vision, 73))?;
    let oid = sha256_file(&onnx)?;
    let (held, content) = (oid.clone(), fs::read(&onnx)?);
    let server = FaultServer::start(move |seen, _| answer(seen, &held, &content));
    for (id, policy) in [("one", 74), ("two", 75)] {
        let policy = onnx_fixture(&python, &OnnxRequest::small(OnnxKind::Policy, policy))?;
        let config = format!("[lfs]\n\turl = {}\n", server.url("/models.git/info/lfs"));
        let files = [
            (".lfsconfig".to_owned(), Blob::Text(config)),
            ("selfdrive/modeld/models/driving_vision.onnx".to_owned(), Blob::DanglingPointer(onnx.clone())),
            ("selfdrive/modeld/models/driving_policy.onnx".to_owned(), Blob::Pointer(policy)),
        ];
        scenario.add_source(id, &scenario.history.commit(id, &files)?, "split")?;
    }
    let settings = scenario.workspace.join("rebuild.toml");
    let text = fs::read_to_string(&settings)?.replace("offline = true", "offline = false");
    durable_fs::write_atomic(&settings, text.as_bytes())?;

    // Two models share one object of the cache: it is fetched once, and each has a copy of its own.
    run(&mut scenario.rebuild_mapped(&["extract", "--model", "one", "--model", "two"]))?.expect_code(0);
    let downloads = || server.seen().iter().filter(|seen| seen.method == "GET").count();
    assert_eq!(downloads(), 1);
    let visions =
        ["one", "two"].map(|id| scenario.workspace.join(format!("onnx/{id}/{id}_driving_vision.onnx")));
    let object = scenario.workspace.join(format!("cache/lfs/objects/{}/{}/{oid}", &oid[..2], &oid[2..4]));
    for file in visions.iter().chain([&object]) {
        assert_eq!(sha256_file(file)?, oid, "{file}");
    }
    let inodes = [&visions[0], &visions[1], &object].map(|file| fs::metadata(file).map(|found| found.ino()));
    let inodes = inodes.into_iter().collect::<std::io::Result<std::collections::BTreeSet<_>>>()?;
    assert_eq!(inodes.len(), 3, "three files");

    // A Mac's sidecars beside everything change nothing.
    assert!(scatter_sidecars(&scenario.workspace)? > 10);
    let described = run(&mut scenario.rebuild_mapped(&["sources", "--json"]))?;
    described.expect_code(0);
    assert_eq!(described.json_lines()?.len(), 4, "{}", described.stdout);
    fs::remove_file(&visions[0])?;
    run(&mut scenario.rebuild_mapped(&["extract", "--model", "one", "--model", "two"]))?.expect_code(0);
    assert_eq!((sha256_file(&visions[0])?, downloads()), (oid, 1), "it comes from the cache");
    run(&mut scenario.rebuild_mapped(&["compile", "--model", "one"]))?.expect_code(0);
    let ready = scenario.list("ready-for-resources");
    assert!(ready.contains(&"one_driving_tinygrad.pkl.p00".to_owned()), "{ready:?}");
    scatter_sidecars(&scenario.workspace)?;
    let again = run(&mut scenario.rebuild_mapped(&["compile", "--model", "one", "--json"]))?;
    again.expect_code(0);
    assert!(again.stdout.contains("current"), "{}", again.stdout);

    // A tree's own compilers want a package `openpilot`, which cannot be a link here.
    let mut tree = scenario.models();
    tree.args(["--one", "--target", "cpu", "--no-install", "--toolchain", "tree", "--root"]);
    tree.arg(repository_root().join("fixtures/tree")).env("MODELS_PYTHON", &python.python);
    tree.args(["--input-dir", scenario.workspace.join("onnx").as_str()]);
    run(tree.args(["--output-dir", disk.path().join("out").as_str()]))?.expect_code(0);
    assert!(disk.path().join("out/one_driving_tinygrad.pkl").is_file());
    let links = files_below(disk.path())?.into_iter().filter(|file| file.is_symlink()).count();
    assert_eq!(links, 0);
    Ok(())
}
