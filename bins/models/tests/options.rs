//! The device compiler's options: driver monitoring, batches, a person's own models, a tree's compilers, the external GPU.
#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests stage and damage files themselves"
)]

mod support;

use std::fs;

use serde_json::{Value, json};
use support::{Bench, python, repository, run};

fn json_of(path: &std::path::Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

const DM_FILES: [&str; 5] = [
    "dm_warp_1344x760_tinygrad.pkl",
    "dm_warp_1928x1208_tinygrad.pkl",
    "dmonitoring_model_build.json",
    "dmonitoring_model_metadata.pkl",
    "dmonitoring_model_tinygrad.pkl",
];

#[test]
fn driver_monitoring_is_four_files_or_none() {
    let Some(python) = python("driver_monitoring_is_four_files_or_none") else { return };
    let bench = Bench::new();
    run(bench.models().arg("--dm"), 2);
    bench.stage(&python, "dmonitoring", "dmonitoring_model.onnx", &[]);
    run(bench.models().arg("--dm"), 0);
    assert_eq!(bench.outputs(), DM_FILES);
    let record = json_of(&bench.output().join(DM_FILES[2]));
    assert_eq!(record["files"].as_array().unwrap().len(), 4);
    assert_eq!(record["proof"]["checks"].as_array().unwrap().len(), 6);
    assert_eq!(record["tinygrad"]["abi"]["digest"].as_str().unwrap().len(), 64);
    let before: Vec<_> = DM_FILES.map(|name| fs::read(bench.output().join(name)).unwrap()).into();
    // A source that is refused leaves all of them as they were.
    fs::remove_file(bench.dir.join("in/dmonitoring_model.onnx")).unwrap();
    bench.stage(&python, "dmonitoring", "dm.onnx", &["--fault", "no_slices"]);
    run(bench.models().arg("--dm"), 1);
    let after: Vec<_> = DM_FILES.map(|name| fs::read(bench.output().join(name)).unwrap()).into();
    assert_eq!((bench.outputs(), after), (DM_FILES.map(str::to_owned).to_vec(), before));
}

#[test]
fn flags_of_the_shell_change_nothing_unseen() {
    let Some(python) = python("flags_of_the_shell_change_nothing_unseen") else { return };
    let bench = Bench::new();
    bench.stage(&python, "supercombo", "a_driving_supercombo.onnx", &[]);
    let artifact = bench.output().join("a_driving_tinygrad.pkl");
    let compile = |flags: &[(&str, &str)]| {
        run(bench.models().args(["--a", "--no-cache"]).envs(flags.iter().copied()), 0);
        (fs::read(&artifact).unwrap(), json_of(&bench.output().join("a_build.json"))["environment"].clone())
    };
    let (plain, recorded) = compile(&[]);
    assert_eq!(recorded["IMAGE"], "1");
    let (found, again) =
        compile(&[("BEAM", "1"), ("NOOPT", "1"), ("SPLIT_REDUCEOP", "0"), ("TRANSCENDENTAL", "2")]);
    assert!(found == plain, "a flag of the shell changed the artifact");
    assert_eq!(again, recorded);
    // A flag that may be chosen is kept, and the record says so.
    let (_, chosen) = compile(&[("NOLOCALS", "0"), ("NOOPT", "1")]);
    assert_eq!((&chosen["NOLOCALS"], chosen.get("NOOPT")), (&"0".into(), None));
}

#[test]
fn a_batch_gives_the_bytes_of_single_compiles_and_goes_on_after_a_failure() {
    let Some(python) = python("a_batch_gives_the_bytes_of_single_compiles_and_goes_on_after_a_failure")
    else {
        return;
    };
    let bench = Bench::new();
    bench.stage(&python, "vision", "a_driving_vision.onnx", &[]);
    bench.stage(&python, "policy", "a_driving_policy.onnx", &[]);
    bench.stage(&python, "supercombo", "b_driving_supercombo.onnx", &[]);
    bench.stage(&python, "supercombo", "c_driving_supercombo.onnx", &["--fault", "nan"]);
    let list = bench.dir.join("list.txt");
    fs::write(&list, "c\na v12\nmissing\nb\n").unwrap();
    let (stdout, stderr) = run(bench.models().args(["--no-cache", "--json", "--batch"]).arg(&list), 1);
    assert!(stderr.contains("not finite") && stderr.contains("missing is not staged"), "{stderr}");
    assert_eq!(stdout.lines().count(), 2, "{stdout}");
    let batched = fs::read(bench.output().join("a_driving_tinygrad.pkl")).unwrap();
    for id in ["a", "b"] {
        let seconds = json_of(&bench.output().join(format!("{id}_build.json")))["seconds"].clone();
        let took =
            |stage: &str| seconds[stage].as_f64().unwrap_or_else(|| panic!("{id}: {stage}: {seconds}"));
        assert!(
            took("compile") >= took("compile.run_policy") && took("compile.run_policy") > 0.0,
            "{seconds}"
        );
        assert!(took("place") >= 0.0);
    }
    run(bench.models().args(["--a", "--version", "v12", "--no-cache"]), 0);
    assert_eq!(fs::read(bench.output().join("a_driving_tinygrad.pkl")).unwrap(), batched);
}

#[test]
fn a_persons_own_model_is_one_file_with_its_facts() {
    let Some(python) = python("a_persons_own_model_is_one_file_with_its_facts") else { return };
    let bench = Bench::new();
    let store = bench.dir.join("store");
    bench.stage(&python, "vision", "local-mine_driving_vision.onnx", &[]);
    bench.stage(&python, "policy", "local-mine_driving_policy.onnx", &[]);
    let (_, stderr) = run(bench.models().arg("--local-mine"), 2);
    assert!(stderr.contains("--version"), "{stderr}");
    run(bench.models().args(["--local-mine", "--version", "v12"]), 5);
    fs::create_dir(&store).unwrap();
    run(bench.models().args(["--local-mine", "--version", "v12", "--part-limit-mib", "1"]), 0);
    assert_eq!(bench.outputs(), ["local-mine_build.json", "local-mine_driving_tinygrad.pkl"]);
    let made = fs::read(bench.output().join("local-mine_driving_tinygrad.pkl")).unwrap();
    assert_eq!(fs::read(store.join("local-mine_driving_tinygrad.pkl")).unwrap(), made);
    let expected = json!({"name": "mine", "series": "Local", "version": "v12", "uses_external_gpu": false});
    assert_eq!(json_of(&store.join("local-mine.json")), expected);
    assert_eq!(json_of(&store.join(".model_versions.json")), json!({"local-mine": "v12"}));
    assert_eq!(json_of(&store.join(".model_artifacts.json"))["local-mine"]["artifact_size"], made.len());
}

#[test]
fn a_trees_compilers_are_used_and_their_artifacts_replayed() {
    let Some(python) = python("a_trees_compilers_are_used_and_their_artifacts_replayed") else { return };
    let bench = Bench::new();
    let tree = repository().join("fixtures/tree");
    bench.stage(&python, "supercombo", "a_driving_supercombo.onnx", &[]);
    let (_, stderr) = run(bench.models().args(["--a", "--toolchain", "tree", "--root", "/no/such/tree"]), 5);
    assert!(stderr.contains("compile_modeld.py"), "{stderr}");
    run(bench.models().args(["--a", "--root"]).arg(&tree), 0);
    let record = json_of(&bench.output().join("a_build.json"));
    assert_eq!(
        (&record["tool"]["toolchain"], &record["tinygrad"]["commit"]),
        (&"tree".into(), &"0".repeat(40).into())
    );
    assert!(!record["proof"]["checks"].as_array().unwrap().is_empty());
    let known = artifact_pickle::AbiDescription::known_as(record["tinygrad"]["version"].as_str().unwrap());
    assert_eq!(record["tinygrad"]["abi"], json!({"digest": known.unwrap().digest()}));
    let log = fs::read_to_string(bench.output().join("a_compile.log")).unwrap();
    assert!(log.contains("compiled"), "{log}");
    // What a tree's compiler makes of a broken model does not pass the replay.
    fs::remove_dir_all(bench.output()).unwrap();
    fs::remove_file(bench.dir.join("in/a_driving_supercombo.onnx")).unwrap();
    bench.stage(&python, "supercombo", "a_driving_supercombo.onnx", &["--fault", "nan"]);
    run(bench.models().args(["--a", "--root"]).arg(&tree), 1);
    assert!(bench.outputs().is_empty());
}

#[test]
fn an_external_gpu_that_is_not_there_ends_with_five() {
    if std::path::Path::new("/sys/bus/usb/devices").is_dir() && std::path::Path::new("/dev/kgsl-3d0").exists()
    {
        println!("skipped: an_external_gpu_that_is_not_there_ends_with_five: this is a device");
        return;
    }
    let bench = Bench::new();
    fs::write(bench.dir.join("in/a_driving_supercombo.onnx"), b"x").unwrap();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_models"));
    command
        .args(["--a", "--gpu", "--input-dir"])
        .arg(bench.dir.join("in"))
        .arg("--output-dir")
        .arg(bench.output());
    let (_, stderr) = run(&mut command, 5);
    assert!(stderr.contains("ADD1:0001"), "{stderr}");
    let (_, stderr) = run(bench.models().args(["--a", "--gpu"]), 2);
    assert!(stderr.contains("two targets"), "{stderr}");
}
