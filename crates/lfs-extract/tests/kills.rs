//! kill -9 at any moment leaves nothing or whole, verified files, and the next run finishes the work.
//!
//! The extraction runs in a child process: this test binary again, told by its environment what to do. A sample of the
//! campaign runs with the suite, all 200 kills with `THOROUGH=1`; `KILL_SEED` repeats a run.
#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "tests panic on failure")]

#[path = "../../verified-download/tests/fault_server/mod.rs"]
mod fault_server;
mod repository;

use std::{
    collections::BTreeMap,
    fs,
    process::{Command, Stdio},
    time::Instant,
};

use camino::{Utf8Path, Utf8PathBuf};
use durable_fs::Sha256;
use fault_server::{Answer, FaultServer};
use lfs_extract::{FetchOptions, ObjectCache, Sources, SourcesOptions, UserGitConfig, Watch};
use repository::{OLD_DIR, Repository, id, names, noise, split};

/// What the child is told: clone, cache, destination, ref.
const ORDER: &str = "KILLED_EXTRACTION";

/// The child's part; does nothing in an ordinary run of the suite.
#[test]
fn extraction_that_is_killed() {
    let Ok(order) = std::env::var(ORDER) else { return };
    let words: Vec<Utf8PathBuf> = order.split('\n').map(Utf8PathBuf::from).collect();
    let [clone, cache, destination, git_ref] = words.try_into().unwrap();
    let fetch = Some(FetchOptions { jobs: 2, ..FetchOptions::default() });
    let options = SourcesOptions {
        clone,
        user_config: UserGitConfig::default(),
        cache: Some(cache),
        upstreams: Vec::new(),
        fetch,
    };
    let mut sources = Sources::open(options).unwrap();
    durable_fs::sweep_temporaries(&destination).unwrap();
    let plan = sources.plan(&[(id("m"), split(git_ref.as_str()))], &Watch::nobody()).remove(0).unwrap();
    let plan = sources.fetch(vec![plan], &Watch::nobody()).remove(0).unwrap();
    sources.extract(&plan, &destination, &|_, _| Ok(()), &Watch::nobody()).unwrap();
}

fn child(order: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "extraction_that_is_killed", "--test-threads=1"]).env(ORDER, order);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// The files of each set, by name.
type Set = BTreeMap<String, Vec<u8>>;

/// The sets that a directory may hold: one of these, or a part of one without the component that every set needs.
fn check(destination: &Utf8Path, sets: &[&Set]) {
    let found: Set = names(destination)
        .into_iter()
        .filter(|name| !name.starts_with(".writing-"))
        .map(|name| (name.clone(), fs::read(destination.join(name)).unwrap()))
        .collect();
    let is_part_of = |set: &Set| found.iter().all(|(name, content)| set.get(name) == Some(content));
    let allowed = sets.iter().any(|set| {
        is_part_of(set) && (found.len() == set.len() || !found.contains_key("m_driving_vision.onnx"))
    });
    let described: Vec<_> = found.iter().map(|(name, content)| (name, content.len())).collect();
    assert!(allowed, "a mixture or damaged: {described:?}");
}

fn check_cache(cache: &Utf8Path) {
    if !cache.exists() {
        return;
    }
    for entry in cache.read_dir_utf8().unwrap() {
        let path = entry.unwrap().into_path();
        if path.is_dir() {
            check_cache(&path);
        } else if path.file_name().is_some_and(|name| name.len() == 64) {
            let actual = Sha256::digest(&fs::read(&path).unwrap()).to_string();
            assert_eq!(Some(actual.as_str()), path.file_name());
        }
    }
}

#[test]
fn kills_leave_nothing_or_whole_files() {
    require_git!("kills_leave_nothing_or_whole_files");
    let repository = Repository::new();
    let contents: Vec<Vec<u8>> = (1..=5).map(|seed| noise(seed, 1_500_000)).collect();
    let held: BTreeMap<String, Vec<u8>> =
        contents[2..].iter().map(|content| (Sha256::digest(content).to_string(), content.clone())).collect();
    let server = FaultServer::start(move |seen, _| {
        if seen.method == "POST" {
            let question: serde_json::Value = serde_json::from_slice(&seen.body).unwrap();
            let host = seen.header("host").unwrap();
            let answers: Vec<_> = question["objects"].as_array().unwrap().iter().map(|object| {
                let oid = object["oid"].as_str().unwrap();
                serde_json::json!({"oid": oid, "actions": {"download": {"href": format!("http://{host}/{oid}")}}})
            }).collect();
            return Answer::new(200, serde_json::json!({ "objects": answers }).to_string());
        }
        Answer::serve(seen, &held[&seen.path[1..]])
    });
    // The first set: plain blobs. The second: other plain blobs, LFS objects, and one component more.
    let path = |component: &str| format!("{OLD_DIR}/driving_{component}.onnx");
    let name = |component: &str| format!("m_driving_{component}.onnx");
    repository.write(&path("vision"), &contents[0]);
    repository.write(&path("policy"), &contents[1]);
    let first = repository.commit("first");
    repository.write(".lfsconfig", format!("[lfs]\nurl = {}\n", server.url("/lfs")).as_bytes());
    repository.git(&["rm", "-q", &path("policy")]);
    for (component, index) in [("vision", 2), ("on_policy", 3), ("off_policy", 4)] {
        repository.write_lfs(&path(component), &contents[index], false);
    }
    let second = repository.commit("second");
    let one = Set::from([(name("vision"), contents[0].clone()), (name("policy"), contents[1].clone())]);
    let two = Set::from([
        (name("vision"), contents[2].clone()),
        (name("on_policy"), contents[3].clone()),
        (name("off_policy"), contents[4].clone()),
    ]);
    let (cache, destination) = (repository.root.join("cache"), repository.destination("out"));
    let order = |commit: &str| format!("{}\n{cache}\n{destination}\n{commit}", repository.path);

    assert!(child(&order(&second)).status().unwrap().success());
    // Most of the runs that are killed find the objects in the cache, as these do.
    let run = |commit: &str| {
        let begun = Instant::now();
        assert!(child(&order(commit)).status().unwrap().success());
        begun.elapsed()
    };
    let whole = (run(&first) + run(&second)) / 2;
    let thorough = std::env::var_os("THOROUGH").is_some_and(|value| value != "0");
    let seed: u64 = std::env::var("KILL_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(20_260_622);
    println!("seed {seed}, a whole run takes {whole:?}");
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut killed = 0;
    let kills = if thorough { 200 } else { 16 };
    for round in 0..kills {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let commit = if round % 2 == 0 { &first } else { &second };
        let objects = ObjectCache::new(cache.join("lfs"));
        if state & 0x300 == 0 && objects.objects().exists() {
            // Sometimes the objects are to be fetched again.
            fs::remove_dir_all(objects.objects()).unwrap();
        }
        let mut running = child(&order(commit)).spawn().unwrap();
        std::thread::sleep(whole.mul_f64((state >> 11) as f64 / (1u64 << 53) as f64));
        // SIGKILL; the child may have ended by itself.
        let _ = running.kill();
        killed += u32::from(running.wait().unwrap().code().is_none());
        check(&destination, &[&one, &two]);
        check_cache(&cache);
    }
    println!("{killed} of {kills} runs were killed before their end");
    assert!(killed * 4 > kills, "{killed} of {kills} is too few to say anything");
    for (commit, set) in [(&first, &one), (&second, &two)] {
        assert!(child(&order(commit)).status().unwrap().success());
        assert_eq!(names(&destination), set.keys().cloned().collect::<Vec<_>>());
        check(&destination, &[set]);
    }
}
