//! Compiles by real tinygrad: artifacts, proofs, failures that leave nothing, interruption.
#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests stage and damage files themselves"
)]

mod support;

use std::{
    fs,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use support::{Bench, python, repository, run};

fn json_of(stdout: &str) -> Value {
    serde_json::from_str(stdout.lines().last().unwrap()).unwrap()
}

#[test]
fn a_split_model_becomes_the_same_artifact_twice() {
    let Some(python) = python("a_split_model_becomes_the_same_artifact_twice") else { return };
    let bench = Bench::new();
    bench.stage(&python, "vision", "my-policy/driving_vision.onnx", &[]);
    bench.stage(&python, "policy", "my-policy/driving_policy.onnx", &[]);
    fs::create_dir(bench.output()).unwrap();
    fs::write(bench.output().join("other_driving_tinygrad.pkl"), b"another model's").unwrap();
    let (stdout, _) = run(bench.models().args(["--my-policy", "--version", "v12", "--json"]), 0);
    let first = json_of(&stdout);
    assert_eq!((&first["model_type"], &first["version"]), (&"vision_policy".into(), &"v12".into()));
    let artifact = fs::read(bench.output().join("my-policy_driving_tinygrad.pkl")).unwrap();
    assert_eq!(first["size"], artifact.len());
    assert_eq!(
        bench.outputs(),
        ["my-policy_build.json", "my-policy_driving_tinygrad.pkl", "other_driving_tinygrad.pkl"]
    );
    let (stdout, _) = run(bench.models().args(["--model", "my-policy", "--version", "v12", "--json"]), 0);
    assert_eq!(json_of(&stdout)["sha256"], first["sha256"]);
    assert_eq!(fs::read(bench.output().join("other_driving_tinygrad.pkl")).unwrap(), b"another model's");
    let build: Value =
        serde_json::from_slice(&fs::read(bench.output().join("my-policy_build.json")).unwrap()).unwrap();
    assert_eq!(build["artifact"]["sha256"], first["sha256"]);
    assert_eq!(build["proof"]["checks"].as_array().unwrap().len(), 6);
    is_described(&build);
}

/// The record names the tinygrad that compiled by what it offers to a pickled jit.
fn is_described(build: &Value) {
    let version = build["tinygrad"]["version"].as_str().unwrap();
    let known = artifact_pickle::AbiDescription::known_as(version).unwrap();
    assert_eq!(build["tinygrad"]["abi"], serde_json::json!({"digest": known.digest()}));
}

#[test]
fn an_artifact_over_the_limit_gets_parts_and_loses_them_again() {
    let Some(python) = python("an_artifact_over_the_limit_gets_parts_and_loses_them_again") else { return };
    let bench = Bench::new();
    bench.stage(&python, "supercombo", "sc1_driving_supercombo.onnx", &[]);
    let (stdout, _) = run(bench.models().args(["--sc1", "--part-limit-mib", "2", "--json"]), 0);
    let first = json_of(&stdout);
    assert_eq!((&first["model_type"], &first["version"]), (&"supercombo".into(), &"v15".into()));
    assert!(first["parts"].as_u64().unwrap() > 1, "{first}");
    let whole = bench.output().join("sc1_driving_tinygrad.pkl");
    let joined = bench.dir.join("joined.pkl");
    let mut join = Command::new(env!("CARGO_BIN_EXE_models"));
    run(join.arg("join").arg(&whole).arg("--output").arg(&joined), 0);
    assert_eq!(fs::read(&joined).unwrap(), fs::read(&whole).unwrap());
    run(bench.models().args(["--sc1", "--part-limit-mib", "2", "--no-split"]), 0);
    assert_eq!(bench.outputs(), ["sc1_build.json", "sc1_driving_tinygrad.pkl"]);
}

#[test]
fn both_policies_and_the_older_pipeline_compile() {
    let Some(python) = python("both_policies_and_the_older_pipeline_compile") else { return };
    let bench = Bench::new();
    for kind in ["vision", "on_policy", "off_policy"] {
        bench.stage(&python, kind, &format!("driving_{kind}.onnx"), &[]);
    }
    let (stdout, _) = run(bench.models().args(["--any-id", "--image-history-pipeline", "warp", "--json"]), 0);
    let result = json_of(&stdout);
    assert_eq!((&result["id"], &result["model_type"]), (&"any-id".into(), &"vision_multi_policy".into()));
    assert_eq!(result["build"]["image_history_pipeline"], "warp");
}

#[test]
fn a_refused_model_leaves_the_earlier_artifact() {
    let Some(python) = python("a_refused_model_leaves_the_earlier_artifact") else { return };
    let bench = Bench::new();
    fs::create_dir(bench.output()).unwrap();
    let earlier = bench.output().join("a_driving_tinygrad.pkl");
    fs::write(&earlier, b"earlier").unwrap();
    for (fault, word) in [
        ("nan", "not finite"),
        ("constant", "the same for two different inputs"),
        ("operator", "NonMaxSuppression"),
        ("evil_slices", "it was not run"),
        ("no_slices", "no output_slices"),
    ] {
        bench.stage(&python, "supercombo", "a/driving_supercombo.onnx", &["--fault", fault]);
        let (_, stderr) = run(bench.models().arg("--a"), 1);
        assert!(stderr.contains(word), "{fault}: {stderr}");
        assert_eq!(bench.outputs(), ["a_driving_tinygrad.pkl"], "{fault}");
        assert_eq!(fs::read(&earlier).unwrap(), b"earlier");
        fs::remove_dir_all(bench.dir.join("in/a")).unwrap();
    }
}

#[test]
fn what_the_machine_lacks_ends_with_five() {
    let Some(python) = python("what_the_machine_lacks_ends_with_five") else { return };
    let bench = Bench::new();
    bench.stage(&python, "supercombo", "a_driving_supercombo.onnx", &[]);
    let (_, stderr) = run(bench.models().args(["--a", "--python", "/no/such/python"]), 5);
    assert!(stderr.contains("/no/such/python") && stderr.contains("cargo xtask setup"), "{stderr}");
    // An interpreter whose packages are out of reach, and a machine without clang.
    let (_, stderr) = run(bench.models().arg("--a").env("PYTHONPATH", hidden_packages(&bench)), 5);
    assert!(stderr.contains("cannot import"), "{stderr}");
    let nothing = bench.dir.join("nothing");
    fs::create_dir_all(&nothing).unwrap();
    let (_, stderr) = run(bench.models().arg("--a").env_remove("CC").env("PATH", nothing), 5);
    assert!(stderr.contains("install clang"), "{stderr}");
    assert!(bench.outputs().is_empty());
    fs::remove_dir_all(bench.output()).unwrap();
    fs::write(bench.output(), b"a file where the directory should be").unwrap();
    let (_, stderr) = run(bench.models().arg("--a"), 5);
    assert!(stderr.contains("out"), "{stderr}");
}

/// A directory whose `tinygrad` package cannot be imported.
fn hidden_packages(bench: &Bench) -> std::path::PathBuf {
    let dir = bench.dir.join("hidden");
    fs::create_dir_all(dir.join("tinygrad")).unwrap();
    fs::write(dir.join("tinygrad/__init__.py"), b"raise ImportError('out of reach')").unwrap();
    dir
}

/// Waits until a driver of `child` works on a model, sends SIGTERM, and returns the exit code.
fn interrupt(mut child: Child, log_grows: impl Fn() -> bool) -> i32 {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !log_grows() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
    }
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    let began = Instant::now();
    let status = child.wait().unwrap();
    assert!(began.elapsed() < Duration::from_secs(10), "it took {:?} to end", began.elapsed());
    status.code().unwrap()
}

