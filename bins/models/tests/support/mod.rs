//! What the tests of the binary share: fixtures, the interpreter, and a place of their own.
#![expect(clippy::print_stdout, reason = "a skipped test says so")]

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

/// A directory with `in` and `out`, and what is run in it.
pub struct Bench {
    _guard: tempfile::TempDir,
    pub dir: PathBuf,
}

pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The interpreter with tinygrad, or `None` (and a message) where `cargo xtask setup` was not run.
pub fn python(test: &str) -> Option<PathBuf> {
    let built = Path::new(env!("CARGO_BIN_EXE_models"))
        .parent()
        .and_then(Path::parent)
        .unwrap()
        .join("venv/bin/python3");
    if built.exists() {
        return Some(built);
    }
    println!("skipped: {test}: no interpreter with tinygrad; run cargo xtask setup");
    None
}

impl Bench {
    pub fn new() -> Self {
        let guard = tempfile::tempdir().unwrap();
        let dir = guard.path().canonicalize().unwrap();
        fs::create_dir(dir.join("in")).unwrap();
        Self { _guard: guard, dir }
    }

    pub fn output(&self) -> PathBuf {
        self.dir.join("out")
    }

    /// Makes an ONNX file of `kind` as `in/<name>`; made once a build and copied from then on.
    pub fn stage(&self, python: &Path, kind: &str, name: &str, more: &[&str]) {
        let cached = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{kind}{}.onnx", more.concat()));
        if !cached.exists() {
            // Several tests of one process may make the same file at once.
            let half = self.dir.join("half.onnx");
            let maker = repository().join("fixtures/make_onnx.py");
            let made = Command::new(python).arg(maker).arg(kind).arg(&half).args(more).output().unwrap();
            assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
            let beside = cached.with_extension(self.dir.file_name().unwrap());
            fs::copy(half, &beside).unwrap();
            fs::rename(beside, &cached).unwrap();
        }
        let to = self.dir.join("in").join(name);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(cached, to).unwrap();
    }

    /// `models` with the bench's directories and the CPU target.
    pub fn models(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_models"));
        command.args(["--target", "cpu", "--input-dir"]).arg(self.dir.join("in"));
        command.arg("--output-dir").arg(self.output()).arg("--store-dir").arg(self.dir.join("store"));
        for variable in
            ["FLOAT16", "IMAGE", "JIT_BATCH_SIZE", "NOLOCALS", "OPENPILOT_HACKS", "DEBUG", "MODELS_PYTHON"]
        {
            command.env_remove(variable);
        }
        command
    }

    /// Names in the output directory that are neither logs nor the lock.
    pub fn outputs(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.output()) else { return Vec::new() };
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.retain(|name| !name.ends_with(".log") && name != ".models.lock");
        names.sort();
        names
    }
}

/// Runs and checks the exit code; returns stdout and stderr.
pub fn run(command: &mut Command, expected: i32) -> (String, String) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let (stdout, stderr) =
        (String::from_utf8_lossy(&stdout).into_owned(), String::from_utf8_lossy(&stderr).into_owned());
    assert_eq!(status.code(), Some(expected), "{command:?}\n{stdout}\n{stderr}");
    (stdout, stderr)
}
