//! `models` on its own, as it is typed on a device: staged sources in their three forms, lists, parts.

use std::{collections::BTreeSet, fs, process::Command};

use anyhow::{Context, Result};
use camino::{Utf8Path, Utf8PathBuf};
use e2e::{
    Binaries, OnnxKind, OnnxRequest, Outcome, PythonEnvironment, onnx_fixture, run, sha256_file,
    target_directory,
};

const VISION: OnnxRequest = OnnxRequest::small(OnnxKind::Vision, 41);
const POLICY: OnnxRequest = OnnxRequest::small(OnnxKind::Policy, 42);

struct Bench {
    root: Utf8PathBuf,
    python: PythonEnvironment,
    models: Utf8PathBuf,
    _dir: tempfile::TempDir,
}

impl Bench {
    fn new() -> Result<Option<Self>> {
        let Some(python) = PythonEnvironment::find_or_skip() else { return Ok(None) };
        let dir = tempfile::tempdir()?;
        let root = Utf8Path::from_path(dir.path()).context("a UTF-8 path")?.to_owned();
        Ok(Some(Self { root, python, models: Binaries::locate()?.models, _dir: dir }))
    }

    /// Puts a generated file under the input directory.
    fn stage(&self, name: &str, request: &OnnxRequest) -> Result<()> {
        let path = self.root.join("in").join(name);
        fs::create_dir_all(path.parent().context("a parent")?)?;
        copy(&onnx_fixture(&self.python, request)?, &path)
    }

    /// `models ARGUMENTS` with this bench's directories.
    fn models(&self, arguments: &[&str]) -> Result<Outcome> {
        let mut command = Command::new(&self.models);
        command.args(arguments).args(["--target", "cpu", "--python", self.python.python.as_str()]);
        for (flag, dir) in [("--input-dir", "in"), ("--output-dir", "out"), ("--store-dir", "store")] {
            command.args([flag, self.root.join(dir).as_str()]);
        }
        run(command.args(["--cache-dir", target_directory()?.join("e2e-cache").as_str()]))
    }

    fn out(&self, name: &str) -> Utf8PathBuf {
        self.root.join("out").join(name)
    }

    fn outputs(&self) -> BTreeSet<String> {
        let entries = self.root.join("out").read_dir_utf8().into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name().to_owned()).collect()
    }
}

#[expect(clippy::disallowed_methods, reason = "an input in a private directory")]
fn copy(from: &Utf8Path, to: &Utf8Path) -> Result<()> {
    fs::copy(from, to).map(drop).with_context(|| format!("copy {from} to {to}"))
}

#[test]
fn every_form_of_staging_gives_the_same_artifact() -> Result<()> {
    let Some(bench) = Bench::new()? else { return Ok(()) };
    let name = "m_driving_tinygrad.pkl";
    let forms = [
        ("m/driving_vision.onnx", "m/driving_policy.onnx"),
        ("m_driving_vision.onnx", "m_driving_policy.onnx"),
        ("driving_vision.onnx", "driving_policy.onnx"),
    ];
    let mut digests = BTreeSet::new();
    for (number, (vision, policy)) in forms.into_iter().enumerate() {
        fs::remove_dir_all(bench.root.join("in")).ok();
        bench.stage(vision, &VISION)?;
        bench.stage(policy, &POLICY)?;
        let short = if number == 1 { vec!["--m"] } else { vec!["--model", "m"] };
        bench.models(&[&short[..], &["--version", "v11"]].concat())?.expect_code(0);
        digests.insert(sha256_file(&bench.out(name))?);
    }
    assert_eq!(digests.len(), 1);
    Ok(())
}

#[test]
fn a_large_artifact_gets_parts_that_join_to_it() -> Result<()> {
    let Some(bench) = Bench::new()? else { return Ok(()) };
    bench.stage("driving_supercombo.onnx", &OnnxRequest::small(OnnxKind::Supercombo, 43))?;
    bench.models(&["--model", "s", "--part-limit-mib", "4", "--chunk-size-mib", "3"])?.expect_code(0);
    let whole = bench.out("s_driving_tinygrad.pkl");
    let digest = sha256_file(&whole)?;
    assert!(bench.outputs().contains("s_driving_tinygrad.pkl.p01"), "{:?}", bench.outputs());
    let joined = bench.root.join("joined.pkl");
    let mut join = Command::new(&bench.models);
    run(join.args(["join", whole.as_str(), "--output", joined.as_str()]))?.expect_code(0);
    assert_eq!(sha256_file(&joined)?, digest);

    // Small again: the parts of the larger one must not stay behind.
    bench.models(&["--model", "s"])?.expect_code(0);
    assert!(!bench.outputs().iter().any(|name| name.contains(".p0") || name.ends_with(".sha256")));
    Ok(())
}

#[test]
fn a_failed_compile_keeps_the_earlier_artifact() -> Result<()> {
    let Some(bench) = Bench::new()? else { return Ok(()) };
    bench.stage("m/driving_vision.onnx", &VISION)?;
    bench.stage("m/driving_policy.onnx", &POLICY)?;
    bench.models(&["--model", "m"])?.expect_code(0);
    let digest = sha256_file(&bench.out("m_driving_tinygrad.pkl"))?;
    for fault in ["nan", "operator", "constant"] {
        bench.stage("m/driving_vision.onnx", &VISION.with_fault(fault))?;
        let outcome = bench.models(&["--model", "m"])?;
        outcome.expect_code(1);
        assert_eq!(
            sha256_file(&bench.out("m_driving_tinygrad.pkl"))?,
            digest,
            "{fault}: {}",
            outcome.transcript()
        );
    }
    Ok(())
}

#[test]
fn what_is_not_staged_is_usage() -> Result<()> {
    let Some(bench) = Bench::new()? else { return Ok(()) };
    bench.stage("m/driving_vision.onnx", &VISION)?;
    bench.stage("m/driving_policy.onnx", &POLICY)?;
    bench.stage("n/driving_supercombo.onnx", &OnnxRequest::small(OnnxKind::Supercombo, 43))?;
    let outcome = bench.models(&["--model", "mm"])?;
    outcome.expect_code(2);
    assert!(outcome.stderr.contains("m"), "{}", outcome.transcript());
    bench.models(&["--forse"])?.expect_code(2);
    let listed = bench.models(&["--list"])?;
    listed.expect_code(0);
    assert!(
        listed.stdout.contains("split") && listed.stdout.contains("supercombo"),
        "{}",
        listed.transcript()
    );
    assert!(bench.outputs().is_empty());
    Ok(())
}

#[test]
fn split_refuses_more_than_a_hundred_parts_before_writing_one() -> Result<()> {
    let Some(bench) = Bench::new()? else { return Ok(()) };
    let artifact = bench.root.join("x_driving_tinygrad.pkl");
    copy(&onnx_fixture(&bench.python, &VISION.with_size_mib(120))?, &artifact)?;
    let mut split = Command::new(&bench.models);
    let outcome = run(split.args(["--split-artifact", artifact.as_str(), "--chunk-size-mib", "1"]))?;
    outcome.expect_code(2);
    assert!(outcome.stderr.contains('2'), "names the smallest size that fits: {}", outcome.transcript());
    let names: Vec<String> =
        bench.root.read_dir_utf8()?.flatten().map(|entry| entry.file_name().to_owned()).collect();
    assert_eq!(names, ["x_driving_tinygrad.pkl"]);
    Ok(())
}
