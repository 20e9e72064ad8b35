//! Runs a command and writes its time and peak memory to a file; see `e2e::Measurer`.

use std::process::ExitCode;

fn main() -> anyhow::Result<ExitCode> {
    e2e::Measurer::child_main(&std::env::args_os().skip(1).collect::<Vec<_>>())
}
