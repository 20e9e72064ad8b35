//! `rebuild namespace`.

use clap::Args;
use console_report::{Console, Failure};
use model_catalog::{ManifestVersion, ModelId};
use model_manifest::{NamespaceRequest, plan_namespace};
use rebuild_workspace::load_manifest;

use super::plans::{MapArgs, carry_out, snapshot};
use crate::{
    cli::{CatalogArgs, Cli},
    failure::of_workspace,
    session::Session,
};

/// Gives every model its release ID: writes the release manifest and the ID map, renames files, updates records.
#[derive(Debug, Args)]
pub struct NamespaceArgs {
    /// Source maps and base manifest [default of the manifest here: manifests/model_names_v22.json].
    #[command(flatten)]
    catalog: CatalogArgs,
    /// The version of the namespace and its manifest.
    #[arg(long, default_value = "v23", value_name = "vN")]
    manifest_version: ManifestVersion,
    /// What is appended to an ID.
    #[arg(long, default_value = "3")]
    suffix: String,
    /// Rename the files of these models only; the manifest lists all.
    #[arg(long, value_name = "ID", num_args = 1..)]
    completed_ids: Option<Vec<ModelId>>,
    #[command(flatten)]
    maps: MapArgs,
    /// Say what would be done, and change nothing.
    #[arg(long)]
    dry_run: bool,
}

pub fn run(args: &NamespaceArgs, cli: &Cli, console: &Console) -> Result<(), Failure> {
    let session = Session::for_run(cli, console, "rebuild namespace", args.dry_run)?;
    let generated = session.workspace.manifest_file(ManifestVersion::from_number(22));
    let path = args.catalog.base_manifest.clone().unwrap_or(generated);
    let base = load_manifest(&path).map_err(of_workspace("the base manifest cannot be read"))?;
    let snapshot = snapshot(&session, args.manifest_version, &args.catalog)?;
    let releases = args.maps.releases(&session, args.manifest_version)?;
    let additions = args.maps.additions()?;
    let request = NamespaceRequest {
        base: &base,
        version: args.manifest_version,
        suffix: &args.suffix,
        completed: args.completed_ids.as_deref(),
        releases: &releases,
        additions: &additions,
    };
    carry_out(&session, plan_namespace(&snapshot, &request), args.dry_run)
}
