//! `models --batch FILE`: many models in one warm process.

use camino::Utf8Path;
use console_report::{Console, Exit, Failure};
use durable_fs::FsError;
use model_catalog::{BehaviorVersion, ModelId, Target};
use tinygrad_compile::{CompileError, CompilePlan, compile_batch, staged::StagedSources};

use super::{
    compile::complete,
    install,
    setting::{Setting, plan},
    stages::Stages,
};
use crate::{
    arguments::CompileArgs,
    failure::{of_compile, of_fs},
};

/// A line of the file.
type Entry = (ModelId, Option<BehaviorVersion>);

/// Reads `ID [vN]` lines; `#` begins a comment.
fn parse(text: &str) -> Result<Vec<Entry>, String> {
    let mut entries: Vec<Entry> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
        let Some(id) = words.next() else { continue };
        let at = |error: String| format!("line {}: {error}", number + 1);
        let id = ModelId::new(id).map_err(|error| at(error.to_string()))?;
        let version = words.next().map(str::parse).transpose().map_err(|error| at(format!("{error}")))?;
        if let Some(word) = words.next() {
            return Err(at(format!("{word:?} is one word too many; a line is ID [vN]")));
        }
        if entries.iter().any(|(earlier, _)| *earlier == id) {
            return Err(at(format!("model {id} stands there twice")));
        }
        entries.push((id, version));
    }
    if entries.is_empty() { Err("it names no model".to_owned()) } else { Ok(entries) }
}

fn read(file: &Utf8Path) -> Result<Vec<Entry>, Failure> {
    let what = format!("the batch {file} was not compiled");
    let text =
        std::fs::read_to_string(file).map_err(|error| of_fs(&what, &FsError::io("read", file)(error)))?;
    parse(&text).map_err(|why| Failure::new(Exit::Usage, what).why(why).advice("correct the file"))
}

/// Shows the failure of one model and counts it.
struct Failures<'c> {
    console: &'c Console,
    count: usize,
    interrupted: bool,
}

impl Failures<'_> {
    fn add(&mut self, failure: &Failure) {
        self.count += 1;
        self.interrupted |= failure.exit() == Exit::Interrupted;
        self.console.show(failure);
    }

    fn add_error(&mut self, id: &ModelId, error: &CompileError) {
        self.add(&of_compile(format!("model {id} was not compiled"), error));
    }
}

/// Compiles the listed models; one that fails does not stop the others.
pub fn run(args: &CompileArgs, console: &Console) -> Result<(), Failure> {
    let Some(file) = &args.batch else {
        return Err(Failure::new(Exit::Usage, "no batch").advice("give --batch FILE"));
    };
    let target = args.target()?;
    let entries = read(file)?;
    let what = format!("the batch {file} was not compiled");
    let sources = StagedSources::scan(&args.input_dir()).map_err(|error| of_compile(&what, &error.into()))?;
    let mut failures = Failures { console, count: 0, interrupted: false };
    let plans = plans(args, target, &sources, &entries, &mut failures);
    let setting = Setting::prepare(args, console, "batch", &what)?;
    let mut stages = Stages::new(console);
    compile_batch(
        &plans,
        &setting.workshop,
        &setting.cancel,
        &mut |event| stages.show(event),
        &mut |id, result| {
            let plan = plans.iter().find(|plan| plan.id == *id);
            let outcome = match (plan, result) {
                (_, Err(error)) => return failures.add_error(id, &error),
                (None, Ok(_)) => return,
                (Some(plan), Ok(compiled)) => complete(plan, &compiled, args, console).and_then(|()| {
                    if install::is_wanted(plan, args)? {
                        install::run(plan, &compiled, args, console)
                    } else {
                        Ok(())
                    }
                }),
            };
            if let Err(failure) = outcome {
                failures.add(&failure);
            }
        },
    )
    .map_err(|error| of_compile(&what, &error))?;
    drop(stages);
    match (failures.count, failures.interrupted) {
        (0, _) => Ok(()),
        (_, true) => Err(Failure::new(Exit::Interrupted, "the batch was interrupted").advice("run it again")),
        (count, false) => {
            Err(Failure::new(Exit::Failed, format!("{count} of {} models failed", entries.len()))
                .advice("each failure is shown above"))
        }
    }
}

fn plans(
    args: &CompileArgs,
    target: Target,
    sources: &StagedSources,
    entries: &[Entry],
    failures: &mut Failures<'_>,
) -> Vec<CompilePlan> {
    let mut plans = Vec::new();
    for (id, version) in entries {
        let planned = sources
            .select(Some(id), args.input_format.into(), target)
            .map_err(CompileError::from)
            .and_then(|sources| plan(args, target, &sources, *version));
        match planned.map_err(|error| of_compile(format!("model {id} was not compiled"), &error)) {
            Ok(plan) => match install::is_wanted(&plan, args) {
                Ok(_) => plans.push(plan),
                Err(failure) => failures.add(&failure),
            },
            Err(failure) => failures.add(&failure),
        }
    }
    plans
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_ids_with_versions() {
        let entries = parse("# the late ones\nrdf2 v15\n\n  tr1422   # no version\n").unwrap();
        let texts: Vec<_> =
            entries.iter().map(|(id, version)| (id.as_str(), version.map(|v| v.number()))).collect();
        assert_eq!(texts, [("rdf2", Some(15)), ("tr1422", None)]);
        for (text, word) in [
            ("a v15 x", "line 1: \"x\""),
            ("a\n../b", "line 2"),
            ("a 15", "vN"),
            ("a\na", "twice"),
            ("# nothing\n", "no model"),
        ] {
            let refused = parse(text).unwrap_err();
            assert!(refused.contains(word), "{text}: {refused}");
        }
    }
}
