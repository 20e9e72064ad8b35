//! `cargo xtask setup`: the Python environment, and the programs that compiling and testing need.
//!
//! Idempotent and quick when there is nothing to do: a stamp in the environment holds the digest of what was installed. What
//! can go wrong is a missing program; where apt-get and root are there it is installed, elsewhere the message has the command.

mod python;
mod tools;

use anyhow::Result;
use camino::Utf8PathBuf;
use clap::Args;

/// Options of `cargo xtask setup`.
#[derive(Debug, Default, Args)]
pub struct Arguments {
    /// Also install the programs that only the tests use as peers.
    #[arg(long)]
    pub tests: bool,
}

/// What setup leaves behind for the other tasks.
#[derive(Debug)]
pub struct Environment {
    /// The environment's interpreter.
    pub python: Utf8PathBuf,
    /// What tinygrad must be told as `CC`, where its own choice is not a clang.
    pub clang: Option<String>,
}

/// Runs setup.
pub fn run(arguments: &Arguments) -> Result<Environment> {
    tools::provide(arguments.tests)?;
    let python = python::provide()?;
    if let Err(error) = python::provide_reference() {
        println!(
            "setup: no ONNX Runtime, `rebuild validate --reference` and its tests cannot run: {error:#}"
        );
    }
    if arguments.tests
        && let Err(error) = python::provide_peers()
    {
        println!("setup: no LFS server for the tests, those that need it are skipped: {error:#}");
    }
    Ok(Environment { python, clang: tools::clang_for_tinygrad() })
}
