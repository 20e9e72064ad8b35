use model_catalog::ModelId;

use super::*;

fn ready() -> Loaded {
    Loaded::Ready { seconds: 1.0 }
}

fn failed() -> Loaded {
    Loaded::Failed { why: "x".to_owned() }
}

fn artifact() -> Decision {
    Decision::Artifact { id: ModelId::new("a3").unwrap(), version: None }
}

/// What ran, and which files were loaded, in their order.
fn outcome(decision: Decision, selected: Loaded, built_in: Loaded) -> (Ran, Vec<String>) {
    let mut loads = Vec::new();
    let files = (Utf8Path::new("selected"), Utf8Path::new("built-in"));
    let started = start(decision, files, |file| {
        loads.push(file.to_string());
        Ok::<_, ()>(if file == "selected" { selected.clone() } else { built_in.clone() })
    });
    (started.unwrap().ran, loads)
}

#[test]
fn the_built_in_model_runs_wherever_the_selected_one_does_not() {
    let timed_out = Loaded::TimedOut { seconds: 60.0 };
    assert_eq!(outcome(artifact(), ready(), ready()), (Ran::Selected, vec!["selected".to_owned()]));
    for fault in [failed(), timed_out] {
        let both = vec!["selected".to_owned(), "built-in".to_owned()];
        assert_eq!(outcome(artifact(), fault.clone(), ready()), (Ran::BuiltIn, both.clone()));
        assert_eq!(outcome(artifact(), fault, failed()), (Ran::Nothing, both));
    }
    let because = BuiltInBecause::NothingSelected;
    let alone = vec!["built-in".to_owned()];
    assert_eq!(outcome(Decision::BuiltIn { because }, ready(), ready()), (Ran::BuiltIn, alone));
}

#[test]
fn a_load_without_end_is_killed_with_what_it_started() {
    let dir = tempfile::tempdir().unwrap();
    let root = Utf8Path::from_path(dir.path()).unwrap();
    let python = root.join("python");
    let mark = format!("864{:05}", std::process::id() % 100_000);
    write_atomic(&python, format!("#!/bin/sh\ntrap '' TERM INT HUP\nsleep {mark}\n").as_bytes()).unwrap();
    fs::set_permissions(&python, fs::Permissions::from_mode(0o755)).unwrap();
    let loader = Loader {
        python,
        target: Target::Cpu,
        variables: std::env::vars().collect(),
        limit: Duration::from_millis(300),
    };
    let began = Instant::now();
    let loaded = loader
        .load(Utf8Path::new("/no/artifact"), None, &root.join("load"), &AtomicBool::new(false))
        .unwrap();
    if let Loaded::Failed { why } = &loaded
        && why.contains("clang")
    {
        println!("skipped: a_load_without_end_is_killed_with_what_it_started: {why}");
        return;
    }
    assert_eq!(loaded, Loaded::TimedOut { seconds: 0.3 });
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    let all = std::process::Command::new("ps").args(["-e", "-o", "args"]).output().unwrap();
    let all = String::from_utf8_lossy(&all.stdout).into_owned();
    assert!(!all.contains(&format!("sleep {mark}")), "{all}");
}
