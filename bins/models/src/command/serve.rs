//! `models serve`: the device's side of a host's connection, over standard input and output.

use std::{
    fs::File,
    io,
    os::fd::{AsFd, BorrowedFd},
};

use camino::Utf8PathBuf;
use console_report::{Console, Exit, Failure};
use remote_compile::serve::{ServeOptions, serve};

use crate::{arguments::CompileArgs, command::restore_selection, machine};

/// Directory of jobs, beside this program.
const JOBS: &str = "jobs";
/// Where the device keeps its parameters, and the volatile ones.
const PARAMS: [&str; 2] = ["/data/params/d", "/dev/shm/params/d"];
/// Where the device's own programs look for them instead, where it is set; here it is one more place.
const PARAMS_ROOT: &str = "PARAMS_ROOT";

/// Serves until the host ends the connection.
pub fn run(args: &CompileArgs, console: &Console) -> Result<(), Failure> {
    restore_selection::at_start(console);
    let failure = || Failure::new(Exit::Environment, "this device does not serve");
    let models =
        machine::this_program().ok_or_else(|| failure().why("the name of this program is not known"))?;
    let root = models.parent().map(Utf8PathBuf::from).unwrap_or_default();
    let options = ServeOptions {
        jobs_dir: root.join(JOBS),
        models,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        openpilot: args.root(),
        params_dirs: params_dirs(),
    };
    // The streams as they are: those of the standard library buffer, and look for ends of lines.
    let plain = |stream: BorrowedFd<'_>| stream.try_clone_to_owned().map(File::from);
    let streams = plain(io::stdin().as_fd()).and_then(|input| Ok((input, plain(io::stdout().as_fd())?)));
    let (input, output) = streams.map_err(|error| failure().because(&error))?;
    serve(input, output, options).map_err(|error| failure().because(&error))
}

fn params_dirs() -> Vec<Utf8PathBuf> {
    let moved = std::env::var(PARAMS_ROOT).ok().map(|root| Utf8PathBuf::from(root).join("d"));
    PARAMS.into_iter().map(Utf8PathBuf::from).chain(moved).collect()
}
