//! Git objects that the clone lacks, fetched by ID into a bare store of the workspace.
//!
//! gix 0.90 can neither ask for an object without its history nor leave blobs out, so this is the one place where the `git`
//! program is run: `git fetch --no-tags --no-write-fetch-head` into the store. The store has the clone's objects as its
//! alternate. The user's clone, its configuration and its refs are never written.

use std::{
    fs,
    io::Read,
    process::{Child, Command, Stdio},
    time::Duration,
};

use camino::{Utf8Path, Utf8PathBuf};
use durable_fs::{FsError, write_atomic};

use crate::{
    ErrorClass, ExtractError, Watch,
    child::{in_own_group, kill_group},
};

/// The repository that the models' history comes from.
pub const DEFAULT_UPSTREAM: &str = "https://github.com/commaai/openpilot.git";

/// Why git objects could not be fetched.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} could not be fetched from {upstream}: {why}; {}", advice(*class))]
pub struct GitFetchError {
    /// The objects.
    pub what: String,
    /// The repository that was asked, without secrets.
    pub upstream: String,
    /// What git says.
    pub why: String,
    /// The class of the failure.
    pub class: ErrorClass,
}

fn advice(class: ErrorClass) -> &'static str {
    match class {
        ErrorClass::Auth => "give git credentials for it",
        ErrorClass::GoneAtServer => "name a repository that has it",
        ErrorClass::System => "install git, or fetch it into the clone",
        _ => "run again later",
    }
}

/// A bare repository of the workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitStore {
    path: Utf8PathBuf,
    upstreams: Vec<String>,
    settings: Vec<(String, String)>,
}

impl GitStore {
    /// The store at `path`, filled from `upstreams` in order; made when the first object is fetched.
    pub fn new(path: impl Into<Utf8PathBuf>, upstreams: Vec<String>) -> Self {
        Self { path: path.into(), upstreams, settings: Vec::new() }
    }

    /// Git is given these keys and values besides what it reads by itself.
    #[must_use]
    pub(crate) fn with_settings(self, settings: Vec<(String, String)>) -> Self {
        Self { settings, ..self }
    }

    /// Where the store is.
    pub fn path(&self) -> &Utf8Path {
        &self.path
    }

    /// Whether anything was ever fetched.
    pub fn exists(&self) -> bool {
        self.path.join("HEAD").is_file()
    }

    /// Makes the store where it is missing and points it at the clone's objects.
    pub(crate) fn prepare(&self, clone_objects: &Utf8Path, watch: &Watch<'_>) -> Result<(), ExtractError> {
        if !self.exists() {
            fs::create_dir_all(&self.path).map_err(FsError::io("make the directory", &self.path))?;
            self.git(&["init", "--quiet", "--bare", self.path.as_str()], "a store", watch)?;
            // What was left out of a fetch is then no damage in git's eyes.
            for (key, value) in [
                ("core.repositoryFormatVersion", "1"),
                ("extensions.partialClone", "upstream"),
                ("remote.upstream.promisor", "true"),
                ("gc.auto", "0"),
            ] {
                self.git(
                    &["config", "--file", self.path.join("config").as_str(), key, value],
                    "a store",
                    watch,
                )?;
            }
        }
        let absolute = clone_objects.canonicalize_utf8().map_err(FsError::io("find", clone_objects))?;
        let alternates = self.path.join("objects/info/alternates");
        let line = format!("{absolute}\n");
        if fs::read_to_string(&alternates).ok().as_deref() != Some(&line) {
            write_atomic(&alternates, line.as_bytes())?;
        }
        Ok(())
    }

    /// Fetches objects by ID: commits with their trees, or single blobs, and nothing that was not asked for where the server
    /// can leave it out.
    pub(crate) fn fetch(
        &self,
        ids: &[gix::ObjectId],
        kind: Wanted,
        promisors: &[String],
        watch: &Watch<'_>,
    ) -> Result<(), ExtractError> {
        let what = match ids {
            [one] => format!("{} {one}", kind.word()),
            many => format!("{} {}s", many.len(), kind.word()),
        };
        let mut last = None;
        for upstream in promisors.iter().chain(&self.upstreams) {
            match self.fetch_from(upstream, ids, kind, &what, watch) {
                Err(ExtractError::GitFetch(error)) if error.class != ErrorClass::System => last = Some(error),
                outcome => return outcome,
            }
        }
        Err(ExtractError::GitFetch(last.unwrap_or_else(|| {
            let why = "no upstream repository is configured".to_owned();
            Box::new(GitFetchError {
                what,
                upstream: "nowhere".to_owned(),
                why,
                class: ErrorClass::NotFoundAnywhere,
            })
        })))
    }

    fn fetch_from(
        &self,
        upstream: &str,
        ids: &[gix::ObjectId],
        kind: Wanted,
        what: &str,
        watch: &Watch<'_>,
    ) -> Result<(), ExtractError> {
        // An address that begins with a dash would be read as an option.
        if upstream.starts_with('-') {
            return Err(self.failure(what, upstream, "this is no address".to_owned()));
        }
        let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
        let url = format!("remote.upstream.url={upstream}");
        let git_dir = format!("--git-dir={}", self.path);
        let mut args = vec![git_dir.as_str(), "-c", url.as_str(), "-c", "protocol.version=2"];
        args.extend(["-c", "fetch.negotiationAlgorithm=noop", "-c", "maintenance.auto=false"]);
        args.extend(["fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--filter=blob:none"]);
        if kind == Wanted::Commit {
            args.push("--depth=1");
        }
        args.push("upstream");
        args.extend(ids.iter().map(String::as_str));
        watch.progress.begin(what, None);
        let outcome = self.git(&args, what, watch);
        watch.progress.end();
        outcome.map_err(|error| match error {
            ExtractError::GitFetch(error) => self.failure(what, upstream, error.why),
            other => other,
        })
    }

