//! What is rehearsed before a release and what a person answers.

use std::{io::Write, process::Stdio};

use super::*;

const MANIFEST: &str = "manifests/model_names_v23.json";
const ANSWERS: &str = "release_checklist_v23.json";

impl Bench {
    fn checklist(&self, arguments: &[&str]) -> Result<Outcome> {
        self.verify(&[&["--checklist"], arguments].concat())
    }

    /// The checklist with somebody at the keyboard.
    fn ask(&self, typed: &str) -> Result<Outcome> {
        let mut command = self.scenario.rebuild(&["verify", "--checklist"]);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        child.stdin.as_ref().context("stdin")?.write_all(typed.as_bytes())?;
        let output = child.wait_with_output()?;
        Ok(Outcome {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }

    fn answers(&self) -> Result<serde_json::Map<String, Value>> {
        Ok(self.scenario.record(ANSWERS)?["answers"].as_object().cloned().unwrap_or_default())
    }
}

fn keys(outcome: &Outcome) -> Vec<String> {
    let lines = outcome.stdout.lines().filter_map(|line| line.split_whitespace().nth(1));
    lines.map(str::to_owned).collect()
}

#[test]
fn a_checklist_is_asked_once_for_each_manifest() -> Result<()> {
    let Some(bench) = Bench::new()? else { return Ok(()) };
    let before = bench.digests()?;
    let list = bench.checklist(&["--list"])?;
    list.expect_code(1);
    let keys = keys(&list);
    assert!(keys.len() > 10 && keys.contains(&"galaxy/download".to_owned()), "{}", list.transcript());
    assert_eq!(bench.digests()?, before, "a list changes nothing");

    // A word that is none is asked again; what was answered before the end stays.
    let asked = bench.ask("p\nwhat\nf it hangs at 30 %\ns\n")?;
    asked.expect_code(4);
    assert!(asked.stderr.contains("\"what\" is no answer"), "{}", asked.transcript());
    let answers = bench.answers()?;
    assert_eq!(answers.len(), 2, "{answers:?}");
    assert_eq!(
        (&answers[&keys[0]]["answer"], &answers[&keys[1]]["answer"], &answers[&keys[1]]["note"]),
        (&"pass".into(), &"fail".into(), &"it hangs at 30 %".into())
    );
    let rest = bench.ask(&"pass\n".repeat(keys.len() - 2))?;
    rest.expect_code(1);
    assert!(
        rest.stdout.contains("FAIL") && rest.stdout.contains("it hangs at 30 %"),
        "{}",
        rest.transcript()
    );

    // Answers of a file are taken as a whole or not at all.
    let file = bench.root.join("answers.json");
    let before = bench.digests()?;
    for (text, word) in [
        (r#"{"galaxy/download": "pass", "galaxy/dwnload": "pass"}"#, "did you mean \"galaxy/download\"?"),
        (r#"{"galaxy/download": "perhaps"}"#, "cannot be used"),
        ("{", "cannot be used"),
    ] {
        put(&file, text.as_bytes())?;
        let refused = bench.checklist(&["--answers", file.as_str()])?;
        refused.expect_code(2);
        assert!(refused.stderr.contains(word), "{}", refused.transcript());
    }
    assert_eq!(bench.digests()?, before);
    put(&file, format!(r#"{{{:?}: {{"answer": "pass", "note": "mended"}}}}"#, keys[1]).as_bytes())?;
    bench.checklist(&["--answers", file.as_str()])?.expect_code(0);
    bench.checklist(&["--list"])?.expect_code(0);

    // They are about this manifest.
    let changed = fs::read_to_string(bench.path(MANIFEST))? + "\n";
    bench.put(MANIFEST, &changed)?;
    let other = bench.checklist(&["--list"])?;
    other.expect_code(1);
    assert!(other.stderr.contains("about another manifest"), "{}", other.transcript());
    bench.remove(MANIFEST)?;
    let absent = bench.checklist(&["--list"])?;
    assert!(absent.expect_code(2).stderr.contains("rebuild namespace"), "{}", absent.transcript());
    Ok(())
}

fn rehearse(bench: &Bench, artifact: &Utf8Path, built_in: &Utf8Path, limit: &str) -> Result<Outcome> {
    let mut command = bench.scenario.models();
    command.args(["--json", "--target", "cpu", "--python", bench.python.python.as_str()]);
    command.args(["rehearse", artifact.as_str(), "--built-in", built_in.as_str(), "--load-limit", limit]);
    run(&mut command)
}

#[test]
fn whatever_the_selected_model_is_the_built_in_one_runs_in_its_place() -> Result<()> {
    let Some(bench) = Bench::new()? else { return Ok(()) };
    let [selected, built_in] = ["tr14223", "deeprl3v23"].map(|id| bench.path("compiled").join(pkl(id)));
    let before = bench.digests()?;
    let outcome = rehearse(&bench, &selected, &built_in, "10")?;
    outcome.expect_code(0);
    let ran: Vec<(Value, Value)> =
        outcome.json_lines()?.into_iter().map(|line| (line["fault"].clone(), line["ran"].clone())).collect();
    let named = |fault: &str, ran: &str| (Value::from(fault), Value::from(ran));
    assert_eq!(
        ran,
        [
            named("none", "selected"),
            named("missing", "built_in"),
            named("truncated", "built_in"),
            named("corrupt", "built_in"),
            named("no_external_gpu", "built_in"),
            named("hanging", "built_in"),
        ],
        "{}",
        outcome.transcript()
    );
    assert_eq!(bench.digests()?, before, "nothing that is installed was touched");

    // A system whose own model does not load has nothing to fall back to, and that is said.
    let broken = bench.root.join("broken.pkl");
    put(&broken, &fs::read(&built_in)?[..1000])?;
    let outcome = rehearse(&bench, &selected, &broken, "2")?;
    outcome.expect_code(1);
    assert!(outcome.stderr.contains("must not be driven"), "{}", outcome.transcript());
    rehearse(&bench, &bench.root.join("absent.pkl"), &built_in, "2")?.expect_code(5);
    Ok(())
}
