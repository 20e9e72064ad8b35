//! `cargo xtask test`: every check that a change must pass, and one closing line.
//!
//! A failing check does not stop the others; the closing line `N passed, N failed, N skipped` counts tests, and each check
//! without tests (formatting, lints, documentation) as one.

mod checks;
mod tally;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, ValueEnum};

use crate::setup;
use tally::Tally;

/// Options of `cargo xtask test`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Also run the long, seeded campaigns.
    #[arg(long)]
    thorough: bool,
    /// Run only these parts (repeatable).
    #[arg(long, value_name = "PART")]
    only: Vec<Part>,
}

/// Parts of the suite.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Formatting, clippy, documentation, dependency rules.
    Lint,
    /// The compile driver's own tests.
    Python,
    /// Unit, documentation and end-to-end tests.
    Rust,
}

/// Runs the suite; the exit code is a failure when anything failed.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let environment = setup::run(&setup::Arguments { tests: true })?;
    let wanted = |part| arguments.only.is_empty() || arguments.only.contains(&part);
    let mut tally = Tally::default();
    if wanted(Part::Lint) {
        checks::lint(&mut tally);
    }
    if wanted(Part::Python) {
        checks::python(&mut tally, &environment);
    }
    if wanted(Part::Rust) {
        checks::rust(&mut tally, &environment, arguments.thorough);
    }
    tally.print_notes();
    println!("{}", tally.closing_line());
    Ok(if tally.is_success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
