use durable_fs::{NoProgress, Sha256, write_atomic};
use model_catalog::{DM_METADATA, DM_MODEL};
use rebuild_workspace::InitOptions;
use serde_json::json;

use super::*;

struct Place {
    _keep: tempfile::TempDir,
    workspace: Workspace,
}

fn place() -> Place {
    let keep = tempfile::tempdir().unwrap();
    let root = Utf8Path::from_path(keep.path()).unwrap().join("ws");
    let (workspace, _) = Workspace::init(&root, &InitOptions::default()).unwrap();
    Place { _keep: keep, workspace }
}

fn options() -> MonitoringOptions {
    MonitoringOptions { target: Target::Cpu, force: false, outdated: false, python: None, toolchain: None }
}

fn plan(content: &[u8]) -> MonitoringPlan {
    let (sha256, size) = (Sha256::digest(content), content.len() as u64);
    let file = RelPath::new(DM_SOURCES[0]).unwrap();
    let request =
        DmJob { target: Target::Cpu, toolchain: None, python: None, tolerance: None, file, size, sha256 };
    let job = PreparedJob::new(&model_id(), &JobRequest::new(JobKind::Dm(request)), Vec::new());
    MonitoringPlan {
        onnx: "x.onnx".into(),
        size,
        sha256,
        reasons: Vec::new(),
        outdated: Vec::new(),
        files: Vec::new(),
        job,
    }
}

/// Four files and the record that a build would leave.
fn built(place: &Place) {
    let mut files = Vec::new();
    for name in names() {
        let written =
            write_atomic(place.workspace.driver_monitoring_dir().join(&name), name.as_bytes()).unwrap();
        files.push(json!({"file": name, "size": written.size, "sha256": written.sha256}));
    }
    let provenance = json!({
        "format": 1, "target": "cpu",
        "source": {"component": "dmonitoring_model", "variant": "standard", "file": "dmonitoring_model.onnx", "size": 6, "sha256": Sha256::digest(b"source")},
        "tool": {"version": "0.1.0", "toolchain": "embedded", "driver_sha256": embedded::digest()},
        "tinygrad": {"version": "0.14.0", "python": "3.12", "interpreter": "python3"},
        "jits": {}, "environment": {}, "seconds": {},
        "proof": {"seeds": [42, 43], "tolerance": 0.0, "checks": []}, "files": files, "device": "local",
    });
    let Value::Object(provenance) = provenance else { panic!() };
    place.workspace.save(&BuildRecord { id: model_id(), provenance }).unwrap();
    assert!(recorded(&place.workspace).unwrap().is_some(), "the record of this test is readable");
}

fn reasons(place: &Place, content: &[u8], options: &MonitoringOptions) -> MonitoringPlan {
    let mut plan = plan(content);
    decide(&place.workspace, &mut plan, options, &NoProgress).unwrap();
    plan
}

#[test]
fn what_is_built_stays_until_something_that_decides_it_changes() {
    let place = place();
    assert_eq!(reasons(&place, b"source", &options()).reasons, ["it was not built yet"]);
    built(&place);
    let current = reasons(&place, b"source", &options());
    assert!(!current.builds() && current.outdated.is_empty(), "{:?}", current.reasons);
    assert_eq!(current.files.len(), 4);
    assert_eq!(reasons(&place, b"another", &options()).reasons, ["the source changed"]);
    let qcom = MonitoringOptions { target: Target::Qcom, ..options() };
    assert_eq!(reasons(&place, b"source", &qcom).reasons, ["target cpu became qcom"]);
    let tree = MonitoringOptions { toolchain: Some("tree".to_owned()), ..options() };
    assert_eq!(reasons(&place, b"source", &tree).reasons, ["toolchain embedded became tree"]);
    let forced = MonitoringOptions { force: true, ..options() };
    assert_eq!(reasons(&place, b"source", &forced).reasons, ["it was asked for"]);
}

#[test]
fn a_missing_or_other_file_is_built_again() {
    let place = place();
    built(&place);
    let dir = place.workspace.driver_monitoring_dir();
    write_atomic(dir.join(DM_MODEL), b"dmonitoring_model_tinygraD.pkl").unwrap();
    fs::remove_file(dir.join(DM_METADATA)).unwrap();
    let found = reasons(&place, b"source", &options()).reasons;
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found.contains(&format!("{DM_MODEL} is not the recorded file")), "{found:?}");
    assert!(found.contains(&format!("{DM_METADATA} is missing")), "{found:?}");
}

#[test]
fn another_driver_makes_outdated_only() {
    let place = place();
    built(&place);
    let mut record = place.workspace.record::<BuildRecord>(&model_id()).unwrap().unwrap();
    record.provenance["tool"]["driver_sha256"] = json!(Sha256::digest(b"older"));
    place.workspace.save(&record).unwrap();
    let found = reasons(&place, b"source", &options());
    assert!(!found.builds());
    assert_eq!(found.outdated, ["the compile driver changed"]);
    let wanted = MonitoringOptions { outdated: true, ..options() };
    assert!(reasons(&place, b"source", &wanted).builds());
}

#[test]
fn a_damaged_record_is_no_record() {
    let place = place();
    built(&place);
    write_atomic(place.workspace.results_dir().join("dmonitoring_model_build.json"), b"{").unwrap();
    assert_eq!(reasons(&place, b"source", &options()).reasons, ["it was not built yet"]);
}

#[test]
fn what_is_no_model_is_refused_before_a_device_is_asked() {
    let place = place();
    let dir = place.workspace.driver_monitoring_dir();
    assert!(matches!(
        plan_dm(&place.workspace, None, &options(), &NoProgress),
        Err(MonitoringError::Source(DmError::NoSource { .. }))
    ));
    let pointer = dir.join("pointer.onnx");
    write_atomic(&pointer, b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 3\n").unwrap();
    let refused = plan_dm(&place.workspace, Some(&pointer), &options(), &NoProgress).unwrap_err();
    assert!(matches!(refused, MonitoringError::Onnx(_)), "{refused}");
    let external = MonitoringOptions { target: Target::ExternalGpu, ..options() };
    assert!(plan_dm(&place.workspace, Some(&pointer), &external, &NoProgress).is_err());
}
