//! Files that several tests read.

#![allow(dead_code, reason = "each test binary uses some")]

use std::path::{Path, PathBuf};

use camino::Utf8PathBuf;

/// The root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A small artifact of a real tinygrad.
pub fn fixture(name: &str) -> Utf8PathBuf {
    Utf8PathBuf::from_path_buf(root().join("fixtures/pickles").join(name)).expect("UTF-8")
}

/// The folder of recorded facts and real files, where there is one.
#[expect(clippy::print_stdout, reason = "a skipped test says so")]
pub fn facts(part: &str, test: &str) -> Option<Utf8PathBuf> {
    let beside = root().join("../shared/data");
    let folder = std::env::var_os("MODEL_FACTS_DIR").map_or(beside, Into::into).join(part);
    if !folder.is_dir() {
        println!("skipped: {test}: no {}", folder.display());
        return None;
    }
    Utf8PathBuf::from_path_buf(folder).ok()
}

/// A Python interpreter: the project's environment, or any.
#[expect(clippy::print_stdout, reason = "a skipped test says so")]
pub fn python(test: &str) -> Option<PathBuf> {
    let own = root().join("target/venv/bin/python");
    let candidates = [own, PathBuf::from("python3")];
    let works = |python: &PathBuf| {
        std::process::Command::new(python).arg("--version").output().is_ok_and(|out| out.status.success())
    };
    let found = candidates.into_iter().find(works);
    if found.is_none() {
        println!("skipped: {test}: no Python");
    }
    found
}

/// A temporary file with these bytes.
#[expect(clippy::disallowed_methods, reason = "a test's own file")]
pub fn write(folder: &tempfile::TempDir, name: &str, bytes: &[u8]) -> Utf8PathBuf {
    let path = Utf8PathBuf::from_path_buf(folder.path().join(name)).expect("UTF-8");
    std::fs::write(&path, bytes).expect("writable");
    path
}
