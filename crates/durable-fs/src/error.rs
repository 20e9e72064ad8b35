//! Errors of file operations, with the path and what was being done to it.

use std::io;

use camino::{Utf8Path, Utf8PathBuf};
use model_catalog::Sha256Digest;

/// A class of file error that a caller decides on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FsErrorKind {
    /// The filesystem or quota is full.
    DiskFull,
    /// Permission denied, or a read-only filesystem.
    NotWritable,
    /// The file or a directory of its path does not exist.
    NotFound,
    /// The bytes are not those that were expected.
    Mismatch,
    /// The content is not of the form that was expected.
    Malformed,
    /// Anything else.
    Other,
}

/// Why a file operation failed.
#[derive(Debug, thiserror::Error)]
pub enum FsError {
    /// The operating system refused.
    #[error("cannot {action} {path}: {}{}", describe(source), advice(source))]
    Io {
        /// What was being done, as a verb phrase.
        action: &'static str,
        /// To which path.
        path: Utf8PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The size is not the expected one.
    #[error("{path} has {actual} bytes; {expected} were expected")]
    Size {
        /// The file.
        path: Utf8PathBuf,
        /// Bytes that were expected.
        expected: u64,
        /// Bytes that were there.
        actual: u64,
    },
    /// The SHA-256 is not the expected one.
    #[error("{path} has SHA-256 {actual}; {expected} was expected")]
    Digest {
        /// The file.
        path: Utf8PathBuf,
        /// The digest that was expected.
        expected: Sha256Digest,
        /// The digest of the bytes that were there.
        actual: Sha256Digest,
    },
    /// A JSON file of ours cannot be read or written.
    #[error("{path} is not valid: {source}")]
    Json {
        /// The file.
        path: Utf8PathBuf,
        /// What the parser says.
        source: serde_json::Error,
    },
}

fn describe(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "the disk is full".to_owned(),
        io::ErrorKind::ReadOnlyFilesystem => "the filesystem is read-only".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        io::ErrorKind::NotFound => "no such file or directory".to_owned(),
        _ => error.to_string(),
    }
}

fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "; free space and run again",
        io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => {
            "; make the directory writable or choose another"
        }
        _ => "",
    }
}

impl FsError {
    /// Wraps an I/O error with what was being done to which path.
    pub fn io(action: &'static str, path: impl AsRef<Utf8Path>) -> impl FnOnce(io::Error) -> Self {
        let path = path.as_ref().to_owned();
        move |source| Self::Io { action, path, source }
    }

    /// The class of the error.
    pub fn kind(&self) -> FsErrorKind {
        match self {
            Self::Io { source, .. } => match source.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => FsErrorKind::DiskFull,
                io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                    FsErrorKind::NotWritable
                }
                io::ErrorKind::NotFound => FsErrorKind::NotFound,
                _ => FsErrorKind::Other,
            },
            Self::Size { .. } | Self::Digest { .. } => FsErrorKind::Mismatch,
            Self::Json { .. } => FsErrorKind::Malformed,
        }
    }

    /// The path that the operation was on.
    pub fn path(&self) -> &Utf8Path {
        match self {
            Self::Io { path, .. }
            | Self::Size { path, .. }
            | Self::Digest { path, .. }
            | Self::Json { path, .. } => path,
        }
    }
}
