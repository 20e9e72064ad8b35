//! `rebuild publish` with real git and nginx.

use super::*;

/// A test's workspace and resource repository, or the end of the test.
macro_rules! bench {
    () => {
        match Bench::with_resources()? {
            Some(made) => made,
            None => return Ok(()),
        }
    };
}

#[test]
fn a_dry_run_says_what_a_publication_then_does() -> Result<()> {
    let (bench, resources) = bench!();
    let tip = || resources.git_in("one", &["rev-parse", "Models"]);
    let before = tip()?;
    let outcome = bench.publish(&resources, &["--dry-run"])?;
    outcome.expect_code(0);
    for words in
        ["publish to Models", "remote mirror at", "add rdf23_driving_tinygrad.pkl", "model_parts_v23.json"]
    {
        assert!(outcome.stdout.contains(words), "{words}: {}", outcome.transcript());
    }
    assert_eq!(tip()?, before, "a dry run pushes nothing");

    bench.publish(&resources, &[])?.expect_code(0);
    assert_eq!(resources.git_in("two", &["rev-parse", "Models"])?, tip()?);
    let names = resources.names("one")?;
    for old in ["model_names_v22.json", "old_driving_tinygrad.pkl"] {
        assert!(names.contains(&old.to_owned()), "{names:?}");
    }
    let planned: Vec<&str> =
        outcome.stdout.lines().filter_map(|line| line.trim().strip_prefix("add ")).collect();
    assert!(planned.iter().all(|name| names.contains(&(*name).to_owned())), "{planned:?} {names:?}");
    assert_eq!(
        names.len(),
        planned.len() + 4,
        "planned files, manifest, part list, and what was there: {names:?}"
    );
    let last = resources.git_in("one", &["diff", "--name-only", "Models~1", "Models"])?;
    assert_eq!(last, "model_names_v23.json\nmodel_parts_v23.json");
    assert_eq!(
        resources.git_in("one", &["show", "Models:model_names_v22.json"])?,
        "{\"models\": []}",
        "the older manifest is untouched"
    );
    let requests = resources.host().requests()?;
    for name in &names {
        let both = ["one", "two"].map(|bare| format!("GET /{bare}/Models/{name} 200 "));
        let asked =
            both.iter().all(|line| requests.iter().any(|request| request.starts_with(line.trim_end())));
        assert!(asked || name.starts_with("old_") || name.contains("v22"), "{name} was not fetched again");
    }

    let again = bench.publish(&resources, &["--json"])?;
    again.expect_code(0);
    assert_eq!(again.json_lines()?.pop().context("a result")?["commits"], 0);
    Ok(())
}

#[test]
fn a_checkout_releases_what_the_program_would() -> Result<()> {
    let (bench, resources) = bench!();
    let tips = || -> Result<[String; 2]> {
        let tip = |bare: &str| resources.git_in(bare, &["rev-parse", "Models"]);
        Ok([tip("one")?, tip("two")?])
    };
    let release = |arguments: &[&str]| -> Result<Outcome> {
        let mut command = Command::new(e2e::xtask()?);
        command.args(["release", "--workspace", bench.scenario.workspace.as_str()]).args(arguments);
        run(&mut command)
    };
    let clone = resources.clone_dir().as_str().to_owned();
    let mut to: Vec<String> = vec!["--repository".to_owned(), clone];
    to.extend(resources.remote_arguments());
    to.extend(["--settle-seconds", "0"].map(str::to_owned));
    let to: Vec<&str> = to.iter().map(String::as_str).collect();
    let before = tips()?;

    // Verified only, then the plan: nothing is pushed without being told to.
    release(&[])?.expect_code(0);
    let shown = release(&to)?;
    shown.expect_code(0);
    for words in ["add rdf23_driving_tinygrad.pkl", "nothing was pushed: give --push"] {
        assert!(shown.stdout.contains(words), "{words}: {}", shown.transcript());
    }
    assert_eq!(tips()?, before);
    assert_ne!(release(&["--push"])?.code, Some(0), "there is no repository to push from");

    // A problem forbids it.
    bench.put("ready-for-resources/notes.txt", "by hand")?;
    let refused = release(&[&to[..], &["--push"]].concat())?;
    assert_ne!(refused.code, Some(0));
    assert!(refused.stdout.contains("notes.txt does not belong"), "{}", refused.transcript());
    assert_eq!(tips()?, before);
    bench.remove("ready-for-resources/notes.txt")?;

    let pushed = release(&[&to[..], &["--push"]].concat())?;
    pushed.expect_code(0);
    let after = tips()?;
    assert!(after[0] == after[1] && after[0] != before[0], "{after:?}");
    assert!(pushed.stdout.contains(&format!("published at {}", after[0])), "{}", pushed.transcript());
    let manifest = resources.git_in("one", &["show", "Models:model_names_v23.json"])?;
    let ours = fs::read_to_string(bench.path("manifests/model_names_v23.json"))?;
    assert_eq!(manifest, ours.trim_end());
    let asked = resources.host().requests()?;
    assert!(
        asked.iter().any(|line| line.starts_with("GET /one/Models/model_names_v23.json 200")),
        "{asked:?}"
    );
    // `rebuild publish` finds nothing left to do.
    let again = bench.publish(&resources, &["--json"])?;
    again.expect_code(0);
    assert_eq!(again.json_lines()?.pop().context("a result")?["commits"], 0);
    assert_eq!(tips()?, after);
    Ok(())
}

