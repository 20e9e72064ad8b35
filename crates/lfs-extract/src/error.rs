//! Why sources could not be had, in words and in classes that a caller decides on.

use std::sync::Arc;

use camino::Utf8PathBuf;
use durable_fs::{FsError, FsErrorKind};
use model_catalog::{InputFormat, RelPath, Sha256Digest, Variant};

use crate::{GitFetchError, LfsFetchError, PointerError};

/// What a caller can do about an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorClass {
    /// The clone is missing or is no repository.
    Clone,
    /// The ref or commit is not in the clone.
    RefNotFound,
    /// The commit does not hold the components that the model needs.
    MissingComponents,
    /// The blob looks like an LFS pointer but is not a valid one.
    MalformedPointer,
    /// The bytes are in none of the places that were looked in.
    NotFoundAnywhere,
    /// The server wants credentials, or others.
    Auth,
    /// A quota at the server is used up; its owner must act.
    Quota,
    /// Every server that was asked says that it does not have the object.
    GoneAtServer,
    /// Two downloads of the object differ: damage on the way.
    CorruptInTransit,
    /// Two downloads of the object agree on wrong bytes: damage at the server.
    CorruptAtServer,
    /// A server or the way to it failed; another run may succeed.
    Network,
    /// This machine's clock is wrong, or a certificate's dates are.
    Clock,
    /// Bytes on this machine are damaged.
    Corrupt,
    /// A staged file was refused by the caller's check.
    Refused,
    /// The disk is full.
    DiskFull,
    /// A directory of the destination cannot be written.
    NotWritable,
    /// The work was asked to stop.
    Interrupted,
    /// Any other failure of the operating system.
    System,
}

/// Why a model's sources could not be extracted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExtractError {
    /// Nothing is at the clone's path.
    #[error(
        "there is no clone at {path}; clone the source repository there or name another with --openpilot"
    )]
    CloneMissing {
        /// Where it was looked for.
        path: Utf8PathBuf,
    },
    /// Something is at the clone's path, but no repository.
    #[error(
        "{path} is not a git repository that can be read: {why}; name the clone, its worktree or its .git directory"
    )]
    NotARepository {
        /// The path.
        path: Utf8PathBuf,
        /// What git's rules say.
        why: String,
    },
    /// No branch, tag, remote branch or object has the name.
    #[error(
        "the clone {clone} has no commit {git_ref}: {why}; correct the ref in the source map or fetch it into the clone"
    )]
    RefNotFound {
        /// The ref of the source map.
        git_ref: String,
        /// The clone.
        clone: Utf8PathBuf,
        /// What the look-up says.
        why: String,
    },
    /// The object ID is well formed, but the clone lacks it.
    #[error("the clone {clone} lacks the commit {git_ref}; fetch it from the upstream repository")]
    CommitMissing {
        /// The object ID.
        git_ref: String,
        /// The clone.
        clone: Utf8PathBuf,
    },
    /// The ref names an object that is no commit.
    #[error("{git_ref} in {clone} is a {kind} and not a commit; correct the ref in the source map")]
    NotACommit {
        /// The ref of the source map.
        git_ref: String,
        /// What it is.
        kind: String,
        /// The clone.
        clone: Utf8PathBuf,
    },
    /// The commit lacks components.
    #[error(transparent)]
    MissingComponents(Box<MissingComponents>),
    /// A component's path is no file in the tree.
    #[error(
        "{git_path} at commit {commit} is a {kind} and not a file; name a commit that holds the file itself"
    )]
    NotAFile {
        /// The path.
        git_path: RelPath,
        /// The commit.
        commit: String,
        /// What it is.
        kind: &'static str,
    },
    /// A git object is not in the clone.
    #[error(
        "git object {id} ({what}) is not in the clone; looked in {}; fetch it into the clone",
        join(looked_in)
    )]
    ObjectMissing {
        /// The object ID.
        id: String,
        /// What it is for.
        what: String,
        /// The object directories that were searched.
        looked_in: Vec<Utf8PathBuf>,
    },
    /// A git object or pack is damaged.
    #[error("{what} in {path} is damaged: {why}; check the clone with git fsck")]
    Corrupt {
        /// What was being read.
        what: String,
        /// Where.
        path: Utf8PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The blob is meant to be an LFS pointer but is malformed.
    #[error("{git_path} is a malformed LFS pointer: {source}")]
    Pointer {
        /// The path in the tree.
        git_path: RelPath,
        /// Which line, and why.
        source: PointerError,
    },
    /// The pointer is good, but its object is nowhere.
    #[error(
        "the LFS object {oid} ({size} bytes) of {git_path} was not found; looked in {}; fetch it with: git lfs fetch origin {commit}",
        join(looked_in)
    )]
    LfsObjectMissing {
        /// The object ID.
        oid: Sha256Digest,
        /// Its size.
        size: u64,
        /// The path in the tree.
        git_path: RelPath,
        /// The commit.
        commit: String,
        /// Every place that was looked in.
        looked_in: Vec<Utf8PathBuf>,
    },
    /// The LFS object is there, but its bytes are not those of the pointer.
    #[error(
        "the cached LFS object of {git_path} is not what its pointer says: {source}; remove it and fetch it again"
    )]
    LfsObjectDamaged {
        /// The path in the tree.
        git_path: RelPath,
        /// Size or digest, expected and found.
        source: FsError,
    },
    /// An option cannot be used.
    #[error("the sources cannot be set up: {why}")]
    Options {
        /// Which, and why.
        why: String,
    },
    /// The object could not be fetched.
    #[error(transparent)]
    Fetch(Arc<LfsFetchError>),
    /// Git objects could not be fetched.
    #[error(transparent)]
    GitFetch(Box<GitFetchError>),
    /// The caller's check refused a staged file.
    #[error("{git_path} at commit {commit} is refused: {why}")]
    Refused {
        /// The path in the tree.
        git_path: RelPath,
        /// The commit.
        commit: String,
        /// The check's words.
        why: String,
    },
    /// The work was asked to stop; nothing was changed.
    #[error("interrupted; run again to go on")]
    Interrupted,
    /// Reading or writing a file failed.
    #[error(transparent)]
    Fs(#[from] FsError),
}

