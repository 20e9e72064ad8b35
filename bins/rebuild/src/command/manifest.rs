//! `rebuild manifest`.

use clap::Args;
use console_report::{Console, Failure};
use model_catalog::ManifestVersion;
use model_manifest::{BaseRequest, plan_base};

use super::plans::{AdditionsArgs, carry_out, snapshot};
use crate::{
    cli::{CatalogArgs, Cli},
    session::Session,
};

/// Writes the base manifest: the one before without descriptions of old artifacts, tagged models marked, late ones added.
#[derive(Debug, Args)]
pub struct ManifestArgs {
    /// Source maps and base manifest.
    #[command(flatten)]
    catalog: CatalogArgs,
    /// The version of the manifest.
    #[arg(long, default_value = "v22", value_name = "vN")]
    manifest_version: ManifestVersion,
    #[command(flatten)]
    additions: AdditionsArgs,
    /// Say what would be done, and change nothing.
    #[arg(long)]
    dry_run: bool,
}

pub fn run(args: &ManifestArgs, cli: &Cli, console: &Console) -> Result<(), Failure> {
    let session = Session::for_run(cli, console, "rebuild manifest", args.dry_run)?;
    let base = session.required_base_manifest(&args.catalog)?;
    let snapshot = snapshot(&session, args.manifest_version, &args.catalog)?;
    let additions = args.additions.load()?;
    let request = BaseRequest { base: &base, version: args.manifest_version, additions: &additions };
    carry_out(&session, plan_base(&snapshot, &request), args.dry_run)
}
