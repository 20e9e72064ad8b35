//! The release gate: every problem as data.
#![expect(clippy::unwrap_used, reason = "tests")]

mod raw_host;
mod resources;
mod support;

use std::{collections::BTreeSet, fs};

use device_validate::checklist::{ChecklistRecord, checklist};
use durable_fs::{NoProgress, Sha256};
use model_catalog::{SourceMap, Target};
use model_manifest::{
    DRIVER_MONITORING_RECORD, GateOptions, GateProblem, GateReport, JOURNAL_NAME, Looked, verify_workspace,
    verify_workspace_by,
};
use rebuild_workspace::ReleaseProof;
use resources::{gate, options, ready};
use support::{Bench, V23, id, manifest, pkl};

#[test]
fn a_complete_workspace_passes_the_gate() {
    let report = gate(&ready());
    assert!(report.problems.is_empty(), "{:#?}", report.problems);
    let parts: Vec<usize> = report.artifacts.iter().map(|artifact| artifact.parts.len()).collect();
    assert_eq!(parts, [0, 3, 3]);
    assert_eq!(report.artifacts[1].filename, pkl("deeprl33"));
    assert!(report.artifacts[1].parts.iter().all(|part| part.sha256.is_some()));
}

/// A defect: its name in reports, what makes it, and a piece of the message.
type Defect = (&'static str, fn(&Bench), &'static str);

const DEFECTS: &[Defect] = &[
    ("unfinished", |bench| bench.put(JOURNAL_NAME, "{}"), "stopped in the middle"),
    ("no_manifest", |bench| remove(bench, "manifests/model_names_v23.json"), "rebuild namespace"),
    ("invalid_manifest", |bench| bench.put("manifests/model_names_v23.json", "{"), "is not valid"),
    (
        "release",
        |bench| retag(bench, "a"),
        "uses_external_gpu is false in the manifest and true in the source map",
    ),
    ("no_artifact", |bench| remove(bench, &compiled("a3")), "a3 is in the manifest and has no artifact"),
    ("no_record", |bench| remove(bench, "results/a_artifact.json"), "has no record"),
    ("digest", |bench| bench.put(&compiled("a3"), "a is other"), "is recorded for a3"),
    ("not_staged", |bench| remove(bench, &ready_file("a3", "")), "not in the upload folder"),
    ("parts", |bench| bench.put(&ready_file("sc23", ".p01"), "flipped"), "the parts of sc23"),
    ("parts", |bench| remove(bench, &ready_file("sc23", ".sha256")), "the parts of sc23"),
    ("two_forms", |bench| bench.put(&ready_file("deeprl33", ""), DEEPRL3), "whole and in parts"),
    ("multipart", |bench| remove(bench, "ready-for-resources/multipart.json"), "it is not there"),
    (
        "over_limit",
        |bench| bench.put(&ready_file("a3", ""), "x".repeat(300)),
        "has 300 bytes; the repository takes 200",
    ),
    ("foreign", |bench| bench.put("ready-for-resources/._x", "sidecar"), "._x does not belong"),
    ("foreign", |bench| bench.put("ready-for-resources/notes.txt", "by hand"), "notes.txt does not belong"),
    ("foreign", |bench| bench.put(&ready_file("other3", ""), "unlisted"), "add its model to the manifest"),
    ("not_validated", |bench| remove(bench, "results/sc2_validation.json"), "rebuild validate --model sc2"),
    (
        "validation_of_other",
        |bench| revalidate(bench, "artifact_sha256", "0".repeat(64).into()),
        "is of another artifact (0000",
    ),
    (
        "validation_failed",
        |bench| revalidate(bench, "missing", serde_json::json!(["plan"])),
        "outputs are missing: plan",
    ),
    (
        "validation_failed",
        |bench| revalidate(bench, "non_finite", serde_json::json!(["lead"])),
        "not finite: lead",
    ),
    (
        "validation_failed",
        |bench| revalidate(bench, "has_control_output", false.into()),
        "no output that controls",
    ),
    ("validation_failed", |bench| revalidate(bench, "passed", false.into()), "see the verdicts"),
    ("failed", |bench| bench.put("results/sc2_failure.json", FAILURE), "no clang"),
];

const DEEPRL3: &str = "deeprl3 is longer than the limit of forty bytes";
const FAILURE: &str = r#"{"id": "sc2", "status": "failed", "error": "no clang", "stage": "compile"}"#;

fn compiled(id: &str) -> String {
    format!("compiled/{}", pkl(id))
}

fn ready_file(id: &str, suffix: &str) -> String {
    format!("ready-for-resources/{}{suffix}", pkl(id))
}

