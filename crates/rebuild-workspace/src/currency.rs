//! Whether sources and artifacts on the disk are those that would be made now.

use std::fmt;

use camino::{Utf8Path, Utf8PathBuf};
use durable_fs::{Progress, hash_file};
use model_catalog::{Sha256Digest, SourceEntry};
use serde::Serialize;

use crate::{ArtifactRecord, Difference, Fingerprint, SourceRecord, Stamp, Workspace, WorkspaceError};

/// Whether the sources of a model have to be extracted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourceState {
    /// They are those of the source map, complete and unchanged.
    Current,
    /// They are not, for this reason.
    Extract(String),
}

/// Whether an artifact has to be built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ArtifactState {
    /// It is what would be built now, but for these differences that make it outdated.
    Current {
        /// A changed driver or tinygrad.
        outdated: Vec<Difference>,
        /// The file's present stamp, where the record should take it over: another time, the same content.
        restamp: Option<Stamp>,
    },
    /// There is a file without a record of it: it can be inspected and adopted.
    Unrecorded {
        /// The file.
        path: Utf8PathBuf,
        /// Its stamp.
        stamp: Stamp,
    },
    /// It has to be built.
    Build(Vec<BuildReason>),
}

/// Why an artifact has to be built.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum BuildReason {
    /// There is none.
    Absent,
    /// The file is not as long as it was: cut short, or replaced.
    Size {
        /// Recorded size in bytes.
        recorded: u64,
        /// Size of the file in bytes.
        found: u64,
    },
    /// The file has the recorded size and another content.
    Content,
    /// The record says nothing of what the artifact was built from.
    NoFingerprint,
    /// Something that it is built from changed.
    Changed(Difference),
    /// A person asked for it.
    Forced,
}

impl fmt::Display for BuildReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent => f.write_str("there is no artifact"),
            Self::Size { recorded, found } => {
                write!(f, "the artifact has {found} bytes instead of {recorded}")
            }
            Self::Content => f.write_str("the artifact is not the one that was recorded"),
            Self::NoFingerprint => f.write_str("nothing is recorded of what the artifact was built from"),
            Self::Changed(difference) => difference.fmt(f),
            Self::Forced => f.write_str("asked for with --force"),
        }
    }
}

enum Found {
    Same(Option<Stamp>),
    Absent,
    OtherSize(u64),
    OtherContent,
}

/// Compares a file with what is recorded of it: by size and time where they agree, by content where only the time differs.
fn compare(
    path: &Utf8Path,
    recorded: (u64, Option<i64>, Sha256Digest),
    progress: &dyn Progress,
) -> Result<Found, WorkspaceError> {
    let (size, modified_ns, sha256) = recorded;
    let Some(stamp) = Stamp::of(path)? else { return Ok(Found::Absent) };
    if stamp.size != size {
        return Ok(Found::OtherSize(stamp.size));
    }
    if modified_ns == Some(stamp.modified_ns) {
        return Ok(Found::Same(None));
    }
    progress.begin(&format!("checking {}", path.file_name().unwrap_or_default()), Some(size));
    let hashed = hash_file(path, progress);
    progress.end();
    Ok(if hashed?.0 == sha256 { Found::Same(Some(stamp)) } else { Found::OtherContent })
}

/// The new stamp where the artifact's file is the recorded one at another time, or how it is not the recorded one.
fn recorded_file(
    workspace: &Workspace,
    record: &ArtifactRecord,
    progress: &dyn Progress,
) -> Result<Result<Option<Stamp>, BuildReason>, WorkspaceError> {
    let path = workspace.compiled_file(record.artifact_id());
    Ok(match compare(&path, (record.size, record.modified_ns, record.sha256), progress)? {
        Found::Same(restamp) => Ok(restamp),
        Found::Absent => Err(BuildReason::Absent),
        Found::OtherSize(found) => Err(BuildReason::Size { recorded: record.size, found }),
        Found::OtherContent => Err(BuildReason::Content),
    })
}

