//! The Python environment: pinned, hash-checked packages under the target directory.

use std::{fs, process::Command};

use anyhow::{Context, Result, bail};
use camino::{Utf8Path, Utf8PathBuf};
use e2e::{PythonEnvironment, repository_root, sha256_bytes, target_directory};

use super::tools::provide_python_venv;
use crate::process::{find_program, output, run};

/// Requirement files under `xtask/python/`, one `pip install` each.
const REQUIREMENTS: [&str; 2] = ["run", "fixtures"];

/// The oldest Python that the pinned numpy has wheels for.
const OLDEST: (u32, u32) = (3, 11);

/// Makes or completes the environment; returns its interpreter.
pub fn provide() -> Result<Utf8PathBuf> {
    complete(&PythonEnvironment::directory()?, &REQUIREMENTS)
}

/// Makes or completes the environment of the LFS server that the tests talk to: apart, so that artifacts are compiled and
/// loaded with nothing else installed.
pub fn provide_peers() -> Result<()> {
    complete(&target_directory()?.join("giftless-venv"), &["peers"]).map(drop)
}

/// Makes or completes the environment of the reference that validation compares with: apart for the same reason.
pub fn provide_reference() -> Result<Utf8PathBuf> {
    complete(&PythonEnvironment::reference_directory()?, &["reference"])
}

fn complete(dir: &Utf8Path, requirements: &[&str]) -> Result<Utf8PathBuf> {
    let python = dir.join("bin/python");
    if !python.is_file() {
        create(dir)?;
    }
    for name in requirements {
        install(dir, &python, name)?;
    }
    Ok(python)
}

fn create(dir: &Utf8Path) -> Result<()> {
    let base = base_interpreter()?;
    println!("setup: making a Python environment with {base}");
    if dir.exists() {
        fs::remove_dir_all(dir).with_context(|| format!("remove the broken environment {dir}"))?;
    }
    let make = || run(Command::new(&base).args(["-m", "venv", dir.as_str()]));
    // Debian ships Python without ensurepip; what a failed attempt left would confuse the second.
    make().or_else(|_| {
        provide_python_venv()?;
        fs::remove_dir_all(dir).or_else(ignore_absent).with_context(|| format!("remove {dir}"))?;
        make()
    })
}

fn ignore_absent(error: std::io::Error) -> std::io::Result<()> {
    if error.kind() == std::io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

/// `PYTHON` where it is set, otherwise the first interpreter in PATH that is new enough.
fn base_interpreter() -> Result<String> {
    if let Ok(chosen) = std::env::var("PYTHON") {
        return Ok(chosen);
    }
    let names = ["python3", "python3.13", "python3.12", "python3.11"];
    let found = names
        .into_iter()
        .find(|name| find_program(name).is_some() && version(name).is_ok_and(|v| v >= OLDEST));
    match found {
        Some(name) => Ok(name.to_owned()),
        None => bail!(
            "no Python {}.{} or newer in PATH\n  Debian, Ubuntu: sudo apt-get install python3 python3-venv\n  \
             macOS: brew install python@3.12\n  or name one with PYTHON=/path/to/python3",
            OLDEST.0,
            OLDEST.1
        ),
    }
}

fn version(python: &str) -> Result<(u32, u32)> {
    let text = output(
        Command::new(python).args(["-c", "import sys; print(sys.version_info[0], sys.version_info[1])"]),
    )?;
    let (major, minor) = text.trim().split_once(' ').context("two numbers")?;
    Ok((major.parse()?, minor.parse()?))
}

fn install(dir: &Utf8Path, python: &Utf8Path, name: &str) -> Result<()> {
    let requirements = repository_root().join(format!("xtask/python/requirements-{name}.txt"));
    let stamp = dir.join(format!(".requirements-{name}"));
    let digest = installed_digest(dir, &requirements)?;
    if fs::read_to_string(&stamp).is_ok_and(|text| text == digest) {
        return Ok(());
    }
    println!("setup: installing requirements-{name}.txt");
    let mut pip = Command::new(python);
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--require-hashes"]);
    pip.args(["--only-binary", ":all:", "--no-deps", "--requirement", requirements.as_str()]);
    run(&mut pip)?;
    durable_fs::write_atomic(&stamp, digest.as_bytes())?;
    Ok(())
}

/// What the stamp says: the packages and the Python that they were installed for.
fn installed_digest(dir: &Utf8Path, requirements: &Utf8Path) -> Result<String> {
    let mut bytes = fs::read(requirements).with_context(|| format!("read {requirements}"))?;
    let configuration = dir.join("pyvenv.cfg");
    bytes.extend(fs::read(&configuration).with_context(|| format!("read {configuration}"))?);
    Ok(sha256_bytes(&bytes))
}
