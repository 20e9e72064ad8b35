//! Installation of a person's own models.

use console_report::{Console, Exit, Failure};
use model_catalog::Target;
use tinygrad_compile::{
    CompilePlan, Compiled,
    local_model::{InstallError, LocalModel, install},
};

use crate::arguments::CompileArgs;

const DEVICE_STORE: &str = "/data/models";

/// Whether `plan`'s artifact will be installed; refuses before the compile what could not be installed after it.
pub fn is_wanted(plan: &CompilePlan, args: &CompileArgs) -> Result<bool, Failure> {
    if !plan.id.is_local() || args.no_install {
        return Ok(false);
    }
    let failed = |error: InstallError| failure(plan, &error);
    if plan.version.is_none() {
        return Err(failed(InstallError::NoVersion { id: plan.id.clone() }));
    }
    if plan.target == Target::Cpu && args.store_dir == DEVICE_STORE {
        return Err(Failure::new(Exit::Refused, format!("model {} was not compiled", plan.id))
            .why("an artifact for this host's CPU must not be installed into a device's model store")
            .advice("give --no-install, or another --store-dir"));
    }
    if !args.store_dir.is_dir() {
        return Err(failed(InstallError::NoStore { dir: args.store_dir.clone() }));
    }
    Ok(true)
}

fn failure(plan: &CompilePlan, error: &InstallError) -> Failure {
    let exit = match error {
        InstallError::NoVersion { .. } => Exit::Usage,
        _ => Exit::Environment,
    };
    Failure::new(exit, format!("model {} was not installed", plan.id)).because(error)
}

/// Installs what was compiled.
pub fn run(
    plan: &CompilePlan,
    compiled: &Compiled,
    args: &CompileArgs,
    console: &Console,
) -> Result<(), Failure> {
    let Some(version) = plan.version else {
        return Err(failure(plan, &InstallError::NoVersion { id: plan.id.clone() }));
    };
    let model = LocalModel {
        id: &plan.id,
        artifact: &compiled.artifact,
        written: compiled.written,
        version,
        uses_external_gpu: plan.target == Target::ExternalGpu,
    };
    let installed = install(&model, &args.store_dir).map_err(|error| failure(plan, &error))?;
    console.note(&format!("{} is installed as {installed} ({version})", plan.id));
    Ok(())
}
