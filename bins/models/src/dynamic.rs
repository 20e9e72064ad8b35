//! `--<id>`: a flag that is a model's ID.
//!
//! A mistyped flag must not be taken for a model. A flag that nobody knows is an ID where a model of that ID is staged;
//! otherwise it is refused with a suggestion where it looks like a real flag, and is an ID only where it does not.

use std::{collections::BTreeSet, ffi::OsString, process::ExitCode};

use clap::{CommandFactory, Parser, error::ErrorKind};
use console_report::{Console, Exit, Failure};
use model_catalog::{ModelId, near_matches};
use tinygrad_compile::staged::StagedSources;

use crate::arguments::Cli;

/// Why the command line was refused.
#[derive(Debug)]
pub enum Refusal {
    /// By the parser, which has its own words; `--help` is one of these.
    Parser(clap::Error),
    /// By the rules for IDs.
    Id(Failure, bool),
}

impl Refusal {
    /// Shows it and gives the exit code.
    pub fn exit(self) -> ExitCode {
        match self {
            Self::Parser(error) => {
                // A closed pipe is nobody's failure.
                let _ = error.print();
                match error.kind() {
                    ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => ExitCode::SUCCESS,
                    _ => Exit::Usage.into(),
                }
            }
            Self::Id(failure, json) => Console::new(json, false).finish(Err(failure)),
        }
    }
}

/// Parses the command line, flags that are IDs included.
pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Cli, Refusal> {
    let known = known_flags();
    let (ids, rest): (Vec<OsString>, Vec<OsString>) =
        args.into_iter().partition(|arg| is_unknown_flag(arg, &known));
    let ids: Vec<String> =
        ids.iter().map(|arg| arg.to_string_lossy().trim_start_matches("--").to_owned()).collect();
    let json = rest.iter().any(|arg| arg == "--json");
    let refused = |failure| Refusal::Id(failure, json);
    let mut cli = Cli::try_parse_from(&rest).map_err(|error| {
        // With an unknown flag the parser may stumble over its value: the flag is what is wrong.
        let suspect = ids.iter().find_map(|id| looks_like_a_flag(id, &known));
        suspect.filter(|_| error.use_stderr()).map_or(Refusal::Parser(error), refused)
    })?;
    for id in ids {
        choose(&mut cli, &id, &known).map_err(refused)?;
    }
    Ok(cli)
}

fn known_flags() -> BTreeSet<String> {
    let mut command = Cli::command();
    command.build();
    let own = command.get_arguments();
    let nested = command.get_subcommands().flat_map(clap::Command::get_arguments);
    own.chain(nested)
        .flat_map(|arg| arg.get_long_and_visible_aliases().unwrap_or_default())
        .map(str::to_owned)
        .chain(["help".to_owned()])
        .collect()
}

fn is_unknown_flag(arg: &OsString, known: &BTreeSet<String>) -> bool {
    let Some(name) = arg.to_str().and_then(|arg| arg.strip_prefix("--")).filter(|name| !name.is_empty())
    else {
        return false;
    };
    !known.contains(name.split('=').next().unwrap_or(name))
}

fn looks_like_a_flag(name: &str, known: &BTreeSet<String>) -> Option<Failure> {
    let bare = name.split('=').next().unwrap_or(name);
    let near = near_matches(bare, known.iter().map(String::as_str));
    let best = near.first()?;
    Some(
        Failure::new(Exit::Usage, format!("--{bare} is no flag"))
            .why(format!("it looks like --{best}"))
            .advice(format!("give --{best}, or --model {bare} where a model really has this ID")),
    )
}

fn choose(cli: &mut Cli, name: &str, known: &BTreeSet<String>) -> Result<(), Failure> {
    let staged = StagedSources::scan(&cli.compile.input_dir()).map(|staged| staged.ids()).unwrap_or_default();
    let is_staged = staged.iter().any(|id| id.as_str() == name);
    if let Some(failure) = looks_like_a_flag(name, known).filter(|_| !is_staged) {
        return Err(failure);
    }
    let no_flag = || Failure::new(Exit::Usage, format!("--{name} is neither a flag nor a model"));
    let id = ModelId::new(name)
        .map_err(|error| no_flag().because(&error).advice("models --help lists the flags"))?;
    if cli.subcommand.is_some() {
        return Err(no_flag()
            .why("models are chosen when compiling only")
            .advice("models --help lists the flags"));
    }
    match cli.compile.model.replace(id.clone()).filter(|other| *other != id) {
        None => Ok(()),
        Some(other) => Err(Failure::new(Exit::Usage, "two models are asked for")
            .why(format!("{other} and {id}"))
            .advice("compile them one after the other")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_words(words: &[&str]) -> Result<Cli, Refusal> {
        parse(["models"].iter().chain(words).map(|word| OsString::from(*word)))
    }

    fn refusal(words: &[&str]) -> String {
        match parse_words(words).unwrap_err() {
            Refusal::Id(failure, _) => failure.lines(false),
            Refusal::Parser(error) => error.to_string(),
        }
    }

    #[test]
    fn an_unknown_flag_is_a_model() {
        let cli = parse_words(&["--rdf2", "--target", "cpu"]).unwrap();
        assert_eq!(cli.compile.model.unwrap().as_str(), "rdf2");
        let cli = parse_words(&["--target", "cpu", "--michael-rl2", "--model", "michael-rl2"]).unwrap();
        assert_eq!(cli.compile.model.unwrap().as_str(), "michael-rl2");
    }

    #[test]
    fn a_mistyped_flag_is_no_model() {
        for (typed, meant) in [
            ("--input-dri", "--input-dir"),
            ("--forse", "--force"),
            ("--no-spilt", "--no-split"),
            ("--inputdir", "--input-dir"),
            ("--traget", "--target"),
            ("--external-gpuu", "--external-gpu"),
            ("--lits", "--list"),
        ] {
            let text = refusal(&[typed]);
            assert!(text.contains(&format!("looks like {meant}")), "{typed}: {text}");
            let text = refusal(&[typed, "value"]);
            assert!(text.contains(&format!("looks like {meant}")), "{typed} value: {text}");
        }
    }

    #[test]
    fn two_models_and_strange_flags_are_refused() {
        assert!(refusal(&["--rdf2", "--tr1422"]).contains("two models"));
        assert!(refusal(&["--x;reboot"]).contains("neither a flag nor a model"));
        assert!(refusal(&["about", "--rdf2"]).contains("when compiling only"));
        assert!(refusal(&["--chunk-size-mib", "100"]).contains("1 to 99 MiB"));
        assert!(refusal(&["--part-limit-mib", "101"]).contains("not raised"));
    }

    #[test]
    fn aliases_are_known() {
        assert!(parse_words(&["--external-gpu", "--x1"]).unwrap().compile.gpu);
        assert!(parse_words(&["--gpu", "--x1"]).unwrap().compile.gpu);
        Cli::command().debug_assert();
    }

    #[test]
    fn a_staged_model_wins_over_a_resemblance() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().to_str().unwrap();
        durable_fs::write_atomic(format!("{dir}/forse_driving_supercombo.onnx"), b"x").unwrap();
        let cli = parse_words(&["--forse", "--input-dir", dir]).unwrap();
        assert_eq!(cli.compile.model.unwrap().as_str(), "forse");
    }
}
