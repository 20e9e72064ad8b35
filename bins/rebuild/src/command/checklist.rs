//! `rebuild verify --checklist`: what a person looks at in the device's interfaces and in Galaxy.

use std::io::{self, BufRead};

use camino::Utf8PathBuf;
use clap::Args;
use console_report::{Console, Exit, Failure};
use device_validate::checklist::{Answer, ChecklistItem, ChecklistRecord, RecordedAnswer, checklist};
use model_catalog::{ManifestVersion, near_matches};
use serde::Deserialize;
use serde_json::json;

use crate::{cli::Cli, failure::of_workspace, session::Session};

/// How the checklist is answered.
#[derive(Debug, Args)]
pub struct ChecklistArgs {
    /// With --checklist: answers from a JSON file: {"galaxy/select": "pass", "galaxy/delete": {"answer": "fail", "note": ".."}}.
    #[arg(long, value_name = "FILE", requires = "checklist")]
    answers: Option<Utf8PathBuf>,
    /// With --checklist: print the checks and their answers, and ask nothing.
    #[arg(long, requires = "checklist", conflicts_with = "answers")]
    list: bool,
    /// With --checklist: ask again what was answered.
    #[arg(long, requires = "checklist", conflicts_with_all = ["answers", "list"])]
    again: bool,
}

/// An answer in a file: the word alone, or with a note.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Given {
    Word(Answer),
    Noted(RecordedAnswer),
}

pub fn run(
    args: &ChecklistArgs,
    version: ManifestVersion,
    cli: &Cli,
    console: &Console,
) -> Result<(), Failure> {
    let session = Session::for_run(cli, console, "rebuild verify --checklist", args.list)?;
    let manifest = session.workspace.manifest_file(version);
    if !manifest.exists() {
        return Err(Failure::new(Exit::Usage, format!("there is nothing of {version} to check"))
            .why(format!("{manifest} does not exist"))
            .advice("write it with `rebuild namespace`, or name another one with --manifest-version"));
    }
    let refused = of_workspace("the checklist cannot be used");
    let (mut record, stale) = ChecklistRecord::load(&session.workspace, version).map_err(&refused)?;
    if stale {
        console.note("the answers that were there are about another manifest: everything is asked again");
    }
    if let Some(file) = &args.answers {
        take_file(&mut record, file)?;
        record.save(&session.workspace).map_err(&refused)?;
    } else if !args.list {
        ask(&session, &mut record, args.again)?;
    }
    report(console, &record)
}

/// Asks one check after another; each answer is recorded at once, so that nothing is asked twice.
fn ask(session: &Session<'_>, record: &mut ChecklistRecord, again: bool) -> Result<(), Failure> {
    let console = session.console;
    let items = checklist();
    let open: Vec<&ChecklistItem> =
        items.iter().filter(|item| again || !record.answers.contains_key(&item.key)).collect();
    if open.is_empty() {
        return Ok(());
    }
    console.note(&format!(
        "{} checks; answer p (pass), f (fail), s (skip) or q (quit); text after it is a note",
        open.len()
    ));
    let mut input = io::stdin().lock();
    let mut place = "";
    for (index, item) in open.iter().enumerate() {
        if item.place != place {
            place = item.place;
            console.note(&format!("\n{place}"));
        }
        console.note(&format!(
            "\n[{}/{}] {}\n  do:     {}\n  expect: {}",
            index + 1,
            open.len(),
            item.key,
            item.todo,
            item.expect
        ));
        match one_answer(session, &mut input)? {
            Reply::Answer(answer, note) => {
                record.answers.insert(item.key.clone(), recorded(answer, note));
                record.save(&session.workspace).map_err(of_workspace("the answer cannot be recorded"))?;
            }
            Reply::Skip => {}
            Reply::Quit => {
                return Err(Failure::new(Exit::Interrupted, "the checklist was left before its end")
                    .advice("run the same command again; what was answered is kept"));
            }
        }
    }
    Ok(())
}

enum Reply {
    Answer(Answer, String),
    Skip,
    Quit,
}

