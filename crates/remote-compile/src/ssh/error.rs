//! Errors of the connection.

use camino::Utf8PathBuf;
use durable_fs::FsError;

use crate::{device::DeviceError, link::Fault, safety::Refusal};

/// Why a connection was not made or was lost, or a request failed.
#[derive(Debug, thiserror::Error)]
pub enum SshError {
    /// A rule of safety.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The host cannot be reached, or the connection was lost.
    #[error("{host}: {why}")]
    Lost {
        /// Who was to be reached.
        host: String,
        /// What failed.
        why: String,
    },
    /// No key was accepted.
    #[error(
        "{host} accepts none of the keys for {user} ({tried}); load the right key into the agent or name it with IdentityFile"
    )]
    Login {
        /// The host.
        host: String,
        /// The user.
        user: String,
        /// What was tried.
        tried: String,
    },
    /// `models` does not start there.
    #[error("{path} does not start on {host}: {why}; run `rebuild device bootstrap`")]
    NoModels {
        /// The device.
        host: String,
        /// Where it was looked for.
        path: Utf8PathBuf,
        /// Why.
        why: String,
    },
    /// The other side is of another version, or does not speak the same language at all.
    #[error("{host} answered what this version does not understand: {why}; run `rebuild device bootstrap`")]
    Protocol {
        /// The device.
        host: String,
        /// What it said.
        why: String,
    },
    /// The request failed on the device.
    #[error("{host}: {fault:?}")]
    Fault {
        /// The device.
        host: String,
        /// What it said.
        fault: FaultText,
    },
    /// The user wants to stop.
    #[error("interrupted; what has arrived is kept, run again to go on")]
    Stopped,
    /// A file on this machine.
    #[error(transparent)]
    Fs(#[from] FsError),
    /// The private runtime cannot be started.
    #[error("cannot start the connection's threads: {0}")]
    Runtime(std::io::Error),
}

/// What a device said of a failed request; opaque, as the frames are an affair of this crate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FaultText(pub(super) Fault);

impl SshError {
    pub(super) fn lost(host: &str, why: impl ToString) -> Self {
        Self::Lost { host: host.to_owned(), why: why.to_string() }
    }

    /// Whether a new connection may do better.
    pub(super) fn wants_reconnect(&self) -> bool {
        matches!(self, Self::Lost { .. })
    }

    /// Whether the same connection may do better in a moment.
    pub(super) fn wants_patience(&self) -> bool {
        matches!(self, Self::Fault { fault: FaultText(Fault::Busy { .. }), .. })
    }

    /// The error as a device's.
    pub fn into_device_error(self, device: &str) -> DeviceError {
        let device = device.to_owned();
        match self {
            Self::Refused(refusal) => of_refusal(device, &refusal),
            Self::Lost { why, .. } => DeviceError::Unreachable { device, why },
            Self::Stopped => DeviceError::Unreachable { device, why: "interrupted".to_owned() },
            Self::NoModels { path, why, .. } => {
                DeviceError::NoModels { device, path, why, advice: "run `rebuild device bootstrap`" }
            }
            Self::Protocol { why, .. } => DeviceError::Protocol { device, why },
            Self::Fs(error) => DeviceError::Fs(error),
            Self::Fault { fault: FaultText(fault), .. } => from_fault(device, fault),
            other @ (Self::Login { .. } | Self::Runtime(_)) => {
                DeviceError::Login { device, why: other.to_string() }
            }
        }
    }
}

fn of_refusal(device: String, refusal: &Refusal) -> DeviceError {
    DeviceError::Refused { device, why: format!("{refusal} [{}]", refusal.rule()) }
}

fn from_fault(device: String, fault: Fault) -> DeviceError {
    match fault {
        Fault::Reserved { holder } => DeviceError::Reserved { device, holder },
        Fault::OnRoad => of_refusal(device.clone(), &Refusal::OnRoad { asked: device }),
        Fault::NoModels { path, why } => {
            DeviceError::NoModels { device, path, why, advice: "run `rebuild device bootstrap`" }
        }
        Fault::Space { needed, free } => DeviceError::Space { device, needed, free },
        Fault::Job { job, what, why } => {
            let what = ["started", "cancelled", "removed"].into_iter().find(|known| *known == what);
            DeviceError::Job { device, job, what: what.unwrap_or("served"), why }
        }
        Fault::Busy { why } => DeviceError::Unreachable { device, why },
        Fault::File { why, disk_full } => DeviceError::RemoteFile { device, why, disk_full },
        Fault::Request { why } => DeviceError::Protocol { device, why },
    }
}
