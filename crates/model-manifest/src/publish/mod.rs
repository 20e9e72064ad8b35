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
//! was left behind (it is brought up first, commit by commit); two remotes that take pushes of different size (commits are made
//! for the stricter one, and what the other has already goes there in pieces). No push ever takes a commit away: each new tip contains the old
//! one.

mod confirm;
mod content;
mod error;
mod git;
mod pieces;
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
pub use rollback::{Removed, RolledBack, rollback};
pub use sign::Signer;

use crate::VerifiedRelease;

/// A remote repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remote {
    /// Its name in the clone, or its address.
    pub name: String,
    /// Where devices fetch its files: `<raw_base>/<branch>/<file>`. Without it nothing can be confirmed there.
    pub raw_base: Option<String>,
    /// How many bytes it takes in one push, where that is known.
    pub push_limit: Option<u64>,
}

/// What one remote takes in one push.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushLimit {
    /// The remote's name.
    pub remote: String,
    /// How many bytes it takes.
    pub bytes: u64,
}

impl std::str::FromStr for PushLimit {
    type Err = String;

    /// `NAME=MIB`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wanted = || format!("`{text}` is no limit: give NAME=MIB, such as mirror=100");
        let (remote, mib) = text.rsplit_once('=').ok_or_else(wanted)?;
        let mib: u64 = mib.parse().ok().filter(|mib| *mib > 0).ok_or_else(wanted)?;
        let bytes = mib.checked_mul(1 << 20).ok_or_else(wanted)?;
        Ok(Self { remote: remote.to_owned(), bytes })
    }
}

impl Remote {
    /// The remotes with their limits.
    ///
    /// # Errors
    /// The limit whose remote is not among them.
    pub fn with_limits(remotes: &[Self], limits: &[PushLimit]) -> Result<Vec<Self>, PushLimit> {
        let mut remotes = remotes.to_vec();
        for limit in limits {
            let remote = remotes.iter_mut().find(|remote| remote.name == limit.remote);
            remote.ok_or_else(|| limit.clone())?.push_limit = Some(limit.bytes);
        }
        Ok(remotes)
    }
}

impl std::str::FromStr for Remote {
    type Err = std::convert::Infallible;

    /// `NAME` or `NAME=RAW_BASE`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, raw_base) = match text.split_once('=') {
            Some((name, raw_base)) => (name, Some(raw_base.to_owned())),
            None => (text, None),
        };
        Ok(Self { name: name.to_owned(), raw_base, push_limit: None })
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
    /// About how many bytes one push may bring; where a remote takes less, commits are made for the one that takes least.
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
    /// Files of a commit that is more than a remote takes in one push went there ahead of it.
    Ahead {
        /// The remote.
        remote: String,
        /// Files that went.
        files: usize,
        /// Their bytes.
        bytes: u64,
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
            Self::Ahead { remote, files, bytes } => {
                write!(f, "{remote} has {files} files, {bytes} bytes, ahead of their commit")
            }
            Self::Rebased { remote } => write!(f, "somebody else pushed to {remote}; once more on top"),
            Self::Confirmed { url } => write!(f, "{url} is served as it was published"),
        }
    }
}