fn remove(bench: &Bench, path: &str) {
    fs::remove_file(bench.path(path)).unwrap();
}

/// Gives the artifact's source an external-GPU tag that manifest and artifact do not have.
fn retag(bench: &Bench, id: &str) {
    let map = format!(
        r#"{{"{id}": {{"ref": "{}", "input_format": "split", "uses_external_gpu": true}}}}"#,
        "a".repeat(40)
    );
    bench.put("source-maps/tagged.json", map);
}

/// Changes one field of a validation record.
fn revalidate(bench: &Bench, field: &str, value: serde_json::Value) {
    let path = "results/sc2_validation.json";
    let mut record: serde_json::Value = serde_json::from_str(&bench.read(path)).unwrap();
    record[field] = value;
    bench.put(path, record.to_string());
}

/// The names in reports of every kind of problem; a new kind must be added here, and then have a defect above.
fn kinds() -> BTreeSet<&'static str> {
    let _all: fn(GateProblem) = |problem| match problem {
        GateProblem::Unfinished { .. }
        | GateProblem::NoManifest { .. }
        | GateProblem::InvalidManifest { .. }
        | GateProblem::Release { .. }
        | GateProblem::NoArtifact { .. }
        | GateProblem::NoRecord { .. }
        | GateProblem::Digest { .. }
        | GateProblem::NotStaged { .. }
        | GateProblem::Parts { .. }
        | GateProblem::TwoForms { .. }
        | GateProblem::Multipart { .. }
        | GateProblem::OverLimit { .. }
        | GateProblem::Foreign { .. }
        | GateProblem::NotValidated { .. }
        | GateProblem::ValidationOfOther { .. }
        | GateProblem::ValidationFailed { .. }
        | GateProblem::Failed { .. } => {}
        // These need real artifacts or another gate: see below, and the tests of `rebuild verify`.
        GateProblem::Inspection { .. }
        | GateProblem::TinygradMixed { .. }
        | GateProblem::NotSoaked { .. }
        | GateProblem::NotDriven { .. }
        | GateProblem::Checklist { .. }
        | GateProblem::DriverMonitoringNotValidated { .. }
        | GateProblem::DriverMonitoringIncomplete { .. }
        | GateProblem::DriverMonitoringRecord { .. }
        | GateProblem::DriverMonitoringMixed { .. } => {}
    };
    let text = "unfinished no_manifest invalid_manifest release no_artifact no_record digest not_staged parts two_forms multipart \
                over_limit foreign not_validated validation_of_other validation_failed failed";
    text.split_whitespace().collect()
}

#[test]
fn every_defect_is_named() {
    let covered: BTreeSet<&str> = DEFECTS.iter().map(|(kind, ..)| *kind).collect();
    assert_eq!(covered, kinds());
    for (kind, damage, words) in DEFECTS {
        let mut bench = ready();
        damage(&bench);
        let tagged = bench.path("source-maps/tagged.json");
        if tagged.exists() {
            bench.sources = SourceMap::from_json(&fs::read_to_string(tagged).unwrap()).unwrap();
        }
        let report = gate(&bench);
        let named = report.problems.iter().any(|problem| {
            let data = serde_json::to_value(problem).unwrap();
            data["problem"] == *kind && problem.to_string().contains(words)
        });
        assert!(named, "{kind}: {words}: {:#?}", report.problems);
        assert!(report.into_release().is_err(), "{kind}");
    }
}

#[test]
fn all_problems_are_named_at_once() {
    let bench = ready();
    let together = ["not_staged", "parts", "foreign", "not_validated", "two_forms"];
    DEFECTS.iter().filter(|(kind, ..)| together.contains(kind)).for_each(|(_, damage, _)| damage(&bench));
    let report = gate(&bench);
    let found: BTreeSet<String> = report
        .problems
        .iter()
        .map(|problem| {
            serde_json::to_value(problem).unwrap()["problem"].as_str().unwrap_or_default().to_owned()
        })
        .collect();
    for kind in together {
        assert!(found.contains(kind), "{kind}: {found:?}");
    }
}

