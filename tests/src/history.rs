//! Real git repositories whose commits hold models the way the upstream history does.

use std::{ffi::OsStr, fs, path::Path, process::Command};

use anyhow::{Context, Result, bail};
use camino::{Utf8Path, Utf8PathBuf};

use crate::{run, sha256_file};

/// How a file lies in a commit.
#[derive(Debug, Clone)]
pub enum Blob {
    /// The bytes themselves.
    Plain(Utf8PathBuf),
    /// A Git LFS pointer; the object lies in the clone's cache.
    Pointer(Utf8PathBuf),
    /// A Git LFS pointer whose object is nowhere.
    DanglingPointer(Utf8PathBuf),
    /// Any text.
    Text(String),
}

/// A repository under construction. Commits have fixed names and dates, so equal content gives equal commit IDs.
#[derive(Debug, Clone)]
pub struct History {
    root: Utf8PathBuf,
}

impl History {
    /// Makes an empty repository at `root`.
    ///
    /// # Errors
    /// When git or the file system refuses.
    pub fn create(root: impl Into<Utf8PathBuf>) -> Result<Self> {
        let history = Self { root: root.into() };
        fs::create_dir_all(&history.root).with_context(|| format!("make {}", history.root))?;
        history.git(["init", "--quiet", "--initial-branch=master", "."])?;
        Ok(history)
    }

    /// Where it is.
    #[must_use]
    pub fn root(&self) -> &Utf8Path {
        &self.root
    }

    /// Commits a tree that holds exactly `files` (repository path, content); returns the commit ID.
    ///
    /// # Errors
    /// When git or the file system refuses.
    pub fn commit(&self, message: &str, files: &[(String, Blob)]) -> Result<String> {
        self.git(["rm", "-r", "--quiet", "--ignore-unmatch", "."])?;
        for (path, blob) in files {
            self.write(path, blob)?;
        }
        self.git(["add", "--all"])?;
        self.git(["commit", "--quiet", "--allow-empty", "--message", message])?;
        Ok(self.git(["rev-parse", "HEAD"])?.trim().to_owned())
    }

    /// Where the clone's cache keeps the LFS object of an ID.
    #[must_use]
    pub fn lfs_object(&self, oid: &str) -> Utf8PathBuf {
        self.root.join(".git/lfs/objects").join(&oid[..2]).join(&oid[2..4]).join(oid)
    }

    /// Runs git in the repository, away from the user's configuration; returns stdout.
    ///
    /// # Errors
    /// When git fails.
    pub fn git(&self, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Result<String> {
        let mut command = Command::new("git");
        command.args(arguments).current_dir(&self.root);
        for name in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"] {
            command.env_remove(name);
        }
        command.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null");
        for who in ["AUTHOR", "COMMITTER"] {
            command
                .env(format!("GIT_{who}_NAME"), "Fixture")
                .env(format!("GIT_{who}_EMAIL"), "fixture@example.org");
            command.env(format!("GIT_{who}_DATE"), "2026-01-01T00:00:00+0000");
        }
        let outcome = run(&mut command)?;
        if outcome.code != Some(0) {
            bail!("{command:?} failed in {}\n{}", self.root, outcome.transcript());
        }
        Ok(outcome.stdout)
    }

    fn write(&self, path: &str, blob: &Blob) -> Result<()> {
        let target = self.root.join(path);
        match blob {
            Blob::Plain(file) => copy(file, &target),
            Blob::Text(text) => write(&target, text),
            Blob::DanglingPointer(file) => write(&target, &pointer(file)?.1),
            Blob::Pointer(file) => {
                let (oid, text) = pointer(file)?;
                copy(file, &self.lfs_object(&oid))?;
                write(&target, &text)
            }
        }
    }
}

/// Object ID and pointer text of a file, as the Git LFS specification has them.
fn pointer(file: &Utf8Path) -> Result<(String, String)> {
    let oid = sha256_file(file)?;
    let size = fs::metadata(file).with_context(|| format!("look at {file}"))?.len();
    let text = format!("version https://git-lfs.github.com/spec/v1\noid sha256:{oid}\nsize {size}\n");
    Ok((oid, text))
}

fn make_parent(path: &Utf8Path) -> Result<()> {
    let parent = path.parent().map_or(Path::new("."), Utf8Path::as_std_path);
    fs::create_dir_all(parent).with_context(|| format!("make {}", parent.display()))
}

#[expect(clippy::disallowed_methods, reason = "a repository that only its maker can see yet")]
fn copy(from: &Utf8Path, to: &Utf8Path) -> Result<()> {
    make_parent(to)?;
    fs::copy(from, to).map(drop).with_context(|| format!("copy {from} to {to}"))
}

#[expect(clippy::disallowed_methods, reason = "a repository that only its maker can see yet")]
fn write(to: &Utf8Path, text: &str) -> Result<()> {
    make_parent(to)?;
    fs::write(to, text).with_context(|| format!("write {to}"))
}
