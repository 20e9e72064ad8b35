//! `rebuild reconcile`.

use clap::Args;
use console_report::{Console, Failure};
use model_catalog::ManifestVersion;
use model_manifest::{ReconcileRequest, plan_reconcile};

use super::plans::{MapArgs, carry_out, snapshot};
use crate::{
    cli::{CatalogArgs, Cli},
    session::Session,
};

/// Brings recovered models and files under stray names into the namespace; a second run finds nothing to do.
#[derive(Debug, Args)]
pub struct ReconcileArgs {
    /// Source maps.
    #[command(flatten)]
    catalog: CatalogArgs,
    /// The version of the namespace.
    #[arg(long, default_value = "v23", value_name = "vN")]
    manifest_version: ManifestVersion,
    #[command(flatten)]
    maps: MapArgs,
    /// Say what would be done, and change nothing.
    #[arg(long)]
    dry_run: bool,
}

pub fn run(args: &ReconcileArgs, cli: &Cli, console: &Console) -> Result<(), Failure> {
    let session = Session::for_run(cli, console, "rebuild reconcile", args.dry_run)?;
    let snapshot = snapshot(&session, args.manifest_version, &args.catalog)?;
    let releases = args.maps.releases(&session, args.manifest_version)?;
    let additions = args.maps.additions()?;
    let request =
        ReconcileRequest { version: args.manifest_version, releases: &releases, additions: &additions };
    carry_out(&session, plan_reconcile(&snapshot, &request), args.dry_run)
}
