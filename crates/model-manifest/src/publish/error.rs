//! Errors of publishing.

use camino::Utf8PathBuf;
use durable_fs::FsError;
use verified_download::HttpError;

/// Why a release was not published, or not shown to be.
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    /// git cannot be started.
    #[error("git cannot be started: {source}; install git, which pushes the release")]
    NoGit {
        /// Why.
        source: std::io::Error,
    },
    /// A git command failed.
    #[error("git {action} failed in {repository}: {stderr}")]
    Git {
        /// What was being done.
        action: String,
        /// The local clone.
        repository: Utf8PathBuf,
        /// What git says.
        stderr: String,
    },
    /// The remotes have histories that contradict each other.
    #[error(
        "the branch {branch} of {first} and of {second} have gone different ways; bring one of the two to the other first"
    )]
    Diverged {
        /// The branch.
        branch: String,
        /// A remote.
        first: String,
        /// Another remote.
        second: String,
    },
    /// Somebody else released meanwhile.
    #[error(
        "{file} on {branch} was changed by somebody else while this release was being published; look at it and publish again"
    )]
    ManifestMoved {
        /// The manifest.
        file: String,
        /// The branch.
        branch: String,
    },
    /// The branch moved again and again.
    #[error(
        "the branch {branch} of {remote} moves while it is being published to; publish again when nobody else pushes"
    )]
    Moving {
        /// The branch.
        branch: String,
        /// The remote.
        remote: String,
    },
    /// Nothing could be fetched again.
    #[error(
        "no remote has an address under which devices fetch, so that nothing could be looked at; give one as NAME=RAW_URL, or say that nothing shall be looked at (--unconfirmed)"
    )]
    NoAddress,
    /// A push was refused.
    #[error("{remote} refuses the push: {why}")]
    Refused {
        /// The remote.
        remote: String,
        /// What it says.
        why: String,
    },
    /// A file to be pushed is larger than the repository takes.
    #[error(
        "{name} has {size} bytes in the commits to be pushed; at most {limit} are taken; nothing was pushed"
    )]
    OverLimit {
        /// The file.
        name: String,
        /// Its size.
        size: u64,
        /// The limit.
        limit: u64,
    },
    /// A file to be pushed is larger than a remote takes in one push.
    #[error(
        "{name} has {size} bytes, and {remote} takes {limit} in one push; make smaller parts (`part_limit_mib` in rebuild.toml) or raise the remote's limit"
    )]
    OverPushLimit {
        /// The remote.
        remote: String,
        /// The file.
        name: String,
        /// Its size.
        size: u64,
        /// What the remote takes.
        limit: u64,
    },
    /// A file to be pushed is not on the list of the release.
    #[error(
        "the commits to be pushed change {name}, which does not belong to the release; nothing was pushed"
    )]
    NotAllowed {
        /// The file.
        name: String,
    },
    /// A file changed after it was verified.
    #[error(
        "{path} changed after it was verified; verify the workspace and publish again; nothing was pushed"
    )]
    Changed {
        /// The file.
        path: Utf8PathBuf,
    },
    /// What devices would fetch is not what was published.
    #[error("{url} does not serve what was published: {why}; {}", if *manifest_switched { "the branch is changed already: run the same command again to repeat the check" } else { "the manifest was not switched" })]
    Unconfirmed {
        /// The address.
        url: String,
        /// What came instead.
        why: String,
        /// Whether the manifest on the branch is the new one already.
        manifest_switched: bool,
    },
    /// An address is not valid, or the client cannot be made.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// A file cannot be read.
    #[error(transparent)]
    Fs(#[from] FsError),
    /// The part list cannot be signed.
    #[error("the part list cannot be signed: {why}")]
    Sign {
        /// What is wrong.
        why: String,
    },
    /// There is no earlier release to go back to.
    #[error("{branch} has no release that this tool published; roll back by hand")]
    NothingToRollBack {
        /// The branch.
        branch: String,
    },
    /// A person or signal stopped it.
    #[error("stopped; run the same command again to go on")]
    Interrupted,
}