/// How the artifact's file is not the recorded one; `None` where it is. As everywhere, a file of the recorded size and time is
/// taken to be the recorded one, and any other is hashed.
///
/// # Errors
/// [`WorkspaceError::Fs`] where the file cannot be looked at.
pub fn artifact_change(
    workspace: &Workspace,
    record: &ArtifactRecord,
    progress: &dyn Progress,
) -> Result<Option<BuildReason>, WorkspaceError> {
    Ok(recorded_file(workspace, record, progress)?.err())
}

/// Whether a model's artifact is what would be built now. `wanted` is the fingerprint of that; `record` what is recorded.
///
/// # Errors
/// [`WorkspaceError::Fs`] where the file cannot be looked at.
pub fn artifact_state(
    workspace: &Workspace,
    id: &model_catalog::ModelId,
    record: Option<&ArtifactRecord>,
    wanted: &Fingerprint,
    progress: &dyn Progress,
) -> Result<ArtifactState, WorkspaceError> {
    let Some(record) = record else {
        let path = workspace.compiled_file(id);
        let stamp = Stamp::of(&path)?.filter(|stamp| stamp.size > 0);
        return Ok(stamp.map_or(ArtifactState::Build(vec![BuildReason::Absent]), |stamp| {
            ArtifactState::Unrecorded { path, stamp }
        }));
    };
    let restamp = match recorded_file(workspace, record, progress)? {
        Ok(restamp) => restamp,
        Err(reason) => return Ok(ArtifactState::Build(vec![reason])),
    };
    let Some(built) = &record.fingerprint else {
        return Ok(ArtifactState::Build(vec![BuildReason::NoFingerprint]));
    };
    let (outdated, changed): (Vec<_>, Vec<_>) =
        built.differences(wanted).into_iter().partition(Difference::is_outdated_only);
    if changed.is_empty() {
        return Ok(ArtifactState::Current { outdated, restamp });
    }
    Ok(ArtifactState::Build(changed.into_iter().map(BuildReason::Changed).collect()))
}

/// Whether a model's sources are those that `entry` names, complete and unchanged. A ref that is not a full commit ID may
/// have moved; `commit` is what it resolves to now, where that was looked up.
///
/// # Errors
/// [`WorkspaceError::Fs`] where a file cannot be looked at.
pub fn source_state(
    workspace: &Workspace,
    record: Option<&SourceRecord>,
    entry: &SourceEntry,
    commit: Option<&str>,
    progress: &dyn Progress,
) -> Result<SourceState, WorkspaceError> {
    let extract = |why: String| Ok(SourceState::Extract(why));
    let Some(record) = record else { return extract("nothing is extracted yet".to_owned()) };
    if record.git_ref != entry.git_ref {
        return extract(format!("the ref {} became {}", record.git_ref, entry.git_ref));
    }
    if let (Some(was), Some(now)) = (record.commit.as_deref(), commit)
        && was != now
    {
        return extract(format!("{} moved from commit {was} to {now}", entry.git_ref));
    }
    if record.input_format != entry.input_format {
        return extract(format!("the input format {} became {}", record.input_format, entry.input_format));
    }
    if record.uses_external_gpu != entry.uses_external_gpu {
        return extract("the source map's uses_external_gpu changed".to_owned());
    }
    if record.files.is_empty() {
        return extract("the record names no file".to_owned());
    }
    for file in &record.files {
        let name = record.component_file(file).workspace_name(&record.id);
        let path = workspace.source_dir(&record.id).join(&name);
        match compare(&path, (file.size, file.modified_ns, file.sha256), progress)? {
            Found::Same(_) => {}
            Found::Absent => return extract(format!("{name} is missing")),
            Found::OtherSize(found) => {
                return extract(format!("{name} has {found} bytes instead of {}", file.size));
            }
            Found::OtherContent => return extract(format!("{name} changed since it was extracted")),
        }
    }
    Ok(SourceState::Current)
}

#[cfg(test)]
mod tests;
