//! The binaries under test, built once.

use std::{env, process::Command, sync::OnceLock};

use anyhow::{Context, Result, bail};
use camino::{Utf8Path, Utf8PathBuf};

/// Where the built programs are.
#[derive(Debug, Clone)]
pub struct Binaries {
    /// The maintainer's program.
    pub rebuild: Utf8PathBuf,
    /// The device's program, beside `rebuild` as a user would have it.
    pub models: Utf8PathBuf,
}

impl Binaries {
    /// The binaries of the profile that the calling program was built with; cargo is asked once a process to bring them up
    /// to date, unless `E2E_BINARIES_READY` says that the caller has just done so.
    ///
    /// # Errors
    /// When they do not build.
    pub fn locate() -> Result<Self> {
        static BUILT: OnceLock<Result<Utf8PathBuf, String>> = OnceLock::new();
        let dir = BUILT
            .get_or_init(|| built_directory().map_err(|error| format!("{error:#}")))
            .clone()
            .map_err(anyhow::Error::msg)?;
        Ok(Self { rebuild: dir.join("rebuild"), models: dir.join("models") })
    }
}

/// The project's own tool, brought up to date once a process.
///
/// # Errors
/// When it does not build.
pub fn xtask() -> Result<Utf8PathBuf> {
    static BUILT: OnceLock<Result<Utf8PathBuf, String>> = OnceLock::new();
    let build = || -> Result<Utf8PathBuf> {
        let dir = profile_directory()?;
        cargo_build(&dir, &["xtask"])?;
        Ok(dir.join("xtask"))
    };
    BUILT.get_or_init(|| build().map_err(|error| format!("{error:#}"))).clone().map_err(anyhow::Error::msg)
}

fn built_directory() -> Result<Utf8PathBuf> {
    let dir = profile_directory()?;
    if env::var_os("E2E_BINARIES_READY").is_some()
        && dir.join("rebuild").is_file()
        && dir.join("models").is_file()
    {
        return Ok(dir);
    }
    cargo_build(&dir, &["rebuild", "models"])?;
    Ok(dir)
}

fn cargo_build(dir: &Utf8Path, packages: &[&str]) -> Result<()> {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--quiet"]).current_dir(repository_root());
    for package in packages {
        cargo.args(["--package", package]);
    }
    if dir.file_name() == Some("release") {
        cargo.arg("--release");
    }
    cargo.env("CARGO_TARGET_DIR", target_directory()?);
    let status = cargo.status().context("start cargo to build the binaries under test")?;
    if !status.success() {
        bail!("cargo build of {} failed ({status})", packages.join(" and "));
    }
    Ok(())
}

/// The directory of the running program's own profile (`target/debug` or `target/release`).
fn profile_directory() -> Result<Utf8PathBuf> {
    let program = Utf8PathBuf::try_from(env::current_exe().context("find the running program")?)?;
    let mut dir = program.parent().context("a program has a directory")?;
    if dir.file_name() == Some("deps") {
        dir = dir.parent().context("deps has a parent")?;
    }
    Ok(dir.to_owned())
}

/// The build's target directory, wherever `CARGO_TARGET_DIR` or the configuration put it.
///
/// # Errors
/// When the running program does not lie in one.
pub fn target_directory() -> Result<Utf8PathBuf> {
    Ok(profile_directory()?.parent().context("a profile directory has a parent")?.to_owned())
}

/// The root of the project's source tree.
#[must_use]
pub fn repository_root() -> &'static Utf8Path {
    Utf8Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Utf8Path::new("."))
}
