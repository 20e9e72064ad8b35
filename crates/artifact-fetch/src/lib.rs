//! Artifacts from resource hosts.
//!
//! A host serves an artifact whole, or as numbered parts with a checksum, all beside each other under their file names. Where
//! a part list is known ([`fetch_list`]), it says which and what each file has to be; otherwise the whole is asked for
//! first, and then the parts, by name, until one is missing. Several files, or several ranges of one, are fetched at a
//! time. Everything is staged in a hidden directory beside the destination: what is complete stays there across failures,
//! and the destination gets its new content in one step, when that is whole and verified.
//!
//! What can go wrong, and what defends against it: a host that answers with a page, an LFS pointer or an error text where a
//! file should be (recognised before it counts as one); ranges of two builds mixed (a strong `ETag` or the digest holds
//! them together); a part of another build (the digest of the whole, and of each part where listed); a list that somebody
//! else wrote (its signature, where a key is configured: then a host without a signed list serves nothing).

mod error;
mod fetch;
mod list;
mod parts;
mod ranges;
mod recognise;
mod staging;

pub use error::FetchError;
pub use fetch::{FetchContext, Fetched, Form, Wanted, fetch};
pub use list::fetch_list;
pub use recognise::{Foreign, recognise};
