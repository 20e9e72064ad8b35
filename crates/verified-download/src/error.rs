//! Why a request or a download failed, in words and in classes.

use std::time::Duration;

use durable_fs::{FsError, FsErrorKind};

use crate::UrlError;

/// What a caller can do about an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HttpErrorClass {
    /// The server or the way to it does not answer: try again later.
    Network,
    /// This machine's clock or the certificate's dates are wrong.
    Clock,
    /// The server wants credentials, or others.
    Auth,
    /// The account's quota at the server is used up; its owner must act.
    Quota,
    /// The server does not have it.
    Gone,
    /// The server asked for more patience than was allowed.
    RateLimited,
    /// The server failed.
    Server,
    /// The server answered something that this client does not accept.
    Protocol,
    /// Two downloads differ: damage on the way.
    CorruptInTransit,
    /// Two downloads agree on wrong bytes: damage at the server.
    CorruptAtServer,
    /// The disk is full.
    DiskFull,
    /// The destination cannot be written.
    NotWritable,
    /// The work was asked to stop.
    Interrupted,
    /// Any other failure of this machine.
    System,
}

/// Why one request, or one attempt of a download, failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HttpError {
    /// The address cannot be asked.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// No connection, or it broke.
    #[error("{url}: {why}")]
    Network {
        /// The address, without secrets.
        url: String,
        /// What happened.
        why: String,
    },
    /// No byte came for the length of the stall timeout.
    #[error("{url}: no byte came for {} s", after.as_secs())]
    Stalled {
        /// The address, without secrets.
        url: String,
        /// The stall timeout.
        after: Duration,
    },
    /// The server's certificate is not accepted.
    #[error("{url}: the server's certificate is not accepted: {why}")]
    Certificate {
        /// The address, without secrets.
        url: String,
        /// What is wrong with it.
        why: String,
    },
    /// The certificate is not valid at this machine's time.
    #[error(
        "{url}: the server's certificate is not valid at this machine's time, {now}: check the clock; {why}"
    )]
    Clock {
        /// The address, without secrets.
        url: String,
        /// This machine's time.
        now: String,
        /// What TLS says.
        why: String,
    },
    /// The server answered with an error.
    #[error("{url}: the server answers {status}{}", words(message))]
    Status {
        /// The address, without secrets.
        url: String,
        /// The HTTP status.
        status: u16,
        /// What the server says, shortened.
        message: String,
        /// How long it asks to wait.
        retry_after: Option<Duration>,
    },
    /// Credentials are wanted, and whoever was asked for them did not answer.
    #[error("{url}: credentials are wanted; {why}")]
    Credentials {
        /// The address, without secrets.
        url: String,
        /// Who was asked, what happened, and what to do.
        why: String,
    },
    /// The answer is none that this client accepts.
    #[error("{url}: {why}")]
    Protocol {
        /// The address, without secrets.
        url: String,
        /// What is wrong.
        why: String,
    },
    /// The whole body arrived, but it is not what was expected.
    #[error("{url}: the content is not what was expected: {source}")]
    Mismatch {
        /// The address, without secrets.
        url: String,
        /// Size or digest, expected and found.
        source: FsError,
        /// Whether a second download gave the same wrong bytes.
        repeated: bool,
    },
    /// The work was asked to stop.
    #[error("interrupted")]
    Interrupted,
    /// Reading or writing a file failed.
    #[error(transparent)]
    Fs(#[from] FsError),
}

fn words(message: &str) -> String {
    if message.is_empty() { String::new() } else { format!(" ({message})") }
}

/// Words with which servers say that a quota is used up; they do so with several statuses.
const QUOTA_WORDS: [&str; 4] = ["quota", "budget", "bandwidth limit", "storage limit"];

/// Whether a server's answer means a used-up quota.
fn is_quota(status: u16, message: &str) -> bool {
    let message = message.to_ascii_lowercase();
    matches!(status, 402 | 507 | 509)
        || (matches!(status, 403 | 413 | 422 | 429) && QUOTA_WORDS.iter().any(|word| message.contains(word)))
}

