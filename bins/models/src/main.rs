//! `models`: the device's compiler. It also runs on the host, which is how local builds and tests work.

mod arguments;
mod command;
mod dynamic;
mod failure;
mod machine;

use std::process::ExitCode;

use arguments::{Cli, Subcommand};
use console_report::{Console, Failure};

/// Says which version this file is to a host that cannot run it: `rebuild device bootstrap` looks for it.
#[used]
static EMBEDDED_VERSION: &str = concat!("models embedded version: ", env!("CARGO_PKG_VERSION"), "\n");

fn main() -> ExitCode {
    let cli = match dynamic::parse(std::env::args_os()) {
        Ok(cli) => cli,
        Err(refusal) => return refusal.exit(),
    };
    let console = Console::new(cli.json, cli.verbose);
    console.finish(run(&cli, &console))
}

fn run(cli: &Cli, console: &Console) -> Result<(), Failure> {
    match &cli.subcommand {
        Some(Subcommand::Job(args)) => command::job::run(args, &cli.compile, console),
        Some(Subcommand::Fetch(args)) => command::fetch::run(args, console),
        Some(Subcommand::Join(args)) => command::join::run(args, console),
        Some(Subcommand::Inspect(args)) => command::inspect::run(args, console),
        Some(Subcommand::Verify(args)) => command::verify::run(args, console),
        Some(Subcommand::Diff(args)) => command::diff::run(args, console),
        Some(Subcommand::About) => command::about::run(console),
        Some(Subcommand::Serve) => command::serve::run(&cli.compile, console),
        Some(Subcommand::RestoreSelection(args)) => command::restore_selection::run(args, console),
        Some(Subcommand::Rehearse(args)) => command::rehearse::run(args, &cli.compile, console),
        None if cli.compile.list => command::list::run(&cli.compile, console),
        None if cli.compile.split_artifact.is_some() => command::split::run(&cli.compile, console),
        None if cli.compile.dm => command::dm::run(&cli.compile, console),
        None if cli.compile.batch.is_some() => command::batch::run(&cli.compile, console),
        None => command::compile::run(&cli.compile, console),
    }
}
