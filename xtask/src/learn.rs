//! `cargo xtask learn`: the ABI description of the installed tinygrad, and what artifacts may name.
//!
//! Both are data files that the reader is built with. This task rewrites them from what the installed tinygrad says and
//! from artifacts that were compiled with it; the change is then reviewed like any other. A name that appears in the
//! diff and that no artifact should need is a reason to stop, not to commit.

use std::{fs, process::Command};

use anyhow::{Context, Result, bail};
use artifact_pickle::{AbiDescription, AllowList, FileKind, Graph, InspectOptions, Limits, inspect};
use camino::{Utf8Path, Utf8PathBuf};
use clap::Args;
use e2e::repository_root;

use crate::{process::output, setup};

/// Options of `cargo xtask learn`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Artifacts that were compiled from trusted sources with the tinygrad in question.
    files: Vec<Utf8PathBuf>,
}

/// Rewrites the description of the installed tinygrad and adds what the files name to the list.
pub fn run(arguments: &Arguments) -> Result<()> {
    let environment = setup::run(&setup::Arguments::default())?;
    let root = repository_root();
    describe(&environment, root)?;
    let list = root.join("data/allow-list.json");
    let mut allowed: AllowList =
        serde_json::from_str(&fs::read_to_string(&list)?).context("read the list")?;
    for file in &arguments.files {
        learn(file, &mut allowed)?;
    }
    write(&list, &allowed)
}

/// `data/abi/tinygrad-VERSION.json`, as the tinygrad itself prints it.
fn describe(environment: &setup::Environment, root: &Utf8Path) -> Result<()> {
    let driver = root.join("crates/tinygrad-compile/driver/abi.py");
    let text = output(Command::new(&environment.python).arg(driver))?;
    let abi = AbiDescription::from_json(&text)?;
    let path = root.join(format!("data/abi/tinygrad-{}.json", abi.tinygrad));
    let before = fs::read_to_string(&path).unwrap_or_default();
    durable_fs::write_atomic(&path, text.as_bytes())?;
    let change = if before == text { "unchanged" } else { "CHANGED: review the diff" };
    println!("{path}: digest {}, {change}", abi.digest());
    Ok(())
}

fn learn(file: &Utf8PathBuf, allowed: &mut AllowList) -> Result<()> {
    let kind = inspect(file, &InspectOptions::default())?.content.kind();
    if kind == FileKind::Other {
        bail!("{file} is no artifact: nothing is learned from it");
    }
    let graph = Graph::read(&mut fs::File::open(file)?, &Limits::default())?;
    let new = allowed.learn(kind, &graph);
    let text = if new.is_empty() { "nothing new".to_owned() } else { format!("NEW: {}", new.join(", ")) };
    println!("{file}: {kind}, {text}");
    Ok(())
}

fn write(path: &Utf8Path, allowed: &AllowList) -> Result<()> {
    let text = serde_json::to_string_pretty(allowed)? + "\n";
    durable_fs::write_atomic(path, text.as_bytes())?;
    Ok(())
}