impl HttpError {
    /// The class of the error.
    pub fn class(&self) -> HttpErrorClass {
        match self {
            Self::Url(_) | Self::Protocol { .. } | Self::Certificate { .. } => HttpErrorClass::Protocol,
            Self::Network { .. } | Self::Stalled { .. } => HttpErrorClass::Network,
            Self::Clock { .. } => HttpErrorClass::Clock,
            Self::Credentials { .. } => HttpErrorClass::Auth,
            Self::Status { status, message, .. } => match status {
                _ if is_quota(*status, message) => HttpErrorClass::Quota,
                401 | 403 | 407 => HttpErrorClass::Auth,
                404 | 410 => HttpErrorClass::Gone,
                429 => HttpErrorClass::RateLimited,
                500.. => HttpErrorClass::Server,
                _ => HttpErrorClass::Protocol,
            },
            Self::Mismatch { repeated: true, .. } => HttpErrorClass::CorruptAtServer,
            Self::Mismatch { repeated: false, .. } => HttpErrorClass::CorruptInTransit,
            Self::Interrupted => HttpErrorClass::Interrupted,
            Self::Fs(error) => match error.kind() {
                FsErrorKind::DiskFull => HttpErrorClass::DiskFull,
                FsErrorKind::NotWritable => HttpErrorClass::NotWritable,
                _ => HttpErrorClass::System,
            },
        }
    }

    /// Whether the same request may succeed when it is made again.
    pub fn is_retryable(&self) -> bool {
        match self.class() {
            HttpErrorClass::Network | HttpErrorClass::RateLimited | HttpErrorClass::Server => true,
            HttpErrorClass::Clock
            | HttpErrorClass::Auth
            | HttpErrorClass::Quota
            | HttpErrorClass::Gone
            | HttpErrorClass::Protocol
            | HttpErrorClass::CorruptInTransit
            | HttpErrorClass::CorruptAtServer
            | HttpErrorClass::DiskFull
            | HttpErrorClass::NotWritable
            | HttpErrorClass::Interrupted
            | HttpErrorClass::System => false,
        }
    }

    /// Whether the failure is this machine's, so that no other origin helps.
    pub(crate) fn is_local(&self) -> bool {
        matches!(
            self.class(),
            HttpErrorClass::DiskFull
                | HttpErrorClass::NotWritable
                | HttpErrorClass::Interrupted
                | HttpErrorClass::System
        )
    }
}

/// One origin's last failure.
#[derive(Debug)]
pub struct OriginFailure {
    /// The address, without secrets.
    pub url: String,
    /// Why it did not serve.
    pub error: HttpError,
}

/// Why a download failed at every origin.
#[derive(Debug, thiserror::Error)]
#[error("{label} cannot be downloaded: {}", tried(failures))]
pub struct DownloadError {
    /// What was being downloaded.
    pub label: String,
    /// What each origin said, in the order in which they were asked.
    pub failures: Vec<OriginFailure>,
}

fn tried(failures: &[OriginFailure]) -> String {
    if failures.is_empty() {
        return "no origin is known".to_owned();
    }
    failures.iter().map(|failure| failure.error.to_string()).collect::<Vec<_>>().join("; ")
}

impl DownloadError {
    /// The class of the most telling failure: one of this machine, else the last that is not just an absence.
    pub fn class(&self) -> HttpErrorClass {
        let classes: Vec<HttpErrorClass> =
            self.failures.iter().map(|failure| failure.error.class()).collect();
        let local = self
            .failures
            .iter()
            .find(|failure| failure.error.is_local())
            .map(|failure| failure.error.class());
        local
            .or_else(|| classes.iter().copied().find(|class| *class != HttpErrorClass::Gone))
            .or_else(|| classes.last().copied())
            .unwrap_or(HttpErrorClass::Gone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(status: u16, message: &str) -> HttpError {
        HttpError::Status {
            url: "https://h/".to_owned(),
            status,
            message: message.to_owned(),
            retry_after: None,
        }
    }

    #[test]
    fn statuses_have_their_classes() {
        let lfs_budget =
            "This repository exceeded its LFS budget. The account responsible should increase it";
        for (error, class, retryable) in [
            (status(401, ""), HttpErrorClass::Auth, false),
            (status(403, "denied"), HttpErrorClass::Auth, false),
            (status(403, lfs_budget), HttpErrorClass::Quota, false),
            (status(429, "rate limit"), HttpErrorClass::RateLimited, true),
            (status(509, ""), HttpErrorClass::Quota, false),
            (status(404, ""), HttpErrorClass::Gone, false),
            (status(503, ""), HttpErrorClass::Server, true),
            (status(418, ""), HttpErrorClass::Protocol, false),
        ] {
            assert_eq!((error.class(), error.is_retryable()), (class, retryable), "{error}");
        }
    }
}
