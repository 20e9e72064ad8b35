//! A plan: what would be done, what stands against it, and what a person should know.

use std::fmt;

use camino::{Utf8Path, Utf8PathBuf};
use durable_fs::{Journal, Step};
use model_catalog::{BehaviorVersion, Camera, ModelId, Sha256Digest, Target};
use rebuild_workspace::Workspace;
use serde::Serialize;

use crate::{Folder, ManifestWorkError, Selection};

/// The journal of all plans, directly below the workspace.
pub const JOURNAL_NAME: &str = ".manifest-journal.json";

/// Something that has to be put right before the plan can be applied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(tag = "problem", rename_all = "snake_case")]
pub enum Problem {
    /// Another artifact stands where one should go.
    #[error("{folder}/{from} cannot become {to}: another artifact stands there ({}); remove the one that is not to be released", digests(*moving, *standing))]
    Conflict {
        /// The folder.
        folder: Folder,
        /// The ID in the present name.
        from: ModelId,
        /// The ID in the name that is taken.
        to: ModelId,
        /// SHA-256 of the one to be renamed, where known.
        moving: Option<Sha256Digest>,
        /// SHA-256 of the one that stands there, where known.
        standing: Option<Sha256Digest>,
    },
    /// Two models would have one ID, alike or but for case.
    #[error("{first} and {second} would have one name{}; devices and exFAT tell names apart by more than case", if first == second { "" } else { " but for case" })]
    SameId {
        /// The one.
        first: ModelId,
        /// The other.
        second: ModelId,
    },
    /// A release ID that means something else on devices.
    #[error("the release ID {id} (of {source_id}) is taken: {why}")]
    Reserved {
        /// The release ID.
        id: ModelId,
        /// The model that would get it.
        source_id: ModelId,
        /// What devices take it for.
        why: &'static str,
    },
    /// Parts without a checksum, or with one of another file.
    #[error("the parts of {id} in {folder} have no checksum of their own; split the artifact again")]
    BrokenSet {
        /// The folder.
        folder: Folder,
        /// The ID in the names.
        id: ModelId,
    },
    /// A recorded content could be one of several models and its name is none of theirs.
    #[error("{folder}/{id} has the content of {}; give it the name of one of them", names(models))]
    Ambiguous {
        /// The folder.
        folder: Folder,
        /// The ID in the name.
        id: ModelId,
        /// The models with this content.
        models: Vec<ModelId>,
    },
    /// Manifest and source map disagree about the external GPU.
    #[error(
        "{id}: uses_external_gpu is {manifest} in the manifest and {source_map} in the source map; put the wrong one right"
    )]
    GpuTag {
        /// The model, by source ID.
        id: ModelId,
        /// The manifest's value.
        manifest: bool,
        /// The source map's value.
        source_map: bool,
    },
    /// The artifact is compiled for another target.
    #[error("{id} is compiled for {artifact}, but {expected} is released; compile it again")]
    Target {
        /// The model, by source ID.
        id: ModelId,
        /// The artifact's target.
        artifact: Target,
        /// The target that the manifest and the workspace ask for.
        expected: Target,
    },
    /// The artifact has another behaviour version.
    #[error("{id} is compiled {}, but the manifest says {manifest}; compile it again with the base manifest", version(*artifact))]
    Version {
        /// The model, by source ID.
        id: ModelId,
        /// The manifest's version.
        manifest: BehaviorVersion,
        /// The artifact's version.
        artifact: Option<BehaviorVersion>,
    },
    /// A model was given as completed and has no artifact.
    #[error(
        "{} given as completed but not compiled; compile or leave out",
        crate::error::list(ids, "is", "are")
    )]
    NotCompiled {
        /// The models.
        ids: Vec<ModelId>,
    },
    /// The manifest is of a newer form.
    #[error("{path} has schema version {found}; this version understands 1 and does not rewrite it")]
    Newer {
        /// The manifest.
        path: Utf8PathBuf,
        /// Its schema version.
        found: u64,
    },
    /// A manifest on disk is not valid.
    #[error("{path} is not valid: {why}")]
    Invalid {
        /// The file.
        path: Utf8PathBuf,
        /// What is wrong.
        why: String,
    },
}

fn digests(moving: Option<Sha256Digest>, standing: Option<Sha256Digest>) -> String {
    let text = |digest: Option<Sha256Digest>| {
        digest.map_or_else(|| "no digest".to_owned(), |digest| digest.to_string())
    };
    format!("{} there, {} to be renamed", text(standing), text(moving))
}

fn names(models: &[ModelId]) -> String {
    models.iter().map(ModelId::as_str).collect::<Vec<_>>().join(" and of ")
}

fn version(version: Option<BehaviorVersion>) -> String {
    version.map_or_else(|| "without a behaviour version".to_owned(), |version| format!("as {version}"))
}

