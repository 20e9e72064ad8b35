//! Errors of the workspace.

use camino::Utf8PathBuf;
use durable_fs::{FsError, FsErrorKind, LockError};
use model_catalog::{ManifestError, ModelId, SourceMapError};

/// Why the workspace cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum WorkspaceError {
    /// The disk that the workspace should be on is not there.
    #[error(
        "{path} is on {mount_point}, where no disk is mounted; mount the disk, or create the directory on this one with --create"
    )]
    NotMounted {
        /// The workspace.
        path: Utf8PathBuf,
        /// Where the disk should be mounted.
        mount_point: Utf8PathBuf,
    },
    /// The directory is no workspace.
    #[error("{path} is not a workspace: {why}; make one with `rebuild init --workspace {path}`")]
    NotAWorkspace {
        /// The directory.
        path: Utf8PathBuf,
        /// What is missing.
        why: &'static str,
    },
    /// The path of the workspace is not UTF-8 or cannot be made absolute.
    #[error("the path of the workspace {path} cannot be made absolute: {why}")]
    Path {
        /// The path.
        path: Utf8PathBuf,
        /// Why not.
        why: String,
    },
    /// Another command works in the workspace, or its lock cannot be written.
    #[error("{}: {}", lock_refused(.0), .0)]
    Locked(#[source] LockError),
    /// `rebuild.toml` has a key that is not known.
    #[error("{path} has an unknown key {key:?}{}", suggestion.as_ref().map(|near| format!("; {near:?} is meant?")).unwrap_or_default())]
    UnknownKey {
        /// The configuration file.
        path: Utf8PathBuf,
        /// The key.
        key: String,
        /// The known key closest to it.
        suggestion: Option<String>,
    },
    /// `rebuild.toml` cannot be read.
    #[error("{path} is not valid: {why}")]
    Config {
        /// The configuration file.
        path: Utf8PathBuf,
        /// What is wrong.
        why: String,
    },
    /// A source map is not valid.
    #[error("{path}: {source}")]
    SourceMap {
        /// The map.
        path: Utf8PathBuf,
        /// What is wrong with it.
        source: SourceMapError,
    },
    /// There is no source map to read.
    #[error("there is no source map in {path}; run `rebuild init`, or name one with --source-map")]
    NoSourceMap {
        /// Where maps were looked for.
        path: Utf8PathBuf,
    },
    /// A manifest is not valid.
    #[error("{path}: {source}")]
    Manifest {
        /// The manifest.
        path: Utf8PathBuf,
        /// What is wrong with it.
        source: ManifestError,
    },
    /// A record is about another model than its name says.
    #[error("{path} is the record of {found}, not of {expected}; remove it or give it its own name")]
    ForeignRecord {
        /// The record.
        path: Utf8PathBuf,
        /// The model of the file name.
        expected: ModelId,
        /// The model inside.
        found: ModelId,
    },
    /// A record is larger than any that is written.
    #[error("{path} has {size} bytes; a record has at most {limit}: it is damaged, remove it and run again")]
    RecordTooLarge {
        /// The record.
        path: Utf8PathBuf,
        /// Its size.
        size: u64,
        /// The limit.
        limit: u64,
    },
    /// A file operation failed.
    #[error(transparent)]
    Fs(#[from] FsError),
}

const fn lock_refused(error: &LockError) -> &'static str {
    match error {
        LockError::Held { .. } => "the workspace is in use",
        LockError::Fs(_) => "the workspace cannot be locked",
    }
}

impl WorkspaceError {
    /// Whether the machine is at fault (disk full, unwritable, not mounted) rather than what was asked for.
    pub fn is_environment(&self) -> bool {
        match self {
            Self::NotMounted { .. } => true,
            Self::Locked(LockError::Fs(error)) => is_environment(error),
            Self::Locked(LockError::Held { .. }) => true,
            Self::Fs(error) => is_environment(error),
            _ => false,
        }
    }

    /// Whether the command line or a file of the user is at fault.
    pub const fn is_usage(&self) -> bool {
        matches!(
            self,
            Self::NotAWorkspace { .. }
                | Self::Path { .. }
                | Self::UnknownKey { .. }
                | Self::Config { .. }
                | Self::SourceMap { .. }
                | Self::NoSourceMap { .. }
                | Self::Manifest { .. }
        )
    }
}

fn is_environment(error: &FsError) -> bool {
    matches!(error.kind(), FsErrorKind::DiskFull | FsErrorKind::NotWritable | FsErrorKind::Other)
}
