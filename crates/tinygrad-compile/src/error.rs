//! Why a model was not compiled, and what that means for whoever asked.

use artifact_pickle::InspectError;
use camino::Utf8PathBuf;
use durable_fs::{FsError, FsErrorKind, JournalError, LockError};
use model_catalog::ModelId;
use onnx_source::OnnxError;

use crate::{
    dm::DmError,
    driver::{DriverError, FailureKind, RunContext},
    environment::EnvironmentError,
    external_gpu::BridgeError,
    plan::PlanError,
    staged::StagedError,
    toolchain::{ParseToolchainError, ToolchainError},
};

/// Who is at fault: it decides the exit code and whether trying again makes sense.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultClass {
    /// The model, its sources or its proof.
    Model,
    /// What was asked for.
    Usage,
    /// The machine: a missing tool, a full disk, a directory that cannot be written.
    Environment,
    /// Nobody: it was cancelled.
    Cancelled,
}

/// Why a model was not compiled.
#[derive(Debug, thiserror::Error)]
pub enum CompileError {
    /// The sources are not what they should be.
    #[error(transparent)]
    Staged(#[from] StagedError),
    /// A source file is no usable ONNX model.
    #[error(transparent)]
    Source(Box<OnnxError>),
    /// The sources do not fit together.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The target cannot be compiled for here.
    #[error(transparent)]
    Environment(#[from] EnvironmentError),
    /// The toolchain that was chosen is not here.
    #[error(transparent)]
    Toolchain(#[from] ToolchainError),
    /// Driver monitoring cannot be compiled as it was asked for.
    #[error(transparent)]
    Dm(#[from] DmError),
    /// The bridge of the external GPU cannot be used.
    #[error(transparent)]
    Bridge(#[from] BridgeError),
    /// The GPU faulted while it compiled, whatever the exit status said.
    #[error("the kernel's log has GPU faults from this compile: {}; restart the device and compile again", records.join(" | "))]
    GpuFault {
        /// The records.
        records: Vec<String>,
    },
    /// A compiler ended well and left no artifact.
    #[error("the compiler ended without an error and without {file}; look into the log {log}")]
    NoOutput {
        /// The missing file.
        file: Utf8PathBuf,
        /// The log.
        log: Utf8PathBuf,
    },
    /// An artifact of another compiler that does not replay.
    #[error("the artifact of {id} was refused by its replay and not kept: {what}")]
    Replay {
        /// The model.
        id: ModelId,
        /// What was seen.
        what: String,
    },
    /// A finished file that is not what was asked for.
    #[error("{file} was refused and not kept: {}", findings.join("; "))]
    Artifact {
        /// The file.
        file: String,
        /// What is wrong with it.
        findings: Vec<String>,
    },
    /// A finished file that is no well-formed pickle.
    #[error(transparent)]
    Inspect(Box<InspectError>),
    /// The driver failed.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// A file operation failed.
    #[error(transparent)]
    Fs(#[from] FsError),
    /// Another process works in the same place.
    #[error(transparent)]
    Lock(Box<LockError>),
    /// Several files could not be put in place together.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A request names an unknown toolchain.
    #[error(transparent)]
    UnknownToolchain(#[from] ParseToolchainError),
    /// A job request of another version.
    #[error(
        "{path} is of job protocol {found}; this version understands 1: install the same version on both machines"
    )]
    JobProtocol {
        /// The request.
        path: Utf8PathBuf,
        /// Its protocol.
        found: String,
    },
    /// Cancelled from outside.
    #[error("cancelled")]
    Cancelled,
}

impl From<OnnxError> for CompileError {
    fn from(error: OnnxError) -> Self {
        Self::Source(Box::new(error))
    }
}

impl From<InspectError> for CompileError {
    fn from(error: InspectError) -> Self {
        Self::Inspect(Box::new(error))
    }
}

impl From<LockError> for CompileError {
    fn from(error: LockError) -> Self {
        Self::Lock(Box::new(error))
    }
}

impl CompileError {
    /// Who is at fault.
    pub fn class(&self) -> FaultClass {
        match self {
            Self::Staged(StagedError::Fs(error)) => class_of_fs(error),
            Self::Staged(
                StagedError::TwoFiles { .. } | StagedError::TwoPlaces { .. } | StagedError::Missing { .. },
            ) => FaultClass::Model,
            Self::Staged(_) | Self::Dm(_) | Self::JobProtocol { .. } | Self::UnknownToolchain(_) => {
                FaultClass::Usage
            }
            Self::Source(_)
            | Self::Plan(_)
            | Self::GpuFault { .. }
            | Self::NoOutput { .. }
            | Self::Replay { .. }
            | Self::Artifact { .. }
            | Self::Inspect(_) => FaultClass::Model,
            Self::Environment(_)
            | Self::Toolchain(_)
            | Self::Bridge(_)
            | Self::Lock(_)
            | Self::Journal(_) => FaultClass::Environment,
            Self::Driver(error) => class_of_driver(error),
            Self::Fs(error) => class_of_fs(error),
            Self::Cancelled => FaultClass::Cancelled,
        }
    }

    /// A stable word for result files.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Staged(_) | Self::Dm(_) => "sources",
            Self::Source(_) => "onnx",
            Self::Plan(_) => "plan",
            Self::Environment(_) => "target",
            Self::Toolchain(_) => "toolchain",
            Self::Bridge(_) => "external_gpu",
            Self::GpuFault { .. } => "gpu_fault",
            Self::NoOutput { .. } => "no_output",
            Self::Replay { .. } => "replay_mismatch",
            Self::Artifact { .. } | Self::Inspect(_) => "artifact",
            Self::Driver(DriverError::Failed { kind, .. }) => kind.as_str(),
            Self::Driver(DriverError::Start { .. }) => "python_missing",
            Self::Driver(DriverError::Died { .. }) => "driver_died",
            Self::Driver(DriverError::Stalled { .. }) => "driver_stalled",
            Self::Driver(DriverError::Cancelled { .. }) | Self::Cancelled => "cancelled",
            Self::Driver(DriverError::Result { .. } | DriverError::Unproven { .. }) => "internal",
            Self::Driver(DriverError::Fs(error)) | Self::Fs(error) => match error.kind() {
                FsErrorKind::DiskFull => "disk_full",
                FsErrorKind::NotWritable => "not_writable",
                FsErrorKind::Mismatch => "source_mismatch",
                FsErrorKind::NotFound | FsErrorKind::Malformed | FsErrorKind::Other => "files",
            },
            Self::Lock(_) => "locked",
            Self::Journal(_) => "files",
            Self::JobProtocol { .. } | Self::UnknownToolchain(_) => "bad_request",
        }
    }

    /// What to do next, where something can be said that the message does not.
    pub fn advice(&self) -> Option<String> {
        match self {
            Self::Driver(DriverError::Failed { kind, context, .. }) => Some(failed_advice(*kind, context)),
            Self::Driver(DriverError::Start { .. }) => Some(
                "name an interpreter that has tinygrad and numpy with --python, or make one with: cargo xtask setup".to_owned(),
            ),
            Self::Driver(DriverError::Died { killed: true, .. }) => Some(
                "the system kills a process like this when memory runs out: close other programs and run again".to_owned(),
            ),
            Self::Driver(DriverError::Stalled { .. }) => Some(
                "run again; if it stalls in the same stage, raise --quiet-limit-minutes or look at the device's kernel log"
                    .to_owned(),
            ),
            _ => None,
        }
    }
}

fn failed_advice(kind: FailureKind, context: &RunContext) -> String {
    match kind.advice() {
        Some(advice) => format!("{advice} (log: {})", context.log),
        // Only where the driver did not understand the failure are the last lines worth their space.
        None if context.tail.is_empty() => format!("look into the log {}", context.log),
        None => format!("look into the log {}; its last lines:\n{}", context.log, context.tail),
    }
}

fn class_of_driver(error: &DriverError) -> FaultClass {
    match error {
        DriverError::Start { .. } => FaultClass::Environment,
        DriverError::Failed { kind, .. } if kind.is_environment() => FaultClass::Environment,
        DriverError::Died { killed: true, .. } => FaultClass::Environment,
        DriverError::Failed { .. }
        | DriverError::Died { .. }
        | DriverError::Stalled { .. }
        | DriverError::Result { .. }
        | DriverError::Unproven { .. } => FaultClass::Model,
        DriverError::Cancelled { .. } => FaultClass::Cancelled,
        DriverError::Fs(error) => class_of_fs(error),
    }
}

fn class_of_fs(error: &FsError) -> FaultClass {
    match error.kind() {
        FsErrorKind::Mismatch | FsErrorKind::Malformed => FaultClass::Model,
        FsErrorKind::DiskFull | FsErrorKind::NotWritable | FsErrorKind::NotFound | FsErrorKind::Other => {
            FaultClass::Environment
        }
    }
}
