//! Errors of the libraries as failures of a command.

use artifact_parts::PartsError;
use console_report::{Exit, Failure};
use durable_fs::{FsError, FsErrorKind};
use tinygrad_compile::{CompileError, FaultClass};

/// A failure to compile, with `what` was not done.
pub fn of_compile(what: impl Into<String>, error: &CompileError) -> Failure {
    let exit = match error.class() {
        FaultClass::Model => Exit::Failed,
        FaultClass::Usage => Exit::Usage,
        FaultClass::Environment => Exit::Environment,
        FaultClass::Cancelled => Exit::Interrupted,
    };
    Failure::new(exit, what).because(error).maybe_advice(error.advice())
}

/// A failure to split or join.
pub fn of_parts(what: impl Into<String>, error: &PartsError) -> Failure {
    let exit = match error {
        PartsError::Fs(error) => exit_of_fs(error),
        PartsError::ChunkSize { .. }
        | PartsError::Limit { .. }
        | PartsError::TooMany { .. }
        | PartsError::Name { .. } => Exit::Usage,
        _ => Exit::Failed,
    };
    Failure::new(exit, what).because(error)
}

/// A failure of a file operation.
pub fn of_fs(what: impl Into<String>, error: &FsError) -> Failure {
    Failure::new(exit_of_fs(error), what).because(error)
}

fn exit_of_fs(error: &FsError) -> Exit {
    match error.kind() {
        FsErrorKind::Mismatch | FsErrorKind::Malformed => Exit::Failed,
        FsErrorKind::NotFound => Exit::Usage,
        FsErrorKind::DiskFull | FsErrorKind::NotWritable | FsErrorKind::Other => Exit::Environment,
    }
}
