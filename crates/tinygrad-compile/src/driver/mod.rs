//! The Python driver: what it is asked, how it is run, what it answers.

pub mod embedded;
mod event;
mod group;
mod process;
mod python;
pub mod request;
#[cfg(test)]
mod tests;

use camino::Utf8PathBuf;
use durable_fs::FsError;
use serde_json::Value;

pub use event::{DriverEvent, FailureKind, ModelFailure, ModelOutcome, PROTOCOL, StageState};
pub use group::ProcessGroup;
pub(crate) use process::Program;
pub use process::{Driver, QUIET_LIMIT};
pub use python::{DEVICE_PYTHON, PythonChoices};

/// Where a failed run stood, and what it printed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunContext {
    /// The operation.
    pub op: &'static str,
    /// The stage that was going on.
    pub stage: String,
    /// The log.
    pub log: Utf8PathBuf,
    /// The last lines that the run added to it.
    pub tail: String,
}

/// Why a run of the driver failed.
#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    /// The interpreter cannot be started.
    #[error("cannot start the interpreter {python}: {source}")]
    Start {
        /// The interpreter.
        python: Utf8PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The driver reported a failure.
    #[error("{message}")]
    Failed {
        /// The class of the failure.
        kind: FailureKind,
        /// What happened.
        message: String,
        /// Facts, such as the name of an operator.
        detail: Box<Value>,
        /// Where it stood.
        context: Box<RunContext>,
    },
    /// The process ended without a result.
    #[error("the driver ended with {status} in stage {} of {} and reported nothing; its last lines in {}:\n{}", context.stage, context.op, context.log, context.tail)]
    Died {
        /// Its exit status or signal.
        status: String,
        /// Whether it was killed by SIGKILL, as the system does when memory runs out.
        killed: bool,
        /// Where it stood.
        context: Box<RunContext>,
    },
    /// No event came for too long.
    #[error("the driver reported nothing for {seconds} s in stage {} of {} and was killed; its last lines in {}:\n{}", context.stage, context.op, context.log, context.tail)]
    Stalled {
        /// The limit in seconds.
        seconds: u64,
        /// Where it stood.
        context: Box<RunContext>,
    },
    /// Cancelled from outside.
    #[error("{op} was cancelled")]
    Cancelled {
        /// The operation.
        op: &'static str,
    },
    /// The result is not of the form that the protocol has.
    #[error("the driver's result of {op} cannot be read: {source}")]
    Result {
        /// The operation.
        op: &'static str,
        /// Why.
        source: serde_json::Error,
    },
    /// The result lacks the proof that was asked for.
    #[error("the driver reported {found} checks of the proof; {expected} were asked for")]
    Unproven {
        /// Checks that were asked for.
        expected: usize,
        /// Checks that were reported.
        found: usize,
    },
    /// A file of ours cannot be written.
    #[error(transparent)]
    Fs(#[from] FsError),
}