#[test]
fn a_release_id_that_is_another_models_source_id_is_not_taken_for_that_model() {
    let bench = Bench::new();
    for name in ["deeprl3", "deeprl33"] {
        bench.artifact(name, &format!("content of {name}"), None);
    }
    let mut record = bench.artifact_record("deeprl33");
    record.target = Some(Target::ExternalGpu);
    bench.workspace.save(&record).unwrap();
    bench.put("manifests/model_names_v23.json", manifest(&["deeprl33", "deeprl333"]).to_json());
    for (source, release) in [("deeprl3", "deeprl33"), ("deeprl33", "deeprl333")] {
        let mut record = bench.artifact_record(source);
        record.release_id = Some(id(release));
        bench.workspace.save(&record).unwrap();
    }
    // What the namespace gave before reconciling is still in its map.
    let map = r#"{"deeprl3": "deeprl3v23_", "deeprl33": "deeprl333"}"#;
    bench.put("source-maps/model_id_namespace_v23.json", map);
    let about: Vec<String> = gate(&bench)
        .problems
        .into_iter()
        .filter(|problem| matches!(problem, GateProblem::Release { .. }))
        .map(|problem| problem.to_string())
        .collect();
    assert_eq!(about, ["deeprl33 is compiled for external-gpu, but qcom is released; compile it again"]);
}

fn with_driver_monitoring(bench: &Bench) -> GateReport {
    let options = GateOptions { driver_monitoring: true, ..options() };
    verify_workspace(&bench.workspace, bench.sources.clone(), &options, &NoProgress).unwrap()
}

#[test]
fn artifacts_are_inspected_and_the_monitoring_set_is_complete_or_named() {
    let report = with_driver_monitoring(&ready());
    let inspections =
        report.problems.iter().filter(|problem| matches!(problem, GateProblem::Inspection { .. }));
    assert_eq!(inspections.count(), 3, "{:#?}", report.problems);
    let incomplete = |problem: &GateProblem| matches!(problem, GateProblem::DriverMonitoringIncomplete { missing } if missing.len() == 4);
    assert!(report.problems.iter().any(incomplete));
}

fn mixed(bench: &Bench) -> Vec<String> {
    let problems = with_driver_monitoring(bench).problems.into_iter();
    let mixed = problems.filter(|problem| matches!(problem, GateProblem::TinygradMixed { .. }));
    mixed.map(|problem| problem.to_string()).collect()
}

#[test]
fn one_tinygrad_loads_all_that_is_released() {
    let pickle = |name: &str| {
        let dir = camino::Utf8Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/pickles");
        fs::read(dir.join(name)).unwrap()
    };
    let bench = ready();
    for id in ["a3", "deeprl33", "sc23"] {
        bench.put(&compiled(id), pickle("driving-0.14.0.pkl"));
    }
    for name in ["dmonitoring_model_tinygrad.pkl", "dm_warp_1928x1208_tinygrad.pkl"] {
        bench.put(&format!("driver-monitoring/{name}"), pickle("jit-0.14.0.pkl"));
    }
    assert_eq!(mixed(&bench), Vec::<String>::new());
    bench.put(&compiled("sc23"), pickle("driving-0.13.0.pkl"));
    let found = mixed(&bench);
    assert_eq!(found.len(), 1, "{found:?}");
    let of_13 = format!("tinygrad 0.13.0 loads {}; tinygrad 0.14.0 loads ", compiled("sc23"));
    assert!(found[0].contains(&of_13), "{found:?}");
    // The driver-monitoring set runs on the same tinygrad.
    for id in ["a3", "deeprl33", "sc23"] {
        bench.put(&compiled(id), pickle("driving-0.13.0.pkl"));
    }
    let found = mixed(&bench);
    assert!(found.len() == 1 && found[0].contains("loads driver-monitoring/dmonitoring_model"), "{found:?}");
}

#[test]
fn the_monitoring_set_is_of_the_recorded_build() {
    let bench = ready();
    let names = [
        "dmonitoring_model_tinygrad.pkl",
        "dmonitoring_model_metadata.pkl",
        "dm_warp_1928x1208_tinygrad.pkl",
        "dm_warp_1344x760_tinygrad.pkl",
    ];
    for name in names {
        bench.put(&format!("driver-monitoring/{name}"), name);
    }
    let record = |target: &str, skip: &str| {
        let files = names.iter().filter(|name| **name != skip).map(|name| {
            serde_json::json!({"file": name, "size": name.len(), "sha256": Sha256::digest(name.as_bytes())})
        });
        let files: Vec<_> = files.collect();
        let text = serde_json::json!({"format": 1, "target": target, "files": files}).to_string();
        bench.put(&format!("driver-monitoring/{DRIVER_MONITORING_RECORD}"), text);
    };
    let of_build = || {
        let problems = with_driver_monitoring(&bench).problems.into_iter();
        let of_build = problems.filter(|problem| {
            matches!(
                problem,
                GateProblem::DriverMonitoringRecord { .. } | GateProblem::DriverMonitoringMixed { .. }
            )
        });
        of_build.map(|problem| problem.to_string()).collect::<Vec<_>>().join("\n")
    };
    assert!(of_build().contains("nothing says that the files are of one build"), "{}", of_build());
    bench.put(&format!("driver-monitoring/{DRIVER_MONITORING_RECORD}"), "[]");
    assert!(of_build().contains("it is no build record"), "{}", of_build());
    record("qcom", "");
    assert_eq!(of_build(), "");
    record("cpu", "");
    assert!(of_build().contains("of a build for cpu; the workspace's target is qcom"), "{}", of_build());
    record("qcom", names[1]);
    assert!(
        of_build().contains("dmonitoring_model_metadata.pkl is not in the build record"),
        "{}",
        of_build()
    );
    record("qcom", "");
    bench.put(&format!("driver-monitoring/{}", names[2]), "of another build");
    assert!(of_build().contains("dm_warp_1928x1208_tinygrad.pkl has SHA-256"), "{}", of_build());
}

