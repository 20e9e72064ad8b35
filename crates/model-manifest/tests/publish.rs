//! The release gate and publication to real bare repositories, looked at over HTTP.
#![expect(clippy::unwrap_used, reason = "tests")]

mod raw_host;
mod support;

use std::{fs, process::Command, sync::atomic::AtomicBool, time::Duration};

use artifact_parts::{PartLimit, PartList};
use camino::{Utf8Path, Utf8PathBuf};
use durable_fs::{NoProgress, Sha256};
use model_manifest::{
    GateOptions, GateProblem, GateReport, PublishError, PublishEvent, PublishRequest, Published, Remote,
    Signer, VerifiedRelease, plan_publish, publish, rollback, verify_workspace, verify_workspace_by,
};
use raw_host::{Fault, RawHost};
use support::{Bench, V23, id, manifest, pkl, validated};
use verified_download::{HttpClient, HttpOptions};

const IDS: [&str; 3] = ["a", "deeprl3", "sc2"];

fn options() -> GateOptions {
    GateOptions { version: V23, part_limit: PartLimit::from_bytes(200).unwrap(), driver_monitoring: false }
}

fn gate(bench: &Bench) -> GateReport {
    // The contents are no pickles: what inspection says of artifacts is tested where it lives.
    verify_workspace_by(&bench.workspace, bench.sources.clone(), &options(), &|_, _| Vec::new(), &NoProgress)
        .unwrap()
}

fn release(bench: &Bench) -> VerifiedRelease {
    gate(bench).into_release().unwrap_or_else(|report| panic!("{:#?}", report.problems))
}

/// A validated, namespaced, reconciled workspace: one artifact whole, two in parts.
fn ready() -> Bench {
    let bench = Bench::new();
    bench.artifact("a", "a is small", None);
    bench.artifact("deeprl3", "deeprl3 is longer than the limit of forty bytes", Some(20));
    bench.artifact("sc2", "sc2 is even longer than that, as it has seventy-five bytes, about", Some(30));
    // No addition of the release manifest: a release without a compiled rdf2 would not pass.
    bench.apply(&bench.namespace(&manifest(&IDS)));
    IDS.iter().for_each(|id| validated(&bench, id));
    bench
}

#[test]
fn a_complete_workspace_passes_the_gate() {
    let report = gate(&ready());
    assert!(report.problems.is_empty(), "{:#?}", report.problems);
    let parts: Vec<usize> = report.artifacts.iter().map(|artifact| artifact.parts.len()).collect();
    assert_eq!(parts, [0, 3, 3]);
    assert_eq!(report.artifacts[1].filename, pkl("deeprl33"));
    assert!(report.artifacts[1].parts.iter().all(|part| part.sha256.is_some()));
}

#[test]
fn the_gate_names_every_problem_at_once() {
    let bench = ready();
    let has = |report: &GateReport, check: &dyn Fn(&GateProblem) -> bool| {
        assert!(report.problems.iter().any(check), "{:#?}", report.problems);
    };
    bench.put(&format!("compiled/{}", pkl("a3")), "a is other");
    fs::remove_file(bench.path("results/sc2_validation.json")).unwrap();
    bench.put(&format!("ready-for-resources/{}.p01", pkl("sc23")), "flipped");
    bench.put(&format!("ready-for-resources/{}", pkl("a3")), "x".repeat(300));
    bench.put("ready-for-resources/._x", "sidecar");
    bench.put("ready-for-resources/notes.txt", "by hand");
    bench.put(
        &format!("ready-for-resources/{}", pkl("deeprl33")),
        "deeprl3 is longer than the limit of forty bytes",
    );
    bench.put(
        "results/deeprl3_failure.json",
        r#"{"id": "deeprl3", "status": "failed", "error": "no clang", "stage": "compile"}"#,
    );
    let report = gate(&bench);
    has(&report, &|problem| matches!(problem, GateProblem::Digest { id, .. } if *id == support::id("a3")));
    has(
        &report,
        &|problem| matches!(problem, GateProblem::NotValidated { id, .. } if *id == support::id("sc23")),
    );
    has(
        &report,
        &|problem| matches!(problem, GateProblem::ValidationOfOther { id, .. } if *id == support::id("a3")),
    );
    has(&report, &|problem| matches!(problem, GateProblem::Parts { why, .. } if why.contains("bytes")));
    has(&report, &|problem| matches!(problem, GateProblem::Foreign { path } if path.ends_with("._x")));
    has(&report, &|problem| matches!(problem, GateProblem::Foreign { path } if path.ends_with("notes.txt")));
    has(
        &report,
        &|problem| matches!(problem, GateProblem::TwoForms { id } if *id == support::id("deeprl33")),
    );
    has(&report, &|problem| matches!(problem, GateProblem::OverLimit { size: 300, limit: 200, .. }));
    has(&report, &|problem| matches!(problem, GateProblem::Failed { error, .. } if error == "no clang"));
    assert!(report.into_release().is_err());

    fs::remove_file(bench.path(&format!("compiled/{}", pkl("a3")))).unwrap();
    fs::remove_file(bench.path("ready-for-resources/multipart.json")).unwrap();
    let report = gate(&bench);
    has(
        &report,
        &|problem| matches!(problem, GateProblem::NoArtifact { id, .. } if *id == support::id("a3")),
    );
    has(&report, &|problem| matches!(problem, GateProblem::Multipart { .. }));
}

