//! Errors of the store.

use camino::Utf8PathBuf;
use durable_fs::{FsError, LockHolder};

use crate::Param;

/// Why the store could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The directory of parameters is not there.
    #[error("there are no parameters in {dir}: is this a device, and has its system started once?")]
    NoParams {
        /// The directory.
        dir: Utf8PathBuf,
    },
    /// Another program holds the lock of the parameters for too long.
    #[error("{param} was not changed: {path} is held by {}; look which program does not end", holder.as_ref().map_or_else(|| "another program".to_owned(), ToString::to_string))]
    Locked {
        /// The parameter that was to be changed.
        param: Param,
        /// The lock file.
        path: Utf8PathBuf,
        /// Who holds it, where that is one of ours.
        holder: Option<LockHolder>,
    },
    /// A parameter is larger than any of the store's.
    #[error(
        "{path} has {size} bytes, more than a parameter of the model store ever has; remove it or correct it"
    )]
    TooLarge {
        /// The parameter's file.
        path: Utf8PathBuf,
        /// Its size.
        size: u64,
    },
    /// A parameter is no text.
    #[error("{path} is no text; remove it or correct it")]
    NotText {
        /// The parameter's file.
        path: Utf8PathBuf,
    },
    /// The lists of the catalog do not belong together.
    #[error(
        "the catalog cannot be read: {list} has {found} entries for {models} models; let the device fetch its manifest again"
    )]
    Catalog {
        /// The list that is too long or too short.
        list: Param,
        /// Its entries.
        found: usize,
        /// The models.
        models: usize,
    },
    /// A value of the catalog is no ID or version.
    #[error("the catalog cannot be read: {list} holds {value:?}: {why}")]
    CatalogValue {
        /// Where it stands.
        list: String,
        /// The value.
        value: String,
        /// What is wrong with it.
        why: String,
    },
    /// A file cannot be read or written.
    #[error(transparent)]
    Fs(#[from] FsError),
}