/// Something that a person should know; it does not stand in the way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "note", rename_all = "snake_case")]
pub enum Note {
    /// Manifest entries without an artifact.
    Missing {
        /// The models, by release ID.
        ids: Vec<ModelId>,
    },
    /// Artifacts without a manifest entry.
    Unlisted {
        /// The IDs in the names.
        ids: Vec<ModelId>,
    },
    /// An artifact that is there twice; the one under the old name goes.
    Duplicate {
        /// The folder.
        folder: Folder,
        /// The ID in the name that goes.
        id: ModelId,
        /// The ID in the name that stays.
        of: ModelId,
    },
    /// A manifest entry that was added.
    Added {
        /// The model.
        id: ModelId,
    },
    /// A manifest entry that got another ID.
    Relisted {
        /// The ID before.
        from: ModelId,
        /// The ID now.
        to: ModelId,
    },
    /// A manifest entry that goes because its model is there under its release ID.
    Dropped {
        /// The ID of the entry.
        id: ModelId,
        /// The entry that stays.
        of: ModelId,
    },
    /// A model drove, but not with every camera.
    CamerasUnseen {
        /// The model, by source ID.
        id: ModelId,
        /// The camera resolutions with which it was not seen.
        cameras: Vec<Camera>,
    },
    /// What the gate did not ask for.
    Unasked {
        /// What it is.
        what: Vec<String>,
        /// Why it was not asked for.
        why: String,
    },
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |ids: &[ModelId]| ids.iter().map(ModelId::as_str).collect::<Vec<_>>().join(", ");
        match self {
            Self::Missing { ids } => {
                write!(f, "in the manifest without an artifact ({}): {}", ids.len(), list(ids))
            }
            Self::Unlisted { ids } => {
                write!(f, "artifacts without a manifest entry ({}): {}", ids.len(), list(ids))
            }
            Self::Duplicate { folder, id, of } => {
                write!(f, "{folder}/{id} is the same artifact as {of} and goes")
            }
            Self::Added { id } => write!(f, "{id} joins the manifest"),
            Self::Relisted { from, to } => write!(f, "{from} is listed as {to}"),
            Self::Dropped { id, of } => write!(f, "the entry {id} goes: {of} is the same model"),
            Self::CamerasUnseen { id, cameras } => {
                let cameras: Vec<String> = cameras.iter().map(ToString::to_string).collect();
                write!(f, "{id} was not seen to drive with the camera {}", cameras.join(", "))
            }
            Self::Unasked { what, why } => write!(f, "not asked for ({why}): {}", what.join("; ")),
        }
    }
}

/// What one command would change in a workspace.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Plan {
    /// What the plan is for, such as `namespace v23`.
    pub title: String,
    /// What is done, in this order; paths are relative to the workspace.
    pub steps: Vec<Step>,
    /// What has to be put right first; the plan is not applied while there are any.
    pub problems: Vec<Problem>,
    /// What a person should know.
    pub notes: Vec<Note>,
    /// Where each stored selection of the namespace before ends up.
    pub selections: Vec<Selection>,
}

impl Plan {
    /// Whether there is nothing to change.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Applies the plan under the journal.
    ///
    /// # Errors
    /// [`ManifestWorkError::Problems`] or a refusal of the journal before anything is changed; a file error where it stopped
    /// in the middle, and [`recover`] finishes it.
    pub fn apply(&self, workspace: &Workspace) -> Result<(), ManifestWorkError> {
        self.apply_with(&journal(workspace.root()))
    }

    /// As [`Self::apply`], with a journal of the caller's, such as one that asks before each change whether to go on.
    ///
    /// # Errors
    /// As [`Self::apply`].
    pub fn apply_with(&self, journal: &Journal) -> Result<(), ManifestWorkError> {
        if !self.problems.is_empty() {
            return Err(ManifestWorkError::Problems { problems: self.problems.clone() });
        }
        Ok(journal.apply(&self.steps)?)
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.steps.len() {
            0 if self.problems.is_empty() => writeln!(f, "{}: nothing to do", self.title)?,
            changes => writeln!(f, "{}: {changes} changes", self.title)?,
        }
        self.steps.iter().try_for_each(|step| writeln!(f, "  {step}"))?;
        self.notes.iter().try_for_each(|note| writeln!(f, "note: {note}"))?;
        let same: Vec<String> = self.selections.iter().filter_map(Selection::unchanged).collect();
        if !same.is_empty() {
            writeln!(f, "stored selections that stay the same model: {}", same.join(", "))?;
        }
        self.selections
            .iter()
            .filter(|selection| !selection.is_expected())
            .try_for_each(|selection| writeln!(f, "stored selection: {selection}"))?;
        self.problems.iter().try_for_each(|problem| writeln!(f, "problem: {problem}"))
    }
}

/// The journal of a workspace.
pub(crate) fn journal(root: &Utf8Path) -> Journal {
    Journal::new(root, JOURNAL_NAME)
}

/// Finishes a plan that an earlier command was stopped in; returns its steps. Every command that reads or changes the
/// artifacts of a workspace calls this first, with the workspace's lock held.
///
/// # Errors
/// [`ManifestWorkError::Journal`]; the message says what to do.
pub fn recover(workspace: &Workspace) -> Result<Option<Vec<Step>>, ManifestWorkError> {
    Ok(journal(workspace.root()).recover()?)
}
