//! The journal against a stop at every change, chains, swaps and disturbances.

use std::sync::atomic::{AtomicUsize, Ordering};

use proptest::prelude::*;

use super::*;
use crate::Sha256;

fn temp() -> (tempfile::TempDir, Utf8PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = Utf8PathBuf::from_path_buf(dir.path().to_owned()).unwrap();
    (dir, path)
}

fn fill(root: &Utf8Path, files: &[(&str, &str)]) {
    for (path, content) in files {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
}

fn content(root: &Utf8Path) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut open = vec![root.to_owned()];
    while let Some(dir) = open.pop() {
        for entry in dir.read_dir_utf8().unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_dir() {
                open.push(entry.path().to_owned());
            } else {
                let name = entry.path().strip_prefix(root).unwrap().to_string();
                found.push((name, fs::read_to_string(entry.path()).unwrap()));
            }
        }
    }
    found.sort();
    found
}

fn rename(from: &str, to: &str) -> Step {
    Step::Rename { from: from.into(), to: to.into() }
}

/// A chain, a swap, a removal that frees a name, a write over a name that is left and one beside.
fn plan() -> Vec<Step> {
    vec![
        rename("d/a", "d/a3"),
        rename("d/a3", "d/a33"),
        rename("e/x", "e/y"),
        rename("e/y", "e/x"),
        Step::Remove { path: "d/old".into(), sha256: Some(Sha256::digest(b"old")) },
        rename("d/new", "d/old"),
        Step::Write { path: "d/new".into(), content: "written".into() },
        Step::Write { path: "r.json".into(), content: "after".into() },
    ]
}

const BEFORE: [(&str, &str); 7] = [
    ("d/a", "A"),
    ("d/a3", "A3"),
    ("d/new", "N"),
    ("d/old", "old"),
    ("e/x", "X"),
    ("e/y", "Y"),
    ("r.json", "before"),
];

const AFTER: [(&str, &str); 7] = [
    ("d/a3", "A"),
    ("d/a33", "A3"),
    ("d/new", "written"),
    ("d/old", "N"),
    ("e/x", "Y"),
    ("e/y", "X"),
    ("r.json", "after"),
];

fn owned(files: &[(&str, &str)]) -> Vec<(String, String)> {
    files.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
}

fn stopping_after(changes: usize) -> impl Fn(&str) -> io::Result<()> + Send + Sync + 'static {
    let made = AtomicUsize::new(0);
    move |_| {
        if made.fetch_add(1, Ordering::Relaxed) < changes { Ok(()) } else { Err(io::Error::other("stopped")) }
    }
}

#[test]
fn a_plan_with_chains_and_swaps_is_carried_out() {
    let (_guard, root) = temp();
    fill(&root, &BEFORE);
    let journal = Journal::new(&root, "journal.json");
    journal.apply(&plan()).unwrap();
    assert_eq!(content(&root), owned(&AFTER));
    assert!(!journal.is_pending());
    assert_eq!(journal.recover().unwrap(), None);
}

#[test]
fn a_stop_at_every_change_is_finished_by_the_next_run() {
    let mut stops = 0;
    loop {
        let (_guard, root) = temp();
        fill(&root, &BEFORE);
        let journal = Journal::new(&root, "journal.json").with_gate(stopping_after(stops));
        let finished = journal.apply(&plan()).is_ok();
        let next = Journal::new(&root, "journal.json");
        if next.recover().unwrap().is_none() && !finished {
            // Stopped before the plan was recorded: nothing has happened, and it can be applied anew.
            assert_eq!(content(&root), owned(&BEFORE), "{stops}");
            next.apply(&plan()).unwrap();
        }
        assert_eq!(content(&root), owned(&AFTER), "stopped after {stops} changes");
        if finished {
            break;
        }
        stops += 1;
    }
    assert!(stops >= 16, "only {stops} changes were seen");
}

#[test]
fn stops_in_every_recovery_are_finished_too() {
    let (_guard, root) = temp();
    fill(&root, &BEFORE);
    // Every run makes one change and is stopped; the plan still ends.
    let mut runs = 0;
    let mut last = Journal::new(&root, "journal.json").with_gate(stopping_after(1)).apply(&plan()).is_ok();
    while !last {
        runs += 1;
        assert!(runs < 100);
        // Writes are repeated by each run of the second pass, so a run is let go a little further each time.
        last = Journal::new(&root, "journal.json").with_gate(stopping_after(1 + runs / 4)).recover().is_ok();
    }
    assert_eq!(content(&root), owned(&AFTER));
}

