//! A model's report from its records.

use std::collections::BTreeMap;

use device_validate::{
    CameraDrive, DriveRecord, PreviousRecord, Severity, Verdict, decode::Scene, runtime::RuntimeRecord,
};
use model_catalog::{ArtifactName, InputFormat, ModelId};
use rebuild_workspace::{
    ArtifactRecord, BuildRecord, ModelStatus, MultipartList, Record, ValidationRecord, Workspace,
};
use serde_json::Value;

use crate::{
    CameraPlot, ModelReport, ScenePlot, VerdictLine,
    changes::{changes, path_changes, slowest},
};

/// The report of one model. `name` is what people call it; `status` is where it stands, or why that cannot be said.
pub fn gather_model(
    workspace: &Workspace,
    (id, name, format): (&ModelId, &str, InputFormat),
    status: Result<&ModelStatus, String>,
    multipart: &MultipartList,
) -> ModelReport {
    let mut report = ModelReport {
        id: id.to_string(),
        name: name.to_owned(),
        kind: format.to_string(),
        ..ModelReport::default()
    };
    let mut unreadable = Vec::new();
    let artifact = read::<ArtifactRecord>(workspace, id, &mut unreadable);
    let validation = read::<ValidationRecord>(workspace, id, &mut unreadable);
    if let Some(build) = read::<BuildRecord>(workspace, id, &mut unreadable) {
        report.compile_seconds =
            build.provenance.get("seconds").and_then(|seconds| seconds.get("compile")?.as_f64());
    }
    if let Some(artifact) = &artifact {
        of_artifact(&mut report, artifact, multipart);
    }
    let digest = artifact.as_ref().map(|artifact| artifact.sha256.to_string());
    let current = validation.filter(|record| digest.is_some() && text(record, "artifact_sha256") == digest);
    if let Some(record) = &current {
        of_validation(&mut report, record);
    }
    let drive = read::<DriveRecord>(workspace, id, &mut unreadable);
    let drive = drive.filter(|drive| Some(drive.artifact_sha256.to_string()) == digest);
    report.drive = drive.iter().flat_map(|drive| &drive.cameras).map(plot).collect();
    if let Some(previous) = read::<PreviousRecord>(workspace, id, &mut unreadable)
        && let Some(now) = &current
    {
        report.changes = changes(&previous.validation, now);
        if let (Some(before), Some(now)) = (&previous.drive, &drive) {
            report.path_changes = path_changes(before, now);
            report.previous_drive = before.cameras.iter().map(plot).collect();
        }
    }
    if let Some(runtime) = read::<RuntimeRecord>(workspace, id, &mut unreadable) {
        report.runtime = of_runtime(&runtime, digest.as_deref());
    }
    judge(&mut report, status, unreadable);
    report
}

/// A record; one that cannot be read is no reason to show nothing.
fn read<R: Record>(workspace: &Workspace, id: &ModelId, unreadable: &mut Vec<String>) -> Option<R> {
    workspace.record::<R>(id).unwrap_or_else(|error| {
        unreadable.push(error.to_string());
        None
    })
}

fn text(record: &ValidationRecord, field: &str) -> Option<String> {
    record.extra.get(field).and_then(Value::as_str).map(str::to_owned)
}

fn of_artifact(report: &mut ModelReport, artifact: &ArtifactRecord, multipart: &MultipartList) {
    let file = ArtifactName::new(artifact.artifact_id().clone()).to_string();
    let entry = multipart.entries.iter().find(|entry| entry.filename == file);
    report.parts = entry.map_or(0, |entry| entry.parts.len());
    report.release_id = artifact.release_id.as_ref().map(ModelId::to_string);
    report.size = Some(artifact.size);
    report.sha256 = Some(artifact.sha256.to_string());
    report.target = artifact.target.map(|target| target.to_string());
    if let Some(kind) = artifact.extra.get("model_type").and_then(Value::as_str) {
        kind.clone_into(&mut report.kind);
    }
}

