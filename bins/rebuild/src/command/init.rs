//! `rebuild init`.

use camino::Utf8PathBuf;
use clap::Args;
use console_report::{Console, Failure};
use model_catalog::Target;
use rebuild_workspace::{InitOptions, Workspace};
use serde_json::json;

use crate::{cli::Cli, failure::of_workspace};

/// Makes the folders, copies the source maps and writes a rebuild.toml; what is there already is kept.
#[derive(Debug, Args)]
pub struct InitArgs {
    /// Make the directory although no disk is mounted where its path says.
    #[arg(long)]
    create: bool,
    /// A source map to use instead of the built-in ones; may be given several times.
    #[arg(long, value_name = "FILE")]
    source_map: Vec<Utf8PathBuf>,
    /// The device to write into a new rebuild.toml.
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,
    /// The target to write into a new rebuild.toml: qcom, external-gpu or cpu.
    #[arg(long, value_name = "TARGET")]
    target: Option<Target>,
}

pub fn run(args: &InitArgs, cli: &Cli, console: &Console) -> Result<(), Failure> {
    let options = InitOptions {
        create: args.create,
        source_maps: args.source_map.clone(),
        device: args.device.clone(),
        target: args.target,
    };
    let (workspace, report) =
        Workspace::init(&cli.workspace, &options).map_err(of_workspace("the workspace was not made"))?;
    // A configuration that was there is looked at now rather than by the first command that needs it.
    workspace.config().map_err(of_workspace("the workspace is there, but cannot be used"))?;
    for kept in &report.kept {
        console.note(&format!("{kept} was there already with other content; it was kept"));
    }
    console.result(&json!({"workspace": workspace.root(), "made": report.made, "kept": report.kept}), || {
        match report.made.len() {
            0 => format!("{} is complete, nothing was made", workspace.root()),
            made => format!("{}: {made} files and folders made", workspace.root()),
        }
    });
    Ok(())
}
