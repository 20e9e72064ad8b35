//! From the records of a workspace to what the page shows.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test says what is wrong by its panic, and why it was skipped by a line"
)]
#![allow(clippy::allow_attributes, reason = "test code outside of #[test] functions")]

use camino::Utf8Path;
use durable_fs::write_atomic;
use model_catalog::{InputFormat, ModelId};
use rebuild_workspace::{InitOptions, ModelStatus, MultipartList, Workspace};
use validation_report::{ModelReport, PathChange, gather_model};

fn digest(byte: &str) -> String {
    byte.repeat(64)
}

fn put(workspace: &Workspace, kind: &str, text: &str) {
    write_atomic(workspace.results_dir().join(format!("m1_{kind}.json")), text.as_bytes()).unwrap();
}

fn validation(sha256: &str, p50: f64) -> String {
    format!(
        r#"{{"id": "m1", "version": "v11", "model_type": "supercombo", "policy_order": [], "parsed_inputs": [],
            "output_sizes": {{"plan": 990}}, "output_shapes": {{}}, "missing": [], "non_finite": [], "has_control_output": true,
            "passed": true, "artifact_sha256": "{sha256}", "device": "local", "load_seconds": 0.5,
            "step_times": {{"1928x1208": {{"p50": {p50}, "p99": 0.05}}, "1344x760": {{"p50": 0.01, "p99": 0.06}}}},
            "step_seconds": {{"1928x1208": [0.01, 0.02]}},
            "verdicts": [{{"check": "slow", "severity": "warning", "text": "a step is slow"}}]}}"#
    )
}

fn drive(sha256: &str, shift: f64) -> String {
    format!(
        r#"{{"id": "m1", "artifact_sha256": "{sha256}", "cameras": [{{"camera": [1928, 1208], "scenes": [{{"step": 2,
            "path": [[0, {shift}], [10, {shift}]], "speeds": [], "turn_rates": [], "lane_lines": [[[0, -1.8], [1, -1.85]]],
            "lane_probabilities": [0.9], "road_edges": [], "leads": [{{"x": 40, "y": 0, "speed": 1, "probability": 0.5}}],
            "own_speed": null}}]}}]}}"#
    )
}

fn gather(workspace: &Workspace) -> ModelReport {
    let id = ModelId::new("m1").unwrap();
    let status = ModelStatus {
        id: id.clone(),
        release_id: None,
        sources: "current".to_owned(),
        artifact: "current".to_owned(),
        size: Some(5),
        validation: "passed",
        failure: None,
    };
    let multipart = MultipartList::load(workspace).unwrap();
    gather_model(workspace, (&id, "Model one", InputFormat::Split), Ok(&status), &multipart)
}

fn workspace() -> (tempfile::TempDir, Workspace) {
    let dir = tempfile::tempdir().unwrap();
    let root = Utf8Path::from_path(dir.path()).unwrap().join("ws");
    let (workspace, _) = Workspace::init(&root, &InitOptions::default()).unwrap();
    let artifact = format!(
        r#"{{"id": "m1", "status": "compiled", "path": "/x/m1_driving_tinygrad.pkl", "size": 5, "sha256": "{}", "multipart": false,
            "target": "qcom", "model_type": "supercombo"}}"#,
        digest("a")
    );
    put(&workspace, "artifact", &artifact);
    (dir, workspace)
}

#[test]
fn a_model_is_shown_with_what_changed() {
    let (_dir, workspace) = workspace();
    put(&workspace, "build", r#"{"id": "m1", "seconds": {"compile": 7.5}}"#);
    put(&workspace, "validation", &validation(&digest("a"), 0.02));
    put(&workspace, "drive", &drive(&digest("a"), 0.5));
    let before = validation(&digest("b"), 0.03).replace("990", "991");
    let previous =
        format!(r#"{{"id": "m1", "validation": {before}, "drive": {}}}"#, drive(&digest("b"), 0.0));
    put(&workspace, "previous", &previous);
    let report = gather(&workspace);
    assert_eq!(
        (report.status, report.kind.as_str(), report.p50, report.p99),
        ("passed", "supercombo", Some(0.02), Some(0.06))
    );
    assert_eq!((report.compile_seconds, report.verdicts[0].severity), (Some(7.5), "warning"));
    let scene = &report.drive[0].scenes[0];
    assert_eq!((scene.lanes[0].as_slice(), scene.leads[0]), ([-1.8, -1.85].as_slice(), [40.0, 0.0, 0.5]));
    let changes: Vec<_> =
        report.changes.iter().map(|c| format!("{}: {} > {}", c.what, c.before, c.now)).collect();
    assert_eq!(
        changes,
        [
            "artifact: bbbbbbbbbbbb > aaaaaaaaaaaa",
            "values of plan: 991 > 990",
            "median step: 30.0 ms > 20.0 ms"
        ]
    );
    assert_eq!(report.path_changes, [PathChange { camera: "1928x1208".to_owned(), mean: 0.5, most: 0.5 }]);
    assert_eq!(report.previous_drive.len(), 1);
}

#[test]
fn records_of_another_artifact_are_not_shown_and_damaged_ones_are_named() {
    let (_dir, workspace) = workspace();
    put(&workspace, "validation", &validation(&digest("c"), 0.02));
    put(&workspace, "drive", &drive(&digest("c"), 0.0));
    let report = gather(&workspace);
    assert_eq!((report.p50, report.drive.len(), report.failure), (None, 0, None));
    put(&workspace, "drive", "{");
    let report = gather(&workspace);
    assert!(report.failure.unwrap().contains("m1_drive.json is not valid"));
}
