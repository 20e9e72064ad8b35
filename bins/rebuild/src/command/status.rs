//! `rebuild status`.

use clap::Args;
use console_report::{Console, Failure, size_text, table};
use rebuild_workspace::{model_status, version_of};
use remote_compile::catalog::CatalogOptions;

use crate::{
    cli::{CatalogArgs, Cli},
    failure::of_workspace,
    selection::select,
    session::Session,
};

/// Shows where every model stands: sources, artifact, validation, and the failure that stands.
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// A model, by source or release ID; may be given several times [default: all].
    #[arg(long = "model", value_name = "ID")]
    models: Vec<String>,
    /// Source maps and manifest.
    #[command(flatten)]
    catalog: CatalogArgs,
}

pub fn run(args: &StatusArgs, cli: &Cli, console: &Console) -> Result<(), Failure> {
    let session = Session::look(cli, console)?;
    let map = session.source_map(&args.catalog)?;
    let base = session.base_manifest(&args.catalog)?;
    let config = &session.config;
    let mut rows = Vec::new();
    for model in select(&session.workspace, &map, &args.models)? {
        let target = CatalogOptions::target_for(config.target(), &model.entry);
        let version = version_of(base.as_ref(), &model.id, model.entry.input_format);
        let pipeline = config.image_history_pipeline();
        let status = model_status(&session.workspace, &model.id, &model.entry, version, pipeline, target)
            .map_err(of_workspace(format!("the state of {} cannot be read", model.id)))?;
        if console.is_json() {
            console.result(&status, String::new);
            continue;
        }
        rows.push([
            status.id.to_string(),
            status.release_id.map_or_else(|| "-".to_owned(), |id| id.to_string()),
            status.sources,
            status.artifact,
            status.size.map_or_else(|| "-".to_owned(), size_text),
            status.validation.to_owned(),
            status.failure.unwrap_or_default(),
        ]);
    }
    if !console.is_json() {
        let headers = ["model", "released as", "sources", "artifact", "#size", "validated", "failure"];
        console.result(&(), || table(&headers, rows));
    }
    Ok(())
}
