//! Real repositories for the tests, made by the real `git`.
#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests write their inputs directly and panic on failure"
)]
#![allow(dead_code, clippy::allow_attributes, reason = "each test binary uses its own part of the support")]

use std::{fs, process::Command};

use camino::{Utf8Path, Utf8PathBuf};
use durable_fs::Sha256;
use lfs_extract::Pointer;
use model_catalog::{InputFormat, ModelId, SourceEntry};

/// The first and the second of the candidate directories.
pub const NEW_DIR: &str = "openpilot/selfdrive/modeld/models";
pub const OLD_DIR: &str = "selfdrive/modeld/models";

/// Skips the test with a message where `git` is missing.
#[macro_export]
macro_rules! require_git {
    ($test:literal) => {
        if !$crate::repository::has_git() {
            println!("skipped: {}: git is not installed", $test);
            return;
        }
    };
}

pub fn has_git() -> bool {
    Command::new("git").arg("--version").output().is_ok_and(|output| output.status.success())
}

/// A repository in a directory of its own.
pub struct Repository {
    _guard: tempfile::TempDir,
    /// The directory, which also has room for worktrees and destinations.
    pub root: Utf8PathBuf,
    /// The working tree.
    pub path: Utf8PathBuf,
}

impl Repository {
    pub fn new() -> Self {
        let guard = tempfile::tempdir().unwrap();
        let root = Utf8PathBuf::from_path_buf(guard.path().canonicalize().unwrap()).unwrap();
        let repository = Self { _guard: guard, path: root.join("clone"), root };
        fs::create_dir(&repository.path).unwrap();
        repository.git(&["init", "-q", "-b", "main"]);
        repository
    }

    /// Runs git in the working tree and returns its trimmed output.
    pub fn git(&self, args: &[&str]) -> String {
        git_in(&self.path, args)
    }

    pub fn write(&self, path: &str, content: &[u8]) {
        let path = self.path.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    /// Writes a pointer and, where asked, its object into the LFS cache; returns the pointer.
    pub fn write_lfs(&self, path: &str, content: &[u8], cached: bool) -> Pointer {
        let pointer = Pointer { oid: Sha256::digest(content), size: content.len() as u64 };
        self.write(path, pointer.to_string().as_bytes());
        if cached {
            write_object(&self.path.join(".git/lfs/objects"), &pointer, content);
        }
        pointer
    }

    /// Commits everything and returns the commit's ID.
    pub fn commit(&self, message: &str) -> String {
        self.git(&["add", "-A"]);
        self.git(&["commit", "-q", "--allow-empty", "-m", message]);
        self.git(&["rev-parse", "HEAD"])
    }

    pub fn repack(&self) {
        self.git(&["repack", "-q", "-a", "-d", "-f", "--depth=50", "--window=50"]);
    }

    /// A fresh destination.
    pub fn destination(&self, name: &str) -> Utf8PathBuf {
        let path = self.root.join(name);
        fs::create_dir_all(&path).unwrap();
        path
    }
}

/// Puts an object into an LFS object directory.
pub fn write_object(dir: &Utf8Path, pointer: &Pointer, content: &[u8]) -> Utf8PathBuf {
    let path = object_path(dir, pointer);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, content).unwrap();
    path
}

pub fn object_path(dir: &Utf8Path, pointer: &Pointer) -> Utf8PathBuf {
    let oid = pointer.oid.to_string();
    dir.join(&oid[..2]).join(&oid[2..4]).join(&oid)
}

pub fn git_in(dir: &Utf8Path, args: &[&str]) -> String {
    let output = Command::new("git")
        .args(["-c", "core.autocrlf=false", "-c", "commit.gpgsign=false", "-c", "protocol.file.allow=always"])
        .args(args)
        .current_dir(dir)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_SYSTEM", "/dev/null")
        .env("GIT_AUTHOR_NAME", "Test")
        .env("GIT_AUTHOR_EMAIL", "test@example.invalid")
        .env("GIT_COMMITTER_NAME", "Test")
        .env("GIT_COMMITTER_EMAIL", "test@example.invalid")
        .output()
        .unwrap();
    assert!(output.status.success(), "git {args:?} in {dir}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Bytes that do not compress, by seed.
pub fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

pub fn id(text: &str) -> ModelId {
    ModelId::new(text).unwrap()
}

pub fn split(git_ref: &str) -> SourceEntry {
    entry(git_ref, InputFormat::Split, false)
}

pub fn supercombo(git_ref: &str) -> SourceEntry {
    entry(git_ref, InputFormat::Supercombo, false)
}

pub fn entry(git_ref: &str, input_format: InputFormat, uses_external_gpu: bool) -> SourceEntry {
    SourceEntry { git_ref: git_ref.to_owned(), input_format, uses_external_gpu, extra: Default::default() }
}

/// Names in a directory, sorted.
pub fn names(dir: &Utf8Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}
