//! Errors of validation.

use camino::Utf8PathBuf;
use durable_fs::FsError;
use model_catalog::ModelId;
use rebuild_workspace::WorkspaceError;
use remote_compile::{device::DeviceError, supervise::JobFailure};

/// Why an artifact could not be validated. An artifact that was run and judged to be bad is no error but a judgement.
#[derive(Debug, thiserror::Error)]
pub enum ValidateError {
    /// There is no artifact of the model.
    #[error("{id} has no compiled artifact; run `rebuild compile --model {id}`")]
    NoArtifact {
        /// The model.
        id: ModelId,
    },
    /// The artifact on the disk is not the one that was recorded.
    #[error("{path} is not the artifact that was recorded: {why}; run `rebuild compile --model {id}`")]
    NotRecorded {
        /// The model.
        id: ModelId,
        /// The file.
        path: Utf8PathBuf,
        /// How it differs.
        why: String,
    },
    /// The artifact is of another target than the device runs.
    #[error(
        "{id} is compiled for {found}, and the workspace's target is {expected}; compile it again or change `target` in rebuild.toml"
    )]
    Target {
        /// The model.
        id: ModelId,
        /// Target of the artifact.
        found: model_catalog::Target,
        /// Target of the workspace.
        expected: model_catalog::Target,
    },
    /// The file says of itself that it must not be loaded.
    #[error(
        "{path} must not be loaded: {why}; run `models verify {path}` for all of it, and compile it again"
    )]
    Refused {
        /// The file.
        path: Utf8PathBuf,
        /// The worst finding.
        why: String,
    },
    /// What the device left cannot be read as the outputs of a run.
    #[error("the outputs of {id} cannot be read: {why}; install the same version of `models` on the device")]
    Outputs {
        /// The model.
        id: ModelId,
        /// What is wrong.
        why: String,
    },
    /// The driver-monitoring set is not complete, or cannot be read.
    #[error("driver monitoring cannot be run: {why}; make the set with `models --dm --output-dir {dir}`")]
    DriverMonitoring {
        /// The directory of the set.
        dir: Utf8PathBuf,
        /// What is wrong.
        why: String,
    },
    /// There is nothing to compare with.
    #[error("{id} cannot be compared with ONNX Runtime: {why}; run `rebuild extract --model {id}`")]
    NoSources {
        /// The model.
        id: ModelId,
        /// What is wrong.
        why: String,
    },
    /// ONNX Runtime could not be run.
    #[error("ONNX Runtime did not run with {python}: {source}")]
    Reference {
        /// The interpreter.
        python: Utf8PathBuf,
        /// Why.
        source: tinygrad_compile::driver::DriverError,
    },
    /// The run failed.
    #[error(transparent)]
    Job(#[from] JobFailure),
    /// The workspace failed.
    #[error(transparent)]
    Workspace(#[from] WorkspaceError),
}

impl From<DeviceError> for ValidateError {
    fn from(error: DeviceError) -> Self {
        Self::Job(error.into())
    }
}

impl From<FsError> for ValidateError {
    fn from(error: FsError) -> Self {
        Self::Workspace(error.into())
    }
}

impl ValidateError {
    /// A stable word for records.
    pub fn kind(&self) -> &str {
        match self {
            Self::NoArtifact { .. } => "no_artifact",
            Self::NotRecorded { .. } => "not_recorded",
            Self::Target { .. } => "target",
            Self::Refused { .. } => "file",
            Self::Outputs { .. } => "protocol",
            Self::DriverMonitoring { .. } => "driver_monitoring",
            Self::NoSources { .. } => "no_sources",
            Self::Reference { .. } => "reference",
            Self::Job(failure) => failure.kind(),
            Self::Workspace(_) => "workspace",
        }
    }

    /// What to do next, where the message does not say it.
    pub fn hint(&self) -> Option<&str> {
        match self {
            Self::Job(failure) => failure.hint(),
            Self::Reference { .. } => Some(
                "`cargo xtask setup` makes a Python with onnxruntime, target/reference-venv/bin/python: name it with \
                 --reference-python, or as `reference_python` in rebuild.toml",
            ),
            _ => None,
        }
    }

    /// Whether a machine and not the model is at fault.
    pub fn is_environment(&self) -> bool {
        match self {
            Self::NoArtifact { .. }
            | Self::NotRecorded { .. }
            | Self::Target { .. }
            | Self::Refused { .. }
            | Self::NoSources { .. }
            | Self::DriverMonitoring { .. } => false,
            Self::Outputs { .. } | Self::Reference { .. } => true,
            Self::Job(failure) => failure.is_environment(),
            Self::Workspace(error) => error.is_environment(),
        }
    }
}
