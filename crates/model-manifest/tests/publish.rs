//! Publication to real bare repositories, looked at over HTTP.
#![expect(clippy::unwrap_used, reason = "tests")]

mod raw_host;
mod resources;
mod support;

use std::{
    fs,
    sync::atomic::{AtomicBool, Ordering},
};

use artifact_parts::PartList;
use durable_fs::Sha256;
use model_manifest::{
    PublishError, PublishEvent, PublishRoute, Remote, Signer, plan_publish, publish, rollback,
};
use raw_host::Fault;
use resources::{Resources, git, ready};
use support::{Bench, id, pkl, validated};

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

/// The next build of `sc2`, whole.
fn rebuilt(bench: &Bench, content: &str) {
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
    validated(bench, "sc2");
}

#[test]
fn a_new_build_replaces_its_parts_and_rolling_back_restores_them() {
    let (bench, resources) = (ready(), Resources::new());
    let first = resources.publish(&bench).unwrap();
    let before = resources.show("one.git", "model_parts_v23.json");
    // The next build of one model is shorter, whole and changes the manifest's list only.
    let content = "sc2, rebuilt";
    rebuilt(&bench, content);

    let second = resources.publish(&bench).unwrap();
    assert_eq!(second.commits, 2);
    let names = resources.names("two.git");
    assert!(
        names.contains(&pkl("sc23"))
            && !names.iter().any(|name| name.starts_with("sc23_driving_tinygrad.pkl."))
    );

    let rolled = resources.rollback().unwrap();
    assert!(rolled.confirmed > 3, "{rolled:?}");
    assert_eq!((resources.tip("one.git"), resources.tip("two.git")), (rolled.commit.clone(), rolled.commit));
    assert_eq!(resources.show("one.git", "model_parts_v23.json"), before);
    let tree =
        |commit: &str| git(&resources.dir.join("one.git"), &["rev-parse", &format!("{commit}^{{tree}}")]);
    assert_eq!(tree("Models"), tree(&first.commit));

    // Once more changes nothing; a mirror that an interruption left behind is brought up, whatever came on top.
    let again = resources.rollback().unwrap();
    assert_eq!(
        (again.commit.as_str(), again.confirmed),
        (resources.tip("one.git").as_str(), rolled.confirmed)
    );
    git(&resources.dir.join("two.git"), &["update-ref", "refs/heads/Models", &second.commit]);
    resources.somebody_pushes("README.md", "about these files");
    let finished = resources.rollback().unwrap();
    assert_eq!(
        (resources.tip("one.git"), resources.tip("two.git")),
        (finished.commit.clone(), finished.commit)
    );
    assert!(resources.names("two.git").contains(&"README.md".to_owned()));
    assert_eq!(resources.show("two.git", "model_parts_v23.json"), before);
}

/// Somebody's commit on the second remote alone.
fn somebody_pushes_to_the_mirror(resources: &Resources, name: &str) {
    let other = resources.dir.join("other-of-mirror");
    git(&resources.dir, &["clone", "--quiet", "--branch", "Models", "two.git", "other-of-mirror"]);
    durable_fs::write_atomic(other.join(name), b"theirs").unwrap();
    git(&other, &["add", "."]);
    git(&other, &["commit", "--quiet", "-m", "Somebody's work"]);
    git(&other, &["push", "--quiet", "origin", "Models"]);
}

#[test]
fn rolling_back_takes_nobodys_commits_away() {
    let (bench, resources) = (ready(), Resources::new());
    resources.publish(&bench).unwrap();
    // One remote is ahead: what is there stays, and the other one gets it.
    somebody_pushes_to_the_mirror(&resources, "theirs.txt");
    let rolled = resources.rollback().unwrap();
    for bare in ["one.git", "two.git"] {
        assert_eq!(resources.tip(bare), rolled.commit);
        assert!(resources.names(bare).contains(&"theirs.txt".to_owned()), "{bare}");
    }

    // Both have gone on, apart: a person decides, and nothing is pushed.
    let (bench, resources) = (ready(), Resources::new());
    resources.publish(&bench).unwrap();
    somebody_pushes_to_the_mirror(&resources, "theirs.txt");
    resources.somebody_pushes("ours.txt", "ours");
    let tips = [resources.tip("one.git"), resources.tip("two.git")];
    assert!(matches!(resources.rollback(), Err(PublishError::Diverged { .. })));
    assert!(matches!(resources.publish(&bench), Err(PublishError::Diverged { .. })));
    assert_eq!([resources.tip("one.git"), resources.tip("two.git")], tips);
}

