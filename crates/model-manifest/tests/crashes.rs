//! Namespace and reconciliation stopped at every change and killed at random moments: the next run ends in the same bytes.
#![expect(clippy::unwrap_used, reason = "tests")]

#[path = "../../durable-fs/tests/kill_points/mod.rs"]
mod kill_points;
mod support;

use std::{
    collections::BTreeMap,
    env, io,
    process::{Command, Stdio},
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use camino::Utf8Path;
use durable_fs::Journal;
use kill_points::KillPoints;
use model_manifest::{JOURNAL_NAME, recover};
use proptest::prelude::*;
use support::{Bench, assert_same, id, manifest};

const IDS: [&str; 5] = ["deeprl3", "deeprl33", "deeprl3v2", "op16d", "karnbir"];
const WORK: &str = "MODEL_MANIFEST_TEST_WORKSPACE";

fn filled() -> Bench {
    let bench = Bench::new();
    for name in IDS {
        bench.artifact(name, &format!("content of {name}"), (name != "op16d").then_some(6));
    }
    bench
}

/// Namespace, then reconcile, as commands do it: finish what was left, look, plan, apply.
fn run(bench: &Bench, journal: &Journal) -> Result<(), Box<dyn std::error::Error>> {
    recover(&bench.workspace)?;
    bench.namespace(&manifest(&IDS)).apply_with(journal)?;
    bench.reconcile().apply_with(journal)?;
    Ok(())
}

fn undisturbed() -> BTreeMap<String, String> {
    let bench = filled();
    run(&bench, &Journal::new(bench.root(), JOURNAL_NAME)).unwrap();
    bench.files()
}

#[test]
fn a_stop_at_every_change_ends_in_the_undisturbed_files() {
    let expected = undisturbed();
    let mut stops = 0;
    loop {
        let bench = filled();
        let made = AtomicUsize::new(0);
        let journal = Journal::new(bench.root(), JOURNAL_NAME).with_gate(move |_| {
            if made.fetch_add(1, Ordering::Relaxed) < stops {
                Ok(())
            } else {
                Err(io::Error::other("stopped"))
            }
        });
        let finished = run(&bench, &journal).is_ok();
        run(&bench, &Journal::new(bench.root(), JOURNAL_NAME)).unwrap();
        assert_same(&bench.files(), &expected, &format!("stopped after {stops} changes"));
        if finished {
            break;
        }
        stops += 1;
    }
    assert!(stops > 60, "{stops}");
}

/// The body of the process that is killed; does nothing in an ordinary run.
#[test]
fn killed_child() {
    let Ok(root) = env::var(WORK) else { return };
    let bench = Bench::at(Utf8Path::new(&root));
    run(&bench, &Journal::new(bench.root(), JOURNAL_NAME)).unwrap();
}

#[test]
fn kills_end_in_the_undisturbed_files() {
    let expected = undisturbed();
    let child = |bench: &Bench| {
        Command::new(env::current_exe().unwrap())
            .args(["--exact", "killed_child"])
            .env(WORK, bench.root().as_str())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    };
    let bench = filled();
    let started = Instant::now();
    assert!(child(&bench).wait().unwrap().success());
    let whole = started.elapsed();
    let mut pending = 0;
    let mut points = KillPoints::new(60, 12);
    while let Some(moment) = points.next(whole) {
        let bench = filled();
        let mut running = child(&bench);
        thread::sleep(moment.max(Duration::from_millis(1)));
        running.kill().unwrap();
        points.note(!running.wait().unwrap().success());
        pending += usize::from(bench.path(JOURNAL_NAME).exists());
        run(&bench, &Journal::new(bench.root(), JOURNAL_NAME)).unwrap();
        // Half-written journals and records of the killed process go when the next command takes the lock.
        drop(bench.workspace.lock("test").unwrap());
        assert_same(&bench.files(), &expected, "killed");
    }
    println!("{pending} times a plan was half applied");
    points.finish("namespace and reconcile");
}

/// What should come of each model, said once more without the code under test: the release map where it knows the model,
/// the namespace otherwise.
fn expected_release(bench: &Bench, ids: &[&str], name: &str) -> String {
    if let Some(release) = bench.releases.entries.get(&id(name)) {
        return release.to_string();
    }
    let plain = format!("{name}3");
    if ids.contains(&plain.as_str()) { format!("{name}v23") } else { plain }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]
    /// Random catalogs with suffix collisions: each model's bytes end under its own release ID, whatever the order, the split
    /// and the place of a stop.
    #[test]
    fn every_model_keeps_its_bytes(
        chosen in prop::sample::subsequence(vec!["a", "a3", "a33", "b", "deeprl3", "deeprl33", "deeprl3v2", "op16", "rl34", "drl"], 1..10).prop_shuffle(),
        split in any::<u16>(),
        recorded in any::<u16>(),
        stop in 0usize..90,
    ) {
        let bench = Bench::new();
        for (at, name) in chosen.iter().enumerate() {
            let content = format!("content of {name}");
            bench.put(&format!("compiled/{}", support::pkl(name)), &content);
            bench.ready(name, &content, (split >> at & 1 == 1).then_some(5));
            if recorded >> at & 1 == 1 {
                bench.record(name, &content, split >> at & 1 == 1);
            }
        }
        let base = manifest(&chosen);
        let made = AtomicUsize::new(0);
        let stopping = Journal::new(bench.root(), JOURNAL_NAME).with_gate(move |_| {
            if made.fetch_add(1, Ordering::Relaxed) < stop { Ok(()) } else { Err(io::Error::other("stopped")) }
        });
        let _ = bench.namespace(&base).apply_with(&stopping);
        recover(&bench.workspace).unwrap();
        bench.apply(&bench.namespace(&base));
        bench.apply(&bench.reconcile());
        let compiled = bench.wholes("compiled");
        prop_assert_eq!(compiled.len(), chosen.len());
        for name in &chosen {
            let release = expected_release(&bench, &chosen, name);
            prop_assert_eq!(compiled.get(&release), Some(&format!("content of {name}\n")), "{} as {}", name, release);
        }
        prop_assert!(bench.reconcile().is_empty());
        prop_assert!(bench.namespace(&base).is_empty());
        let ready = bench.workspace.ready_dir();
        for name in artifact_parts::sets_in(&ready).unwrap() {
            artifact_parts::verify(&ready, &name, artifact_parts::KnownParts::default(), &durable_fs::NoProgress).unwrap();
        }
    }
}
