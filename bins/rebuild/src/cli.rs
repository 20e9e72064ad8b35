//! The command line.

use camino::Utf8PathBuf;
use clap::{Args, Parser, Subcommand};

use crate::command;

/// Where the maintainer's workspace is unless told otherwise.
const DEFAULT_WORKSPACE: &str = "/Volumes/T5/StarPilot-Model-Rebuild-2026-06-22/";

const EXIT_CODES: &str = "Exit codes: 0 all good; 1 a model, check or comparison failed (each failed model has its \
    record); 2 wrong command line or unknown ID; 3 refused by a safety rule; 4 interrupted (run again to go on); \
    5 environment (missing tool, clone or workspace, disk full, unwritable).";

/// Rebuilds a catalog of driving models: sources from a git history, artifacts compiled on one device, validated, split,
/// and released under new names.
#[derive(Debug, Parser)]
#[command(name = "rebuild", version, after_help = EXIT_CODES)]
pub struct Cli {
    /// The workspace directory.
    #[arg(long, global = true, default_value = DEFAULT_WORKSPACE, value_name = "DIR")]
    pub workspace: Utf8PathBuf,
    /// One JSON object a line on stdout and stderr.
    #[arg(long, global = true)]
    pub json: bool,
    /// Show what lies behind an error.
    #[arg(short, long, global = true)]
    pub verbose: bool,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The steps of a rebuild, in their order.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Make a workspace, or complete one.
    Init(command::init::InitArgs),
    /// Get the ONNX sources of the source map out of the clone, verified.
    Extract(command::extract::ExtractArgs),
    /// Show what the extracted ONNX files are: inputs, outputs, slices, provenance.
    Sources(command::sources::SourcesArgs),
    /// Compile what is not current on the device, and bring it home.
    Compile(command::compile::CompileArgs),
    /// Compile driver monitoring: its model, metadata and both camera warps, together.
    Dm(command::dm::DmArgs),
    /// Run every artifact over synthetic frames and judge what comes out.
    Validate(command::validate::ValidateArgs),
    /// Write the base manifest.
    Manifest(command::manifest::ManifestArgs),
    /// Give every model its release ID: manifest, files, records.
    Namespace(command::namespace::NamespaceArgs),
    /// Bring recovered models and stray names into the namespace.
    Reconcile(command::reconcile::ReconcileArgs),
    /// Check the workspace as a whole before a release.
    Verify(command::verify::VerifyArgs),
    /// Publish a verified workspace to a resource repository, or roll the newest release back.
    Publish(command::publish::PublishArgs),
    /// Show where every model stands.
    Status(command::status::StatusArgs),
    /// Write one HTML file that shows the catalog and how each model drove.
    Report(command::report::ReportArgs),
    /// Look at this machine, the workspace and the device, and say what stands in the way.
    Doctor(command::doctor::DoctorArgs),
    /// Trust a device, or put `models` onto it.
    #[command(subcommand)]
    Device(command::device::DeviceCommand),
}

/// Options of every command that reads the catalog.
#[derive(Debug, Clone, Args)]
pub struct CatalogArgs {
    /// A source map to read instead of the workspace's; may be given several times.
    #[arg(long, value_name = "FILE")]
    pub source_map: Vec<Utf8PathBuf>,
    /// The manifest that versions come from [default: `base_manifest` of rebuild.toml].
    #[arg(long, value_name = "FILE")]
    pub base_manifest: Option<Utf8PathBuf>,
}

/// Options of every command that works on models.
#[derive(Debug, Clone, Args)]
pub struct ModelArgs {
    /// A model, by source or release ID; may be given several times [default: all].
    #[arg(long = "model", value_name = "ID")]
    pub models: Vec<String>,
    /// Source maps and manifest.
    #[command(flatten)]
    pub catalog: CatalogArgs,
    /// Do it although it is current.
    #[arg(long)]
    pub force: bool,
    /// Say what would be done, and change nothing.
    #[arg(long)]
    pub dry_run: bool,
}

/// Options of every command that uses a device.
#[derive(Debug, Clone, Args)]
pub struct DeviceArgs {
    /// The device: `local` for this machine, or user@address [default: `device` of rebuild.toml, else the supported comma].
    #[arg(long, value_name = "DEVICE")]
    pub device: Option<String>,
    /// Allow a device that is neither the supported one nor recorded in rebuild.toml, for this run.
    #[arg(long, value_name = "DEVICE")]
    pub allow_device: Vec<String>,
    /// Use the device although it is on the road.
    #[arg(long)]
    pub while_driving: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        <Cli as clap::CommandFactory>::command().debug_assert();
    }

    #[test]
    fn models_may_be_repeated_and_globals_stand_anywhere() {
        let cli = Cli::try_parse_from([
            "rebuild",
            "compile",
            "--model",
            "a",
            "--model",
            "b",
            "--json",
            "--workspace",
            "/w",
        ]);
        let cli = cli.unwrap();
        let Command::Compile(args) = cli.command else { panic!("another command") };
        assert_eq!(args.model.models, ["a", "b"]);
        assert!(cli.json && cli.workspace == "/w");
    }
}
