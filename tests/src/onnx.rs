//! Contract-true ONNX files, generated once by `fixtures/make_onnx.py` and kept under the target directory.

use std::{fs, process::Command};

use anyhow::{Context, Result, bail};
use camino::{Utf8Path, Utf8PathBuf};

use crate::{PythonEnvironment, repository_root, run, sha256_bytes, target_directory};

/// Kinds of `make_onnx.py`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnnxKind {
    /// Vision of a split model.
    Vision,
    /// The only policy of a split model.
    Policy,
    /// The first of two policies.
    OnPolicy,
    /// The second of two policies.
    OffPolicy,
    /// A current supercombo.
    Supercombo,
    /// A supercombo with the input names of an old generation.
    SupercomboOld,
    /// Driver monitoring.
    DriverMonitoring,
}

impl OnnxKind {
    /// The script's word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Vision => "vision",
            Self::Policy => "policy",
            Self::OnPolicy => "on_policy",
            Self::OffPolicy => "off_policy",
            Self::Supercombo => "supercombo",
            Self::SupercomboOld => "supercombo_old",
            Self::DriverMonitoring => "dmonitoring",
        }
    }
}

/// One file to be generated.
#[derive(Debug, Clone, Copy)]
pub struct OnnxRequest {
    /// What it is.
    pub kind: OnnxKind,
    /// Seed of its weights.
    pub seed: u64,
    /// At least this many MiB; 0 for the smallest.
    pub size_mib: u64,
    /// A defect to be planted (`--fault`).
    pub fault: Option<&'static str>,
}

impl OnnxRequest {
    /// A sound file of the smallest size.
    #[must_use]
    pub const fn small(kind: OnnxKind, seed: u64) -> Self {
        Self { kind, seed, size_mib: 0, fault: None }
    }

    /// The same with a planted defect.
    #[must_use]
    pub const fn with_fault(self, fault: &'static str) -> Self {
        Self { fault: Some(fault), ..self }
    }

    /// The same, at least `size_mib` MiB large.
    #[must_use]
    pub const fn with_size_mib(self, size_mib: u64) -> Self {
        Self { size_mib, ..self }
    }

    fn file_name(&self, scripts: &str) -> String {
        let fault = self.fault.map(|fault| format!("-{fault}")).unwrap_or_default();
        format!("{}-{}-{}{fault}-{}.onnx", self.kind.as_str(), self.seed, self.size_mib, &scripts[..12])
    }
}

/// The generated file; made where the target directory does not hold it yet. Its name carries the digest of the
/// generating scripts, so that a changed script is not served from the cache.
///
/// # Errors
/// When the script fails.
pub fn onnx_fixture(python: &PythonEnvironment, request: &OnnxRequest) -> Result<Utf8PathBuf> {
    let dir = target_directory()?.join("fixtures");
    let path = dir.join(request.file_name(&scripts_digest()?));
    if path.is_file() {
        return Ok(path);
    }
    fs::create_dir_all(&dir).with_context(|| format!("make {dir}"))?;
    let private = tempfile::tempdir_in(&dir).with_context(|| format!("make a directory in {dir}"))?;
    let made = Utf8PathBuf::try_from(private.path().join("made.onnx"))?;
    generate(python, request, &made)?;
    fs::rename(&made, &path).with_context(|| format!("rename {made} to {path}"))?;
    Ok(path)
}

fn generate(python: &PythonEnvironment, request: &OnnxRequest, out: &Utf8Path) -> Result<()> {
    let mut command = Command::new(&python.python);
    command.arg(repository_root().join("fixtures/make_onnx.py")).args([request.kind.as_str(), out.as_str()]);
    command.args(["--seed", &request.seed.to_string(), "--size-mib", &request.size_mib.to_string()]);
    if let Some(fault) = request.fault {
        command.args(["--fault", fault]);
    }
    let outcome = run(command.env("PYTHONDONTWRITEBYTECODE", "1"))?;
    if outcome.code != Some(0) {
        bail!("fixtures/make_onnx.py failed for {request:?}\n{}", outcome.transcript());
    }
    Ok(())
}

fn scripts_digest() -> Result<String> {
    let dir = repository_root().join("fixtures");
    let mut bytes = Vec::new();
    for name in ["make_onnx.py", "onnx_wire.py", "output_layouts.py"] {
        bytes.extend(fs::read(dir.join(name)).with_context(|| format!("read {dir}/{name}"))?);
    }
    Ok(sha256_bytes(&bytes))
}
