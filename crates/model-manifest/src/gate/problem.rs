//! What forbids publishing.

use std::collections::BTreeMap;

use camino::Utf8PathBuf;
use model_catalog::{ModelId, Sha256Digest};
use serde::Serialize;

use crate::Problem;

/// One thing that forbids publishing a workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(tag = "problem", rename_all = "snake_case")]
pub enum GateProblem {
    /// A plan was stopped in the middle.
    #[error("{path}: an earlier command was stopped in the middle; run it again")]
    Unfinished {
        /// The journal.
        path: Utf8PathBuf,
    },
    /// There is no manifest of the namespace.
    #[error("{path} does not exist; write it with `rebuild namespace`")]
    NoManifest {
        /// Where it should be.
        path: Utf8PathBuf,
    },
    /// The manifest is not valid.
    #[error("{path} is not valid: {why}")]
    InvalidManifest {
        /// The manifest.
        path: Utf8PathBuf,
        /// What is wrong.
        why: String,
    },
    /// Manifest, source map and artifacts disagree.
    #[error("{disagreement}")]
    Release {
        /// How.
        disagreement: Problem,
    },
    /// A model of the manifest has no artifact.
    #[error("{id} is in the manifest and has no artifact {path}; compile it, or take it out of the manifest")]
    NoArtifact {
        /// The model, by release ID.
        id: ModelId,
        /// Where the artifact should be.
        path: Utf8PathBuf,
    },
    /// An artifact was not made by this workspace.
    #[error("{path} has no record; compile {id} again, so that it is inspected and recorded")]
    NoRecord {
        /// The model, by release ID.
        id: ModelId,
        /// The artifact.
        path: Utf8PathBuf,
    },
    /// A file is not the recorded one.
    #[error("{path} has SHA-256 {actual}; {expected} is recorded for {id}; compile it again")]
    Digest {
        /// The model, by release ID.
        id: ModelId,
        /// The file.
        path: Utf8PathBuf,
        /// The recorded digest.
        expected: Sha256Digest,
        /// The digest of what is there.
        actual: Sha256Digest,
    },
    /// An artifact is not ready for upload.
    #[error("{id} is not in the upload folder, neither whole nor in parts; compile it again to stage it")]
    NotStaged {
        /// The model, by release ID.
        id: ModelId,
    },
    /// The parts are not the artifact.
    #[error("the parts of {id}: {why}")]
    Parts {
        /// The model, by release ID.
        id: ModelId,
        /// What is wrong.
        why: String,
    },
    /// An artifact lies whole and in parts in the upload folder.
    #[error("{id} lies whole and in parts in the upload folder; remove one of the two")]
    TwoForms {
        /// The model, by release ID.
        id: ModelId,
    },
    /// The multipart list says something else than the files.
    #[error("multipart.json does not list {id} as its parts are: {why}; compile it again to stage it")]
    Multipart {
        /// The model, by release ID.
        id: ModelId,
        /// The difference.
        why: String,
    },
    /// A file is larger than the repository takes.
    #[error("{path} has {size} bytes; the repository takes {limit}; it must be in parts")]
    OverLimit {
        /// The file.
        path: Utf8PathBuf,
        /// Its size in bytes.
        size: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// A file that does not belong to the release.
    #[error("{path} does not belong to the release; remove it or add its model to the manifest")]
    Foreign {
        /// The file.
        path: Utf8PathBuf,
    },
    /// The artifact cannot be used.
    #[error("{path}: {finding}")]
    Inspection {
        /// The artifact.
        path: Utf8PathBuf,
        /// What is wrong with it.
        finding: String,
    },
    /// What is released was compiled by different tinygrads, and a device has one.
    #[error(
        "no one tinygrad loads everything that is released: {}; compile the ones again with the tinygrad of the others",
        spelled(revisions)
    )]
    TinygradMixed {
        /// Files by the revisions that load them.
        revisions: BTreeMap<String, Vec<Utf8PathBuf>>,
    },
    /// The artifact was not run.
    #[error("{id} was not validated; run `rebuild validate --model {source_id}`")]
    NotValidated {
        /// The model, by release ID.
        id: ModelId,
        /// The model, by source ID.
        source_id: ModelId,
    },
    /// Another artifact of the model was run.
    #[error("the validation of {id} is of another artifact ({}); run `rebuild validate --model {source_id}`", validated.as_deref().unwrap_or("none recorded"))]
    ValidationOfOther {
        /// The model, by release ID.
        id: ModelId,
        /// The model, by source ID.
        source_id: ModelId,
        /// SHA-256 of the artifact that was validated.
        validated: Option<String>,
    },
    /// The artifact ran and did not pass.
    #[error("{id} did not pass its validation: {why}")]
    ValidationFailed {
        /// The model, by release ID.
        id: ModelId,
        /// What failed.
        why: String,
    },
    /// The artifact ran and passed, but not for as long as a release asks.
    #[error(
        "{id} soaked for {soaked_seconds} s; a release asks for {wanted_seconds} s (soak_minutes of [release] in rebuild.toml); run `rebuild validate --soak` for {source_id}"
    )]
    NotSoaked {
        /// The model, by release ID.
        id: ModelId,
        /// The model, by source ID.
        source_id: ModelId,
        /// How long it went on.
        soaked_seconds: u64,
        /// How long it must.
        wanted_seconds: u64,
    },
    /// A model that stands for others was not seen to drive on the device's runtime.
    #[error(
        "{source_id}, which stands for {role}, was not seen to drive on the device's runtime: {why}; run `rebuild verify --runtime --model {source_id}`"
    )]
    NotDriven {
        /// The model, by source ID.
        source_id: ModelId,
        /// What it stands for.
        role: String,
        /// What is wrong.
        why: String,
    },
    /// A person has not seen that everything works.
    #[error("{path}: {why}; go on with `rebuild verify --checklist`")]
    Checklist {
        /// The record of the answers.
        path: Utf8PathBuf,
        /// What is wrong.
        why: String,
    },
    /// A stage failed after the artifact was made.
    #[error("{id} has a failure record: {error}; run the stage again")]
    Failed {
        /// The model, by release ID.
        id: ModelId,
        /// What the record says.
        error: String,
    },
    /// The driver-monitoring set is not complete.
    #[error("driver-monitoring/ lacks {}; the four files go together: make them with `models --dm`", missing.join(", "))]
    DriverMonitoringIncomplete {
        /// The missing files.
        missing: Vec<String>,
    },
    /// The driver-monitoring set's build record is absent, not valid or of another target.
    #[error("{path}: {why}; make the set with `models --dm`")]
    DriverMonitoringRecord {
        /// The record.
        path: Utf8PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The driver-monitoring set did not run, or did not pass.
    #[error("the driver-monitoring set has no validation: {why}; run `rebuild validate --dm{soak}`")]
    DriverMonitoringNotValidated {
        /// What is wrong.
        why: String,
        /// The option that asks for a soak, where one is asked for.
        #[serde(skip)]
        soak: String,
    },
    /// The driver-monitoring files are of different builds.
    #[error("the driver-monitoring files are of different builds: {why}; make them with `models --dm`")]
    DriverMonitoringMixed {
        /// How that is known.
        why: String,
    },
}

fn spelled(revisions: &BTreeMap<String, Vec<Utf8PathBuf>>) -> String {
    let one = |(revision, files): (&String, &Vec<Utf8PathBuf>)| {
        let files: Vec<&str> = files.iter().map(|file| file.as_str()).collect();
        format!("{revision} loads {}", files.join(", "))
    };
    revisions.iter().map(one).collect::<Vec<_>>().join("; ")
}
