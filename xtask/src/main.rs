//! The project's own tasks.
//!
//! `cargo xtask setup` makes what the others need, `demo` shows the whole workflow, `test` is what a contributor trusts a
//! change with, `bench` compares with what a user would type instead, `learn` renews what the artifact reader knows,
//! `release` publishes a workspace. Everything that is made lies under the build's target directory.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program for people at a terminal")]

use std::{ffi::OsString, process::ExitCode};

use anyhow::Result;
use clap::{Parser, Subcommand};

mod bench;
mod demo;
mod learn;
mod process;
mod release;
mod setup;
mod test;

/// Tasks of the model tool chain.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Make the Python environment and find the tools that compiling and testing need (idempotent).
    Setup(setup::Arguments),
    /// Rebuild a small catalog from a real git history, and show what came out.
    Demo(demo::Arguments),
    /// Run every check that a change must pass.
    Test(test::Arguments),
    /// Measure one part against what a user would type instead.
    Bench(bench::Arguments),
    /// Renew the ABI description of the installed tinygrad and what artifacts may name; the diff is for review.
    Learn(learn::Arguments),
    /// Verify a workspace and publish it to a resource repository.
    Release(release::Arguments),
    /// Run a program, write its time and peak memory to a file.
    #[command(hide = true)]
    MeasureChild {
        /// Report file, program, arguments.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<OsString>,
    },
}

fn main() -> ExitCode {
    match run(Arguments::parse().task) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(task: Task) -> Result<ExitCode> {
    match task {
        Task::Setup(arguments) => setup::run(&arguments).map(|_| ExitCode::SUCCESS),
        Task::Demo(arguments) => demo::run(&arguments).map(|()| ExitCode::SUCCESS),
        Task::Test(arguments) => test::run(&arguments),
        Task::Bench(arguments) => bench::run(&arguments).map(|()| ExitCode::SUCCESS),
        Task::Learn(arguments) => learn::run(&arguments).map(|()| ExitCode::SUCCESS),
        Task::Release(arguments) => release::run(&arguments).map(|()| ExitCode::SUCCESS),
        Task::MeasureChild { command } => e2e::Measurer::child_main(&command),
    }
}