#[test]
fn a_rollback_is_looked_at_and_can_be_stopped() {
    let (bench, resources) = (ready(), Resources::new());
    resources.publish(&bench).unwrap();
    let second = "sc2, rebuilt, but only a little bit longer than seventy-five bytes as before";
    rebuilt(&bench, second);
    resources.publish(&bench).unwrap();
    let tips = [resources.tip("one.git"), resources.tip("two.git")];
    let clone = resources.dir.join("clone");
    let remotes = resources.remotes();
    let stop = AtomicBool::new(true);
    let stopped = rollback(&resources.route(&clone, &remotes, &stop), 1_790_000_001, &mut |_| {});
    assert!(matches!(stopped, Err(PublishError::Interrupted)), "{stopped:?}");
    assert_eq!([resources.tip("one.git"), resources.tip("two.git")], tips);

    // Stopped after the first remote: the rest is done by the next run.
    let stop = AtomicBool::new(false);
    let mut pushed = 0;
    let stopped = rollback(&resources.route(&clone, &remotes, &stop), 1_790_000_001, &mut |event| {
        if matches!(event, PublishEvent::Pushed { .. }) {
            pushed += 1;
            stop.store(true, Ordering::Relaxed);
        }
    });
    assert!(matches!(stopped, Err(PublishError::Interrupted)), "{stopped:?}");
    assert_eq!(pushed, 1);
    assert_ne!(resources.tip("one.git"), resources.tip("two.git"));
    resources.rollback().unwrap();
    assert_eq!(resources.tip("one.git"), resources.tip("two.git"));

    // Nobody who could look at it: refused before anything happens, unless that is wanted.
    let blind: Vec<_> = remotes.iter().map(|remote| Remote { raw_base: None, ..remote.clone() }).collect();
    let stop = AtomicBool::new(false);
    let route = resources.route(&clone, &blind, &stop);
    assert!(matches!(rollback(&route, 1, &mut |_| {}), Err(PublishError::NoAddress)));
    let unconfirmed = PublishRoute { unconfirmed: true, ..route };
    assert_eq!(rollback(&unconfirmed, 1, &mut |_| {}).unwrap().confirmed, 0);
}

#[test]
fn a_rollback_says_whether_hosts_still_serve_what_it_takes_away() {
    let texts = ["model_names_v23.json", "model_parts_v23.json"];
    for fault in [Fault::None, Fault::Kept("a"), Fault::Broken("a")] {
        let (bench, resources) = (ready(), Resources::new());
        resources.publish(&bench).unwrap();
        resources.host.fail(fault.clone());
        let removed = resources.rollback().unwrap().removed;
        let names = |urls: &[String]| -> Vec<String> {
            urls.iter().map(|url| url.rsplit('/').next().unwrap().to_owned()).collect()
        };
        let all = [names(&removed.gone), names(&removed.served), names(&removed.unknown)];
        assert_eq!(all.iter().map(Vec::len).sum::<usize>(), resources_added(&resources), "{all:?}");
        assert!(texts.iter().all(|name| all[0].contains(&(*name).to_owned())), "{all:?}");
        // The artifact in the one place where the host's fault puts it.
        let place = match fault {
            Fault::Kept(_) => 1,
            Fault::Broken(_) => 2,
            _ => 0,
        };
        assert!(all[place].contains(&"a3_driving_tinygrad.pkl".to_owned()), "{all:?}");
    }
}

/// How many files the release had brought that are gone again.
fn resources_added(resources: &Resources) -> usize {
    let before = resources.names("one.git");
    let released = git(&resources.dir.join("one.git"), &["ls-tree", "--name-only", "Models~1"]);
    released.lines().filter(|name| !before.contains(&(*name).to_owned())).count()
}

#[test]
fn a_new_mirror_gets_the_history_in_pushes_of_limited_size() {
    let (bench, resources) = (ready(), Resources::new());
    for number in 0..6 {
        resources.somebody_pushes(
            &format!("older{number}_driving_tinygrad.pkl"),
            &format!("{number} {}", "x".repeat(30)),
        );
    }
    git(&resources.dir.join("two.git"), &["update-ref", "-d", "refs/heads/Models"]);
    let mut pushes = Vec::new();
    resources.with(&bench, None, 50, |request| {
        publish(request, &mut |event| {
            if let PublishEvent::Pushed { remote, commit } = event
                && remote == "mirror"
            {
                pushes.push(commit);
            }
        })
        .unwrap()
    });
    assert!(pushes.len() > 6, "{pushes:?}");
    assert_eq!(resources.tip("one.git"), resources.tip("two.git"));

    // A file that the mirror would not take is found before the first push.
    let (bench, resources) = (ready(), Resources::new());
    resources.somebody_pushes("huge.pkl", &"x".repeat(10_001));
    let before = resources.tip("two.git");
    let refused = resources.publish(&bench).unwrap_err();
    assert!(matches!(&refused, PublishError::OverLimit { name, .. } if name == "huge.pkl"), "{refused}");
    assert_eq!(resources.tip("two.git"), before);
}
