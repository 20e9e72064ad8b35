//! Publication to real bare repositories, looked at over HTTP.
#![expect(clippy::unwrap_used, reason = "tests")]

mod raw_host;
mod resources;
mod support;

use std::fs;

use artifact_parts::PartList;
use durable_fs::Sha256;
use model_manifest::{PublishError, PublishEvent, Signer, plan_publish, publish, rollback};
use resources::{Resources, git, ready};
use support::{id, pkl, validated};

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
