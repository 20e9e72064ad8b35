//! `rebuild verify`.

use artifact_parts::PartLimit;
use clap::Args;
use console_report::{Console, Exit, Failure};
use durable_fs::Progress;
use model_catalog::ManifestVersion;
use model_manifest::{GateOptions, GateReport, verify_workspace};

use crate::{
    cli::{CatalogArgs, Cli},
    command::{
        checklist::{self, ChecklistArgs},
        verify_runtime::{self, RuntimeArgs},
    },
    failure::{of_manifest_work, of_parts},
    session::Session,
};

/// Checks the workspace as a whole before a release: completeness, digests, parts, inspection, validation. With --runtime
/// models drive on the device's own runtime; with --checklist a person answers what no program can see.
#[derive(Debug, Args)]
pub struct VerifyArgs {
    /// Source maps.
    #[command(flatten)]
    catalog: CatalogArgs,
    /// The version of the namespace that is released.
    #[arg(long, default_value = "v23", value_name = "vN")]
    manifest_version: ManifestVersion,
    /// Do not ask for the driver-monitoring set.
    #[arg(long)]
    without_dm: bool,
    /// Let representative models drive on the device's own runtime instead.
    #[arg(long, conflicts_with_all = ["checklist", "without_dm"])]
    runtime: bool,
    /// Go through the checks that a person makes instead.
    #[arg(long, conflicts_with = "without_dm")]
    checklist: bool,
    #[command(flatten)]
    runtime_args: RuntimeArgs,
    #[command(flatten)]
    checklist_args: ChecklistArgs,
}

pub fn run(args: &VerifyArgs, cli: &Cli, console: &Console) -> Result<(), Failure> {
    if args.runtime {
        return verify_runtime::run(&args.runtime_args, &args.catalog, cli, console);
    }
    if args.checklist {
        return checklist::run(&args.checklist_args, args.manifest_version, cli, console);
    }
    let session = Session::look(cli, console)?;
    let report = gate(&session, &args.catalog, args.manifest_version, !args.without_dm)?;
    console.result(&report, || report.to_string());
    refuse(&report)
}

/// Everything that the gate finds.
pub fn gate(
    session: &Session<'_>,
    catalog: &CatalogArgs,
    version: ManifestVersion,
    driver_monitoring: bool,
) -> Result<GateReport, Failure> {
    let sources = session.source_map(catalog)?;
    let part_limit = part_limit(session)?;
    session.console.begin("verifying", None);
    let options = GateOptions { version, part_limit, driver_monitoring, proof: session.config.release };
    let report = verify_workspace(&session.workspace, sources, &options, session.console);
    session.console.end();
    report.map_err(|error| of_manifest_work("the workspace cannot be verified", &error))
}

/// The size above which a file is in parts.
pub fn part_limit(session: &Session<'_>) -> Result<PartLimit, Failure> {
    PartLimit::from_bytes(session.config.part_limit())
        .map_err(|error| of_parts("the part limit of rebuild.toml cannot be used", &error))
}

/// The failure of a report with problems.
pub fn refuse(report: &GateReport) -> Result<(), Failure> {
    match report.problems.len() {
        0 => Ok(()),
        many => {
            let problems = if many == 1 { "problem forbids" } else { "problems forbid" };
            Err(Failure::new(Exit::Failed, format!("{many} {problems} releasing {}", report.version))
                .advice("put right what stands above and run `rebuild verify` again"))
        }
    }
}
