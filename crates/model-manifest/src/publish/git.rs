//! The git commands of publishing. They write objects into the local clone and push them; its working tree, index, branches
//! and configuration stay as they are.

use std::{
    collections::BTreeMap,
    io::{Read, Write},
    process::{Child, Command, Output, Stdio},
    thread,
};

use camino::{Utf8Path, Utf8PathBuf};
use durable_fs::{BLOCK, Sha256};
use model_catalog::Sha256Digest;

use super::PublishError;

/// Settings that hold for our commands only: what is in the clone's configuration must not change bytes, and large files
/// stream instead of being compressed in memory.
const SETTINGS: [&str; 12] = [
    "-c",
    "core.autocrlf=false",
    "-c",
    "core.bigFileThreshold=1m",
    "-c",
    "core.looseCompression=1",
    "-c",
    "pack.compression=1",
    "-c",
    "gc.auto=0",
    "-c",
    "maintenance.auto=false",
];

/// A local clone.
#[derive(Debug, Clone)]
pub(crate) struct Git {
    repository: Utf8PathBuf,
}

/// One file of a commit's root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TreeEntry {
    /// Mode and type, such as `100644 blob`.
    pub kind: String,
    /// Object ID.
    pub id: String,
}

/// The root of a commit: file name to entry.
pub(crate) type Tree = BTreeMap<String, TreeEntry>;

impl TreeEntry {
    pub fn file(id: &str) -> Self {
        Self { kind: "100644 blob".to_owned(), id: id.to_owned() }
    }
}

