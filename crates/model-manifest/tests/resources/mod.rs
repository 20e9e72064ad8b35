//! A workspace that is ready for release, and a resource repository: a clone, two bare remotes, a raw host.
#![allow(dead_code, clippy::allow_attributes, reason = "each test binary uses its own part of this")]

use std::{process::Command, sync::atomic::AtomicBool, time::Duration};

use artifact_parts::PartLimit;
use camino::{Utf8Path, Utf8PathBuf};
use durable_fs::NoProgress;
use model_manifest::{
    GateOptions, GateReport, Looked, PublishError, PublishRequest, PublishRoute, Published, Remote,
    RolledBack, Signer, VerifiedRelease, publish, rollback, verify_workspace_by,
};
use rebuild_workspace::ReleaseProof;
use verified_download::{HttpClient, HttpOptions};

use crate::{
    raw_host::RawHost,
    support::{Bench, V23, manifest, validated},
};

pub const IDS: [&str; 3] = ["a", "deeprl3", "sc2"];

pub fn options() -> GateOptions {
    GateOptions {
        version: V23,
        part_limit: PartLimit::from_bytes(200).unwrap(),
        driver_monitoring: false,
        proof: ReleaseProof::NONE,
    }
}

pub fn gate(bench: &Bench) -> GateReport {
    // The contents are no pickles: what inspection says of artifacts is tested where it lives.
    verify_workspace_by(
        &bench.workspace,
        bench.sources.clone(),
        &options(),
        &|_, _, _| Looked::default(),
        &NoProgress,
    )
    .unwrap()
}

pub fn release(bench: &Bench) -> VerifiedRelease {
    gate(bench).into_release().unwrap_or_else(|report| panic!("{:#?}", report.problems))
}

/// A validated, namespaced, reconciled workspace: one artifact whole, two in parts.
pub fn ready() -> Bench {
    let bench = Bench::new();
    bench.artifact("a", "a is small", None);
    bench.artifact("deeprl3", "deeprl3 is longer than the limit of forty bytes", Some(20));
    bench.artifact("sc2", "sc2 is even longer than that, as it has seventy-five bytes, about", Some(30));
    // No addition of the release manifest: a release without a compiled rdf2 would not pass.
    bench.apply(&bench.namespace(&manifest(&IDS)));
    IDS.iter().for_each(|id| validated(&bench, id));
    bench
}

/// A resource repository: a clone, two bare remotes, and a raw host in front of the first.
pub struct Resources {
    _guard: Option<tempfile::TempDir>,
    pub dir: Utf8PathBuf,
    pub host: RawHost,
    client: HttpClient,
}

pub fn git(dir: &Utf8Path, arguments: &[&str]) -> String {
    let output = Command::new("git")
        .args(["-C", dir.as_str(), "-c", "user.name=Someone", "-c", "user.email=someone@example.invalid"])
        .args(arguments)
        .output()
        .unwrap();
    assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

impl Resources {
    pub fn new() -> Self {
        let guard = tempfile::tempdir().unwrap();
        let dir = Utf8PathBuf::from_path_buf(guard.path().to_owned()).unwrap();
        for bare in ["one.git", "two.git"] {
            git(&dir, &["init", "--quiet", "--bare", bare]);
        }
        git(&dir, &["init", "--quiet", "clone"]);
        let clone = dir.join("clone");
        // The branch as it is before: an older manifest and an artifact of its time.
        git(&clone, &["checkout", "--quiet", "-b", "Models"]);
        for (name, text) in [("model_names_v22.json", "{}"), ("old_driving_tinygrad.pkl", "old")] {
            durable_fs::write_atomic(clone.join(name), text.as_bytes()).unwrap();
        }
        git(&clone, &["add", "."]);
        git(&clone, &["commit", "--quiet", "-m", "Models of v22"]);
        for (name, bare) in [("origin", "one.git"), ("mirror", "two.git")] {
            git(&clone, &["remote", "add", name, dir.join(bare).as_str()]);
            git(&clone, &["push", "--quiet", name, "Models"]);
        }
        git(&clone, &["config", "user.name", "Publisher"]);
        git(&clone, &["config", "user.email", "publisher@example.invalid"]);
        Self::at(&dir, Some(guard))
    }

    /// A host and client for repositories that are there.
    pub fn at(dir: &Utf8Path, guard: Option<tempfile::TempDir>) -> Self {
        let host = RawHost::serve(&dir.join("one.git"));
        let backoff = Duration::from_millis(1);
        let client = HttpClient::new(HttpOptions { attempts: 1, backoff, ..HttpOptions::default() }).unwrap();
        Self { _guard: guard, dir: dir.to_owned(), host, client }
    }

    pub fn remotes(&self) -> Vec<Remote> {
        vec![
            Remote { name: "origin".to_owned(), raw_base: Some(self.host.base.clone()), push_limit: None },
            Remote { name: "mirror".to_owned(), raw_base: None, push_limit: None },
        ]
    }

    pub fn tip(&self, bare: &str) -> String {
        git(&self.dir.join(bare), &["rev-parse", "Models"])
    }

    pub fn names(&self, bare: &str) -> Vec<String> {
        let names = git(&self.dir.join(bare), &["ls-tree", "--name-only", "Models"]);
        names.lines().map(str::to_owned).collect()
    }

    pub fn show(&self, bare: &str, name: &str) -> String {
        git(&self.dir.join(bare), &["show", &format!("Models:{name}")])
    }

    /// Somebody else's commit on the branch of the first remote.
    pub fn somebody_pushes(&self, name: &str, text: &str) {
        let other = self.dir.join("other");
        if !other.exists() {
            git(&self.dir, &["clone", "--quiet", "--branch", "Models", "one.git", "other"]);
        }
        git(&other, &["pull", "--quiet", "origin", "Models"]);
        durable_fs::write_atomic(other.join(name), text.as_bytes()).unwrap();
        git(&other, &["add", "."]);
        git(&other, &["commit", "--quiet", "-m", "Somebody's work"]);
        git(&other, &["push", "--quiet", "origin", "Models"]);
    }

    pub fn with<T>(
        &self,
        bench: &Bench,
        signer: Option<&Signer>,
        batch_bytes: u64,
        work: impl FnOnce(&PublishRequest<'_>) -> T,
    ) -> T {
        let release = release(bench);
        let (remotes, stop) = (self.remotes(), AtomicBool::new(false));
        work(&PublishRequest {
            release: &release,
            workspace: bench.root(),
            route: PublishRoute { batch_bytes, ..self.route(&self.dir.join("clone"), &remotes, &stop) },
            signer,
            seconds: 1_790_000_000,
        })
    }

    /// The way to these remotes through this clone.
    pub fn route<'a>(
        &'a self,
        repository: &'a Utf8Path,
        remotes: &'a [Remote],
        stop: &'a AtomicBool,
    ) -> PublishRoute<'a> {
        PublishRoute {
            repository,
            remotes,
            branch: "Models",
            part_limit: PartLimit::from_bytes(10_000).unwrap(),
            batch_bytes: 50,
            unconfirmed: false,
            settle: Duration::ZERO,
            client: &self.client,
            progress: &NoProgress,
            stop,
        }
    }

    pub fn rollback(&self) -> Result<RolledBack, PublishError> {
        let (remotes, stop) = (self.remotes(), AtomicBool::new(false));
        rollback(&self.route(&self.dir.join("clone"), &remotes, &stop), 1_790_000_001, &mut |_| {})
    }

    pub fn publish(&self, bench: &Bench) -> Result<Published, PublishError> {
        self.with(bench, None, 50, |request| publish(request, &mut |_| {}))
    }
}
