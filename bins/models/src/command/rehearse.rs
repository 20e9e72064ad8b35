//! `models rehearse`: faults of the selected model, one after another, and what runs in its place.

use std::{sync::atomic::Ordering, time::Duration};

use console_report::{Console, Exit, Failure};
use durable_fs::Progress;
use model_store::{Fault, Rehearsal};

use super::AbiChoice;
use crate::{
    arguments::{CompileArgs, RehearseArgs},
    machine,
};

/// Rehearses every fault; exit code 1 where something else than the built-in model ran.
pub fn run(args: &RehearseArgs, machine_args: &CompileArgs, console: &Console) -> Result<(), Failure> {
    let scratch = tempfile_dir()?;
    let cancel = machine::interrupts()?;
    let rehearsal = Rehearsal {
        artifact: args.artifact.clone(),
        built_in: args.built_in.clone(),
        target: machine_args.target()?,
        abi: args.abi.as_ref().map(AbiChoice::load).transpose()?,
        python: machine::python(machine_args),
        variables: machine::variables(),
        limit: Duration::from_secs(args.load_limit),
        scratch: scratch.path.clone(),
    };
    let mut failed = Vec::new();
    for fault in Fault::ALL {
        console.begin(&format!("rehearsing: {fault}"), None);
        let outcome = rehearsal.run(fault, &cancel);
        console.end();
        if cancel.load(Ordering::Relaxed) {
            return Err(Failure::new(Exit::Interrupted, "the rehearsal was interrupted"));
        }
        let outcome = outcome.map_err(|error| {
            Failure::new(Exit::Environment, format!("{fault} was not rehearsed")).because(&error)
        })?;
        console.result(&outcome, || outcome.to_string());
        if !outcome.passed {
            failed.push(fault.to_string());
        }
    }
    if failed.is_empty() {
        return Ok(());
    }
    Err(Failure::new(Exit::Failed, format!("the device would not do the right thing: {}", failed.join("; ")))
        .advice("look at what stands above; a device without a model that runs must not be driven"))
}

/// A directory for the stores of the rehearsal; gone afterwards.
struct ScratchDir {
    path: camino::Utf8PathBuf,
}

fn tempfile_dir() -> Result<ScratchDir, Failure> {
    let name = format!("models-rehearsal-{}", std::process::id());
    let path = camino::Utf8PathBuf::from_path_buf(std::env::temp_dir().join(name))
        .map_err(|path| Failure::new(Exit::Environment, format!("{} is no usable path", path.display())))?;
    std::fs::create_dir(&path)
        .map_err(|error| Failure::new(Exit::Environment, format!("{path} cannot be made")).because(&error))?;
    Ok(ScratchDir { path })
}

impl Drop for ScratchDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}