fn one_answer(session: &Session<'_>, input: &mut impl BufRead) -> Result<Reply, Failure> {
    loop {
        let mut line = String::new();
        let read = input.read_line(&mut line);
        session.check_interrupt("the checklist")?;
        match read {
            Ok(0) => return Ok(Reply::Quit),
            Ok(_) => {}
            Err(error) => {
                return Err(Failure::new(Exit::Environment, "the answer cannot be read").because(&error));
            }
        }
        let (word, note) = line.trim().split_once(char::is_whitespace).unwrap_or((line.trim(), ""));
        let note = note.trim().to_owned();
        match word.to_ascii_lowercase().as_str() {
            "p" | "pass" => return Ok(Reply::Answer(Answer::Pass, note)),
            "f" | "fail" => return Ok(Reply::Answer(Answer::Fail, note)),
            "s" | "skip" => return Ok(Reply::Skip),
            "q" | "quit" => return Ok(Reply::Quit),
            other => session.console.warn(&format!("{other:?} is no answer; p, f, s or q")),
        }
    }
}

fn recorded(answer: Answer, note: String) -> RecordedAnswer {
    let by = std::env::var("USER").or_else(|_| std::env::var("LOGNAME")).unwrap_or_default();
    RecordedAnswer { answer, note, by, at: jiff::Timestamp::now().to_string() }
}

/// Takes the answers of a file: all of them, or none where one is not understood.
fn take_file(record: &mut ChecklistRecord, file: &Utf8PathBuf) -> Result<(), Failure> {
    let refused = || Failure::new(Exit::Usage, format!("the answers in {file} cannot be used"));
    let text = std::fs::read_to_string(file).map_err(|error| refused().because(&error))?;
    let given: std::collections::BTreeMap<String, Given> = serde_json::from_str(&text).map_err(|error| {
        refused().because(&error).advice(r#"it is {"<check>": "pass" | "fail" | {"answer": .., "note": ..}}"#)
    })?;
    let items = checklist();
    for key in given.keys() {
        if !items.iter().any(|item| item.key == *key) {
            let near = near_matches(key, items.iter().map(|item| item.key.as_str()));
            let advice = near.first().map(|near| format!("did you mean {near:?}?"));
            return Err(refused().why(format!("there is no check {key:?}")).maybe_advice(advice));
        }
    }
    for (key, given) in given {
        let answer = match given {
            Given::Word(answer) => recorded(answer, String::new()),
            Given::Noted(noted) => {
                let now = recorded(noted.answer, noted.note);
                RecordedAnswer {
                    by: if noted.by.is_empty() { now.by } else { noted.by },
                    at: if noted.at.is_empty() { now.at } else { noted.at },
                    ..RecordedAnswer {
                        answer: now.answer,
                        note: now.note,
                        by: String::new(),
                        at: String::new(),
                    }
                }
            }
        };
        record.answers.insert(key, answer);
    }
    Ok(())
}

fn report(console: &Console, record: &ChecklistRecord) -> Result<(), Failure> {
    for item in checklist() {
        let answer = record.answers.get(&item.key);
        console.result(&json!({"check": item, "answer": answer}), || {
            let word = match answer.map(|recorded| recorded.answer) {
                Some(Answer::Pass) => "pass",
                Some(Answer::Fail) => "FAIL",
                None => "open",
            };
            let note = answer.map(|recorded| recorded.note.as_str()).filter(|note| !note.is_empty());
            let note = note.map(|note| format!(" ({note})")).unwrap_or_default();
            format!("{word}  {:<24} {}{note}", item.key, item.todo)
        });
    }
    let state = record.state();
    let total = state.passed.len() + state.failed.len() + state.open.len();
    if state.failed.is_empty() && state.open.is_empty() {
        console.note(&format!("all {total} checks pass for {}", record.manifest_version));
        return Ok(());
    }
    let what = format!(
        "{} of {total} checks pass, {} fail, {} are open",
        state.passed.len(),
        state.failed.len(),
        state.open.len()
    );
    Err(Failure::new(Exit::Failed, what).maybe_advice(
        (!state.open.is_empty()).then(|| "`rebuild verify --checklist` asks for the open ones".to_owned()),
    ))
}