impl Git {
    pub fn new(repository: &Utf8Path) -> Self {
        Self { repository: repository.to_owned() }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("git");
        command
            .arg("-C")
            .arg(&self.repository)
            .args(SETTINGS)
            .args(arguments)
            // A question on a terminal would hang a release; a message in another language could not be told apart.
            .env("GIT_TERMINAL_PROMPT", "0")
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn failed(&self, arguments: &[&str], stderr: &[u8]) -> PublishError {
        let text = String::from_utf8_lossy(stderr);
        let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        PublishError::Git {
            action: arguments.first().copied().unwrap_or_default().to_owned(),
            repository: self.repository.clone(),
            stderr: lines.join("; "),
        }
    }

    pub fn run(&self, arguments: &[&str]) -> Result<String, PublishError> {
        self.run_with(arguments, &[], None)
    }

    fn run_with(
        &self,
        arguments: &[&str],
        environment: &[(&str, &str)],
        input: Option<&[u8]>,
    ) -> Result<String, PublishError> {
        let mut command = self.command(arguments);
        command.envs(environment.iter().copied());
        if input.is_some() {
            command.stdin(Stdio::piped());
        }
        let mut child = command.spawn().map_err(|source| PublishError::NoGit { source })?;
        let stdin = child.stdin.take();
        let output = thread::scope(|scope| {
            if let (Some(mut stdin), Some(input)) = (stdin, input) {
                // git answers line by line: it stops reading when nobody takes its answers. Where it has failed, its exit
                // status says so below.
                scope.spawn(move || drop(stdin.write_all(input)));
            }
            child.wait_with_output()
        });
        let output = output.map_err(|source| PublishError::NoGit { source })?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        Err(self.failed(arguments, &output.stderr))
    }

    /// Whether a command succeeds; its output is of no interest.
    pub fn succeeds(&self, arguments: &[&str]) -> Result<bool, PublishError> {
        match self.run(arguments) {
            Ok(_) => Ok(true),
            Err(PublishError::Git { .. }) => Ok(false),
            Err(other) => Err(other),
        }
    }

    /// The commit that a branch of a remote stands at; `None` where there is no such branch. The commit is fetched.
    pub fn remote_tip(&self, remote: &str, branch: &str) -> Result<Option<String>, PublishError> {
        let reference = format!("refs/heads/{branch}");
        let listed = self.run(&["ls-remote", "--", remote, &reference])?;
        let Some(tip) = listed.split_whitespace().next().map(str::to_owned) else { return Ok(None) };
        let commit = format!("{tip}^{{commit}}");
        if !self.succeeds(&["cat-file", "-e", &commit])? {
            self.run(&["fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--", remote, &reference])?;
        }
        Ok(Some(tip))
    }

    pub fn is_ancestor(&self, old: &str, new: &str) -> Result<bool, PublishError> {
        self.succeeds(&["merge-base", "--is-ancestor", old, new])
    }

    pub fn tree(&self, commit: &str) -> Result<Tree, PublishError> {
        let listing = self.run(&["ls-tree", "-z", commit])?;
        let entry = |line: &str| {
            let (described, name) = line.split_once('\t')?;
            let (kind, id) = described.rsplit_once(' ')?;
            Some((name.to_owned(), TreeEntry { kind: kind.to_owned(), id: id.to_owned() }))
        };
        Ok(listing.split('\0').filter_map(entry).collect())
    }

    /// The object IDs of files; with `write` they are stored. No filter of the clone touches the bytes.
    pub fn hash_files(&self, files: &[Utf8PathBuf], write: bool) -> Result<Vec<String>, PublishError> {
        if files.is_empty() {
            return Ok(Vec::new());
        }
        let paths: String = files.iter().map(|file| format!("{file}\n")).collect();
        let mut arguments = vec!["hash-object", "--no-filters", "--stdin-paths"];
        if write {
            arguments.insert(1, "-w");
        }
        let ids = self.run_with(&arguments, &[], Some(paths.as_bytes()))?;
        Ok(ids.lines().map(str::to_owned).collect())
    }

    /// Stores a small text and returns its object ID.
    pub fn write_text(&self, text: &str) -> Result<String, PublishError> {
        let id =
            self.run_with(&["hash-object", "-w", "--no-filters", "--stdin"], &[], Some(text.as_bytes()))?;
        Ok(id.trim().to_owned())
    }

    /// Stores a tree and returns its object ID.
    pub fn make_tree(&self, tree: &Tree) -> Result<String, PublishError> {
        let listing: String =
            tree.iter().map(|(name, entry)| format!("{} {}\t{name}\0", entry.kind, entry.id)).collect();
        // Objects of other trees may be absent in a partial clone; they are only named here.
        let id = self.run_with(&["mktree", "-z", "--missing"], &[], Some(listing.as_bytes()))?;
        Ok(id.trim().to_owned())
    }

    /// Makes a commit of a tree.
    pub fn commit(
        &self,
        tree: &Tree,
        parent: Option<&str>,
        message: &str,
        seconds: i64,
    ) -> Result<String, PublishError> {
        let tree = self.make_tree(tree)?;
        let mut arguments = vec!["commit-tree", &tree, "-F", "-"];
        if let Some(parent) = parent {
            arguments.extend(["-p", parent]);
        }
        let date = format!("@{seconds} +0000");
        let environment = [("GIT_AUTHOR_DATE", date.as_str()), ("GIT_COMMITTER_DATE", date.as_str())];
        Ok(self.run_with(&arguments, &environment, Some(message.as_bytes()))?.trim().to_owned())
    }

    /// The files that the commits from `old` (exclusive) to `new` bring: name, object ID and size of every blob.
    pub fn blobs_between(
        &self,
        old: Option<&str>,
        new: &str,
    ) -> Result<Vec<(String, String, u64)>, PublishError> {
        let excluded = old.map(|old| format!("^{old}"));
        let mut arguments = vec!["rev-list", "--objects", new];
        arguments.extend(excluded.as_deref());
        let objects = self.run(&arguments)?;
        let format = "--batch-check=%(objecttype) %(objectname) %(objectsize) %(rest)";
        let described = self.run_with(&["cat-file", format], &[], Some(objects.as_bytes()))?;
        let blob = |line: &str| {
            let mut words = line.splitn(4, ' ');
            let (kind, id, size) = (words.next()?, words.next()?, words.next()?.parse().ok()?);
            (kind == "blob").then(|| (words.next().unwrap_or_default().to_owned(), id.to_owned(), size))
        };
        Ok(described.lines().filter_map(blob).collect())
    }

    /// SHA-256 of a stored file, streamed.
    pub fn digest(&self, id: &str) -> Result<Sha256Digest, PublishError> {
        let arguments = ["cat-file", "blob", id];
        let mut child = self.command(&arguments).spawn().map_err(|source| PublishError::NoGit { source })?;
        let digest = hash_output(&mut child);
        let output = child.wait_with_output().map_err(|source| PublishError::NoGit { source })?;
        match digest {
            Ok(digest) if output.status.success() => Ok(digest),
            _ => Err(self.failed(&arguments, &output.stderr)),
        }
    }

    /// The size of a stored file.
    pub fn size(&self, id: &str) -> Result<u64, PublishError> {
        let arguments = ["cat-file", "-s", id];
        let said = self.run(&arguments)?;
        said.trim().parse().map_err(|_| self.failed(&arguments, said.as_bytes()))
    }

    /// The commits of a branch's own line from `old` (exclusive) to `new`, oldest first.
    pub fn commits_between(&self, old: Option<&str>, new: &str) -> Result<Vec<String>, PublishError> {
        let excluded = old.map(|old| format!("^{old}"));
        let mut arguments = vec!["rev-list", "--first-parent", "--reverse", new];
        arguments.extend(excluded.as_deref());
        Ok(self.run(&arguments)?.lines().map(str::to_owned).collect())
    }

    /// A small stored text.
    pub fn text(&self, id: &str) -> Result<String, PublishError> {
        self.run(&["cat-file", "blob", id])
    }

    /// What a reference of a remote names; `None` where there is no such reference.
    pub fn remote_reference(&self, remote: &str, reference: &str) -> Result<Option<String>, PublishError> {
        let listed = self.run(&["ls-remote", "--", remote, reference])?;
        Ok(listed.split_whitespace().next().map(str::to_owned))
    }

    /// Points a reference of a remote, which is nobody else's, at an object, or takes it away.
    pub fn force_reference(
        &self,
        remote: &str,
        reference: &str,
        object: Option<&str>,
    ) -> Result<(), PublishError> {
        let target = format!("{}:{reference}", object.map(|id| format!("+{id}")).unwrap_or_default());
        let arguments = ["push", "--porcelain", "--no-verify", "--", remote, &target];
        let output = self.command(&arguments).output().map_err(|source| PublishError::NoGit { source })?;
        if output.status.success() { Ok(()) } else { Err(refused(remote, &said(&output))) }
    }

    /// Moves a branch of a remote from `old` to `commit`, which contains it, if it still stands at `old`. `Ok(false)` where it
    /// does not.
    pub fn push(
        &self,
        remote: &str,
        branch: &str,
        old: Option<&str>,
        commit: &str,
    ) -> Result<bool, PublishError> {
        // A lease alone would also let a push through that takes commits away.
        if let Some(old) = old
            && !self.is_ancestor(old, commit)?
        {
            let why = format!("{commit} does not contain {old}, at which the branch stands");
            return Err(PublishError::Refused { remote: remote.to_owned(), why });
        }
        let lease = format!("--force-with-lease=refs/heads/{branch}:{}", old.unwrap_or_default());
        let target = format!("{commit}:refs/heads/{branch}");
        // Hooks of the clone (such as one that uploads LFS objects) have no part in this.
        let arguments = ["push", "--porcelain", "--no-verify", &lease, "--", remote, &target];
        let output = self.command(&arguments).output().map_err(|source| PublishError::NoGit { source })?;
        if output.status.success() {
            return Ok(true);
        }
        let said = said(&output);
        // What git says where the branch is no longer where it was expected, found before or by the push.
        let moved =
            ["stale info", "fetch first", "non-fast-forward", "cannot lock ref", "reference already exists"];
        if moved.iter().any(|words| said.contains(words)) {
            return Ok(false);
        }
        Err(refused(remote, &said))
    }
}

/// What a push says, on both of its streams.
fn said(output: &Output) -> String {
    format!("{}\n{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// The telling lines of a push that was refused.
fn refused(remote: &str, said: &str) -> PublishError {
    let wanted = |line: &&str| {
        ["remote:", "fatal:", "error:", "!"].iter().any(|start| line.trim_start().starts_with(start))
    };
    let why: Vec<&str> = said.lines().filter(wanted).map(str::trim).collect();
    PublishError::Refused { remote: remote.to_owned(), why: why.join("; ") }
}

fn hash_output(child: &mut Child) -> std::io::Result<Sha256Digest> {
    let mut hash = Sha256::new();
    let mut block = vec![0; BLOCK];
    if let Some(mut stdout) = child.stdout.take() {
        loop {
            match stdout.read(&mut block)? {
                0 => break,
                read => hash.update(&block[..read]),
            }
        }
    }
    Ok(hash.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "thousands of files that nobody keeps need no sync")]
    fn thousands_of_names_pass_through_git() {
        let dir = tempfile::tempdir().unwrap();
        let dir = Utf8Path::from_path(dir.path()).unwrap();
        let git = Git::new(dir);
        git.run(&["init", "--quiet"]).unwrap();
        git.run(&["config", "user.name", "Publisher"]).unwrap();
        git.run(&["config", "user.email", "publisher@example.invalid"]).unwrap();
        let names: Vec<String> =
            (0..5000).map(|number| format!("model{number:04}_driving_tinygrad.pkl")).collect();
        let files: Vec<Utf8PathBuf> = names.iter().map(|name| dir.join(name)).collect();
        for (name, file) in names.iter().zip(&files) {
            std::fs::write(file, name).unwrap();
        }
        let ids = git.hash_files(&files, true).unwrap();
        let entries = names.iter().cloned().zip(ids.iter().map(|id| TreeEntry::file(id)));
        let commit = git.commit(&entries.collect(), None, "All of them\n", 1_790_000_000).unwrap();
        let mut blobs = git.blobs_between(None, &commit).unwrap();
        blobs.sort();
        let expected: Vec<_> = names
            .into_iter()
            .zip(ids)
            .map(|(name, id)| {
                let size = name.len() as u64;
                (name, id, size)
            })
            .collect();
        assert_eq!(blobs, expected);
    }
}
