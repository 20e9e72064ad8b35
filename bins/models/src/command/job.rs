//! `models job DIR`: the work that a directory describes.

use camino::Utf8Path;
use console_report::{Console, Exit, Failure};
use tinygrad_compile::{
    QCOM_DEVICE,
    job::{JobEnvironment, JobStatus, RuntimeHook, run_job},
};

use crate::{
    arguments::{CompileArgs, JobArgs},
    command::restore_selection,
    failure::of_compile,
    machine,
};

/// Does the job; its result file says how it went, and the exit code agrees with it.
pub fn run(args: &JobArgs, machine_args: &CompileArgs, console: &Console) -> Result<(), Failure> {
    restore_selection::at_start(console);
    let environment = JobEnvironment {
        python: machine::python_choices(machine_args),
        root: machine::root(machine_args),
        variables: machine::variables(),
        cache: machine::cache(machine_args, console),
        quiet_limit: machine::quiet_limit(machine_args),
        qcom_device: Utf8Path::new(QCOM_DEVICE).to_owned(),
        program_sha256: machine::program_digest(),
        runtime: machine::this_program()
            .map(|program| RuntimeHook { run: model_store::runtime::run, program }),
    };
    let cancel = machine::interrupts()?;
    let result = run_job(&args.dir, &environment, &cancel)
        .map_err(|error| of_compile(format!("the job in {} left no result", args.dir), &error))?;
    console.result(&result, || format!("{} job in {}: {:?}", result.kind, args.dir, result.status));
    let failed = |exit| {
        let what = format!("the {} job in {} was not done", result.kind, args.dir);
        let error = result.error.as_ref();
        let failure = Failure::new(exit, what).maybe_advice(error.and_then(|error| error.hint.clone()));
        Err(error.map_or(failure.clone(), |error| failure.why(error.message.clone())))
    };
    match result.status {
        JobStatus::Ok => Ok(()),
        JobStatus::Failed => failed(Exit::Failed),
        JobStatus::Cancelled => failed(Exit::Interrupted),
    }
}
