//! The workspace of a rebuild: where every file lies, what is recorded about it, and whether it is still current.
//!
//! A workspace is one directory, often on an external disk, often exFAT. What can go wrong: the disk is not mounted and a
//! mkdir would fill the system disk instead ([`Workspace::init`] refuses); two commands work in it at once
//! ([`Workspace::lock`] says who holds it); a kill leaves temporary names (swept when the lock is taken); a source changes
//! behind an artifact ([`Fingerprint`]); an artifact is cut short or replaced ([`ArtifactState`]). Records keep the fields
//! that they came with, known here or not, and are replaced in one step.

mod config;
mod currency;
mod error;
mod fingerprint;
mod init;
mod layout;
mod maps;
mod mount;
mod multipart;
mod record;
mod record_types;
mod stamp;
mod status;
mod trusted_device;

pub use config::{
    BudgetConfig, Config, MAX_PART_LIMIT_MIB, MAX_SOAK_MINUTES, ReleaseProof, RuntimeConfig, RuntimeProgram,
    TrustedDevice,
};
pub use currency::{ArtifactState, BuildReason, SourceState, artifact_change, artifact_state, source_state};
pub use error::WorkspaceError;
pub use fingerprint::{Difference, Fingerprint};
pub use init::{InitOptions, InitReport};
pub use layout::{CONFIG_NAME, Workspace, WorkspaceLock};
pub use maps::{EMBEDDED_RELEASE_MAP, EMBEDDED_SOURCE_MAPS, load_manifest, load_source_maps, version_of};
pub use multipart::{MultipartEntry, MultipartList};
pub use record::Record;
pub use record_types::{
    ArtifactRecord, ArtifactStatus, BuildRecord, Failed, FailureRecord, SourceFile, SourceRecord, Stage,
    ValidationRecord,
};
pub use stamp::Stamp;
pub use status::{ModelStatus, model_status};
