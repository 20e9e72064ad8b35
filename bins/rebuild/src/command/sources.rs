//! `rebuild sources`.

use clap::Args;
use console_report::{Console, Exit, Failure, size_text, table};
use onnx_source::{OnnxModel, TensorInfo};
use rebuild_workspace::{SourceFile, SourceRecord};
use serde::Serialize;

use crate::{
    cli::{CatalogArgs, Cli},
    failure::{of_models, of_workspace},
    selection::select,
    session::Session,
};

/// Shows what the extracted ONNX files are; the weights are not read.
#[derive(Debug, Args)]
pub struct SourcesArgs {
    /// A model, by source or release ID; may be given several times [default: all].
    #[arg(long = "model", value_name = "ID")]
    models: Vec<String>,
    /// Source maps and manifest.
    #[command(flatten)]
    catalog: CatalogArgs,
}

/// One file, for JSON.
#[derive(Debug, Serialize)]
struct Described<'a> {
    id: &'a str,
    #[serde(flatten)]
    record: &'a SourceFile,
    onnx: &'a OnnxModel,
    slices: serde_json::Value,
}

pub fn run(args: &SourcesArgs, cli: &Cli, console: &Console) -> Result<(), Failure> {
    let session = Session::look(cli, console)?;
    let map = session.source_map(&args.catalog)?;
    let models = select(&session.workspace, &map, &args.models)?;
    let (mut rows, mut failed, mut absent) = (Vec::new(), Vec::new(), 0);
    for model in &models {
        let record = session.workspace.record::<SourceRecord>(&model.id);
        let record = record.map_err(of_workspace(format!("the record of {} cannot be read", model.id)))?;
        let Some(record) = record else {
            absent += 1;
            continue;
        };
        for file in &record.files {
            match describe(console, model.id.as_str(), file) {
                Ok(row) => rows.push(row),
                Err(failure) => {
                    console.show(&failure);
                    failed.push(model.id.as_str());
                }
            }
        }
    }
    if !console.is_json() && !rows.is_empty() {
        let headers =
            ["model", "component", "#size", "sha256", "opset", "inputs", "outputs", "slices", "from"];
        console.result(&(), || table(&headers, rows));
    }
    if absent > 0 {
        let noun = if absent == 1 { "model is" } else { "models are" };
        console.note(&format!("{absent} {noun} not extracted yet; `rebuild extract` gets the sources"));
    }
    failed.dedup();
    of_models("read", &failed, models.len(), false)
}

fn describe(console: &Console, id: &str, file: &SourceFile) -> Result<[String; 9], Failure> {
    let refused = |error: &onnx_source::OnnxError| {
        Failure::new(Exit::Failed, format!("{} cannot be read", file.path))
            .because(error)
            .advice("`rebuild extract --force` gets it again")
    };
    let onnx = OnnxModel::open(&file.path).map_err(|error| refused(&error))?;
    let slices = onnx.resolved_slices().map_err(|error| refused(&error))?;
    if console.is_json() {
        let slices =
            slices.iter().map(|(name, range)| (name.clone(), serde_json::json!([range.start, range.end])));
        let slices = serde_json::Value::Object(slices.collect());
        console.result(&Described { id, record: file, onnx: &onnx, slices }, String::new);
    }
    let from = file.extra.get("source").and_then(|source| source.get("from")?.as_str()).unwrap_or("-");
    Ok([
        id.to_owned(),
        file.path.file_stem().unwrap_or_default().trim_start_matches(id).trim_start_matches('_').to_owned(),
        size_text(file.size),
        file.sha256.to_string()[..12].to_owned(),
        onnx.opsets.first().map_or_else(|| "-".to_owned(), |opset| opset.version.to_string()),
        tensors(&onnx.inputs),
        tensors(&onnx.outputs),
        slices.len().to_string(),
        from.to_owned(),
    ])
}

fn tensors(tensors: &[TensorInfo]) -> String {
    tensors
        .iter()
        .map(|tensor| format!("{} {}", tensor.name, tensor.shape_text()))
        .collect::<Vec<_>>()
        .join("\n")
}
