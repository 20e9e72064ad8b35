//! Errors of manifest work.

use durable_fs::{FsError, JournalError};
use model_catalog::{ManifestError, ModelId};
use rebuild_workspace::WorkspaceError;

use crate::NamespaceError;

/// Why a plan could not be computed or applied.
#[derive(Debug, thiserror::Error)]
pub enum ManifestWorkError {
    /// The workspace cannot be read.
    #[error(transparent)]
    Workspace(#[from] WorkspaceError),
    /// A file cannot be read or written.
    #[error(transparent)]
    Fs(#[from] FsError),
    /// The journal refused or stopped.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The release IDs cannot be given out.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// A manifest that was put together is not valid.
    #[error("the new manifest would not be valid: {0}")]
    Manifest(#[from] ManifestError),
    /// The additions file is not valid.
    #[error("the additions to the manifest are not valid: {why}")]
    Additions {
        /// What is wrong.
        why: String,
    },
    /// IDs that were given as completed are not in the base manifest.
    #[error("{} not in the base manifest; check --completed-ids", list(ids, "is", "are"))]
    UnknownCompleted {
        /// The IDs.
        ids: Vec<ModelId>,
    },
    /// There is no manifest to reconcile.
    #[error("{path} does not exist; write it with `rebuild namespace` first")]
    NoManifest {
        /// Where it should be.
        path: camino::Utf8PathBuf,
    },
    /// The plan has problems; nothing was changed.
    #[error("nothing was changed: {}", problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Problems {
        /// What has to be put right first.
        problems: Vec<crate::Problem>,
    },
}

pub(crate) fn list(ids: &[ModelId], one: &str, many: &str) -> String {
    let names = ids.iter().map(ModelId::as_str).collect::<Vec<_>>().join(", ");
    format!("{names} {}", if ids.len() == 1 { one } else { many })
}