#[test]
fn the_clone_stays_as_it_is() -> Result<()> {
    let (bench, resources) = bench!();
    let state = || -> Result<_> {
        let config = fs::read_to_string(resources.clone_dir().join(".git/config"))?;
        let refs = resources.git(&["for-each-ref", "refs/heads", "refs/tags"])?;
        Ok((config, refs, resources.git(&["status", "--porcelain", "--ignored"])?))
    };
    put(&resources.clone_dir().join("unfinished work"), b"of somebody")?;
    let before = state()?;
    bench.publish(&resources, &[])?.expect_code(0);
    assert_eq!(state()?, before);
    Ok(())
}

#[test]
fn nothing_is_published_past_a_problem() -> Result<()> {
    let (bench, resources) = bench!();
    let before = resources.git_in("one", &["rev-parse", "Models"])?;
    bench.put("ready-for-resources/notes.txt", "by hand")?;
    put(&bench.path("ready-for-resources").join(pkl("other3")), &vec![7; 5 << 20])?;
    let outcome = bench.publish(&resources, &[])?;
    outcome.expect_code(1);
    for words in ["notes.txt does not belong", "other3_driving_tinygrad.pkl does not belong"] {
        assert!(outcome.stderr.contains(words), "{}", outcome.transcript());
    }
    bench.remove("ready-for-resources/notes.txt")?;
    bench.remove(&format!("ready-for-resources/{}", pkl("other3")))?;
    // A whole file over the limit in the place of its parts.
    for name in bench.scenario.list("ready-for-resources").iter().filter(|name| name.starts_with("rdf23_")) {
        bench.remove(&format!("ready-for-resources/{name}"))?;
    }
    copy(&bench.path("compiled").join(pkl("rdf23")), &bench.path("ready-for-resources").join(pkl("rdf23")))?;
    let outcome = bench.publish(&resources, &[])?;
    outcome.expect_code(1);
    assert!(
        outcome.stderr.contains("the repository takes 7340032; it must be in parts"),
        "{}",
        outcome.transcript()
    );
    assert_eq!(resources.git_in("one", &["rev-parse", "Models"])?, before);
    Ok(())
}

#[test]
fn somebody_elses_manifest_is_not_overwritten() -> Result<()> {
    let (bench, resources) = bench!();
    // Between our look at the branch and our push, another release arrives: the hook plays the other maintainer.
    let theirs = "{\"models\": []}\n";
    resources.somebody_pushes("model_names_v23.json", theirs)?;
    let other = resources.git_in("one", &["rev-parse", "Models"])?;
    resources.git_in("one", &["update-ref", "refs/heads/Models", "Models~1"])?;
    resources.before_push("one", &race(&other))?;
    let outcome = bench.publish(&resources, &[])?;
    outcome.expect_code(1);
    assert!(outcome.stderr.contains("was changed by somebody else"), "{}", outcome.transcript());
    assert_eq!(resources.git_in("one", &["show", "Models:model_names_v23.json"])?, theirs.trim_end());
    Ok(())
}

#[test]
fn somebody_elses_other_work_is_built_upon() -> Result<()> {
    let (bench, resources) = bench!();
    resources.somebody_pushes("readme.md", "theirs")?;
    let other = resources.git_in("one", &["rev-parse", "Models"])?;
    resources.git_in("one", &["update-ref", "refs/heads/Models", "Models~1"])?;
    resources.before_push("one", &race(&other))?;
    let outcome = bench.publish(&resources, &[])?;
    outcome.expect_code(0);
    assert!(outcome.stderr.contains("somebody else pushed to origin"), "{}", outcome.transcript());
    for bare in ["one", "two"] {
        assert_eq!(resources.git_in(bare, &["show", "Models:readme.md"])?, "theirs");
        assert!(resources.names(bare)?.contains(&"model_names_v23.json".to_owned()));
    }
    Ok(())
}

/// A hook that moves the branch to `other` while the first push is under way, once.
fn race(other: &str) -> String {
    format!(
        "test -e raced && exit 0\ntouch raced\nunset GIT_QUARANTINE_PATH\n\
         git update-ref refs/heads/Models {other}"
    )
}

