//! What goes wrong: one clear message each, nothing half-written, the other models still processed, the documented exit code.

use std::{fs, os::unix::process::CommandExt, process::Command};

use anyhow::{Context, Result};
use camino::{Utf8Path, Utf8PathBuf};
use e2e::{
    Blob, History, OnnxKind, OnnxRequest, Outcome, PythonEnvironment, Scenario, ScenarioModel, is_root,
    onnx_fixture, report_skip, run,
};

const SOUND: ScenarioModel = ScenarioModel::split(
    "tr1422",
    &[
        ("driving_vision.onnx", OnnxRequest::small(OnnxKind::Vision, 21)),
        ("driving_policy.onnx", OnnxRequest::small(OnnxKind::Policy, 22)),
    ],
);
const VISION: OnnxRequest = OnnxRequest::small(OnnxKind::Vision, 23);

struct Fixture {
    scenario: Scenario,
    python: PythonEnvironment,
    _dir: tempfile::TempDir,
}

fn fixture(models: &[ScenarioModel]) -> Result<Option<Fixture>> {
    let Some(python) = PythonEnvironment::find_or_skip() else { return Ok(None) };
    let dir = tempfile::tempdir()?;
    let root = Utf8Path::from_path(dir.path()).context("a UTF-8 path")?;
    let scenario = Scenario::create(root, &python, models)?;
    scenario.init(&python, None)?.expect_code(0);
    Ok(Some(Fixture { scenario, python, _dir: dir }))
}

impl Fixture {
    /// stderr without what differs between machines and runs.
    fn message(&self, outcome: &Outcome) -> String {
        let text = self.scenario.redacted(&outcome.stderr);
        let venv = self.python.python.parent().unwrap_or(Utf8Path::new("/"));
        let text = text.replace(venv.as_str(), "[venv]");
        let lines = text.lines().map(|line| without_duration(line.trim_end()));
        lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n")
    }

    /// Files below the workspace's `onnx/` and `compiled/`, hidden and temporary ones too.
    fn products(&self) -> Vec<String> {
        let mut found = Vec::new();
        for dir in ["onnx", "compiled", "ready-for-resources"] {
            walk(&self.scenario.workspace.join(dir), &mut found);
        }
        let root = format!("{}/", self.scenario.workspace);
        let mut names: Vec<String> =
            found.into_iter().map(|path| path.as_str().trim_start_matches(&root).to_owned()).collect();
        names.sort();
        names
    }
}

/// `... 1 failed in 0.52 s, 0 B moved` up to where it speaks of time.
fn without_duration(line: &str) -> &str {
    line.split_once(" failed in ").map_or(line, |(before, _)| before)
}

fn walk(dir: &Utf8Path, found: &mut Vec<Utf8PathBuf>) {
    for entry in dir.read_dir_utf8().into_iter().flatten().flatten() {
        if entry.path().is_dir() {
            walk(entry.path(), found);
        } else {
            found.push(entry.path().to_owned());
        }
    }
}

/// A scenario whose map also names broken models, each in a commit of its own.
fn broken_history() -> Result<Option<Fixture>> {
    let Some(fixture) = fixture(&[SOUND])? else { return Ok(None) };
    let scenario = &fixture.scenario;
    let onnx = |request: &OnnxRequest| onnx_fixture(&fixture.python, request);
    let policy = Blob::Pointer(onnx(&OnnxRequest::small(OnnxKind::Policy, 24))?);
    let with_vision =
        |vision: Blob| vec![("driving_vision.onnx", vision), ("driving_policy.onnx", policy.clone())];
    let text = |text: &str| Blob::Text(text.to_owned());
    let cases = [
        ("nothing-there", vec![("README.md", text("no model here\n"))]),
        ("vision-only", vec![("driving_vision.onnx", Blob::Pointer(onnx(&VISION)?))]),
        ("dangling", with_vision(Blob::DanglingPointer(onnx(&OnnxRequest::small(OnnxKind::Vision, 25))?))),
        ("wrong-hash", with_vision(Blob::Pointer(onnx(&OnnxRequest::small(OnnxKind::Vision, 26))?))),
        (
            "malformed-pointer",
            with_vision(text("version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize x\n")),
        ),
        ("empty-file", with_vision(text(""))),
        ("no-graph", with_vision(text("\u{8}\u{8}"))),
        (
            "truncated",
            with_vision(Blob::Pointer(truncated(&onnx(&VISION)?, fixture.scenario.workspace.as_path())?)),
        ),
        ("no-slices", with_vision(Blob::Pointer(onnx(&VISION.with_fault("no_slices"))?))),
        ("wide-slices", with_vision(Blob::Pointer(onnx(&VISION.with_fault("wide_slices"))?))),
        ("evil-slices", with_vision(Blob::Pointer(onnx(&VISION.with_fault("evil_slices"))?))),
    ];
    for (id, files) in cases {
        let files: Vec<(String, Blob)> =
            files.into_iter().map(|(name, blob)| (format!("selfdrive/modeld/models/{name}"), blob)).collect();
        let commit = scenario.history.commit(id, &files)?;
        scenario.add_source(id, &commit, "split")?;
    }
    scenario.add_source("no-such-commit", "00000000000000000000000000000000000000aa", "split")?;
    corrupt_object_of(&scenario.history, &onnx(&OnnxRequest::small(OnnxKind::Vision, 26))?)?;
    Ok(Some(fixture))
}

