//! `models --list`: what is staged, and what is compiled of it.

use console_report::{Console, Failure, size_text, table};
use model_catalog::{ArtifactName, ModelId};
use serde::Serialize;
use tinygrad_compile::{
    CompileError,
    staged::{StagedError, StagedModel, StagedSources},
};

use crate::{arguments::CompileArgs, failure::of_compile};

#[derive(Serialize)]
struct Row {
    id: String,
    format: String,
    files: Vec<String>,
    compiled: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

fn row(
    model: &StagedModel,
    sources: &StagedSources,
    args: &CompileArgs,
    target: model_catalog::Target,
) -> Row {
    let id: Option<&ModelId> = model.place.id();
    let artifact = id.map(|id| args.output_dir().join(ArtifactName::new(id.clone()).to_string()));
    let size = artifact.and_then(|path| path.metadata().ok()).map(|metadata| metadata.len());
    let problem = id.and_then(|id| sources.select(Some(id), args.input_format.into(), target).err());
    let files = model.files.values().flatten().filter_map(|path| path.file_name().map(str::to_owned));
    Row {
        id: model.label(),
        format: model.format().to_string(),
        files: files.collect(),
        compiled: size,
        problem: problem.map(|problem| problem.to_string()),
    }
}

/// Lists.
pub fn run(args: &CompileArgs, console: &Console) -> Result<(), Failure> {
    let dir = args.input_dir();
    let failed =
        |error: StagedError| of_compile("the staged models cannot be listed", &CompileError::from(error));
    let sources = StagedSources::scan(&dir).map_err(failed)?;
    let target = args.target()?;
    let rows: Vec<Row> = sources.models.iter().map(|model| row(model, &sources, args, target)).collect();
    if console.is_json() {
        rows.iter().for_each(|row| console.result(row, String::new));
        return Ok(());
    }
    if rows.is_empty() {
        console.note(&format!("no model is staged in {dir}"));
        return Ok(());
    }
    let cells = rows.iter().map(|row| {
        let compiled = row.compiled.map_or_else(|| "-".to_owned(), size_text);
        [row.id.clone(), row.format.clone(), compiled, row.files.join(" ")]
    });
    let text = table(&["ID", "FORMAT", "#COMPILED", "SOURCES"], cells);
    console.result(&rows, || text);
    rows.iter().filter_map(|row| row.problem.as_ref()).for_each(|problem| console.warn(problem));
    Ok(())
}
