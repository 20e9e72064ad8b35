//! Names of a namespace, by the program itself: those of one version do not reach another.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests")]

use std::{
    fs,
    process::{Command, Output},
};

use camino::{Utf8Path, Utf8PathBuf};

struct Bench {
    workspace: Utf8PathBuf,
    base: Utf8PathBuf,
    _keep: tempfile::TempDir,
}

impl Bench {
    /// A workspace with artifacts of models that have names of their own in v23.
    fn new() -> Self {
        let keep = tempfile::tempdir().unwrap();
        let root = Utf8Path::from_path(keep.path()).unwrap();
        let bench = Self { workspace: root.join("ws"), base: root.join("base.json"), _keep: keep };
        bench.rebuild(&["init"], 0);
        let ids = ["deeprl3", "tr1422"];
        for id in ids {
            for dir in ["compiled", "ready-for-resources"] {
                fs::write(bench.path(dir, id), format!("content of {id}")).unwrap();
            }
        }
        let entries = ids.map(|id| serde_json::json!({"id": id, "name": id, "version": "v11"}));
        fs::write(&bench.base, serde_json::json!({"models": entries}).to_string()).unwrap();
        bench
    }

    fn path(&self, dir: &str, id: &str) -> Utf8PathBuf {
        self.workspace.join(dir).join(format!("{id}_driving_tinygrad.pkl"))
    }

    fn rebuild(&self, words: &[&str], code: i32) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rebuild"));
        let output = command.args(words).args(["--workspace", self.workspace.as_str()]).output().unwrap();
        assert_eq!(
            output.status.code(),
            Some(code),
            "{words:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        output
    }

    fn namespace(&self, more: &[&str], code: i32) -> Output {
        let words = ["namespace", "--base-manifest", self.base.as_str(), "--manifest-version", "v24"];
        self.rebuild(&[&words[..], &["--suffix", "4"], more].concat(), code)
    }

    fn ids(&self, version: &str) -> Vec<String> {
        let path = self.workspace.join(format!("manifests/model_names_{version}.json"));
        let manifest: serde_json::Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
        let entries = manifest["models"].as_array().unwrap().iter();
        entries.map(|entry| entry["id"].as_str().unwrap().to_owned()).collect()
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn another_version_has_no_names_of_v23() {
    let bench = Bench::new();
    let output = bench.namespace(&[], 0);
    assert!(said(&output).contains("there is no release map of v24"), "{}", said(&output));
    let ids = bench.ids("v24");
    assert!(ids.contains(&"deeprl34".to_owned()) && ids.contains(&"tr14224".to_owned()), "{ids:?}");
    bench.rebuild(&["reconcile", "--manifest-version", "v24"], 0);
    assert_eq!(bench.ids("v24"), ids);
    assert!(bench.path("compiled", "deeprl34").is_file() && !bench.path("compiled", "deeprl33").exists());
}

#[test]
fn a_version_may_bring_its_own_map() {
    // In the workspace, or named.
    for in_workspace in [true, false] {
        let bench = Bench::new();
        let map = if in_workspace { "source-maps/model_release_map_v24.json" } else { "map.json" };
        let map = bench.workspace.join(map);
        fs::write(&map, r#"{"recovered": "recovered4"}"#).unwrap();
        for dir in ["compiled", "ready-for-resources"] {
            fs::write(bench.path(dir, "recovered"), "content of recovered").unwrap();
        }
        let more = if in_workspace { vec![] } else { vec!["--release-map", map.as_str()] };
        bench.namespace(&more, 0);
        let words = [&["reconcile", "--manifest-version", "v24"], &more[..]].concat();
        bench.rebuild(&words, 0);
        assert!(bench.path("compiled", "recovered4").is_file(), "{map}");
    }
}

#[test]
fn a_map_or_a_manifest_that_cannot_be_used_changes_nothing() {
    let bench = Bench::new();
    let wrong = bench.workspace.join("wrong.json");
    for (text, word) in [("{", "is no release map"), (r#"{"a": "../b"}"#, "is no release map")] {
        fs::write(&wrong, text).unwrap();
        let output = bench.namespace(&["--release-map", wrong.as_str()], 2);
        assert!(said(&output).contains(word), "{}", said(&output));
    }
    bench.namespace(&["--release-map", "/nonexistent/map.json"], 2);
    fs::write(&wrong, r#"{"versions": 3}"#).unwrap();
    bench.namespace(&["--additions", wrong.as_str()], 2);

    // A base manifest of a later schema is not written out under a name that this version understands.
    let newer = fs::read_to_string(&bench.base).unwrap().replacen('{', r#"{"schema_version": 2,"#, 1);
    fs::write(&bench.base, newer).unwrap();
    for _ in 0..2 {
        let output = bench.namespace(&[], 1);
        let shown = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(shown.contains("the base manifest"), "{shown}");
    }
    bench.rebuild(&["manifest", "--base-manifest", bench.base.as_str()], 1);
    assert!(bench.path("compiled", "deeprl3").is_file());
    assert!(!bench.workspace.join("manifests/model_names_v24.json").exists());
    assert!(!bench.workspace.join("manifests/model_names_v22.json").exists());
}
