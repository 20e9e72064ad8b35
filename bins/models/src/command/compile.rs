//! `models --model ID`: sources to an artifact.

use console_report::{Console, Failure, seconds_text, size_text};
use durable_fs::Expected;
use model_catalog::Target;
use serde_json::json;
use tinygrad_compile::{
    CompileError, CompilePlan, Compiled, compile_model,
    staged::{SourceSet, StagedSources},
};

use super::{
    install, parts,
    setting::{Setting, plan},
    stages::Stages,
};
use crate::{arguments::CompileArgs, failure::of_compile};

/// Compiles one model, makes its parts, and installs it where it is a person's own.
pub fn run(args: &CompileArgs, console: &Console) -> Result<(), Failure> {
    let target = args.target()?;
    let asked = args.model.as_ref().map_or_else(|| "the staged model".to_owned(), |id| format!("model {id}"));
    let sources =
        select(args, target).map_err(|error| of_compile(format!("{asked} was not compiled"), &error))?;
    sources.notes.iter().for_each(|note| console.note(note));
    let what = format!("model {} was not compiled", sources.id);
    let plan = plan(args, target, &sources, args.version).map_err(|error| of_compile(&what, &error))?;
    let installs = install::is_wanted(&plan, args)?;
    let setting = Setting::prepare(args, console, plan.id.as_str(), &what)?;
    let mut stages = Stages::new(console);
    let compiled = compile_model(&plan, &setting.workshop, &setting.cancel, &mut |event| stages.show(event));
    drop(stages);
    let compiled = compiled.map_err(|error| of_compile(&what, &error))?;
    complete(&plan, &compiled, args, console)?;
    if installs { install::run(&plan, &compiled, args, console) } else { Ok(()) }
}

fn select(args: &CompileArgs, target: Target) -> Result<SourceSet, CompileError> {
    let sources = StagedSources::scan(&args.input_dir())?;
    Ok(sources.select(args.model.as_ref(), args.input_format.into(), target)?)
}

/// Makes the parts and shows the result. A person's own model stays one file.
pub fn complete(
    plan: &CompilePlan,
    compiled: &Compiled,
    args: &CompileArgs,
    console: &Console,
) -> Result<(), Failure> {
    let expected = Expected::exactly(compiled.written.size, compiled.written.sha256);
    let set = parts::after_compile(&compiled.artifact, expected, plan.id.is_local(), args, console)?;
    show(compiled, set.map_or(0, |set| set.parts.len()), console);
    Ok(())
}

/// Seconds of the whole way: our own stages and the driver's operations.
fn total_seconds(compiled: &Compiled) -> f64 {
    let seconds = &compiled.build.seconds;
    let own = ["preflight", "compile", "probe", "replay", "place"];
    let total: f64 = own.iter().filter_map(|stage| seconds.get(*stage)).sum();
    if total > 0.0 { total } else { seconds.values().sum() }
}

fn show(compiled: &Compiled, parts: usize, console: &Console) {
    let (build, path, seconds) = (&compiled.build, &compiled.artifact, total_seconds(compiled));
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