    fn failure(&self, what: &str, upstream: &str, why: String) -> ExtractError {
        let class = classify(&why);
        ExtractError::GitFetch(Box::new(GitFetchError {
            what: what.to_owned(),
            upstream: redacted(upstream),
            why,
            class,
        }))
    }

    /// Runs git; a stop ends it.
    fn git(&self, args: &[&str], what: &str, watch: &Watch<'_>) -> Result<(), ExtractError> {
        let missing = |error: std::io::Error| {
            let why = format!("git cannot be started: {error}");
            let upstream = "git".to_owned();
            let class = ErrorClass::System;
            ExtractError::GitFetch(Box::new(GitFetchError { what: what.to_owned(), upstream, why, class }))
        };
        let mut child = in_own_group(&mut Command::new("git"))
            .args(args)
            .envs(variables(&self.settings))
            .envs([("GIT_TERMINAL_PROMPT", "0"), ("LC_ALL", "C"), ("GIT_LFS_SKIP_SMUDGE", "1")])
            .env_remove("GIT_DIR")
            .env_remove("GIT_WORK_TREE")
            .env_remove("GIT_OBJECT_DIRECTORY")
            .env_remove("GIT_ALTERNATE_OBJECT_DIRECTORIES")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(missing)?;
        let (succeeded, words) = wait(&mut child, watch)?;
        if succeeded { Ok(()) } else { Err(self.failure(what, "git", words)) }
    }
}

/// Settings as variables that apply to one command alone.
fn variables(settings: &[(String, String)]) -> Vec<(String, String)> {
    // Disks without owners (exFAT) look dubious to git.
    let safe = ("safe.directory".to_owned(), "*".to_owned());
    let all: Vec<_> = settings.iter().cloned().chain([safe]).collect();
    let mut variables = vec![("GIT_CONFIG_COUNT".to_owned(), all.len().to_string())];
    for (index, (key, value)) in all.into_iter().enumerate() {
        variables.push((format!("GIT_CONFIG_KEY_{index}"), key));
        variables.push((format!("GIT_CONFIG_VALUE_{index}"), value));
    }
    variables
}

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    Commit,
    Object,
}

impl Wanted {
    const fn word(self) -> &'static str {
        match self {
            Self::Commit => "commit",
            Self::Object => "object",
        }
    }
}

/// Waits for the child; returns whether it succeeded, and its last words.
fn wait(child: &mut Child, watch: &Watch<'_>) -> Result<(bool, String), ExtractError> {
    let stderr = child.stderr.take();
    let reader = std::thread::spawn(move || {
        let mut text = Vec::new();
        if let Some(mut stderr) = stderr {
            // What cannot be read is only missing from a message.
            let _ = stderr.read_to_end(&mut text);
        }
        text
    });
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break Ok(status.success()),
            Ok(None) if watch.check().is_err() => {
                kill_group(child);
                break Err(ExtractError::Interrupted);
            }
            Ok(None) => std::thread::sleep(Duration::from_millis(10)),
            Err(error) => break Err(FsError::io("wait for", "git")(error).into()),
        }
    };
    let text = reader.join().unwrap_or_default();
    Ok((status?, last_words(&String::from_utf8_lossy(&text))))
}

/// The telling lines of git's output, in one.
fn last_words(text: &str) -> String {
    let telling = |line: &&str| ["fatal:", "error:", "remote:"].iter().any(|start| line.starts_with(start));
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let chosen: Vec<&str> = lines.iter().copied().filter(telling).take(3).collect();
    let words = if chosen.is_empty() { lines.join(" ") } else { chosen.join(" ") };
    words.chars().take(400).collect()
}

fn classify(words: &str) -> ErrorClass {
    let words = words.to_ascii_lowercase();
    let any = |signs: &[&str]| signs.iter().any(|sign| words.contains(sign));
    if any(&[
        "could not read username",
        "could not read password",
        "authentication failed",
        "permission denied",
        "403",
    ]) {
        ErrorClass::Auth
    } else if any(&[
        "not our ref",
        "unadvertised object",
        "not found",
        "does not appear to be",
        "no such remote ref",
        "does not exist",
    ]) {
        ErrorClass::GoneAtServer
    } else if any(&["no space left"]) {
        ErrorClass::DiskFull
    } else if any(&["cannot be started", "read-only file system"]) {
        ErrorClass::System
    } else {
        ErrorClass::Network
    }
}

/// An address without the secret that may stand in it.
fn redacted(url: &str) -> String {
    match (url.find("://"), url.rfind('@')) {
        (Some(scheme), Some(at)) if at > scheme => format!("{}{}", &url[..scheme + 3], &url[at + 1..]),
        _ => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_have_their_classes() {
        for (words, class) in [
            ("fatal: remote error: upload-pack: not our ref 0123", ErrorClass::GoneAtServer),
            ("fatal: could not read Username for 'https://h': terminal prompts disabled", ErrorClass::Auth),
            ("fatal: unable to access 'https://h/': Could not resolve host: h", ErrorClass::Network),
            ("error: file write error: No space left on device", ErrorClass::DiskFull),
        ] {
            assert_eq!(classify(words), class, "{words}");
        }
        assert_eq!(redacted("https://u:secret@h/x"), "https://h/x");
        assert_eq!(redacted("git@h:x"), "git@h:x");
    }
}
