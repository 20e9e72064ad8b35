//! What changed since the artifact before.

use device_validate::{DriveRecord, decode::Scene};
use rebuild_workspace::ValidationRecord;
use serde::Serialize;
use serde_json::Value;

/// One thing that is not as it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Change {
    /// What it is.
    pub what: String,
    /// As it was.
    pub before: String,
    /// As it is.
    pub now: String,
}

/// How far the path of one camera moved, over all scenes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PathChange {
    /// The camera.
    pub camera: String,
    /// Mean distance in metres between points of the same time.
    pub mean: f64,
    /// The largest.
    pub most: f64,
}

/// Everything that two validations say differently.
pub(crate) fn changes(before: &ValidationRecord, now: &ValidationRecord) -> Vec<Change> {
    let mut changes = Vec::new();
    let mut compare = |what: &str, before: String, now: String| {
        if before != now {
            changes.push(Change { what: what.to_owned(), before, now });
        }
    };
    compare("artifact", short(before, "artifact_sha256"), short(now, "artifact_sha256"));
    let version =
        |record: &ValidationRecord| record.version.map_or_else(|| "none".to_owned(), |v| v.to_string());
    compare("behaviour version", version(before), version(now));
    compare("type", before.model_type.to_string(), now.model_type.to_string());
    compare("device", text(before, "device"), text(now, "device"));
    compare("verdict", passed(before), passed(now));
    for (name, width) in &now.output_sizes {
        let was = before.output_sizes.get(name);
        if was != Some(width) {
            compare(
                &format!("values of {name}"),
                was.map_or_else(|| "absent".to_owned(), Value::to_string),
                width.to_string(),
            );
        }
    }
    for (name, width) in before.output_sizes.iter().filter(|(name, _)| !now.output_sizes.contains_key(*name))
    {
        compare(&format!("values of {name}"), width.to_string(), "absent".to_owned());
    }
    for (what, field, of) in [("median step", "p50", "step_times"), ("slow step (p99)", "p99", "step_times")]
    {
        let (was, is) = (slowest(before, of, field), slowest(now, of, field));
        // Times are never equal: a tenth is where a person would look.
        if let (Some(was), Some(is)) = (was, is)
            && (is - was).abs() > 0.1 * was
        {
            compare(what, format!("{:.1} ms", was * 1e3), format!("{:.1} ms", is * 1e3));
        }
    }
    changes
}

/// The largest of a field over the cameras.
pub(crate) fn slowest(record: &ValidationRecord, of: &str, field: &str) -> Option<f64> {
    let cameras = record.extra.get(of)?.as_object()?;
    cameras.values().filter_map(|times| times.get(field)?.as_f64()).reduce(f64::max)
}

fn text(record: &ValidationRecord, field: &str) -> String {
    record.extra.get(field).and_then(Value::as_str).unwrap_or("unknown").to_owned()
}

fn short(record: &ValidationRecord, field: &str) -> String {
    text(record, field).chars().take(12).collect()
}

fn passed(record: &ValidationRecord) -> String {
    match record.extra.get("passed") {
        Some(Value::Bool(true)) => "passed".to_owned(),
        _ => "failed".to_owned(),
    }
}

/// How far the paths moved, camera by camera; scenes of the same step are compared.
pub(crate) fn path_changes(before: &DriveRecord, now: &DriveRecord) -> Vec<PathChange> {
    let mut changes = Vec::new();
    for camera in &now.cameras {
        let Some(old) = before.cameras.iter().find(|old| old.camera == camera.camera) else { continue };
        let mut distances = Vec::new();
        for scene in &camera.scenes {
            if let Some(was) = old.scenes.iter().find(|was| was.step == scene.step) {
                distances.extend(moved(was, scene));
            }
        }
        if distances.is_empty() {
            continue;
        }
        let mean = distances.iter().sum::<f64>() / distances.len() as f64;
        let most = distances.iter().copied().fold(0.0, f64::max);
        changes.push(PathChange { camera: camera.camera.to_string(), mean, most });
    }
    changes
}

fn moved<'s>(was: &'s Scene, is: &'s Scene) -> impl Iterator<Item = f64> + 's {
    was.path.iter().zip(&is.path).map(|(a, b)| (a[0] - b[0]).hypot(a[1] - b[1]))
}
