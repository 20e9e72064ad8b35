//! Errors of the libraries as failures of a command, each with its documented exit code.

use artifact_parts::PartsError;
use console_report::{Exit, Failure};
use durable_fs::{FsError, FsErrorKind};
use lfs_extract::{ErrorClass, ExtractError};
use model_manifest::ManifestWorkError;
use rebuild_workspace::WorkspaceError;
use remote_compile::{
    catalog::CatalogError, device::DeviceError, monitoring::MonitoringError, safety::Refusal,
    supervise::JobFailure,
};

/// A failure of the workspace.
pub fn of_workspace(what: impl Into<String>) -> impl Fn(WorkspaceError) -> Failure {
    let what = what.into();
    move |error| {
        let exit = match &error {
            WorkspaceError::NotAWorkspace { .. } => Exit::Environment,
            WorkspaceError::Fs(error) => exit_of_fs(error),
            error if error.is_environment() => Exit::Environment,
            error if error.is_usage() => Exit::Usage,
            _ => Exit::Failed,
        };
        Failure::new(exit, &what).because(&error)
    }
}

/// A failure of a file that the command line or the configuration names.
pub fn exit_of_fs(error: &FsError) -> Exit {
    match error.kind() {
        FsErrorKind::NotFound | FsErrorKind::Malformed => Exit::Usage,
        FsErrorKind::Mismatch => Exit::Failed,
        FsErrorKind::DiskFull | FsErrorKind::NotWritable | FsErrorKind::Other => Exit::Environment,
    }
}

/// The exit code of an extraction's failure.
pub fn exit_of_extract(error: &ExtractError) -> Exit {
    match error.class() {
        ErrorClass::Clone | ErrorClass::DiskFull | ErrorClass::NotWritable | ErrorClass::System => {
            Exit::Environment
        }
        ErrorClass::Interrupted => Exit::Interrupted,
        _ => Exit::Failed,
    }
}

/// A device that a rule refuses.
pub fn of_refusal(what: impl Into<String>, refusal: &Refusal) -> Failure {
    Failure::new(Exit::Refused, format!("{} is refused by the rule {}", what.into(), refusal.rule()))
        .because(refusal)
}

/// A failure of the device as a whole.
pub fn of_device(what: impl Into<String>, error: &DeviceError) -> Failure {
    let exit = match error {
        DeviceError::Refused { .. } => Exit::Refused,
        DeviceError::Fs(error) => exit_of_fs(error),
        _ => Exit::Environment,
    };
    Failure::new(exit, what).because(error)
}

/// A failure that ended a catalog run.
pub fn of_catalog(what: &str, error: CatalogError) -> Failure {
    match error {
        CatalogError::Device(error) => of_device(what, &error),
        CatalogError::Workspace(error) => of_workspace(what)(error),
    }
}

/// A failure of driver monitoring.
pub fn of_monitoring(what: &str, error: &MonitoringError) -> Failure {
    let exit = match error {
        MonitoringError::Job(JobFailure::Interrupted) => Exit::Interrupted,
        MonitoringError::Job(JobFailure::Device(error)) => return of_device(what, error),
        MonitoringError::Source(_) => Exit::Usage,
        MonitoringError::Workspace(WorkspaceError::Fs(error)) => exit_of_fs(error),
        error if error.is_environment() => Exit::Environment,
        _ => Exit::Failed,
    };
    Failure::new(exit, what).because(error).maybe_advice(error.hint().map(str::to_owned))
}

/// A failure of a manifest's plan.
pub fn of_manifest_work(what: &str, error: &ManifestWorkError) -> Failure {
    let exit = match error {
        ManifestWorkError::Workspace(error) if error.is_environment() => Exit::Environment,
        ManifestWorkError::Fs(error) => exit_of_fs(error),
        ManifestWorkError::UnknownCompleted { .. } | ManifestWorkError::NoManifest { .. } => Exit::Usage,
        ManifestWorkError::Journal(durable_fs::JournalError::Fs(error)) => exit_of_fs(error),
        _ => Exit::Failed,
    };
    Failure::new(exit, what).because(error)
}

/// A part limit that is not possible.
pub fn of_parts(what: &str, error: &PartsError) -> Failure {
    Failure::new(Exit::Usage, what).because(error)
}

/// The end of a command after `failed` of `total` models failed, `environment` of them through no fault of theirs.
pub fn of_models(verb: &str, failed: &[&str], total: usize, environment: bool) -> Result<(), Failure> {
    if failed.is_empty() {
        return Ok(());
    }
    let exit = if environment { Exit::Environment } else { Exit::Failed };
    let noun = if total == 1 { "model" } else { "models" };
    Err(Failure::new(
        exit,
        format!("{} of {total} {noun} could not be {verb}: {}", failed.len(), failed.join(", ")),
    )
    .advice("put right what stands above and run the same command again; what is done is kept"))
}