const PROOF: ReleaseProof = ReleaseProof { soak_minutes: 1.0, runtime: true, checklist: true };

/// The gate for a release that has to show everything on a device; the kinds of problems, and the messages.
fn proven(bench: &Bench, proof: ReleaseProof) -> (Vec<String>, String) {
    let options = GateOptions { proof, ..options() };
    let report = verify_workspace_by(
        &bench.workspace,
        bench.sources.clone(),
        &options,
        &|_, _, _| Looked::default(),
        &NoProgress,
    )
    .unwrap();
    let problems = report.problems.iter();
    let kinds = problems.map(|problem| {
        serde_json::to_value(problem).unwrap()["problem"].as_str().unwrap_or_default().to_owned()
    });
    (kinds.collect(), report.to_string())
}

fn soaked(bench: &Bench, id: &str, minutes: serde_json::Value) {
    let path = format!("results/{id}_validation.json");
    let mut record: serde_json::Value = serde_json::from_str(&bench.read(&path)).unwrap();
    record["soak_minutes"] = minutes;
    bench.put(&path, record.to_string());
}

fn drove(bench: &Bench, id: &str, runs: &[(&str, bool)]) {
    let runs: serde_json::Map<String, serde_json::Value> = runs
        .iter()
        .map(|(camera, passed)| {
            let run = serde_json::json!({
                "id": id, "device": "comma", "passed": passed, "seconds": 60.0, "findings": [], "services": {},
            });
            ((*camera).to_owned(), run)
        })
        .collect();
    let sha256 = bench.artifact_record(id).sha256;
    let record = serde_json::json!({"id": id, "artifact_sha256": sha256, "runs": runs});
    bench.put(&format!("results/{id}_runtime.json"), record.to_string());
}