fn of_validation(report: &mut ModelReport, record: &ValidationRecord) {
    let number = |field: &str| record.extra.get(field).and_then(Value::as_f64);
    report.version = record.version.map(|version| version.to_string());
    report.kind = record.model_type.to_string();
    report.load_seconds = number("load_seconds");
    report.peak_bytes = record.extra.get("peak_bytes").and_then(Value::as_u64);
    report.p50 = slowest(record, "step_times", "p50");
    report.p99 = slowest(record, "step_times", "p99");
    report.device = text(record, "device");
    report.reference = record.extra.get("reference").filter(|value| !value.is_null()).cloned();
    let series = record.extra.get("step_seconds").cloned().unwrap_or_default();
    report.step_seconds = serde_json::from_value::<BTreeMap<String, Vec<f64>>>(series).unwrap_or_default();
    let verdicts = record.extra.get("verdicts").cloned().unwrap_or_default();
    let verdicts: Vec<Verdict> = serde_json::from_value(verdicts).unwrap_or_default();
    report.verdicts = verdicts.iter().map(line_of).collect();
}

fn line_of(verdict: &Verdict) -> VerdictLine {
    VerdictLine {
        severity: match verdict.severity {
            Severity::Failure => "failure",
            Severity::Warning => "warning",
        },
        check: verdict.check.as_str().to_owned(),
        text: verdict.to_string(),
    }
}

fn of_runtime(record: &RuntimeRecord, digest: Option<&str>) -> Vec<VerdictLine> {
    if Some(record.artifact_sha256.to_string().as_str()) != digest {
        return Vec::new();
    }
    let mut lines = Vec::new();
    for (camera, run) in &record.runs {
        if run.passed {
            let text = format!("drove for {:.0} s on {}", run.result.seconds, run.device);
            lines.push(VerdictLine { severity: "good", check: camera.clone(), text });
        }
        for finding in &run.result.findings {
            let text = format!("{}: {} ({})", finding.check, finding.text, run.device);
            lines.push(VerdictLine { severity: "failure", check: camera.clone(), text });
        }
    }
    lines
}

/// The one word for a model.
fn judge(report: &mut ModelReport, status: Result<&ModelStatus, String>, unreadable: Vec<String>) {
    let status = match status {
        Ok(status) => status,
        Err(why) => {
            report.status = "broken";
            report.failure = Some(unreadable.into_iter().next().unwrap_or(why));
            return;
        }
    };
    report.failure = status.failure.clone().or_else(|| unreadable.into_iter().next());
    report.status = match (status.sources.as_str(), status.artifact.as_str(), status.validation) {
        (_, "current" | "outdated" | "unrecorded", "passed") => "passed",
        (_, "current" | "outdated" | "unrecorded", "failed") => "failed",
        (_, "current" | "outdated" | "unrecorded", _) => "not validated",
        (_, "no sources", _) => "not extracted",
        ("current", ..) => "not compiled",
        _ => "not extracted",
    };
}

fn plot(drive: &CameraDrive) -> CameraPlot {
    CameraPlot { camera: drive.camera.to_string(), scenes: drive.scenes.iter().map(scene_plot).collect() }
}

fn scene_plot(scene: &Scene) -> ScenePlot {
    let round = |value: f64| (value * 100.0).round() / 100.0;
    let offsets = |lines: &[Vec<[f64; 2]>]| -> Vec<Vec<f64>> {
        lines.iter().map(|line| line.iter().map(|point| round(point[1])).collect()).collect()
    };
    ScenePlot {
        step: scene.step,
        path: scene.path.iter().map(|point| point.map(round)).collect(),
        lanes: offsets(&scene.lane_lines),
        lane_probs: scene.lane_probabilities.iter().copied().map(round).collect(),
        edges: offsets(&scene.road_edges),
        leads: scene.leads.iter().map(|lead| [lead.x, lead.y, lead.probability].map(round)).collect(),
        speed: scene.own_speed.map(round),
    }
}
