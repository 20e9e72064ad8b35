//! Inspecting, verifying and comparing through the command line.
#![expect(clippy::disallowed_methods, clippy::unwrap_used, reason = "tests write small files themselves")]
#![expect(dead_code, reason = "the support module serves several test files")]

mod support;

use std::{fs, path::PathBuf, process::Command};

use support::{repository, run};

fn models(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_models"));
    command.args(words);
    command
}

fn fixture(name: &str) -> String {
    repository().join("fixtures/pickles").join(name).to_str().unwrap().to_owned()
}

fn temporary(name: &str, bytes: &[u8]) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    fs::write(&path, bytes).unwrap();
    (folder, path)
}

#[test]
fn inspect_shows_text_and_json() {
    let file = fixture("driving-0.14.0.pkl");
    let (stdout, _) = run(&mut models(&["inspect", &file, "--kernels", "--deep"]), 0);
    for words in ["model type: vision_policy", "fits tinygrad 0.14.0", "run_policy", "LANGUAGE", "SHA-256"] {
        assert!(stdout.contains(words), "{words} is missing in\n{stdout}");
    }
    let (stdout, _) = run(&mut models(&["inspect", &file, &fixture("jit-0.14.0.pkl"), "--json"]), 0);
    assert_eq!(stdout.lines().count(), 2);
    assert!(stdout.starts_with("{\"file\":"), "{stdout}");
}

#[test]
fn verify_tells_a_good_artifact_from_one_for_another_target() {
    let file = fixture("driving-0.14.0.pkl");
    let (stdout, _) = run(&mut models(&["verify", &file, "--target", "cpu", "--abi", "0.14.0"]), 0);
    assert!(stdout.contains("driving-0.14.0.pkl: good"), "{stdout}");
    let (_, stderr) = run(&mut models(&["verify", &file, "--target", "qcom"]), 1);
    assert!(stderr.contains("compiled for CPU, the target qcom has QCOM"), "{stderr}");
    let (stdout, _) = run(&mut models(&["verify", &file, "--abi", "0.13.0"]), 1);
    assert!(stdout.contains("there is no tinygrad.engine.jit._TinyJit"), "{stdout}");
    run(&mut models(&["verify", &file, "--abi", "9.9"]), 2);
    run(&mut models(&["verify", "absent.pkl"]), 2);
}

#[test]
fn verify_compares_with_a_manifest() {
    let bytes = fs::read(fixture("driving-0.14.0.pkl")).unwrap();
    let (folder, path) = temporary("rdf2_driving_tinygrad.pkl", &bytes);
    let manifest = folder.path().join("manifest.json");
    for (version, code) in [("v12", 0), ("v15", 1)] {
        fs::write(&manifest, format!(r#"{{"models": [{{"id": "rdf2", "version": "{version}"}}]}}"#)).unwrap();
        let words = ["verify", path.to_str().unwrap(), "--manifest", manifest.to_str().unwrap()];
        run(&mut models(&words), code);
    }
    fs::write(&manifest, r#"{"models": []}"#).unwrap();
    let words = ["verify", path.to_str().unwrap(), "--manifest", manifest.to_str().unwrap()];
    let (_, stderr) = run(&mut models(&words), 2);
    assert!(stderr.contains("has no model rdf2"), "{stderr}");
}

#[test]
fn a_malicious_pickle_is_refused_and_not_run() {
    let (folder, path) = temporary("evil.pkl", b"cos\nmkdir\n(Vexecuted\ntR.");
    let (_, stderr) = run(models(&["inspect", path.to_str().unwrap()]).current_dir(folder.path()), 1);
    assert!(stderr.contains("it names os.mkdir, which no artifact needs (at byte 0)"), "{stderr}");
    run(models(&["verify", path.to_str().unwrap()]).current_dir(folder.path()), 1);
    assert!(!folder.path().join("executed").exists());
}

#[test]
fn diff_ends_with_one_where_files_differ() {
    let file = fixture("driving-0.14.0.pkl");
    let (stdout, _) = run(&mut models(&["diff", &file, &file]), 0);
    assert_eq!(stdout.trim(), "no differences");
    let (stdout, _) = run(&mut models(&["diff", &file, &fixture("driving-0.13.0.pkl")]), 1);
    assert!(stdout.contains("run_policy.class"), "{stdout}");
}

#[test]
fn verify_knows_sets_of_parts() {
    // A good artifact that pushes 2.5 MiB and pops them again: three parts of a MiB.
    let mut bytes = fs::read(fixture("driving-0.14.0.pkl")).unwrap();
    let (binbytes, pop, padding) = (b'B', b'0', 5_u32 << 19);
    let mut pushed = vec![binbytes];
    pushed.extend(padding.to_le_bytes());
    pushed.resize(pushed.len() + padding as usize, 7);
    pushed.push(pop);
    let after_protocol = 2;
    bytes.splice(after_protocol..after_protocol, pushed);
    let (folder, path) = temporary("a.pkl", &bytes);
    run(&mut models(&["--split-artifact", path.to_str().unwrap(), "--chunk-size-mib", "1"]), 0);
    let part = folder.path().join("a.pkl.p01");
    let (stdout, _) = run(&mut models(&["verify", part.to_str().unwrap()]), 0);
    assert!(stdout.contains("a.pkl: good, 3 parts"), "{stdout}");
    fs::write(&part, b"short").unwrap();
    run(&mut models(&["verify", folder.path().join("a.pkl.sha256").to_str().unwrap()]), 1);
}