/// What a commit lacks of a model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "commit {commit} has no complete {format} model{}: {} not found under {}{}{}",
    variant_words(*variant),
    missing.join(" and "),
    looked_in.join(", "),
    found_words(found),
    other_words(other_variant)
)]
pub struct MissingComponents {
    /// The commit.
    pub commit: String,
    /// The input format of the source entry.
    pub format: InputFormat,
    /// Which of the two sizes was asked for.
    pub variant: Variant,
    /// The file names that are missing; alternatives are written as `a or b`.
    pub missing: Vec<String>,
    /// The directories that were looked in.
    pub looked_in: Vec<String>,
    /// Components of the right variant that are there.
    pub found: Vec<RelPath>,
    /// Files of the other variant that are there; they are never taken instead.
    pub other_variant: Vec<RelPath>,
}

impl ExtractError {
    /// The class of the error.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::CloneMissing { .. } | Self::NotARepository { .. } => ErrorClass::Clone,
            Self::RefNotFound { .. } | Self::CommitMissing { .. } | Self::NotACommit { .. } => {
                ErrorClass::RefNotFound
            }
            Self::MissingComponents(_) | Self::NotAFile { .. } => ErrorClass::MissingComponents,
            Self::Pointer { .. } => ErrorClass::MalformedPointer,
            Self::ObjectMissing { .. } | Self::LfsObjectMissing { .. } => ErrorClass::NotFoundAnywhere,
            Self::Corrupt { .. } | Self::LfsObjectDamaged { .. } => ErrorClass::Corrupt,
            Self::Options { .. } => ErrorClass::System,
            Self::Fetch(error) => error.class(),
            Self::GitFetch(error) => error.class,
            Self::Refused { .. } => ErrorClass::Refused,
            Self::Interrupted => ErrorClass::Interrupted,
            Self::Fs(error) => match error.kind() {
                FsErrorKind::DiskFull => ErrorClass::DiskFull,
                FsErrorKind::NotWritable => ErrorClass::NotWritable,
                FsErrorKind::Mismatch => ErrorClass::Corrupt,
                FsErrorKind::NotFound | FsErrorKind::Malformed | FsErrorKind::Other => ErrorClass::System,
            },
        }
    }
}

fn join(paths: &[Utf8PathBuf]) -> String {
    paths.iter().map(|path| path.as_str()).collect::<Vec<_>>().join(", ")
}

fn variant_words(variant: Variant) -> &'static str {
    match variant {
        Variant::Standard => "",
        Variant::ExternalGpu => " for the external GPU",
    }
}

fn names(paths: &[RelPath]) -> String {
    paths.iter().map(RelPath::as_str).collect::<Vec<_>>().join(", ")
}

fn found_words(found: &[RelPath]) -> String {
    if found.is_empty() { String::new() } else { format!("; it does have {}", names(found)) }
}

fn other_words(other: &[RelPath]) -> String {
    if other.is_empty() {
        return "; correct ref or input_format in the source map".to_owned();
    }
    format!(
        "; only the other size is there ({}), which is never taken instead: correct uses_external_gpu or ref in the source map",
        names(other)
    )
}
