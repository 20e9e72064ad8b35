//! The Python environment that `cargo xtask setup` makes.

use anyhow::Result;
use camino::Utf8PathBuf;

use crate::{report_skip, target_directory};

/// A virtual environment with tinygrad and numpy.
#[derive(Debug, Clone)]
pub struct PythonEnvironment {
    /// Its interpreter.
    pub python: Utf8PathBuf,
}

impl PythonEnvironment {
    /// Where `cargo xtask setup` makes the environment.
    ///
    /// # Errors
    /// When the target directory cannot be told.
    pub fn directory() -> Result<Utf8PathBuf> {
        Ok(target_directory()?.join("venv"))
    }

    /// Where `cargo xtask setup` makes the environment with ONNX Runtime.
    ///
    /// # Errors
    /// When the target directory cannot be told.
    pub fn reference_directory() -> Result<Utf8PathBuf> {
        Ok(target_directory()?.join("reference-venv"))
    }

    /// The interpreter with ONNX Runtime, or `None` after the line that counts the calling test as skipped.
    #[must_use]
    pub fn reference_or_skip() -> Option<Utf8PathBuf> {
        let python = Self::reference_directory().ok()?.join("bin/python");
        if python.is_file() {
            return Some(python);
        }
        report_skip(&format!("no Python with ONNX Runtime at {python}; `cargo xtask setup` makes it"));
        None
    }

    /// The environment where it has been made, otherwise the reason to skip.
    ///
    /// # Errors
    /// The reason, with the command that makes the environment.
    pub fn find() -> Result<Self, String> {
        let python = Self::directory().map_err(|error| format!("{error:#}"))?.join("bin/python");
        if python.is_file() {
            return Ok(Self { python });
        }
        Err(format!("no Python environment at {python}; `cargo xtask setup` makes it"))
    }

    /// The environment, or `None` after the line that counts the calling test as skipped.
    #[must_use]
    pub fn find_or_skip() -> Option<Self> {
        Self::find().map_err(|reason| report_skip(&reason)).ok()
    }
}