/// Whether a driver of this bench still runs.
fn driver_runs(bench: &Bench) -> bool {
    let output = Command::new("ps").args(["-eo", "args"]).output().unwrap();
    String::from_utf8_lossy(&output.stdout).contains(bench.dir.to_str().unwrap())
}

#[test]
fn an_interrupted_compile_leaves_nothing() {
    let Some(python) = python("an_interrupted_compile_leaves_nothing") else { return };
    let bench = Bench::new();
    bench.stage(&python, "supercombo", "a_driving_supercombo.onnx", &[]);
    let child = bench.models().arg("--a").stderr(Stdio::null()).spawn().unwrap();
    assert_eq!(interrupt(child, || bench.output().join("a_compile.log").exists()), 4);
    assert!(!driver_runs(&bench));
    assert!(bench.outputs().is_empty(), "{:?}", bench.outputs());
}

#[test]
fn a_killed_compile_ends_its_driver_and_the_next_one_succeeds() {
    let test = "a_killed_compile_ends_its_driver_and_the_next_one_succeeds";
    let Some(python) = python(test) else { return };
    let bench = Bench::new();
    bench.stage(&python, "supercombo", "a_driving_supercombo.onnx", &[]);
    let mut child = bench.models().arg("--a").stderr(Stdio::null()).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while !driver_runs_beside(&bench, child.id()) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    while driver_runs(&bench) {
        assert!(Instant::now() < deadline, "the driver outlives the command that was killed");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(!bench.outputs().iter().any(|name| name.ends_with(".pkl")), "{:?}", bench.outputs());
    run(bench.models().arg("--a"), 0);
    assert_eq!(bench.outputs(), ["a_build.json", "a_driving_tinygrad.pkl"]);
}

/// A tree in the bench whose compiler has begun its output and started a program of its own, and then takes its time.
fn slow_tree(bench: &Bench) -> std::path::PathBuf {
    let tree = bench.dir.join("tree");
    let copied = Command::new("cp").arg("-r").arg(repository().join("fixtures/tree")).arg(&tree).status();
    assert!(copied.unwrap().success());
    let compiler = "import subprocess, sys, time\n\
                    open(sys.argv[sys.argv.index('--output') + 1], 'wb').write(b'half')\n\
                    child = subprocess.Popen(['sleep', '600'])\n\
                    open('begun', 'w').write(str(child.pid))\n\
                    time.sleep(600)\n";
    fs::write(tree.join("selfdrive/modeld/compile_modeld.py"), compiler).unwrap();
    tree
}

#[test]
fn a_killed_compile_ends_the_trees_own_compiler_too() {
    let Some(python) = python("a_killed_compile_ends_the_trees_own_compiler_too") else { return };
    let bench = Bench::new();
    bench.stage(&python, "supercombo", "a_driving_supercombo.onnx", &[]);
    let tree = slow_tree(&bench);
    let mut compile = bench.models();
    compile.args(["--a", "--toolchain", "tree", "--root"]).arg(&tree).stderr(Stdio::null());
    let mut child = compile.spawn().unwrap();
    let begun = tree.join("begun");
    let deadline = Instant::now() + Duration::from_secs(60);
    while !fs::read_to_string(&begun).is_ok_and(|pid| !pid.is_empty()) {
        assert!(
            Instant::now() < deadline && child.try_wait().unwrap().is_none(),
            "the compiler did not start"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(driver_runs_beside(&bench, child.id()));
    child.kill().unwrap();
    child.wait().unwrap();
    let started = fs::read_to_string(&begun).unwrap();
    let state = || Command::new("ps").args(["-o", "state=", "-p", &started]).output().unwrap().stdout;
    let ended = || !driver_runs(&bench) && matches!(state().first(), None | Some(b'Z'));
    let deadline = Instant::now() + Duration::from_secs(20);
    while !ended() {
        assert!(Instant::now() < deadline, "the tree's compiler outlives the command that was killed");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(!bench.outputs().iter().any(|name| name.ends_with(".pkl")), "{:?}", bench.outputs());
    run(bench.models().args(["--a", "--root"]).arg(repository().join("fixtures/tree")), 0);
    assert_eq!(bench.outputs(), ["a_build.json", "a_driving_tinygrad.pkl"]);
}

/// Whether a process of this bench other than `own` runs.
fn driver_runs_beside(bench: &Bench, own: u32) -> bool {
    let output = Command::new("ps").args(["-eo", "pid=,args="]).output().unwrap();
    let own = own.to_string();
    String::from_utf8_lossy(&output.stdout).lines().any(|line| {
        line.contains(bench.dir.to_str().unwrap()) && line.split_whitespace().next() != Some(own.as_str())
    })
}

#[test]
fn a_kept_warp_that_is_wrong_is_made_anew() {
    let Some(python) = python("a_kept_warp_that_is_wrong_is_made_anew") else { return };
    let bench = Bench::new();
    bench.stage(&python, "supercombo", "a_driving_supercombo.onnx", &[]);
    let cache = bench.dir.join("cache");
    let compile = || run(bench.models().arg("--a").arg("--cache-dir").arg(&cache), 0).1;
    compile();
    let artifact = || fs::read(bench.output().join("a_driving_tinygrad.pkl")).unwrap();
    let first = artifact();
    let mut poisoned = 0;
    for entry in fs::read_dir(cache.join("warps")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "warp") {
            continue;
        }
        poisoned += 1;
        // An entry is a line, the digest of its body, and the body, which ends with a value of the proof.
        let mut entry = fs::read(&path).unwrap();
        let digest = entry.iter().position(|&byte| byte == b'\n').unwrap() + 1;
        *entry.last_mut().unwrap() ^= 1;
        let body = durable_fs::Sha256::digest(&entry[digest + 32..]);
        entry[digest..digest + 32].copy_from_slice(body.as_bytes());
        fs::write(&path, entry).unwrap();
    }
    assert_eq!(poisoned, 2, "one for each camera");
    let stderr = compile();
    assert!(stderr.contains("made anew"), "{stderr}");
    assert_eq!(artifact(), first);
    assert!(!compile().contains("made anew"), "the wrong entries are gone");
}

/// A full and a read-only output directory: file systems of their own, mounted where only the command sees them.
#[test]
fn an_output_directory_that_takes_nothing_ends_with_five() {
    let test = "an_output_directory_that_takes_nothing_ends_with_five";
    let Some(python) = python(test) else { return };
    let may_mount = Command::new("unshare").args(["-rm", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]).output();
    if !may_mount.is_ok_and(|tried| tried.status.success()) {
        println!("skipped: {test}: this system lets nobody mount in a namespace of their own");
        return;
    }
    let bench = Bench::new();
    bench.stage(&python, "supercombo", "a_driving_supercombo.onnx", &[]);
    fs::create_dir(bench.output()).unwrap();
    for (options, word) in [("size=1m", "No space left"), ("size=8m,ro", "ead-only")] {
        let script = "mount -t tmpfs -o \"$1\" tmpfs \"$2\"; out=\"$2\"; shift 2; \"$@\"; code=$?; ls \"$out\" >&2; exit $code";
        let mut command = Command::new("unshare");
        command.args(["-rm", "sh", "-c", script, "sh", options]).arg(bench.output());
        let mut models = bench.models();
        models.arg("--a");
        command.arg(models.get_program()).args(models.get_args());
        let (_, stderr) = run(&mut command, 5);
        assert!(stderr.contains(word) && stderr.contains("/out"), "{options}: {stderr}");
        assert!(!stderr.lines().any(|line| line.ends_with(".pkl")), "{options}: {stderr}");
    }
}

#[test]
fn a_job_is_answered_by_its_result_file() {
    let Some(python) = python("a_job_is_answered_by_its_result_file") else { return };
    let bench = Bench::new();
    bench.stage(&python, "supercombo", "a_driving_supercombo.onnx", &[]);
    let source = fs::read(bench.dir.join("in/a_driving_supercombo.onnx")).unwrap();
    let job = bench.dir.join("job");
    fs::create_dir_all(job.join("input")).unwrap();
    fs::write(job.join("input/s.onnx"), &source).unwrap();
    let request = |sha256: String| {
        json!({"protocol": 1, "kind": "compile", "id": "a", "input_format": "supercombo", "target": "cpu",
            "image_history_pipeline": "policy", "python": python, "sources":
            [{"component": "driving_supercombo", "file": "s.onnx", "size": source.len(), "sha256": sha256}]})
    };
    let models = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_models"));
        command.arg("job").arg(&job).stderr(Stdio::null()).stdout(Stdio::null());
        command
    };
    let result = || -> Value { serde_json::from_slice(&fs::read(job.join("result.json")).unwrap()).unwrap() };

    fs::write(job.join("request.json"), request("0".repeat(64)).to_string()).unwrap();
    run(&mut models(), 1);
    assert_eq!(result()["error"]["kind"], "source_mismatch");

    let (sha256, _) = durable_fs::hash_file(
        camino::Utf8Path::from_path(&job.join("input/s.onnx")).unwrap(),
        &durable_fs::NoProgress,
    )
    .unwrap();
    fs::write(job.join("request.json"), request(sha256.to_string()).to_string()).unwrap();
    let child = models().spawn().unwrap();
    let started =
        || fs::read_to_string(job.join("events.jsonl")).is_ok_and(|events| events.contains("\"compile\""));
    assert_eq!(interrupt(child, started), 4);
    assert_eq!(result()["status"], "cancelled");
    assert!(!driver_runs(&bench));

    run(&mut models(), 0);
    let done = result();
    let artifact = job.join("output").join(done["artifact"]["file"].as_str().unwrap());
    assert_eq!(fs::metadata(artifact).unwrap().len(), done["artifact"]["size"].as_u64().unwrap());
    // Between its file and its proof the artifact was told of, as what the result names.
    let events = fs::read_to_string(job.join("events.jsonl")).unwrap();
    let events: Vec<Value> = events.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let at = |what: &str, is: &str| events.iter().rposition(|event| event[what] == is).unwrap();
    let written = &events[at("event", "written")];
    assert!(written["file"].as_str().unwrap().starts_with("output/.compiling-"), "{written}");
    for fact in ["size", "sha256"] {
        assert_eq!(written[fact], done["artifact"][fact]);
    }
    assert!(
        (at("stage", "write")..at("stage", "round_trip")).contains(&at("event", "written")),
        "{events:#?}"
    );

    let run_dir = bench.dir.join("run");
    fs::create_dir(&run_dir).unwrap();
    let request = json!({"protocol": 1, "kind": "run", "artifact": job.join("output/a_driving_tinygrad.pkl"), "target": "cpu",
        "model_type": "supercombo", "cameras": [[1928, 1208], [1344, 760]], "steps": 2, "seed": 1, "python": python});
    fs::write(run_dir.join("request.json"), request.to_string()).unwrap();
    run(Command::new(env!("CARGO_BIN_EXE_models")).arg("job").arg(&run_dir), 0);
    let done: Value = serde_json::from_slice(&fs::read(run_dir.join("result.json")).unwrap()).unwrap();
    let outputs = done["run"]["outputs"].as_array().unwrap();
    assert_eq!(outputs.len(), 2);
    for output in outputs {
        let values: u64 = output["shape"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).product();
        let size = fs::metadata(run_dir.join("output").join(output["file"].as_str().unwrap())).unwrap().len();
        assert_eq!(size, values * 4);
    }
}
