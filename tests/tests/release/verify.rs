//! `rebuild verify` on real artifacts.

use super::*;

#[test]
fn a_complete_workspace_passes_and_stays_as_it_is() -> Result<()> {
    let Some(bench) = Bench::new()? else { return Ok(()) };
    let before = bench.digests()?;
    let outcome = bench.verify(&[])?;
    outcome.expect_code(0);
    assert!(outcome.stdout.contains("3 artifacts in"), "{}", outcome.transcript());
    let report = bench.verify(&["--json"])?.json_lines()?.pop().context("a report")?;
    assert_eq!(report["problems"], serde_json::json!([]));
    let ids: Vec<_> =
        report["artifacts"].as_array().into_iter().flatten().map(|entry| &entry["id"]).collect();
    assert_eq!(ids, RELEASED);
    assert_eq!(bench.digests()?, before);
    Ok(())
}

/// What is done to the workspace, and what the gate says of it.
type Defect = (&'static str, fn(&Bench) -> Result<()>, &'static str);

const DEFECTS: &[Defect] = &[
    (
        "an artifact cut short",
        |bench| {
            let path = bench.path("compiled").join(pkl("tr14223"));
            let bytes = fs::read(&path)?;
            put(&path, &bytes[..bytes.len() / 2])
        },
        "compiled/tr14223_driving_tinygrad.pkl",
    ),
    (
        "one warp of the driver-monitoring set of another build",
        |bench| {
            let path = bench.path("driver-monitoring/dm_warp_1344x760_tinygrad.pkl");
            copy(&bench.path("driver-monitoring/dm_warp_1928x1208_tinygrad.pkl"), &path)
        },
        "of different builds: dm_warp_1344x760_tinygrad.pkl has SHA-256",
    ),
    (
        "no build record of driver monitoring",
        |bench| bench.remove("driver-monitoring/dmonitoring_model_build.json"),
        "nothing says that the files are of one build",
    ),
    (
        "no metadata of driver monitoring",
        |bench| bench.remove("driver-monitoring/dmonitoring_model_metadata.pkl"),
        "driver-monitoring/ lacks dmonitoring_model_metadata.pkl",
    ),
    (
        "the artifact of another model under this name",
        |bench| {
            copy(
                &bench.path("compiled").join(pkl("tr14223")),
                &bench.path("compiled").join(pkl("deeprl3v23")),
            )
        },
        "the manifest says v15",
    ),
    ("no validation", |bench| bench.remove("results/rdf2_validation.json"), "rebuild validate --model rdf2"),
    ("a sidecar file", |bench| bench.put("ready-for-resources/._x.pkl", "x"), "._x.pkl does not belong"),
    ("a foreign file", |bench| bench.put("ready-for-resources/notes.txt", "x"), "notes.txt does not belong"),
];

#[test]
fn every_defect_of_a_real_workspace_is_named() -> Result<()> {
    for (what, damage, words) in DEFECTS {
        let Some(bench) = Bench::new()? else { return Ok(()) };
        damage(&bench)?;
        let outcome = bench.verify(&[])?;
        outcome.expect_code(1);
        assert!(outcome.stdout.contains(words), "{what}: {}", outcome.transcript());
    }
    Ok(())
}

#[test]
fn a_camera_that_is_missing_and_another_target_are_found_in_the_artifact_itself() -> Result<()> {
    let Some(bench) = Bench::new()? else { return Ok(()) };
    let path = bench.path("compiled").join(pkl("tr14223"));
    // The artifact is written again without the warp of one camera.
    const SCRIPT: &str = "import pickle, sys\nwith open(sys.argv[1], 'rb') as f: a = pickle.load(f)\n\
                          del a[(1344, 760)]\nwith open(sys.argv[1], 'wb') as f: pickle.dump(a, f)";
    run(Command::new(&bench.python.python).args(["-c", SCRIPT, path.as_str()]).env("DEV", "CPU"))?
        .expect_code(0);
    let outcome = bench.verify(&[])?;
    outcome.expect_code(1);
    assert!(outcome.stdout.contains("1344x760"), "{}", outcome.transcript());

    bench.scenario.set("target", "qcom")?;
    let outcome = bench.verify(&[])?;
    outcome.expect_code(1);
    assert!(outcome.stdout.contains("is compiled for cpu, but qcom is released"), "{}", outcome.transcript());
    Ok(())
}

#[test]
fn wrong_command_lines_and_workspaces_have_their_exit_codes() -> Result<()> {
    let Some(bench) = Bench::new()? else { return Ok(()) };
    bench.verify(&["--manifest-version", "22"])?.expect_code(2);
    let outcome = bench.verify(&["--manifest-version", "v24"])?;
    outcome.expect_code(1);
    assert!(outcome.stdout.contains("model_names_v24.json does not exist"), "{}", outcome.transcript());
    let nowhere = bench.scenario.with_workspace(bench.root.join("nowhere"));
    run(&mut nowhere.rebuild(&["verify"]))?.expect_code(5);
    Ok(())
}

#[test]
fn a_forced_compile_of_a_released_model_writes_under_its_release_name() -> Result<()> {
    let Some(bench) = Bench::new()? else { return Ok(()) };
    let before = bench.digests()?;
    run(&mut bench.scenario.rebuild(&["compile", "--force", "--model", "rdf23"]))?.expect_code(0);
    let names: Vec<_> =
        bench.scenario.list("compiled").into_iter().filter(|name| name.starts_with("rdf")).collect();
    assert_eq!(names, [pkl("rdf23")]);
    assert!(bench.scenario.list("ready-for-resources").iter().all(|name| !name.starts_with("rdf2_")));
    let after = bench.digests()?;
    let artifacts = |files: &BTreeMap<Utf8PathBuf, String>| {
        let is_artifact = |path: &Utf8PathBuf| path.as_str().contains("_driving_tinygrad.pkl");
        files.clone().into_iter().filter(|(path, _)| is_artifact(path)).collect::<BTreeMap<_, _>>()
    };
    assert_eq!(artifacts(&after), artifacts(&before), "equal sources give equal bytes under the same names");
    assert_eq!(bench.scenario.record("rdf2_artifact.json")?["release_id"], "rdf23");
    bench.verify(&[])?.expect_code(0);
    Ok(())
}

#[test]
fn a_part_is_verified_with_the_artifact_inside() -> Result<()> {
    let Some(bench) = Bench::new()? else { return Ok(()) };
    let part = bench.path("ready-for-resources").join(format!("{}.p00", pkl("rdf23")));
    let verify =
        |arguments: &[&str]| run(bench.scenario.models().args(["verify", part.as_str()]).args(arguments));
    let good = verify(&["--target", "cpu", "--json"])?;
    good.expect_code(0);
    let said = good.json_lines()?.pop().context("a result")?;
    assert_eq!(said["sha256"], sha256_file(&bench.path("compiled").join(pkl("rdf23")))?);
    assert!(said["artifact"].is_object(), "{said}");
    let manifest = bench.path("manifests/model_names_v23.json");
    verify(&["--manifest", manifest.as_str()])?.expect_code(0);
    let other = verify(&["--target", "qcom"])?;
    other.expect_code(1);
    assert!(other.stderr.contains("must not be used"), "{}", other.transcript());
    let second = part.as_str().replace(".p00", ".p01");
    let bytes = fs::read(&second)?;
    put(Utf8Path::new(&second), &bytes[..bytes.len() - 1])?;
    let broken = verify(&[])?;
    broken.expect_code(1);
    assert!(broken.stderr.contains("are not good"), "{}", broken.transcript());
    Ok(())
}
