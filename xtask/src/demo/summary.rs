//! What the demo prints at its end.

use std::time::Duration;

use anyhow::{Context, Result};
use console_report::table;
use e2e::Scenario;
use serde_json::Value;

use super::catalog::MODELS;

/// Prints the table of artifacts and where to look.
pub fn print(scenario: &Scenario, joined: &[String], took: Duration) -> Result<()> {
    let rows = MODELS.iter().map(|model| row(scenario, model.id)).collect::<Result<Vec<_>>>()?;
    let headers = ["model", "released as", "type", "#MiB", "#parts", "SHA-256", "#seconds"];
    println!("\n{}\n", table(&headers, rows));
    println!(
        "{} artifacts put together again from their parts, byte for byte: {}",
        joined.len(),
        joined.join(", ")
    );
    let root = scenario.workspace.parent().unwrap_or(&scenario.workspace);
    println!("\nWhere to look, in {root}:");
    for (path, holds) in [
        ("workspace/compiled", "the artifacts"),
        ("workspace/ready-for-resources", "what would be uploaded, with multipart.json"),
        ("workspace/manifests/model_names_v23.json", "the released catalog"),
        ("workspace/results", "one record a model and stage"),
        ("workspace/logs", "one compile log a model"),
        ("openpilot", "the git history they came from"),
    ] {
        println!("  {path:<42} {holds}");
    }
    println!("\nThe demo took {:.0} s.", took.as_secs_f64());
    Ok(())
}

fn row(scenario: &Scenario, id: &str) -> Result<[String; 7]> {
    let artifact = scenario.record(&format!("{id}_artifact.json"))?;
    let validation = scenario.record(&format!("{id}_validation.json"))?;
    let build = scenario.record(&format!("{id}_build.json"))?;
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let size = artifact["size"].as_f64().context("an artifact record has a size")?;
    let mut digest = text(&artifact["sha256"]);
    digest.truncate(16);
    Ok([
        id.to_owned(),
        text(&artifact["release_id"]),
        text(&validation["model_type"]),
        format!("{:.1}", size / f64::from(1 << 20)),
        part_count(scenario, artifact["release_id"].as_str().unwrap_or(id))?.to_string(),
        digest,
        build_seconds(&build).map_or_else(|| "-".to_owned(), |seconds| format!("{seconds:.1}")),
    ])
}

/// The stages' seconds together; `compile.write` is a step of the stage `compile`.
fn build_seconds(build: &Value) -> Option<f64> {
    let stages = build.get("seconds")?.as_object()?.iter().filter(|(stage, _)| !stage.contains('.'));
    Some(stages.filter_map(|(_, seconds)| seconds.as_f64()).sum())
}

fn part_count(scenario: &Scenario, id: &str) -> Result<usize> {
    let list = scenario.workspace.join("ready-for-resources/multipart.json");
    let text = std::fs::read_to_string(&list).with_context(|| format!("read {list}"))?;
    let list: Value = serde_json::from_str(&text).with_context(|| format!("parse {list}"))?;
    let entry = list.as_array().into_iter().flatten().find(|entry| entry["id"] == id);
    Ok(entry.and_then(|entry| entry["parts"].as_array()).map_or(0, Vec::len))
}
