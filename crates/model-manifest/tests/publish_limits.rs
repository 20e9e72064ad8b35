//! Publication to remotes that take pushes of different size.
#![expect(clippy::unwrap_used, reason = "tests")]

mod raw_host;
mod resources;
mod support;

use std::{
    os::unix::fs::PermissionsExt,
    sync::atomic::{AtomicBool, Ordering},
};

use artifact_parts::PartLimit;
use durable_fs::NoProgress;
use model_manifest::{
    GateOptions, Looked, PublishError, PublishEvent, PublishRequest, PublishRoute, Published, PushLimit,
    Remote, VerifiedRelease, publish, rollback, verify_workspace_by,
};
use rebuild_workspace::ReleaseProof;
use resources::{IDS, Resources, git};
use support::{Bench, V23, manifest, validated};

/// What the mirror takes in one push.
const LIMIT: u64 = 16_000;

/// Text that does not compress well, by seed.
fn noise(seed: u64, len: usize) -> String {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut text = String::with_capacity(len);
    while text.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        text.push(char::from(b'!' + u8::try_from(state % 90).unwrap()));
    }
    text
}

/// A workspace of 68,000 bytes, in files of at most 10,000.
fn ready() -> (Bench, VerifiedRelease) {
    let bench = Bench::new();
    bench.artifact("a", &noise(1, 8_000), None);
    bench.artifact("deeprl3", &noise(2, 30_000), Some(10_000));
    bench.artifact("sc2", &noise(3, 30_000), Some(10_000));
    bench.apply(&bench.namespace(&manifest(&IDS)));
    IDS.iter().for_each(|id| validated(&bench, id));
    let options = GateOptions {
        version: V23,
        part_limit: PartLimit::from_bytes(20_000).unwrap(),
        driver_monitoring: false,
        proof: ReleaseProof::NONE,
    };
    let looked = &|_: &_, _: &_, _: &_| Looked::default();
    let report =
        verify_workspace_by(&bench.workspace, bench.sources.clone(), &options, looked, &NoProgress).unwrap();
    (bench, report.into_release().unwrap_or_else(|report| panic!("{:#?}", report.problems)))
}

/// The second bare repository refuses pushes over the limit: by the size of the pack, and by that of the files in it.
fn strict_mirror() -> Resources {
    let resources = Resources::new();
    let two = resources.dir.join("two.git");
    git(&two, &["config", "receive.maxInputSize", &LIMIT.to_string()]);
    let hook = two.join("hooks/pre-receive");
    let script = format!(
        "#!/bin/sh\nwhile read old new name; do\n  case $new in *[!0]*) ;; *) continue ;; esac\n  \
         sum=$(git rev-list --objects $new --not --all | cut -d' ' -f1 |\n    \
         git cat-file --batch-check='%(objecttype) %(objectsize)' | awk '$1==\"blob\" {{ s += $2 }} END {{ print s+0 }}')\n  \
         if [ $sum -gt {LIMIT} ]; then echo \"the push brings $sum bytes\" >&2; exit 1; fi\ndone\n"
    );
    durable_fs::write_atomic(&hook, script.as_bytes()).unwrap();
    std::fs::set_permissions(&hook, std::fs::Permissions::from_mode(0o755)).unwrap();
    resources
}

struct Run<'a> {
    resources: &'a Resources,
    bench: &'a Bench,
    release: &'a VerifiedRelease,
    batch_bytes: u64,
}

impl Run<'_> {
    fn remotes(&self, limit: Option<u64>) -> Vec<Remote> {
        let mut remotes = self.resources.remotes();
        remotes[1].push_limit = limit;
        remotes
    }

    fn to(
        &self,
        remotes: &[Remote],
        stop: &AtomicBool,
        on_event: &mut dyn FnMut(PublishEvent),
    ) -> Result<Published, PublishError> {
        let clone = self.resources.dir.join("clone");
        let route = self.resources.route(&clone, remotes, stop);
        let route = PublishRoute {
            batch_bytes: self.batch_bytes,
            part_limit: PartLimit::from_bytes(20_000).unwrap(),
            ..route
        };
        let request = PublishRequest {
            release: self.release,
            workspace: self.bench.root(),
            route,
            signer: None,
            seconds: 1_790_000_000,
        };
        publish(&request, on_event)
    }
}

static GO: AtomicBool = AtomicBool::new(false);

fn tags(resources: &Resources, bare: &str) -> String {
    git(&resources.dir.join(bare), &["for-each-ref", "refs/tags"])
}

#[test]
fn commits_are_made_for_the_remote_that_takes_least() {
    let ((bench, release), resources) = (ready(), strict_mirror());
    let run = Run { resources: &resources, bench: &bench, release: &release, batch_bytes: 1 << 30 };
    let mut events = Vec::new();
    let published = run.to(&run.remotes(Some(LIMIT)), &GO, &mut |event| events.push(event)).unwrap();
    assert!(published.commits > 4, "{published:?}");
    assert!(
        !events.iter().any(|event| matches!(event, PublishEvent::Ahead { .. })),
        "no commit had to be cut"
    );
    assert_eq!(
        [resources.tip("one.git"), resources.tip("two.git")],
        [published.commit.clone(), published.commit]
    );
}