#[test]
fn artifacts_are_inspected_and_the_monitoring_set_is_complete_or_named() {
    let bench = ready();
    let options = GateOptions { driver_monitoring: true, ..options() };
    let report = verify_workspace(&bench.workspace, bench.sources.clone(), &options, &NoProgress).unwrap();
    let inspections =
        report.problems.iter().filter(|problem| matches!(problem, GateProblem::Inspection { .. }));
    assert_eq!(inspections.count(), 3, "{:#?}", report.problems);
    let incomplete = |problem: &GateProblem| matches!(problem, GateProblem::DriverMonitoringIncomplete { missing } if missing.len() == 4);
    assert!(report.problems.iter().any(incomplete));
}

/// A resource repository: a clone, two bare remotes, and a raw host in front of the first.
struct Resources {
    _guard: Option<tempfile::TempDir>,
    dir: Utf8PathBuf,
    host: RawHost,
    client: HttpClient,
}

fn git(dir: &Utf8Path, arguments: &[&str]) -> String {
    let output = Command::new("git")
        .args(["-C", dir.as_str(), "-c", "user.name=Someone", "-c", "user.email=someone@example.invalid"])
        .args(arguments)
        .output()
        .unwrap();
    assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

impl Resources {
    fn new() -> Self {
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
    fn at(dir: &Utf8Path, guard: Option<tempfile::TempDir>) -> Self {
        let host = RawHost::serve(&dir.join("one.git"));
        let backoff = Duration::from_millis(1);
        let client = HttpClient::new(HttpOptions { attempts: 1, backoff, ..HttpOptions::default() }).unwrap();
        Self { _guard: guard, dir: dir.to_owned(), host, client }
    }

    fn remotes(&self) -> Vec<Remote> {
        vec![
            Remote { name: "origin".to_owned(), raw_base: Some(self.host.base.clone()) },
            Remote { name: "mirror".to_owned(), raw_base: None },
        ]
    }

    fn tip(&self, bare: &str) -> String {
        git(&self.dir.join(bare), &["rev-parse", "Models"])
    }

    fn names(&self, bare: &str) -> Vec<String> {
        let names = git(&self.dir.join(bare), &["ls-tree", "--name-only", "Models"]);
        names.lines().map(str::to_owned).collect()
    }

    fn show(&self, bare: &str, name: &str) -> String {
        git(&self.dir.join(bare), &["show", &format!("Models:{name}")])
    }

    /// Somebody else's commit on the branch of the first remote.
    fn somebody_pushes(&self, name: &str, text: &str) {
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

    fn with<T>(
        &self,
        bench: &Bench,
        signer: Option<&Signer>,
        batch_bytes: u64,
        work: impl FnOnce(&PublishRequest<'_>) -> T,
    ) -> T {
        let release = release(bench);
        let remotes = self.remotes();
        let stop = AtomicBool::new(false);
        work(&PublishRequest {
            release: &release,
            workspace: bench.root(),
            repository: &self.dir.join("clone"),
            remotes: &remotes,
            branch: "Models",
            part_limit: PartLimit::from_bytes(10_000).unwrap(),
            batch_bytes,
            signer,
            seconds: 1_790_000_000,
            settle: Duration::ZERO,
            client: &self.client,
            progress: &NoProgress,
            stop: &stop,
        })
    }

    fn publish(&self, bench: &Bench) -> Result<Published, PublishError> {
        self.with(bench, None, 50, |request| publish(request, &mut |_| {}))
    }
}

#[test]
fn a_release_arrives_on_every_remote_with_the_manifest_last() {
    let (bench, resources) = (ready(), Resources::new());
    let signer = Signer::generate().unwrap();
    let mut events = Vec::new();
    let published = resources
        .with(&bench, Some(&signer), 50, |request| {
            let plan = plan_publish(request).unwrap();
            assert!(plan.to_string().contains("add a3_driving_tinygrad.pkl\n"), "{plan}");
            assert_eq!(
                git(&resources.dir.join("one.git"), &["rev-list", "--count", "Models"]),
                "1",
                "a plan pushes nothing"
            );
            publish(request, &mut |event| events.push(event))
        })
        .unwrap();
    assert_eq!(
        (resources.tip("one.git"), resources.tip("two.git")),
        (published.commit.clone(), published.commit.clone())
    );
    assert!(published.commits >= 4, "{published:?}");
    assert_eq!(published.confirmed, 1 + 4 + 4 + 3, "every file, over the route of devices");
    let changed = git(&resources.dir.join("one.git"), &["diff", "--name-only", "Models~1", "Models"]);
    assert_eq!(changed, "model_names_v23.json\nmodel_parts_v23.json\nmodel_parts_v23.json.minisig");
    let names = resources.names("two.git");
    assert!(
        names.contains(&"model_names_v22.json".to_owned())
            && names.contains(&"old_driving_tinygrad.pkl".to_owned())
    );
    assert!(!names.iter().any(|name| name == "multipart.json"), "{names:?}");

    let list = PartList::from_json(&(resources.show("one.git", "model_parts_v23.json") + "\n")).unwrap();
    assert_eq!(list.artifacts.len(), 3);
    assert_eq!(list.get(&id("sc23")).unwrap().parts.len(), 3);
    let pushes: Vec<&PublishEvent> =
        events.iter().filter(|event| matches!(event, PublishEvent::Pushed { .. })).collect();
    assert_eq!(pushes.len(), published.commits * 2);
    // The clone itself is as it was.
    let clone = resources.dir.join("clone");
    assert_eq!(git(&clone, &["status", "--porcelain"]), "");
    assert_eq!(git(&clone, &["rev-list", "--count", "Models"]), "1");

    let again = resources.with(&bench, Some(&signer), 50, |request| publish(request, &mut |_| {})).unwrap();
    assert_eq!((again.commits, &again.commit), (0, &published.commit));
}

#[test]
fn the_real_minisign_verifies_the_signature() {
    if Command::new("minisign").arg("-v").output().is_err() {
        println!("skipped: the_real_minisign_verifies_the_signature: minisign is not installed");
        return;
    }
    let (bench, resources) = (ready(), Resources::new());
    let signer = Signer::generate().unwrap();
    resources.with(&bench, Some(&signer), 1000, |request| publish(request, &mut |_| {})).unwrap();
    let checkout = resources.dir.join("checkout");
    git(&resources.dir, &["clone", "--quiet", "--branch", "Models", "one.git", "checkout"]);
    let verify = || {
        let list = checkout.join("model_parts_v23.json");
        Command::new("minisign")
            .args(["-V", "-q", "-m", list.as_str(), "-P", &signer.public_key()])
            .status()
            .unwrap()
    };
    assert!(verify().success());
    durable_fs::write_atomic(checkout.join("model_parts_v23.json"), b"{}").unwrap();
    assert!(!verify().success());
    // And a key that minisign made signs here.
    let key = resources.dir.join("key");
    let made = Command::new("minisign")
        .args(["-G", "-W", "-p", resources.dir.join("key.pub").as_str(), "-s", key.as_str()])
        .output()
        .unwrap();
    assert!(made.status.success());
    let signer = Signer::from_key_file(&fs::read_to_string(&key).unwrap(), None).unwrap();
    let public = fs::read_to_string(resources.dir.join("key.pub")).unwrap();
    assert!(public.contains(&signer.public_key()), "{public}");
}

#[test]
fn what_the_host_serves_is_looked_at_before_and_after_the_manifest() {
    let (bench, resources) = (ready(), Resources::new());
    resources.host.fail(Fault::DropTail(".p01"));
    let refused = resources.publish(&bench).unwrap_err();
    assert!(matches!(&refused, PublishError::Unconfirmed { manifest_switched: false, .. }), "{refused}");
    assert!(
        refused.to_string().contains(".p01") && refused.to_string().contains("was not switched"),
        "{refused}"
    );
    assert!(!resources.names("one.git").contains(&"model_names_v23.json".to_owned()));

    resources.host.fail(Fault::Missing("model_names_v23.json"));
    let refused = resources.publish(&bench).unwrap_err();
    assert!(matches!(&refused, PublishError::Unconfirmed { manifest_switched: true, .. }), "{refused}");

    resources.host.fail(Fault::None);
    let published = resources.publish(&bench).unwrap();
    assert_eq!(published.commits, 0, "everything was pushed before");
}

#[test]
fn somebody_elses_push_is_built_upon_and_another_manifest_is_not() {
    let (bench, resources) = (ready(), Resources::new());
    let mut pushed = false;
    let published = resources
        .with(&bench, None, 1000, |request| {
            publish(request, &mut |event| {
                // Just after our commits were made, somebody else pushes.
                if matches!(event, PublishEvent::Committed { .. }) && !pushed {
                    pushed = true;
                    resources.somebody_pushes("readme.md", "theirs");
                }
            })
        })
        .unwrap();
    assert_eq!(resources.tip("two.git"), published.commit);
    assert_eq!(resources.show("two.git", "readme.md"), "theirs");

    let (bench, resources) = (ready(), Resources::new());
    let mut pushed = false;
    let refused = resources
        .with(&bench, None, 1000, |request| {
            publish(request, &mut |event| {
                if matches!(event, PublishEvent::Committed { .. }) && !pushed {
                    pushed = true;
                    resources.somebody_pushes("model_names_v23.json", "{\"models\": []}");
                }
            })
        })
        .unwrap_err();
    assert!(matches!(refused, PublishError::ManifestMoved { .. }), "{refused}");
    assert_eq!(resources.show("one.git", "model_names_v23.json"), "{\"models\": []}");
}

#[test]
fn a_remote_that_was_left_behind_is_brought_up_and_two_ways_are_refused() {
    let (bench, resources) = (ready(), Resources::new());
    resources.somebody_pushes("readme.md", "only on the first");
    let published = resources.publish(&bench).unwrap();
    assert_eq!(resources.tip("two.git"), published.commit);
    assert_eq!(resources.show("two.git", "readme.md"), "only on the first");

    let resources = Resources::new();
    resources.somebody_pushes("readme.md", "one way");
    let other = resources.dir.join("other");
    git(&other, &["checkout", "--quiet", "-b", "fork", "Models~1"]);
    durable_fs::write_atomic(other.join("x"), b"the other way").unwrap();
    git(&other, &["add", "."]);
    git(&other, &["commit", "--quiet", "-m", "Another way"]);
    git(&other, &["push", "--quiet", resources.dir.join("two.git").as_str(), "fork:Models"]);
    assert!(matches!(resources.publish(&bench), Err(PublishError::Diverged { .. })));
}

#[test]
fn a_new_build_replaces_its_parts_and_rolling_back_restores_them() {
    let (bench, resources) = (ready(), Resources::new());
    let first = resources.publish(&bench).unwrap();
    let before = resources.show("one.git", "model_parts_v23.json");
    // The next build of one model is shorter, whole and changes the manifest's list only.
    let content = "sc2, rebuilt";
    bench.put(&format!("compiled/{}", pkl("sc23")), content);
    for name in durable_fs::list_dir(&bench.workspace.ready_dir()).unwrap() {
        if name.starts_with("sc23_") {
            fs::remove_file(bench.workspace.ready_dir().join(name)).unwrap();
        }
    }
    bench.put(&format!("ready-for-resources/{}", pkl("sc23")), content);
    let mut list = rebuild_workspace::MultipartList::load(&bench.workspace).unwrap();
    list.remove(&pkl("sc23"));
    list.save(&bench.workspace).unwrap();
    let mut record = bench.artifact_record("sc2");
    record.size = content.len() as u64;
    record.sha256 = Sha256::digest(content.as_bytes());
    record.modified_ns = None;
    bench.workspace.save(&record).unwrap();
    validated(&bench, "sc2");

    let second = resources.publish(&bench).unwrap();
    assert_eq!(second.commits, 2);
    let names = resources.names("two.git");
    assert!(
        names.contains(&pkl("sc23"))
            && !names.iter().any(|name| name.starts_with("sc23_driving_tinygrad.pkl."))
    );

    let clone = resources.dir.join("clone");
    let rolled = rollback(&clone, &resources.remotes(), "Models", 1_790_000_001, &mut |_| {}).unwrap();
    assert_eq!((resources.tip("one.git"), resources.tip("two.git")), (rolled.commit.clone(), rolled.commit));
    assert_eq!(resources.show("one.git", "model_parts_v23.json"), before);
    let tree =
        |commit: &str| git(&resources.dir.join("one.git"), &["rev-parse", &format!("{commit}^{{tree}}")]);
    assert_eq!(tree("Models"), tree(&first.commit));
}

#[test]
fn files_that_do_not_belong_or_changed_are_never_pushed() {
    let (bench, resources) = (ready(), Resources::new());
    let before = resources.tip("one.git");
    let refused = resources
        .with(&bench, None, 1000, |request| {
            // After the gate, before the commit.
            bench.put(&format!("ready-for-resources/{}", pkl("a3")), "replaced");
            publish(request, &mut |_| {})
        })
        .unwrap_err();
    assert!(matches!(refused, PublishError::Changed { .. }), "{refused}");
    bench.put(&format!("ready-for-resources/{}", pkl("a3")), "a is small");
    let refused = resources
        .with(&bench, None, 1000, |request| {
            let request = PublishRequest { part_limit: PartLimit::from_bytes(25).unwrap(), ..*request };
            publish(&request, &mut |_| {})
        })
        .unwrap_err();
    assert!(matches!(refused, PublishError::OverLimit { limit: 25, .. }), "{refused}");
    assert_eq!(resources.tip("one.git"), before);
}

#[test]
fn a_remote_that_refuses_is_quoted() {
    let (bench, resources) = (ready(), Resources::new());
    let hook = resources.dir.join("two.git/hooks/pre-receive");
    durable_fs::write_atomic(&hook, b"#!/bin/sh\necho 'pack exceeds maximum allowed size' >&2\nexit 1\n")
        .unwrap();
    fs::set_permissions(&hook, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let refused = resources.publish(&bench).unwrap_err();
    assert!(matches!(&refused, PublishError::Refused { remote, .. } if remote == "mirror"), "{refused}");
    assert!(refused.to_string().contains("exceeds maximum allowed size"), "{refused}");
    assert!(
        !resources.names("one.git").contains(&"model_names_v23.json".to_owned()),
        "no remote has the manifest"
    );
    fs::remove_file(&hook).unwrap();
    resources.publish(&bench).unwrap();
}

const WORK: &str = "MODEL_MANIFEST_TEST_PUBLISH";

/// The body of the process that is killed; does nothing in an ordinary run.
#[test]
fn killed_child() {
    let Ok(work) = std::env::var(WORK) else { return };
    let (workspace, dir) = work.split_once(' ').unwrap();
    let bench = Bench::at(Utf8Path::new(workspace));
    Resources::at(Utf8Path::new(dir), None).publish(&bench).unwrap();
}

/// Whether the branch shows the new manifest; if it does, everything that its part list names is there and right.
fn shows_release(resources: &Resources, bare: &str) -> bool {
    let names = resources.names(bare);
    if !names.contains(&"model_names_v23.json".to_owned()) {
        return false;
    }
    let list = PartList::from_json(&resources.show(bare, "model_parts_v23.json")).unwrap();
    for artifact in &list.artifacts {
        let whole = || vec![(artifact.filename.clone(), artifact.sha256)];
        let parts: Vec<_> =
            artifact.parts.iter().map(|part| (part.name.clone(), part.sha256.unwrap())).collect();
        for (name, sha256) in if parts.is_empty() { whole() } else { parts } {
            let object = format!("Models:{name}");
            let output = Command::new("git")
                .args(["-C", resources.dir.join(bare).as_str(), "cat-file", "blob", &object])
                .output();
            assert_eq!(Sha256::digest(&output.unwrap().stdout), sha256, "{name} on {bare}");
        }
    }
    true
}

#[test]
fn kills_never_show_a_manifest_without_its_artifacts() {
    let kills: usize = std::env::var("KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(6);
    let bench = ready();
    let undisturbed = Resources::new();
    let started = std::time::Instant::now();
    let expected = undisturbed.publish(&bench).unwrap().commit;
    let tree = |resources: &Resources| git(&resources.dir.join("two.git"), &["rev-parse", "Models^{tree}"]);
    let longest = started.elapsed();
    let (mut interrupted, mut shown) = (0, 0);
    for kill in 0..kills {
        let resources = Resources::new();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "killed_child"])
            .env(WORK, format!("{} {}", bench.root(), resources.dir))
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(longest.mul_f64((f64::from(kill as u32) * 0.618_033_988_75 + 0.2).fract()));
        child.kill().unwrap();
        interrupted += usize::from(!child.wait().unwrap().success());
        // A push that git had begun may still end.
        for bare in ["one.git", "two.git"] {
            shown += usize::from(shows_release(&resources, bare));
        }
        std::thread::sleep(Duration::from_millis(200));
        resources.publish(&bench).unwrap();
        assert!(shows_release(&resources, "one.git") && shows_release(&resources, "two.git"));
        assert_eq!(
            tree(&resources),
            git(&undisturbed.dir.join("one.git"), &["rev-parse", &format!("{expected}^{{tree}}")])
        );
    }
    println!("{kills} kills, {interrupted} of them before the end, {shown} times a branch with the release");
}
