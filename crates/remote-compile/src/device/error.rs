//! Errors of devices.

use camino::Utf8PathBuf;
use durable_fs::{FsError, FsErrorKind};

/// Why a device did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// The device cannot be reached, or the connection was lost and could not be made again.
    #[error("{device} cannot be reached: {why}; the job goes on there, run again to take it up")]
    Unreachable {
        /// The device.
        device: String,
        /// What failed.
        why: String,
    },
    /// Another host uses the device.
    #[error("{device} is in use by {holder}; wait for it to end or stop it")]
    Reserved {
        /// The device.
        device: String,
        /// Who holds it.
        holder: String,
    },
    /// `models` is not on the device, or cannot be started.
    #[error("cannot start `models` on {device} ({path}): {why}; {advice}")]
    NoModels {
        /// The device.
        device: String,
        /// Where it was looked for.
        path: Utf8PathBuf,
        /// Why it does not start.
        why: String,
        /// What to do.
        advice: &'static str,
    },
    /// The device has too little space for a job.
    #[error("{device} has {free} bytes free and the job needs {needed}; free space there and run again")]
    Space {
        /// The device.
        device: String,
        /// Bytes that the job needs.
        needed: u64,
        /// Bytes that are free.
        free: u64,
    },
    /// A job's processes or files could not be ended or removed.
    #[error("job {job} on {device} could not be {what}: {why}")]
    Job {
        /// The device.
        device: String,
        /// The job.
        job: String,
        /// What was wanted: `started`, `cancelled`, `removed`.
        what: &'static str,
        /// What failed.
        why: String,
    },
    /// The device said something that this version does not understand.
    #[error(
        "{device} answered what this version does not understand: {why}; install the same version of `models` there"
    )]
    Protocol {
        /// The device.
        device: String,
        /// What it said.
        why: String,
    },
    /// A rule of safety forbids what was asked.
    #[error("{device} is refused: {why}")]
    Refused {
        /// The device.
        device: String,
        /// The rule.
        why: String,
    },
    /// No key was accepted, or the connection cannot be begun at all.
    #[error("{device} cannot be logged in to: {why}")]
    Login {
        /// The device.
        device: String,
        /// What was tried.
        why: String,
    },
    /// A file operation on the device failed.
    #[error("{device}: {why}")]
    RemoteFile {
        /// The device.
        device: String,
        /// What failed, with the path there.
        why: String,
        /// Whether its disk is full.
        disk_full: bool,
    },
    /// A file operation on this machine (or on the local device) failed.
    #[error(transparent)]
    Fs(#[from] FsError),
}

impl DeviceError {
    /// Whether trying again later, without changing anything, can succeed.
    pub const fn is_retryable(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Reserved { .. } => true,
            Self::NoModels { .. }
            | Self::Space { .. }
            | Self::Job { .. }
            | Self::Protocol { .. }
            | Self::Refused { .. }
            | Self::Login { .. }
            | Self::RemoteFile { .. }
            | Self::Fs(_) => false,
        }
    }

    /// Whether the device or this machine is at fault rather than the model: every further model would fail as well.
    pub fn is_environment(&self) -> bool {
        match self {
            Self::Unreachable { .. }
            | Self::Reserved { .. }
            | Self::NoModels { .. }
            | Self::Login { .. }
            | Self::Refused { .. }
            | Self::Protocol { .. } => true,
            Self::RemoteFile { disk_full, .. } => *disk_full,
            Self::Space { .. } | Self::Job { .. } => false,
            Self::Fs(error) => matches!(error.kind(), FsErrorKind::DiskFull | FsErrorKind::NotWritable),
        }
    }
}
