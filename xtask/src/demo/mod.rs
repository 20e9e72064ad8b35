//! `cargo xtask demo`: the whole workflow on a small catalog, with nothing stubbed.
//!
//! Everything is made anew under `target/demo/`: a git repository with one commit a model, a source map, a base manifest and
//! a workspace. Kept between runs, elsewhere under the target directory: the Python environment, the generated ONNX files and
//! tinygrad's kernel cache.

mod catalog;
mod summary;

use std::{fs, process::Command, time::Instant};

use anyhow::{Context, Result, bail};
use camino::{Utf8Path, Utf8PathBuf};
use clap::Args;
use e2e::{Binaries, PythonEnvironment, Scenario, target_directory};

use crate::{
    process::{run as run_command, words},
    setup,
};

/// Artifacts over this size get parts, so that parts appear although the demo's models are small.
const PART_LIMIT_MIB: u64 = 4;

/// Options of `cargo xtask demo`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Where to make everything (removed first); `demo` in the target directory where absent.
    #[arg(long)]
    directory: Option<Utf8PathBuf>,
}

/// Runs the demo.
pub fn run(arguments: &Arguments) -> Result<()> {
    let started = Instant::now();
    let environment = setup::run(&setup::Arguments::default())?;
    heading("Building the two binaries");
    Binaries::locate()?;

    let python = PythonEnvironment { python: environment.python.clone() };
    let scenario = make_scenario(arguments, &python)?;
    let demo = Demo { scenario, clang: environment.clang };
    demo.workflow(&python)?;
    let joined = demo.join_parts()?;
    summary::print(&demo.scenario, &joined, started.elapsed())
}

fn make_scenario(arguments: &Arguments, python: &PythonEnvironment) -> Result<Scenario> {
    let root = match &arguments.directory {
        Some(dir) => dir.clone(),
        None => target_directory()?.join("demo"),
    };
    heading("Making a git history with one commit a model");
    clear(&root)?;
    let scenario = Scenario::create(&root, python, &catalog::MODELS)?;
    print!("{}", scenario.history.git(["log", "--oneline", "--no-decorate"])?);
    Ok(scenario)
}

/// Removes an earlier demo, and nothing that is not one.
fn clear(root: &Utf8Path) -> Result<()> {
    match fs::read_dir(root) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(error).with_context(|| format!("look into {root}")),
        Ok(mut entries) => {
            if entries.next().is_some() && !root.join("model_names_v21.json").is_file() {
                bail!(
                    "{root} holds something that is not an earlier demo; name an empty or absent directory"
                );
            }
            fs::remove_dir_all(root).with_context(|| format!("remove the earlier demo {root}"))?;
        }
    }
    fs::create_dir_all(root).with_context(|| format!("make {root}"))
}

struct Demo {
    scenario: Scenario,
    clang: Option<String>,
}

impl Demo {
    fn workflow(&self, python: &PythonEnvironment) -> Result<()> {
        self.step(self.scenario.init_command())?;
        self.scenario.configure(python, Some(PART_LIMIT_MIB))?;
        for command in ["extract", "compile", "validate", "manifest"] {
            self.step(self.scenario.rebuild(&[command]))?;
        }
        let generated = self.scenario.workspace.join("manifests/model_names_v22.json");
        let release = ["--base-manifest", generated.as_str(), "--manifest-version", "v23", "--suffix", "3"];
        self.step(self.scenario.rebuild(&[&["namespace"], &release[..]].concat()))?;
        self.step(self.scenario.rebuild(&["reconcile"]))
    }

    fn step(&self, mut command: Command) -> Result<()> {
        let program =
            Utf8Path::new(command.get_program().to_str().unwrap_or_default()).file_name().unwrap_or_default();
        let typed =
            words(&command).replacen(&command.get_program().to_string_lossy().into_owned(), program, 1);
        heading(&typed);
        if let Some(clang) = &self.clang {
            command.env("CC", clang);
        }
        run_command(&mut command)
    }

    /// Puts every artifact in parts together again with `models join` and compares it with the whole one.
    fn join_parts(&self) -> Result<Vec<String>> {
        let out = self.scenario.workspace.with_file_name("joined");
        fs::create_dir_all(&out).with_context(|| format!("make {out}"))?;
        let mut joined = Vec::new();
        for part in self.first_parts()? {
            let name = part.file_name().unwrap_or_default().trim_end_matches(".p00").to_owned();
            let whole = out.join(&name);
            let parts = part.with_file_name(&name);
            let mut command = self.scenario.models();
            command.args(["join", parts.as_str(), "--output", whole.as_str()]);
            self.step(command)?;
            let compiled = self.scenario.workspace.join("compiled").join(&name);
            run_command(Command::new("cmp").args([&whole, &compiled]))?;
            joined.push(name);
        }
        if joined.is_empty() {
            bail!("no artifact came in parts, although the limit is {PART_LIMIT_MIB} MiB");
        }
        Ok(joined)
    }

    fn first_parts(&self) -> Result<Vec<Utf8PathBuf>> {
        let dir = self.scenario.workspace.join("ready-for-resources");
        let mut parts = Vec::new();
        for entry in dir.read_dir_utf8().with_context(|| format!("look into {dir}"))? {
            let path = entry?.into_path();
            if path.extension() == Some("p00") {
                parts.push(path);
            }
        }
        parts.sort();
        Ok(parts)
    }
}

fn heading(text: &str) {
    println!("\n== {text}");
}
