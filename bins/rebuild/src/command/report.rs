//! `rebuild report`.

use camino::Utf8PathBuf;
use clap::Args;
use console_report::{Console, Exit, Failure, size_text};
use device_validate::decode::DISTANCES;
use durable_fs::write_atomic;
use model_catalog::{Manifest, ModelId};
use rebuild_workspace::{MultipartList, load_manifest, model_status, version_of};
use remote_compile::catalog::CatalogOptions;
use serde_json::json;
use validation_report::{Report, gather_model, render};

use crate::{
    cli::{CatalogArgs, Cli},
    failure::{exit_of_fs, of_workspace},
    selection::select,
    session::Session,
};

/// Name of the report in the workspace.
const FILE: &str = "report.html";

/// Writes one self-contained HTML file: the catalog as a table, and how each model drove in its validation.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// A model, by source or release ID; may be given several times [default: all].
    #[arg(long = "model", value_name = "ID")]
    models: Vec<String>,
    /// Where the file goes [default: report.html in the workspace].
    #[arg(long, short, value_name = "FILE")]
    output: Option<Utf8PathBuf>,
    /// Say what would be written, and write nothing.
    #[arg(long)]
    dry_run: bool,
    /// Source maps and manifest.
    #[command(flatten)]
    catalog: CatalogArgs,
}

pub fn run(args: &ReportArgs, cli: &Cli, console: &Console) -> Result<(), Failure> {
    let session = Session::look(cli, console)?;
    let map = session.source_map(&args.catalog)?;
    let base = session.base_manifest(&args.catalog)?;
    // A recovered model has a name in the manifests that were generated, not in the base.
    let generated = generated(&session);
    let named: Vec<&Manifest> = base.iter().chain(&generated).collect();
    let multipart =
        MultipartList::load(&session.workspace).map_err(of_workspace("the list of parts cannot be read"))?;
    let selected = select(&session.workspace, &map, &args.models)?;
    let progress: &dyn durable_fs::Progress = console;
    progress.begin("gathering records", Some(selected.len() as u64));
    let mut models = Vec::new();
    for model in &selected {
        session.check_interrupt("the report")?;
        let version = version_of(base.as_ref(), &model.id, model.entry.input_format);
        let target = CatalogOptions::target_for(session.config.target(), &model.entry);
        let pipeline = session.config.image_history_pipeline();
        let status = model_status(&session.workspace, &model.id, &model.entry, version, pipeline, target);
        let name = name_of(&named, &model.id).unwrap_or(model.id.as_str());
        let status = status.as_ref().map_err(ToString::to_string);
        let mut report =
            gather_model(&session.workspace, (&model.id, name, model.entry.input_format), status, &multipart);
        report.version = report.version.or(version.map(|version| version.to_string()));
        models.push(report);
        progress.advance(1);
    }
    progress.end();
    let output = args.output.clone().unwrap_or_else(|| session.workspace.root().join(FILE));
    let plotted = models.iter().filter(|model| !model.drive.is_empty()).count();
    let report = Report {
        workspace: session.workspace.root().file_name().unwrap_or("workspace").to_owned(),
        made: jiff::Timestamp::now().strftime("%Y-%m-%d %H:%M UTC").to_string(),
        distances: DISTANCES.to_vec(),
        models,
    };
    let html = render(&report).map_err(|error| {
        Failure::new(Exit::Failed, "the report cannot be written as JSON").because(&error)
    })?;
    if !args.dry_run {
        write_atomic(&output, html.as_bytes()).map_err(|error| {
            Failure::new(exit_of_fs(&error), "the report was not written").because(&error)
        })?;
    }
    let size = html.len() as u64;
    let value = json!({"path": output, "models": report.models.len(), "plotted": plotted, "size": size, "written": !args.dry_run});
    console.result(&value, || {
        let verb = if args.dry_run { "would hold" } else { "holds" };
        format!("{output} {verb} {} models, {plotted} with plots ({})", report.models.len(), size_text(size))
    });
    Ok(())
}

/// The manifest that `rebuild manifest` wrote, where it is there and can be read: its IDs are source IDs.
fn generated(session: &Session<'_>) -> Option<Manifest> {
    let version = model_catalog::ManifestVersion::from_number(22);
    load_manifest(&session.workspace.manifest_file(version)).ok()
}

fn name_of<'m>(manifests: &[&'m Manifest], id: &ModelId) -> Option<&'m str> {
    manifests.iter().find_map(|manifest| manifest.get(id)).map(|entry| entry.display_name())
}
