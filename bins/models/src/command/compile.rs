//! `models --model ID`: sources to an artifact.

use camino::Utf8PathBuf;
use console_report::{Console, Failure, seconds_text, size_text};
use durable_fs::{Expected, FileLock, FsError};
use model_catalog::{BehaviorVersion, ModelId, Target};
use serde_json::json;
use tinygrad_compile::{
    CompileError, CompilePlan, Compiled, PlanOptions, Workshop, cached_version, compile_model,
    staged::{SourceSet, StagedSources},
};

use super::{parts, stages::Stages};
use crate::{arguments::CompileArgs, failure::of_compile, machine};

/// Compiles one model and makes its parts.
pub fn run(args: &CompileArgs, console: &Console) -> Result<(), Failure> {
    let target = args.target()?;
    let asked = args.model.as_ref().map_or_else(|| "the staged model".to_owned(), |id| format!("model {id}"));
    let sources =
        select(args, target).map_err(|error| of_compile(format!("{asked} was not compiled"), &error))?;
    sources.notes.iter().for_each(|note| console.note(note));
    let failed = |error: &CompileError| of_compile(format!("model {} was not compiled", sources.id), error);
    let plan = plan(args, target, &sources).map_err(|error| failed(&error))?;
    let workshop = workshop(args, &sources.id).map_err(|error| failed(&error))?;
    let _lock = FileLock::acquire(
        workshop.output_dir.join(".models.lock"),
        &format!("models --model {}", sources.id),
    )
    .map_err(|error| failed(&error.into()))?;
    start_log(&workshop).map_err(|error| failed(&error))?;
    let cancel = machine::interrupts()?;
    let mut stages = Stages::new(console);
    let compiled = compile_model(&plan, &workshop, &cancel, &mut |event| stages.show(event));
    drop(stages);
    let compiled = compiled.map_err(|error| failed(&error))?;
    let expected = Expected::exactly(compiled.written.size, compiled.written.sha256);
    let set = parts::after_compile(&compiled.artifact, expected, args, console)?;
    show(&compiled, set.map_or(0, |set| set.parts.len()), console);
    Ok(())
}

fn select(args: &CompileArgs, target: Target) -> Result<SourceSet, CompileError> {
    let sources = StagedSources::scan(&args.input_dir())?;
    Ok(sources.select(args.model.as_ref(), args.input_format.into(), target)?)
}

fn version(args: &CompileArgs, id: &ModelId) -> Result<Option<BehaviorVersion>, CompileError> {
    match args.version {
        Some(version) => Ok(Some(version)),
        None => Ok(cached_version(&args.store_dir.join(".model_versions.json"), id)?),
    }
}

fn plan(args: &CompileArgs, target: Target, sources: &SourceSet) -> Result<CompilePlan, CompileError> {
    let options = PlanOptions {
        version: version(args, &sources.id)?,
        image_history_pipeline: args.image_history_pipeline,
        target,
        tolerance: args.tolerance,
    };
    Ok(CompilePlan::new(sources, options))
}

fn workshop(args: &CompileArgs, id: &ModelId) -> Result<Workshop, CompileError> {
    let output_dir = args.output_dir();
    std::fs::create_dir_all(&output_dir).map_err(FsError::io("make the directory", &output_dir))?;
    let log = output_dir.join(format!("{id}_compile.log"));
    Ok(Workshop {
        root: machine::root(args),
        caller_environment: machine::variables(),
        kernel_cache: args.kernel_cache.clone(),
        quiet_limit: machine::quiet_limit(args),
        program_sha256: machine::program_digest(),
        ..Workshop::new(machine::python(args), output_dir, log)
    })
}

/// The log is of one compile: the one before goes.
fn start_log(workshop: &Workshop) -> Result<(), CompileError> {
    match std::fs::remove_file(&workshop.log) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        removed => Ok(removed.map_err(FsError::io("replace the log", &workshop.log))?),
    }
}

fn show(compiled: &Compiled, parts: usize, console: &Console) {
    let build = &compiled.build;
    let path: &Utf8PathBuf = &compiled.artifact;
    let seconds =
        ["preflight", "compile", "prove", "place"].iter().filter_map(|stage| build.seconds.get(*stage)).sum();
    let version =
        build.behavior_version.map_or_else(|| "no version".to_owned(), |version| version.to_string());
    let result = json!({"id": build.id, "status": "compiled", "path": path, "size": compiled.written.size,
        "sha256": compiled.written.sha256, "model_type": build.model_type, "target": build.target,
        "version": build.behavior_version, "parts": parts, "seconds": seconds, "build": build});
    console.result(&result, || {
        let facts = format!("{}, {}, {version}", build.model_type, build.target);
        let made = if parts == 0 { String::new() } else { format!(", {parts} parts") };
        format!(
            "{} compiled ({facts}) in {}\n  {path}  {}{made}\n  sha256 {}",
            build.id,
            seconds_text(seconds),
            size_text(compiled.written.size),
            compiled.written.sha256
        )
    });
}
