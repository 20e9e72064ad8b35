//! Why an object could not be had over the network.

use std::sync::Arc;

use camino::Utf8PathBuf;
use model_catalog::{RelPath, Sha256Digest};
use verified_download::{HttpError, HttpErrorClass};

use crate::ErrorClass;

/// One server, and what it said.
#[derive(Debug)]
pub struct Tried {
    /// The server's address, without secrets.
    pub endpoint: String,
    /// What happened.
    pub error: Arc<HttpError>,
}

impl Tried {
    /// Whether the server refused, as it does for an address that has expired.
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(*self.error, HttpError::Status { status: 400 | 401 | 403, .. })
    }

    /// Whether the failure is this machine's.
    pub(crate) fn is_local(&self) -> bool {
        use HttpErrorClass::{DiskFull, Interrupted, NotWritable, System};
        matches!(self.error.class(), DiskFull | NotWritable | System | Interrupted)
    }
}

/// Every place that an object was looked for in, and why none had it.
#[derive(Debug, thiserror::Error)]
#[error(
    "the LFS object {oid} ({size} bytes) of {git_path} cannot be had: {}; on this machine looked in {}; {}",
    servers(tried),
    places(looked_in),
    advice(self.class())
)]
pub struct LfsFetchError {
    /// The object.
    pub oid: Sha256Digest,
    /// Its size in bytes.
    pub size: u64,
    /// The file that it is for.
    pub git_path: RelPath,
    /// Where it was looked for on this machine.
    pub looked_in: Vec<Utf8PathBuf>,
    /// The servers that were asked, in order.
    pub tried: Vec<Tried>,
}

impl LfsFetchError {
    /// The class of the most telling failure: one of this machine, else the first that is more than an absence.
    pub fn class(&self) -> ErrorClass {
        let telling = self
            .tried
            .iter()
            .find(|tried| tried.is_local())
            .or_else(|| self.tried.iter().find(|tried| tried.error.class() != HttpErrorClass::Gone))
            .or_else(|| self.tried.first());
        telling.map_or(ErrorClass::NotFoundAnywhere, |tried| class_of(tried.error.class()))
    }
}

pub(crate) fn class_of(class: HttpErrorClass) -> ErrorClass {
    match class {
        HttpErrorClass::Network
        | HttpErrorClass::RateLimited
        | HttpErrorClass::Server
        | HttpErrorClass::Protocol => ErrorClass::Network,
        HttpErrorClass::Clock => ErrorClass::Clock,
        HttpErrorClass::Auth => ErrorClass::Auth,
        HttpErrorClass::Quota => ErrorClass::Quota,
        HttpErrorClass::Gone => ErrorClass::GoneAtServer,
        HttpErrorClass::CorruptInTransit => ErrorClass::CorruptInTransit,
        HttpErrorClass::CorruptAtServer => ErrorClass::CorruptAtServer,
        HttpErrorClass::DiskFull => ErrorClass::DiskFull,
        HttpErrorClass::NotWritable => ErrorClass::NotWritable,
        HttpErrorClass::Interrupted => ErrorClass::Interrupted,
        HttpErrorClass::System => ErrorClass::System,
    }
}

fn servers(tried: &[Tried]) -> String {
    if tried.is_empty() {
        return "no LFS server is configured for the commit".to_owned();
    }
    tried.iter().map(|tried| tried.error.to_string()).collect::<Vec<_>>().join("; ")
}

fn places(looked_in: &[Utf8PathBuf]) -> String {
    looked_in.iter().map(|path| path.as_str()).collect::<Vec<_>>().join(", ")
}

fn advice(class: ErrorClass) -> &'static str {
    match class {
        ErrorClass::Auth => "give credentials in netrc or a git credential helper",
        ErrorClass::Quota => "the account's owner must raise its quota, or a mirror must be configured",
        ErrorClass::GoneAtServer | ErrorClass::NotFoundAnywhere => "configure a mirror that has it",
        ErrorClass::CorruptAtServer => "its owner must upload it again, or a mirror must be configured",
        ErrorClass::Clock => "set the clock and run again",
        ErrorClass::DiskFull => "free space and run again",
        _ => "run again later",
    }
}