#[test]
fn rolling_back_restores_what_was_there() -> Result<()> {
    let (bench, resources) = bench!();
    let tree = || resources.git_in("two", &["rev-parse", "Models^{tree}"]);
    let before = tree()?;
    let nothing = bench.publish(&resources, &["--rollback"])?;
    nothing.expect_code(1);
    assert!(nothing.stderr.contains("no release that this tool published"), "{}", nothing.transcript());
    bench.publish(&resources, &[])?.expect_code(0);
    assert_ne!(tree()?, before);
    bench.publish(&resources, &["--rollback"])?.expect_code(0);
    assert_eq!(tree()?, before);
    assert!(!resources.served("one").join("model_names_v23.json").exists());
    Ok(())
}

#[test]
fn a_host_that_drops_a_tail_stops_the_release_before_the_manifest() -> Result<()> {
    let (bench, resources) = bench!();
    // The second repository's view loses the last byte of every first part.
    let hook = resources.bare("two").join("hooks/post-receive");
    let view = resources.served("two");
    let text = fs::read_to_string(&hook)?;
    put(&hook, format!("{text}for f in '{view}'/*.p00; do truncate -s -1 \"$f\"; done\n").as_bytes())?;
    let outcome = bench.publish(&resources, &[])?;
    outcome.expect_code(1);
    for words in [".p00 does not serve", "/two/Models/", "the manifest was not switched"] {
        assert!(outcome.stderr.contains(words), "{}", outcome.transcript());
    }
    for bare in ["one", "two"] {
        assert!(!resources.names(bare)?.contains(&"model_names_v23.json".to_owned()), "{bare}");
    }
    put(&hook, text.as_bytes())?;
    // What was pushed stands; the view is made anew with the next push, that of the manifest.
    resources.git(&["push", "--quiet", "--force", "mirror", "Models"])?;
    bench.publish(&resources, &[])?.expect_code(0);
    Ok(())
}

#[test]
fn pushes_stay_below_what_a_remote_takes() -> Result<()> {
    let (bench, resources) = bench!();
    // A remote that refuses large packs, as hosts do.
    resources.git_in("one", &["config", "receive.maxInputSize", &(9 << 20).to_string()])?;
    let refused = bench.publish(&resources, &[])?;
    refused.expect_code(1);
    for words in ["origin refuses the push", "pack exceeds maximum allowed size"] {
        assert!(refused.stderr.contains(words), "{}", refused.transcript());
    }
    for bare in ["one", "two"] {
        assert_eq!(resources.names(bare)?.len(), 2, "nothing has come to {bare}");
    }
    bench.publish(&resources, &["--batch-mib", "8"])?.expect_code(0);
    assert!(resources.names("two")?.contains(&"model_names_v23.json".to_owned()));
    Ok(())
}

#[test]
fn wrong_command_lines_have_their_exit_codes() -> Result<()> {
    let (bench, resources) = bench!();
    run(&mut bench.scenario.rebuild(&["publish"]))?.expect_code(2);
    bench.publish(&resources, &["--rollback", "--dry-run"])?.expect_code(2);
    let no_key = bench.publish(&resources, &["--sign-key", "/no/such/key"])?;
    no_key.expect_code(2);
    assert!(no_key.stderr.contains("/no/such/key cannot be read"), "{}", no_key.transcript());
    let publish = |repository: &str, remote: &str| {
        run(&mut bench.scenario.rebuild(&["publish", "--repository", repository, "--remote", remote]))
    };
    let blind = publish(resources.clone_dir().as_str(), "origin")?;
    blind.expect_code(2);
    assert!(blind.stderr.contains("--unconfirmed"), "{}", blind.transcript());
    let nowhere = publish("/no/such/clone", "origin=http://127.0.0.1:9/raw")?;
    nowhere.expect_code(1);
    let unknown = publish(resources.clone_dir().as_str(), "upstream=http://127.0.0.1:9/raw")?;
    unknown.expect_code(1);
    assert!(unknown.stderr.contains("upstream"), "{}", unknown.transcript());
    Ok(())
}

#[test]
fn an_interrupted_publication_goes_on() -> Result<()> {
    let (bench, resources) = bench!();
    // The second remote takes its time, so that Ctrl-C comes in the middle.
    resources.before_push("two", "sleep 3")?;
    let mut child = bench.publish_command(&resources, &[]).spawn()?;
    e2e::wait_for("the first push", std::time::Duration::from_secs(120), || {
        resources.names("one").is_ok_and(|names| names.len() > 2)
    })?;
    e2e::send_signal(child.id(), e2e::Signal::SIGINT)?;
    assert_eq!(child.wait()?.code(), Some(4));
    assert!(!resources.names("one")?.contains(&"model_names_v23.json".to_owned()));
    resources.before_push("two", "exit 0")?;
    bench.publish(&resources, &[])?.expect_code(0);
    assert_eq!(resources.names("one")?, resources.names("two")?);
    Ok(())
}
