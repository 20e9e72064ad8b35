//! Splitting and joining killed at random moments: no wrong file under a final name, and a rerun ends in the same bytes.
//!
//! The test binary starts itself again as the process to be killed.
#![expect(clippy::disallowed_methods, clippy::unwrap_used, reason = "tests write their inputs directly")]

#[path = "../../durable-fs/tests/kill_points/mod.rs"]
mod kill_points;

use std::{
    env, fs,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use artifact_parts::{ChunkSize, KnownParts, PartsError, SplitRequest, join, split, verify};
use camino::{Utf8Path, Utf8PathBuf};
use durable_fs::{Expected, NoProgress, Sha256, list_dir};
use kill_points::KillPoints;

const NAME: &str = "m_driving_tinygrad.pkl";
const WORK: &str = "ARTIFACT_PARTS_TEST_WORK";

fn split_here(dir: &Utf8Path, chunk: u64) {
    let request = SplitRequest {
        source: &dir.join(NAME),
        into: &dir.join("parts"),
        name: None,
        chunk: ChunkSize::from_bytes(chunk),
        expected: Expected::default(),
        part_digests: true,
    };
    split(&request, &NoProgress).unwrap();
}

fn join_here(dir: &Utf8Path) {
    join(&dir.join("parts"), NAME, &dir.join("joined"), KnownParts::default(), &NoProgress).unwrap();
}

/// The body of the process that is killed; does nothing in an ordinary run.
#[test]
fn killed_child() {
    let Ok(work) = env::var(WORK) else { return };
    let (what, dir) = work.split_once(' ').unwrap();
    let dir = Utf8Path::new(dir);
    match what {
        "join" => join_here(dir),
        chunk => split_here(dir, chunk.parse().unwrap()),
    }
}

/// Runs the work in another process and kills it after `delay`; whether the kill came before its end.
fn run_and_kill(work: &str, dir: &Utf8Path, delay: Duration) -> bool {
    let mut child = Command::new(env::current_exe().unwrap())
        .args(["--exact", "killed_child", "--nocapture"])
        .env(WORK, format!("{work} {dir}"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    thread::sleep(delay);
    let _ = child.kill();
    !child.wait().unwrap().success()
}

#[test]
fn kills_leave_nothing_wrong_and_a_rerun_completes() {
    let guard = tempfile::tempdir().unwrap();
    let dir = Utf8PathBuf::from_path_buf(guard.path().to_owned()).unwrap();
    fs::create_dir(dir.join("parts")).unwrap();
    let build =
        |seed: u64| -> Vec<u8> { (0..24_000_000u64).map(|at| ((at * at + seed) >> 7) as u8).collect() };
    let (old, new) = (build(0), build(99));
    let digests = [Sha256::digest(&old), Sha256::digest(&new)];

    fs::write(dir.join(NAME), &old).unwrap();
    let started = Instant::now();
    split_here(&dir, 700_000);
    let whole = started.elapsed().max(Duration::from_millis(60));
    fs::write(dir.join(NAME), &new).unwrap();
    let (mut whole_sets, mut round) = (0, 0);
    let mut points = KillPoints::new(65, 8);
    while let Some(delay) = points.next(whole) {
        let chunk = if round % 2 == 0 { "700000" } else { "500000" };
        round += 1;
        points.note(run_and_kill(chunk, &dir, delay));
        // A reader sees one of the two builds whole, or refuses the set.
        match verify(&dir.join("parts"), NAME, KnownParts::default(), &NoProgress) {
            Ok(set) => {
                assert!(digests.contains(&set.sha256));
                whole_sets += 1;
            }
            // Between the two there is no checksum, so that no reader can take the set for whole.
            Err(refused) => {
                let matched = matches!(refused, PartsError::ChecksumMissing { .. } | PartsError::Gap { .. });
                assert!(
                    matched && !dir.join(format!("parts/{NAME}.sha256")).exists(),
                    "after {delay:?}: {refused}"
                );
            }
        }
    }
    println!("{whole_sets} times a whole set to read");
    points.finish("split");
    split_here(&dir, 700_000);
    let set = verify(&dir.join("parts"), NAME, KnownParts::default(), &NoProgress).unwrap();
    assert_eq!((set.sha256, set.parts.len()), (digests[1], 35));
    assert_eq!(fs::read_dir(dir.join("parts")).unwrap().count(), 36, "leftovers are swept");

    fs::write(dir.join("joined"), b"older").unwrap();
    let mut points = KillPoints::new(65, 8);
    while let Some(delay) = points.next(whole) {
        points.note(run_and_kill("join", &dir, delay));
        let joined = fs::read(dir.join("joined")).unwrap();
        assert!(joined == b"older" || Sha256::digest(&joined) == digests[1]);
    }
    points.finish("join");
    join_here(&dir);
    assert_eq!(Sha256::digest(&fs::read(dir.join("joined")).unwrap()), digests[1]);
    durable_fs::sweep_temporaries(&dir).unwrap();
    assert_eq!(list_dir(&dir).unwrap(), ["joined", NAME]);
}