#[test]
fn what_one_remote_has_taken_goes_to_a_stricter_one_in_pieces_with_the_same_history() {
    let ((bench, release), resources) = (ready(), strict_mirror());
    let run = Run { resources: &resources, bench: &bench, release: &release, batch_bytes: 1 << 30 };
    // The limit is not known: the first remote takes one large commit, the mirror refuses it and is quoted.
    let before = resources.tip("two.git");
    let refused = run.to(&run.remotes(None), &GO, &mut |_| {}).unwrap_err();
    assert!(matches!(&refused, PublishError::Refused { remote, .. } if remote == "mirror"), "{refused}");
    assert_eq!(resources.tip("two.git"), before);
    let large = resources.tip("one.git");
    assert_ne!(large, before);

    // Stopped between two pieces, and gone on.
    let stop = AtomicBool::new(false);
    let mut pieces = 0;
    let remotes = run.remotes(Some(LIMIT));
    let stopped = run.to(&remotes, &stop, &mut |event| {
        if matches!(event, PublishEvent::Ahead { .. }) {
            pieces += 1;
            stop.store(pieces == 2, Ordering::Relaxed);
        }
    });
    assert!(matches!(stopped, Err(PublishError::Interrupted)), "{stopped:?}");
    assert_eq!((pieces, resources.tip("two.git")), (2, before.clone()));
    assert!(tags(&resources, "two.git").contains("rebuild-incoming"));
    let mut more = 0;
    let published = run
        .to(&remotes, &GO, &mut |event| more += usize::from(matches!(event, PublishEvent::Ahead { .. })))
        .unwrap();
    // 68,000 bytes in files of up to 10,000 are seven or eight pushes of 15,000; two were done, and the last comes with the commit.
    assert!((2..=5).contains(&more), "{more}");
    assert_eq!(
        [resources.tip("one.git"), resources.tip("two.git")],
        [published.commit.clone(), published.commit]
    );
    let history = git(&resources.dir.join("two.git"), &["rev-list", "Models"]);
    assert!(history.contains(&large), "the commit that the first remote had taken is the mirror's too");
    assert_eq!(tags(&resources, "one.git") + &tags(&resources, "two.git"), "", "nothing of it stays");
    git(&resources.dir.join("two.git"), &["fsck", "--strict"]);

    // A rollback to a mirror that was emptied meanwhile takes the same way.
    git(&resources.dir.join("two.git"), &["update-ref", "refs/heads/Models", &before]);
    git(&resources.dir.join("two.git"), &["gc", "--quiet", "--prune=now"]);
    let clone = resources.dir.join("clone");
    let route = resources.route(&clone, &remotes, &GO);
    let route =
        PublishRoute { part_limit: PartLimit::from_bytes(20_000).unwrap(), batch_bytes: 1 << 30, ..route };
    let rolled = rollback(&route, 1_790_000_001, &mut |_| {}).unwrap();
    assert_eq!([resources.tip("one.git"), resources.tip("two.git")], [rolled.commit.clone(), rolled.commit]);
    assert_eq!(tags(&resources, "two.git"), "");
}

#[test]
fn a_file_that_no_push_to_a_remote_can_bring_is_refused_before_the_first() {
    let ((bench, release), resources) = (ready(), strict_mirror());
    let run = Run { resources: &resources, bench: &bench, release: &release, batch_bytes: 1 << 30 };
    let tips = [resources.tip("one.git"), resources.tip("two.git")];
    let refused = run.to(&run.remotes(Some(9_000)), &GO, &mut |_| {}).unwrap_err();
    assert!(
        matches!(&refused, PublishError::OverPushLimit { remote, size: 10_000, limit: 9_000, .. } if remote == "mirror"),
        "{refused}"
    );
    assert_eq!([resources.tip("one.git"), resources.tip("two.git")], tips);
}

#[test]
fn limits_belong_to_remotes() {
    let remotes: Vec<Remote> = ["origin=https://host/a", "mirror"].map(|text| text.parse().unwrap()).into();
    let limit = |text: &str| text.parse::<PushLimit>();
    let limited = Remote::with_limits(&remotes, &[limit("mirror=100").unwrap()]).unwrap();
    assert_eq!((limited[0].push_limit, limited[1].push_limit), (None, Some(100 << 20)));
    assert_eq!(Remote::with_limits(&remotes, &[limit("other=1").unwrap()]).unwrap_err().remote, "other");
    for wrong in ["mirror", "mirror=", "mirror=0", "mirror=x", "mirror=99999999999999999999"] {
        assert!(limit(wrong).unwrap_err().contains("NAME=MIB"), "{wrong}");
    }
}