fn truncated(onnx: &Utf8Path, beside: &Utf8Path) -> Result<Utf8PathBuf> {
    let path = beside.with_file_name("truncated.onnx");
    let bytes = fs::read(onnx)?;
    write(&path, &bytes[..bytes.len() / 2])?;
    Ok(path)
}

/// Flips one byte of the cached object, whose size stays.
fn corrupt_object_of(history: &History, onnx: &Utf8Path) -> Result<()> {
    let object = history.lfs_object(&e2e::sha256_file(onnx)?);
    let mut bytes = fs::read(&object)?;
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    write(&object, &bytes)
}

#[expect(clippy::disallowed_methods, reason = "an input of the run under test")]
fn write(path: &Utf8Path, bytes: &[u8]) -> Result<()> {
    fs::write(path, bytes).with_context(|| format!("write {path}"))
}

#[test]
fn each_broken_source_fails_alone_and_says_why() -> Result<()> {
    let Some(fixture) = broken_history()? else { return Ok(()) };
    let scenario = &fixture.scenario;
    run(&mut scenario.rebuild_mapped(&["extract"]))?.expect_code(1);
    let mut report = String::new();
    for name in scenario.list("results") {
        let Some(id) = name.strip_suffix("_failure.json") else { continue };
        let record = scenario.record(&name)?;
        assert_eq!((&record["id"], &record["status"]), (&id.into(), &"failed".into()));
        let error = scenario.redacted(record["error"].as_str().context("an error")?);
        report.push_str(&format!("{id}: {error}\n"));
        if let Some(hint) = record["hint"].as_str() {
            report.push_str(&format!("    {}\n", scenario.redacted(hint)));
        }
    }
    insta::assert_snapshot!("broken_sources", report);
    let sound = ["onnx/tr1422/tr1422_driving_policy.onnx", "onnx/tr1422/tr1422_driving_vision.onnx"];
    assert_eq!(fixture.products(), sound, "the sound model is there, and nothing of the others");
    assert!(!Utf8Path::new("output_slices_was_executed").exists() && fixture.executed().is_empty());
    Ok(())
}

impl Fixture {
    /// Traces of the hostile pickle's code.
    fn executed(&self) -> Vec<Utf8PathBuf> {
        let root = self.scenario.workspace.parent().unwrap_or(Utf8Path::new("/"));
        let mut dirs = vec![root.to_owned()];
        let mut found = Vec::new();
        while let Some(dir) = dirs.pop() {
            for entry in dir.read_dir_utf8().into_iter().flatten().flatten() {
                if entry.file_name() == "output_slices_was_executed" {
                    found.push(entry.path().to_owned());
                } else if entry.path().is_dir() && entry.file_name() != ".git" {
                    dirs.push(entry.path().to_owned());
                }
            }
        }
        found
    }
}

#[test]
fn an_unknown_model_lists_near_matches() -> Result<()> {
    let Some(fixture) = fixture(&[SOUND])? else { return Ok(()) };
    for command in ["extract", "compile", "validate"] {
        let outcome = run(&mut fixture.scenario.rebuild(&[command, "--model", "tr142"]))?;
        outcome.expect_code(2);
        insta::assert_snapshot!(format!("unknown_model_{command}"), fixture.message(&outcome));
    }
    assert!(fixture.products().is_empty());
    Ok(())
}

#[test]
fn a_missing_clone_is_the_environment() -> Result<()> {
    let Some(fixture) = fixture(&[SOUND])? else { return Ok(()) };
    let absent = fixture.scenario.workspace.with_file_name("no-clone");
    let outcome = run(&mut fixture.scenario.rebuild(&["extract", "--openpilot", absent.as_str()]))?;
    outcome.expect_code(5);
    insta::assert_snapshot!("missing_clone", fixture.message(&outcome));
    Ok(())
}

#[test]
fn a_missing_workspace_is_the_environment() -> Result<()> {
    let Some(fixture) = fixture(&[SOUND])? else { return Ok(()) };
    let elsewhere =
        fixture.scenario.with_workspace(fixture.scenario.workspace.with_file_name("no-workspace"));
    let outcome = run(&mut elsewhere.rebuild(&["extract"]))?;
    outcome.expect_code(5);
    insta::assert_snapshot!("missing_workspace", fixture.message(&outcome));
    assert!(!elsewhere.workspace.exists());
    Ok(())
}

