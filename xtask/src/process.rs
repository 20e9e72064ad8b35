//! Running other programs.

use std::{env, path::PathBuf, process::Command};

use anyhow::{Context, Result, bail};
use e2e::repository_root;

/// A cargo command in the repository's root, with the cargo that started this program.
pub fn cargo(subcommand: &str) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.arg(subcommand).current_dir(repository_root());
    command
}

/// Runs a command on this program's own streams.
pub fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("start {}", command.get_program().display()))?;
    if !status.success() {
        bail!("`{}` ended with {status}", words(command));
    }
    Ok(())
}

/// Runs a command and returns its stdout; stderr is shown only where it fails.
pub fn output(command: &mut Command) -> Result<String> {
    let outcome = e2e::run(command)?;
    if outcome.code != Some(0) {
        bail!("`{}` failed: {}", words(command), outcome.transcript());
    }
    Ok(outcome.stdout)
}

/// The program that `name` means in `PATH`.
pub fn find_program(name: &str) -> Option<PathBuf> {
    if name.contains('/') {
        return Some(PathBuf::from(name)).filter(|path| path.is_file());
    }
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|dir| dir.join(name)).find(|candidate| candidate.is_file())
}

/// The command as a person would read it.
pub fn words(command: &Command) -> String {
    let program = command.get_program().to_string_lossy().into_owned();
    let arguments = command.get_args().map(|argument| argument.to_string_lossy().into_owned());
    std::iter::once(program).chain(arguments).collect::<Vec<_>>().join(" ")
}
