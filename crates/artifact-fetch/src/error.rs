//! Errors of fetching.

use artifact_parts::{PartListError, PartsError};
use camino::Utf8PathBuf;
use durable_fs::{FsError, FsErrorKind, LockError};
use verified_download::{DownloadError, HttpError, HttpErrorClass, HttpUrl};

/// Why an artifact was not fetched.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// No origin serves the file.
    #[error(transparent)]
    Download(#[from] DownloadError),
    /// A request failed.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// The parts are not the artifact.
    #[error(transparent)]
    Parts(Box<PartsError>),
    /// A file operation failed.
    #[error(transparent)]
    Fs(#[from] FsError),
    /// Somebody else fetches the same file to the same place.
    #[error("{0}")]
    Busy(#[source] LockError),
    /// No host has it, neither whole nor in parts.
    #[error("{name} is on none of the hosts, neither whole nor in parts ({}); check the ID and the address", tried.join(", "))]
    Absent {
        /// The artifact's file name.
        name: String,
        /// The addresses that were asked.
        tried: Vec<String>,
    },
    /// What came is no artifact.
    #[error("{name} from {url} is {what}, no artifact; {hint}")]
    Foreign {
        /// The file that was asked for.
        name: String,
        /// Where it came from.
        url: String,
        /// What it is.
        what: &'static str,
        /// What to do.
        hint: &'static str,
    },
    /// The whole file is the published one, and it must not be used.
    #[error("{name} came as it was published and is not fit for use: {why}; what was there stays")]
    Unfit {
        /// The artifact's file name.
        name: String,
        /// What is wrong with it.
        why: String,
    },
    /// The checksum beside the parts is none.
    #[error(
        "{url} is no checksum of {name}; the host is being changed or damaged: try again, or another host"
    )]
    Checksum {
        /// Its address.
        url: String,
        /// The artifact.
        name: String,
    },
    /// The part list is not valid.
    #[error("{url}: {source}")]
    List {
        /// Its address.
        url: String,
        /// What is wrong.
        source: PartListError,
    },
    /// A key is configured and no host has a list.
    #[error("no host has the part list {name}, which has to be there as a key to verify it is configured")]
    NoList {
        /// Its file name.
        name: String,
    },
    /// The list's signature is missing or wrong.
    #[error("{url} is not signed by the configured key: {why}; do not install from this host")]
    Signature {
        /// The list's address.
        url: String,
        /// What is wrong.
        why: String,
    },
    /// The configured key is none.
    #[error("the configured public key is not one of minisign: {why}")]
    Key {
        /// What is wrong.
        why: String,
    },
    /// The part list does not have the model.
    #[error("{name} is not in the part list of the release; check the ID")]
    NotListed {
        /// The artifact's file name.
        name: String,
    },
    /// The destination is no place for a file.
    #[error("{path} is not a directory; choose one that exists with --to")]
    Destination {
        /// The path.
        path: Utf8PathBuf,
    },
}

impl From<PartsError> for FetchError {
    fn from(error: PartsError) -> Self {
        Self::Parts(Box::new(error))
    }
}

fn class_of(error: &FsError) -> HttpErrorClass {
    match error.kind() {
        FsErrorKind::DiskFull => HttpErrorClass::DiskFull,
        FsErrorKind::NotWritable => HttpErrorClass::NotWritable,
        _ => HttpErrorClass::System,
    }
}

impl FetchError {
    /// The class of the failure, where it was one of the network or of this machine.
    pub fn class(&self) -> Option<HttpErrorClass> {
        match self {
            Self::Download(error) => Some(error.class()),
            Self::Http(error) => Some(error.class()),
            Self::Absent { .. } | Self::NoList { .. } => Some(HttpErrorClass::Gone),
            Self::Foreign { .. } | Self::Checksum { .. } | Self::List { .. } => {
                Some(HttpErrorClass::Protocol)
            }
            Self::Fs(error) => Some(class_of(error)),
            Self::Parts(error) => match &**error {
                PartsError::Fs(error) => Some(class_of(error)),
                _ => None,
            },
            Self::Busy(_)
            | Self::Signature { .. }
            | Self::Key { .. }
            | Self::NotListed { .. }
            | Self::Unfit { .. }
            | Self::Destination { .. } => None,
        }
    }

    /// Whether a host does not have what was asked for, and no other answered otherwise: it may be there under other names.
    pub(crate) fn may_be_elsewhere(&self) -> bool {
        let is_silent = |class| {
            matches!(
                class,
                HttpErrorClass::Network
                    | HttpErrorClass::Clock
                    | HttpErrorClass::Auth
                    | HttpErrorClass::Quota
                    | HttpErrorClass::RateLimited
                    | HttpErrorClass::Server
            )
        };
        match self {
            Self::Download(error) => {
                let mut classes = error.failures.iter().map(|failure| failure.error.class());
                classes.clone().any(|class| class == HttpErrorClass::Gone)
                    && classes.all(|class| class == HttpErrorClass::Gone || is_silent(class))
            }
            other => other.is_gone(),
        }
    }

    /// Whether the host at `base` simply does not have what was asked for, whatever others say.
    pub(crate) fn is_gone_at(&self, base: &HttpUrl) -> bool {
        match self {
            Self::Download(error) => error.failures.iter().any(|failure| {
                failure.error.class() == HttpErrorClass::Gone && failure.url.starts_with(&base.to_string())
            }),
            other => other.is_gone(),
        }
    }

    /// Whether the host simply does not have what was asked for.
    pub(crate) fn is_gone(&self) -> bool {
        match self {
            Self::Download(error) => {
                error.failures.iter().all(|failure| failure.error.class() == HttpErrorClass::Gone)
            }
            other => other.class() == Some(HttpErrorClass::Gone),
        }
    }
}
