//! Fetching killed at random moments: the older file or the whole new one, and a rerun ends in the same bytes.
//!
//! The test binary starts itself again as the process to be killed.
#![expect(clippy::unwrap_used, reason = "tests")]

#[path = "../../durable-fs/tests/kill_points/mod.rs"]
mod kill_points;
mod support;

use std::{
    env, fs,
    process::{Command, Stdio},
    sync::atomic::AtomicBool,
    thread,
    time::{Duration, Instant},
};

use artifact_fetch::{FetchContext, Wanted, fetch};
use camino::Utf8Path;
use durable_fs::{Expected, NoProgress, write_atomic};
use kill_points::KillPoints;
use support::{FaultHost, NAME, Place, bytes, client};
use verified_download::HttpUrl;

const WORK: &str = "ARTIFACT_FETCH_TEST_WORK";

fn fetch_here(base: &str, to: &Utf8Path) {
    let (client, stop) = (client(), AtomicBool::new(false));
    let context = FetchContext {
        client: &client,
        connections: 3,
        progress: &NoProgress,
        stop: &stop,
        accept: &|_| Ok(()),
    };
    let bases = [HttpUrl::parse(base).unwrap()];
    let wanted = Wanted { name: NAME, urls: &[], bases: &bases, listed: None, expected: Expected::default() };
    fetch(&context, &wanted, to).unwrap();
}

/// The body of the process that is killed; does nothing in an ordinary run.
#[test]
fn killed_child() {
    let Ok(work) = env::var(WORK) else { return };
    let (base, to) = work.split_once(' ').unwrap();
    fetch_here(base, Utf8Path::new(to));
}

#[test]
fn kills_leave_the_older_file_or_the_new_one() {
    let place = Place::new();
    // One that is served whole and large enough for ranges, and one in parts.
    let whole = bytes(9 << 20);
    let parted: Vec<u8> = bytes(5 << 20).iter().map(|byte| byte ^ 0x33).collect();
    let host = FaultHost::serve(&place.served(), |_, _| {
        thread::sleep(Duration::from_millis(8));
        None
    });
    let child = || {
        Command::new(env::current_exe().unwrap())
            .args(["--exact", "killed_child"])
            .env(WORK, format!("{} {}", host.base, place.to()))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    };
    for in_parts in [false, true] {
        let content = if in_parts { &parted } else { &whole };
        if in_parts {
            fs::remove_file(place.served().join(NAME)).unwrap();
            place.serve_parts(content, 400_000);
        } else {
            place.serve(NAME, content);
        }
        write_atomic(place.target(), b"older").unwrap();
        let started = Instant::now();
        assert!(child().wait().unwrap().success());
        let longest = started.elapsed();
        let mut points = KillPoints::new(30, 5);
        let mut kill = 0;
        while let Some(moment) = points.next(longest) {
            write_atomic(place.target(), b"older").unwrap();
            let mut running = child();
            thread::sleep(moment);
            running.kill().unwrap();
            points.note(!running.wait().unwrap().success());
            let found = fs::read(place.target()).unwrap();
            assert!(found == b"older" || found == *content, "{} bytes", found.len());
            if kill % 3 == 2 {
                fetch_here(&host.base, &place.to());
                assert_eq!(fs::read(place.target()).unwrap(), *content);
                assert_eq!(place.left(), [NAME]);
            }
            kill += 1;
        }
        points.finish(if in_parts { "fetch in parts" } else { "fetch in ranges" });
        fetch_here(&host.base, &place.to());
        assert_eq!(fs::read(place.target()).unwrap(), *content);
        assert_eq!(place.left(), [NAME], "nothing else stays");
    }
}