#[test]
fn a_release_for_devices_soaks_drives_and_is_looked_at() {
    let mut bench = ready();
    let format = |id: &str, format: &str| {
        format!(r#""{id}": {{"ref": "{}", "input_format": "{format}"}}"#, "a".repeat(40))
    };
    let map = [format("a", "split"), format("deeprl3", "split"), format("sc2", "supercombo")].join(", ");
    bench.sources = SourceMap::from_json(&format!("{{{map}}}")).unwrap();
    let (kinds, text) = proven(&bench, PROOF);
    assert_eq!(kinds.iter().filter(|kind| *kind == "not_soaked").count(), 3, "{text}");
    assert!(text.contains("sc2, which stands for supercombo, was not seen to drive"), "{text}");
    assert!(text.contains("checks are open; go on with `rebuild verify --checklist`"), "{text}");

    // One after the other is put right.
    for (id, minutes) in [("a", 1.0), ("deeprl3", 3.0), ("sc2", 0.9)] {
        soaked(&bench, id, minutes.into());
    }
    let (kinds, text) = proven(&bench, PROOF);
    assert_eq!(kinds.iter().filter(|kind| *kind == "not_soaked").count(), 1, "{text}");
    assert!(text.contains("sc23 soaked for 54 s; a release asks for 60 s"), "{text}");
    soaked(&bench, "sc2", 1.5.into());

    for (runs, why) in [
        (&[("unknown", true)][..], "the camera that it drove with is not known"),
        (&[("1928x1208", false)], "did not drive with the camera 1928x1208"),
        (&[("1928x1208", true), ("1344x760", false)], "did not drive with the camera 1344x760"),
    ] {
        drove(&bench, "sc2", runs);
        let (kinds, text) = proven(&bench, PROOF);
        assert!(kinds.contains(&"not_driven".to_owned()) && text.contains(why), "{why}: {text}");
    }
    let drives = "results/sc2_runtime.json";
    let other = bench.read(drives).replace(&bench.artifact_record("sc2").sha256.to_string(), &"0".repeat(64));
    bench.put(drives, other);
    assert!(proven(&bench, PROOF).1.contains("another artifact of it drove"));
    bench.put(drives, "{");
    assert!(proven(&bench, PROOF).0.contains(&"not_driven".to_owned()));
    drove(&bench, "sc2", &[("1928x1208", true)]);
    assert!(proven(&bench, PROOF).1.contains("a, which stands for v11"));
    // Any model of a kind stands for it.
    drove(&bench, "deeprl3", &[("1928x1208", true), ("1344x760", true)]);
    let (kinds, text) = proven(&bench, PROOF);
    assert_eq!(kinds.iter().filter(|kind| *kind == "not_driven").count(), 0, "{text}");
    assert!(text.contains("note: sc2 was not seen to drive with the camera 1344x760"), "{text}");

    let answers = |answer: &str| {
        let (mut record, _) = ChecklistRecord::load(&bench.workspace, V23).unwrap();
        for item in checklist() {
            let given = if item.key == checklist()[0].key { answer } else { "pass" };
            record
                .answers
                .insert(item.key, serde_json::from_value(serde_json::json!({"answer": given})).unwrap());
        }
        record.save(&bench.workspace).unwrap();
    };
    answers("fail");
    assert!(proven(&bench, PROOF).1.contains(&format!("{} failed", checklist()[0].key)));
    answers("pass");
    let (kinds, text) = proven(&bench, PROOF);
    assert_eq!(kinds, Vec::<String>::new(), "{text}");
    // What was not asked for is said.
    assert!(text.contains("not asked for") && text.contains("driver-monitoring"), "{text}");
    assert!(!text.contains("a soak of every artifact"), "{text}");

    // Answers are about one manifest.
    let path = "manifests/model_names_v23.json";
    bench.put(path, bench.read(path) + "\n");
    assert!(proven(&bench, PROOF).1.contains("its answers are about another manifest"));
}

#[test]
fn what_a_release_is_not_asked_for_is_said() {
    let bench = ready();
    let (kinds, text) = proven(&bench, ReleaseProof::NONE);
    assert_eq!(kinds, Vec::<String>::new(), "{text}");
    for what in ["a soak of every artifact", "validation", "device's runtime", "the checks of a person"] {
        assert!(text.contains(what), "{what}: {text}");
    }
}

#[test]
fn the_monitoring_set_that_is_there_must_have_run() {
    let bench = ready();
    let names = [
        "dmonitoring_model_tinygrad.pkl",
        "dmonitoring_model_metadata.pkl",
        "dm_warp_1928x1208_tinygrad.pkl",
        "dm_warp_1344x760_tinygrad.pkl",
    ];
    let put = |name: &str, text: &str| bench.put(&format!("driver-monitoring/{name}"), text);
    names.iter().for_each(|name| put(name, name));
    let record = |passed: bool, soak: f64| {
        let files: serde_json::Map<String, serde_json::Value> = names
            .iter()
            .map(|name| ((*name).to_owned(), Sha256::digest(name.as_bytes()).to_string().into()))
            .collect();
        let text = serde_json::json!({
            "id": "dmonitoring", "files": files, "parsed_inputs": [], "output_sizes": {}, "output_shapes": {},
            "missing": [], "non_finite": [], "passed": passed, "soak_minutes": soak,
        });
        bench.put("results/dmonitoring_dm-validation.json", text.to_string());
    };
    let why = |soak_minutes: f64| {
        let proof = ReleaseProof { soak_minutes, ..ReleaseProof::NONE };
        let options = GateOptions { driver_monitoring: true, proof, ..options() };
        let report =
            verify_workspace(&bench.workspace, bench.sources.clone(), &options, &NoProgress).unwrap();
        let found = report.problems.into_iter().find_map(|problem| match problem {
            GateProblem::DriverMonitoringNotValidated { .. } => Some(problem.to_string()),
            _ => None,
        });
        found.unwrap_or_default()
    };
    assert!(why(0.0).contains("there is no record of one; run `rebuild validate --dm`"), "{}", why(0.0));
    record(false, 0.0);
    assert!(why(0.0).contains("it did not pass"), "{}", why(0.0));
    record(true, 0.0);
    assert_eq!(why(0.0), "");
    assert!(
        why(2.0).contains("soaked for 0 s; 120 s are asked for; run `rebuild validate --dm --soak 2`"),
        "{}",
        why(2.0)
    );
    record(true, 2.0);
    assert_eq!(why(2.0), "");
    put(names[3], "of another build");
    assert!(why(2.0).contains("is of another dm_warp_1344x760_tinygrad.pkl"), "{}", why(2.0));
}