#[test]
fn tinygrad_missing_is_the_environment() -> Result<()> {
    let Some(fixture) = fixture(&[SOUND])? else { return Ok(()) };
    run(&mut fixture.scenario.rebuild(&["extract"]))?.expect_code(0);
    let bare = fixture.scenario.workspace.with_file_name("bare");
    run(Command::new(&fixture.python.python).args(["-m", "venv", "--without-pip", bare.as_str()]))?
        .expect_code(0);
    fixture.scenario.set("python", bare.join("bin/python").as_str())?;
    let outcome = run(&mut fixture.scenario.rebuild(&["compile"]))?;
    outcome.expect_code(5);
    insta::assert_snapshot!("tinygrad_missing", fixture.message(&outcome));
    assert!(fixture.scenario.list("compiled").is_empty());
    Ok(())
}

#[test]
fn clang_missing_is_the_environment() -> Result<()> {
    let Some(fixture) = fixture(&[SOUND])? else { return Ok(()) };
    run(&mut fixture.scenario.rebuild(&["extract"]))?.expect_code(0);
    let programs = fixture.scenario.workspace.with_file_name("empty");
    fs::create_dir(&programs)?;
    let mut compile = fixture.scenario.rebuild(&["compile"]);
    let outcome = run(compile.env("PATH", &programs).env_remove("CC"))?;
    outcome.expect_code(5);
    insta::assert_snapshot!("clang_missing", fixture.message(&outcome));
    assert!(fixture.scenario.list("compiled").is_empty());
    Ok(())
}

#[test]
fn a_model_that_computes_nonsense_fails_and_the_next_is_compiled() -> Result<()> {
    const NAN: ScenarioModel = ScenarioModel::split(
        "not-a-number",
        &[
            ("driving_vision.onnx", OnnxRequest::small(OnnxKind::Vision, 27).with_fault("nan")),
            ("driving_policy.onnx", OnnxRequest::small(OnnxKind::Policy, 28)),
        ],
    );
    let Some(fixture) = fixture(&[NAN, SOUND])? else { return Ok(()) };
    run(&mut fixture.scenario.rebuild(&["extract"]))?.expect_code(0);
    let outcome = run(&mut fixture.scenario.rebuild(&["compile"]))?;
    outcome.expect_code(1);
    let failure = fixture.scenario.record("not-a-number_failure.json")?;
    assert_eq!(failure["kind"], "non_finite", "{failure}");
    assert_eq!(fixture.scenario.list("compiled"), ["tr1422_driving_tinygrad.pkl"]);
    assert!(fixture.scenario.workspace.join("logs/not-a-number.log").is_file());
    Ok(())
}

#[test]
fn an_unwritable_workspace_is_the_environment() -> Result<()> {
    let Some(fixture) = fixture(&[SOUND])? else { return Ok(()) };
    let mut extract = fixture.scenario.rebuild(&["extract"]);
    if is_root() {
        // Root is stopped by no permission; another user is.
        open_to_all(fixture.scenario.workspace.parent().context("a parent")?)?;
        extract.uid(65534).gid(65534);
    }
    read_only(&fixture.scenario.workspace)?;
    let outcome = run(&mut extract);
    writable(&fixture.scenario.workspace)?;
    let outcome = outcome?;
    outcome.expect_code(5);
    assert!(outcome.stderr.contains("permission denied"), "{}", outcome.transcript());
    Ok(())
}

fn open_to_all(dir: &Utf8Path) -> Result<()> {
    run(Command::new("chmod").args(["-R", "a+rX", dir.as_str()]))?.expect_code(0);
    Ok(())
}

fn read_only(dir: &Utf8Path) -> Result<()> {
    run(Command::new("chmod").args(["-R", "a-w", dir.as_str()]))?.expect_code(0);
    Ok(())
}

fn writable(dir: &Utf8Path) -> Result<()> {
    run(Command::new("chmod").args(["-R", "u+w", dir.as_str()]))?.expect_code(0);
    Ok(())
}

/// A small file system of its own, unmounted at the end.
struct SmallDisk(Utf8PathBuf);

impl SmallDisk {
    fn mount(at: &Utf8Path, size: &str) -> Result<Option<Self>> {
        fs::create_dir_all(at)?;
        let options = format!("size={size}");
        let mounted = run(Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs", at.as_str()]));
        Ok(mounted.is_ok_and(|outcome| outcome.code == Some(0)).then(|| Self(at.to_owned())))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

#[test]
fn a_full_disk_is_the_environment_and_leaves_nothing_half_written() -> Result<()> {
    let Some(fixture) = fixture(&[SOUND])? else { return Ok(()) };
    let at = fixture.scenario.workspace.with_file_name("small-disk");
    let Some(_disk) = SmallDisk::mount(&at, "1m")? else {
        report_skip("mounting a small file system is not permitted here");
        return Ok(());
    };
    let scenario = fixture.scenario.with_workspace(at.join("workspace"));
    scenario.init(&fixture.python, None)?.expect_code(0);
    let outcome = run(&mut scenario.rebuild(&["extract"]))?;
    outcome.expect_code(5);
    insta::assert_snapshot!("full_disk", fixture.message(&outcome));
    assert!(Fixture { scenario, ..fixture }.products().is_empty());
    Ok(())
}
