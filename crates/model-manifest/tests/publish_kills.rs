//! Publication killed anywhere: no remote ever shows a manifest without its artifacts, and publishing again completes it.
#![expect(clippy::unwrap_used, reason = "tests")]

#[path = "../../durable-fs/tests/kill_points/mod.rs"]
mod kill_points;
mod raw_host;
mod resources;
mod support;

use std::{process::Command, time::Duration};

use artifact_parts::PartList;
use camino::Utf8Path;
use durable_fs::Sha256;
use kill_points::KillPoints;
use resources::{Resources, git, ready};
use support::Bench;

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
    let bench = ready();
    let undisturbed = Resources::new();
    let started = std::time::Instant::now();
    let expected = undisturbed.publish(&bench).unwrap().commit;
    let tree = |resources: &Resources| git(&resources.dir.join("two.git"), &["rev-parse", "Models^{tree}"]);
    let longest = started.elapsed();
    let mut shown = 0;
    let mut points = KillPoints::new(60, 6);
    while let Some(moment) = points.next(longest) {
        let resources = Resources::new();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "killed_child"])
            .env(WORK, format!("{} {}", bench.root(), resources.dir))
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(moment);
        child.kill().unwrap();
        points.note(!child.wait().unwrap().success());
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
    println!("{shown} times a branch with the release");
    points.finish("publish");
}
