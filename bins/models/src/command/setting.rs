//! What single compiles, batches and driver monitoring have in common: the workshop, its lock and its log.

use std::sync::{Arc, atomic::AtomicBool};

use camino::Utf8Path;
use console_report::{Console, Failure};
use durable_fs::{FileLock, FsError};
use model_catalog::{BehaviorVersion, ModelId, Target};
use tinygrad_compile::{
    CompileError, CompilePlan, PlanOptions, Workshop, cached_version, local_model, staged::SourceSet,
};

use crate::{arguments::CompileArgs, failure::of_compile, machine};

/// A workshop that nobody else works in, and the flag that Ctrl-C sets.
pub struct Setting {
    pub workshop: Workshop,
    pub cancel: Arc<AtomicBool>,
    _lock: FileLock,
}

impl Setting {
    /// Prepares the output directory for `name` (of the log) and takes its lock; `what` is not done where that fails.
    pub fn prepare(args: &CompileArgs, console: &Console, name: &str, what: &str) -> Result<Self, Failure> {
        let cancel = machine::interrupts()?;
        let failed = |error: CompileError| of_compile(what, &error);
        let output_dir = args.output_dir();
        std::fs::create_dir_all(&output_dir)
            .map_err(|error| failed(FsError::io("make the directory", &output_dir)(error).into()))?;
        let purpose = format!("models ({name})");
        let lock = FileLock::acquire(output_dir.join(".models.lock"), &purpose)
            .map_err(|error| failed(error.into()))?;
        let log = output_dir.join(format!("{name}_compile.log"));
        start_log(&log).map_err(|error| failed(error.into()))?;
        let workshop = Workshop {
            root: machine::root(args),
            toolchain: args.toolchain,
            caller_environment: machine::variables(),
            cache: machine::cache(args, console),
            quiet_limit: machine::quiet_limit(args),
            program_sha256: machine::program_digest(),
            ..Workshop::new(machine::python(args), output_dir, log)
        };
        Ok(Self { workshop, cancel, _lock: lock })
    }
}

/// The log is of one run: the one before goes.
fn start_log(log: &Utf8Path) -> Result<(), FsError> {
    match std::fs::remove_file(log) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        removed => removed.map_err(FsError::io("replace the log", log)),
    }
}

/// The behaviour version of `id`: the given one, what the device's cache knows, or what the sidecar of a local model has.
fn version(
    args: &CompileArgs,
    id: &ModelId,
    given: Option<BehaviorVersion>,
) -> Result<Option<BehaviorVersion>, CompileError> {
    if let Some(version) = given.or(cached_version(&args.store_dir.join(".model_versions.json"), id)?) {
        return Ok(Some(version));
    }
    // A sidecar that cannot be understood is reported when the model is installed.
    Ok(if id.is_local() {
        local_model::sidecar_version(&args.store_dir, id).unwrap_or_default()
    } else {
        None
    })
}

/// The plan for `sources`.
pub fn plan(
    args: &CompileArgs,
    target: Target,
    sources: &SourceSet,
    given: Option<BehaviorVersion>,
) -> Result<CompilePlan, CompileError> {
    let options = PlanOptions {
        version: version(args, &sources.id, given)?,
        image_history_pipeline: args.image_history_pipeline,
        target,
        tolerance: args.tolerance,
    };
    Ok(CompilePlan::new(sources, options))
}
