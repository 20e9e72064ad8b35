//! `rebuild`: the maintainer's side of a release, from a git history of ONNX to a namespaced catalog.

mod cli;
mod command;
mod device;
mod failure;
mod network;
mod passphrase;
mod selection;
mod session;
mod stages;

use std::process::ExitCode;

use clap::Parser;
use cli::{Cli, Command};
use console_report::{Console, Failure};

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(refusal) => {
            // Help and version are answers; everything else is a wrong command line.
            let _ = refusal.print();
            let code =
                if refusal.use_stderr() { console_report::exit::USAGE } else { console_report::exit::GOOD };
            return ExitCode::from(code);
        }
    };
    let console = Console::new(cli.json, cli.verbose);
    let outcome = run(&cli, &console);
    if durable_fs::Durability::was_ever_unsupported() {
        console.warn("this filesystem does not support fsync: files were read back and compared, but a power cut may lose them");
    }
    console.finish(outcome)
}

fn run(cli: &Cli, console: &Console) -> Result<(), Failure> {
    match &cli.command {
        Command::Init(args) => command::init::run(args, cli, console),
        Command::Extract(args) => command::extract::run(args, cli, console),
        Command::Sources(args) => command::sources::run(args, cli, console),
        Command::Compile(args) => command::compile::run(args, cli, console),
        Command::Dm(args) => command::dm::run(args, cli, console),
        Command::Validate(args) => command::validate::run(args, cli, console),
        Command::Manifest(args) => command::manifest::run(args, cli, console),
        Command::Namespace(args) => command::namespace::run(args, cli, console),
        Command::Reconcile(args) => command::reconcile::run(args, cli, console),
        Command::Verify(args) => command::verify::run(args, cli, console),
        Command::Publish(args) => command::publish::run(args, cli, console),
        Command::Report(args) => command::report::run(args, cli, console),
        Command::Status(args) => command::status::run(args, cli, console),
        Command::Doctor(args) => command::doctor::run(args, cli, console),
        Command::Device(command) => command::device::run(command, cli, console),
    }
}
