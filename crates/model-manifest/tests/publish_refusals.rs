//! What is never pushed, what is never called published, and signatures.
#![expect(clippy::unwrap_used, reason = "tests")]

mod raw_host;
mod resources;
mod support;

use std::{fs, process::Command};

use artifact_parts::PartLimit;
use model_manifest::{PublishError, PublishRequest, PublishRoute, Signer, publish};
use raw_host::Fault;
use resources::{Resources, git, ready};
use support::pkl;

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
            let route = PublishRoute { part_limit: PartLimit::from_bytes(25).unwrap(), ..request.route };
            let request = PublishRequest { route, ..*request };
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
