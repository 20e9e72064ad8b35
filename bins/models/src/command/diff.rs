//! `models diff A B`: what differs between two artifacts.

use artifact_pickle::diff;
use camino::Utf8PathBuf;
use clap::Args;
use console_report::{Console, Exit, Failure};

use super::judged::of_inspect;

/// `models diff`.
#[derive(Debug, Args)]
pub struct DiffArgs {
    /// The first artifact
    pub a: Utf8PathBuf,
    /// The second artifact
    pub b: Utf8PathBuf,
}

/// Compares; a difference is exit code 1, as with `diff`.
pub fn run(args: &DiffArgs, console: &Console) -> Result<(), Failure> {
    let diff = diff(&args.a, &args.b).map_err(|error| of_inspect(&error.path, &error.source))?;
    console.result(&diff, || diff.to_string().trim_end().to_owned());
    if diff.is_empty() {
        return Ok(());
    }
    if diff.first_byte.is_some() {
        let what = format!("{} and {} differ", args.a, args.b);
        return Err(Failure::new(Exit::Failed, what).why("equal parts make two different programs"));
    }
    let counts = format!("{} fields and {} jits", diff.changes.len(), diff.jits.len());
    Err(Failure::new(Exit::Failed, format!("{} and {} differ", args.a, args.b)).why(counts))
}