#[test]
fn what_cannot_be_carried_out_is_refused_before_anything_changes() {
    let free = |from: &str, to: &str| vec![rename(from, to)];
    for (steps, part) in [
        (free("d/a", "e/x"), "already exists"),
        (free("d/missing", "d/b"), "not an existing file"),
        (free("d/a", "../b"), "not a path below"),
        (free("d/a", "no/b"), "directory is missing"),
        (free("d/a", "e"), "one itself"),
        (free("d/a", "journal.json"), "not a path below"),
        (vec![rename("d/a", "d/b"), rename("d/a", "d/c")], "twice"),
        (vec![rename("d/a", "d/b"), rename("d/a3", "d/B")], "one name"),
        (vec![Step::Remove { path: "d/a".into(), sha256: Some(Sha256::digest(b"?")) }], "SHA-256"),
    ] {
        let (_guard, root) = temp();
        fill(&root, &BEFORE);
        let refused = Journal::new(&root, "journal.json").apply(&steps).unwrap_err().to_string();
        assert!(refused.contains(part), "{refused}");
        assert_eq!(content(&root), owned(&BEFORE), "{part}");
    }
}

#[test]
fn leftovers_of_a_lost_journal_are_not_taken_for_our_files() {
    let (_guard, root) = temp();
    fill(&root, &BEFORE);
    fill(&root, &[("d/.moving-00000-a", "somebody's")]);
    let refused = Journal::new(&root, "journal.json").apply(&[rename("d/a", "d/b")]).unwrap_err().to_string();
    assert!(refused.contains("earlier plan"), "{refused}");
}

#[test]
fn a_file_that_appears_in_the_meantime_is_not_overwritten() {
    let (_guard, root) = temp();
    fill(&root, &[("a", "A")]);
    // The plan is recorded, `a` leaves, the second pass is recorded; then somebody writes `b`.
    let stopped = Journal::new(&root, "j").with_gate(stopping_after(3)).apply(&[rename("a", "b")]);
    stopped.unwrap_err();
    fill(&root, &[("b", "theirs")]);
    let journal = Journal::new(&root, "j");
    let refused = journal.recover().unwrap_err().to_string();
    assert!(refused.contains("move it away"), "{refused}");
    assert_eq!(fs::read_to_string(root.join("b")).unwrap(), "theirs");
    fs::rename(root.join("b"), root.join("elsewhere")).unwrap();
    journal.recover().unwrap();
    assert_eq!(content(&root), owned(&[("b", "A"), ("elsewhere", "theirs")]));
}

#[test]
fn a_newer_journal_is_left_alone() {
    let (_guard, root) = temp();
    fill(&root, &[("j", r#"{"format": 2, "steps": "of another form"}"#)]);
    let refused = Journal::new(&root, "j").apply(&[]).unwrap_err();
    assert!(matches!(refused, JournalError::Newer { found: 2, .. }), "{refused}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    /// Any one-to-one renaming among a few names, stopped anywhere, ends as if applied at once.
    #[test]
    fn any_permutation_survives_a_stop(order in Just((0..6).collect::<Vec<usize>>()).prop_shuffle(), stop in 0usize..20) {
        let (_guard, root) = temp();
        let name = |index: usize| format!("f{}", "3".repeat(index));
        for index in 0..6 {
            fs::write(root.join(name(index)), index.to_string()).unwrap();
        }
        let steps: Vec<Step> = order
            .iter()
            .enumerate()
            .filter(|(from, to)| from != *to)
            .map(|(from, to)| rename(&name(from), &name(*to)))
            .collect();
        let stopped = Journal::new(&root, "j").with_gate(stopping_after(stop)).apply(&steps).is_err();
        if stopped && Journal::new(&root, "j").recover().unwrap().is_none() {
            Journal::new(&root, "j").apply(&steps).unwrap();
        }
        for (from, to) in order.iter().enumerate() {
            prop_assert_eq!(fs::read_to_string(root.join(name(*to))).unwrap(), from.to_string());
        }
        prop_assert_eq!(fs::read_dir(&root).unwrap().count(), 6);
    }
}
