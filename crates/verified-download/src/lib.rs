//! Downloads over HTTP: several origins, one limiter per host, resumed from a verified prefix, checked before they get a
//! name.
//!
//! The client blocks and needs no async runtime, so that it serves the host's extraction and the device's store alike.
//! What can go wrong, and what defends against it: a server that asks for patience ([`HostLimiter`] makes every request to
//! the host wait, whoever was told), a link that stops without closing (a stall timeout on bytes, not on the whole body),
//! a server that ignores or misstates a range (the download restarts cleanly), a body that is cut or damaged (size and
//! SHA-256 of the whole; a second download tells damage on the way from damage at the server), a redirect to another host
//! (credentials are not sent on), a wrong clock (told apart from a wrong certificate).
//!
//! Nothing here reads the environment: proxies, certificates and credentials are given by the caller.

mod client;
mod credentials;
mod download;
mod error;
mod http_url;
mod limiter;
mod netrc;
mod partial;
mod retry_after;
mod variables;

pub use client::{HttpClient, HttpOptions, Request, Response};
pub use credentials::Credentials;
pub use download::{Download, Fetched, Origin};
pub use error::{DownloadError, HttpError, HttpErrorClass, OriginFailure};
pub use http_url::{HttpUrl, Scheme, UrlError};
pub use limiter::HostLimiter;
pub use netrc::Netrc;
pub use retry_after::parse_retry_after;
