//! Publishing a verified release to a resource repository.
//!
//! The files lie flat on one branch. Artifacts come first, in commits of limited size; they are fetched again over the route
//! that devices use; then one commit changes only the manifest and the part list, and is fetched again too. Every push is a
//! compare-and-swap: it goes through only if the branch stands where it stood.
//!
//! What can go wrong, and what defends against it: somebody else pushes meanwhile (the commits are made anew on top, unless
//! the manifest itself was changed: then a person decides); a file over the host's limit or a foreign file in the commits
//! (they are scanned as a whole before the first push); a file that changes after it was verified (its digest in the commit
//! is compared); a host that serves something else than was pushed (nothing is called published before it was fetched and
//! hashed); a kill (publishing again goes on: what is on the branch already is not pushed again); two remotes of which one
//! was left behind (it is brought up first, commit by commit). No push ever takes a commit away: each new tip contains the old
//! one.

mod confirm;
mod content;
mod error;
mod git;
mod plan;
mod push;
mod rollback;
mod sign;

use std::sync::atomic::AtomicBool;

use artifact_parts::PartLimit;
use camino::Utf8Path;
use durable_fs::Progress;
use serde::Serialize;
use verified_download::HttpClient;

pub use error::PublishError;
pub use plan::{PublishPlan, plan_publish};
pub use push::{Published, publish};
pub use rollback::{RolledBack, rollback};
pub use sign::Signer;

use crate::VerifiedRelease;

/// A remote repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remote {
    /// Its name in the clone, or its address.
    pub name: String,
    /// Where devices fetch its files: `<raw_base>/<branch>/<file>`. Without it nothing can be confirmed there.
    pub raw_base: Option<String>,
}

impl std::str::FromStr for Remote {
    type Err = std::convert::Infallible;

    /// `NAME` or `NAME=RAW_BASE`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, raw_base) = match text.split_once('=') {
            Some((name, raw_base)) => (name, Some(raw_base.to_owned())),
            None => (text, None),
        };
        Ok(Self { name: name.to_owned(), raw_base })
    }
}

/// Where releases go, and how they are looked at there.
#[derive(Clone, Copy)]
pub struct PublishRoute<'a> {
    /// A local clone of the resource repository; only objects are written to it.
    pub repository: &'a Utf8Path,
    /// The remotes, all of which get the release.
    pub remotes: &'a [Remote],
    /// The branch, `Models`.
    pub branch: &'a str,
    /// The largest file that the remotes take.
    pub part_limit: PartLimit,
    /// About how many bytes one push may bring.
    pub batch_bytes: u64,
    /// Whether to go on where no remote has an address for devices, so that nothing can be fetched again.
    pub unconfirmed: bool,
    /// How long a host may take until it serves what was pushed.
    pub settle: std::time::Duration,
    /// Fetches what was published.
    pub client: &'a HttpClient,
    /// Watches the bytes that are fetched.
    pub progress: &'a dyn Progress,
    /// Set by a person or signal to stop between two changes.
    pub stop: &'a AtomicBool,
}

/// What to publish, and where.
#[derive(Clone, Copy)]
pub struct PublishRequest<'a> {
    /// The release, as the gate let it through.
    pub release: &'a VerifiedRelease,
    /// The workspace that it is in.
    pub workspace: &'a Utf8Path,
    /// Where it goes.
    pub route: PublishRoute<'a>,
    /// Signs the part list, where there is a key.
    pub signer: Option<&'a Signer>,
    /// The time of the commits, in seconds since 1970.
    pub seconds: i64,
}

/// Something that happened while publishing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum PublishEvent {
    /// A commit was made in the clone.
    Committed {
        /// Its ID.
        commit: String,
        /// What it is, in one line.
        subject: String,
        /// Files that it brings.
        files: usize,
        /// Their bytes.
        bytes: u64,
    },
    /// A remote's branch was moved.
    Pushed {
        /// The remote.
        remote: String,
        /// Where it stands now.
        commit: String,
    },
    /// The branch had moved; the commits are made anew.
    Rebased {
        /// The remote that had moved.
        remote: String,
    },
    /// A file was fetched as devices do and is right.
    Confirmed {
        /// Its address.
        url: String,
    },
}

impl std::fmt::Display for PublishEvent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Committed { subject, files, bytes, .. } => {
                write!(f, "{subject}: {files} files, {bytes} bytes")
            }
            Self::Pushed { remote, commit } => write!(f, "{remote} stands at {commit}"),
            Self::Rebased { remote } => write!(f, "somebody else pushed to {remote}; once more on top"),
            Self::Confirmed { url } => write!(f, "{url} is served as it was published"),
        }
    }
}
