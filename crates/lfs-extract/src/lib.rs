//! From a git ref to verified ONNX files.
//!
//! A model's sources are blobs in years of git history: some are the ONNX itself, most are Git LFS pointers. This crate
//! opens a clone without a git binary ([`SourceClone`]), finds a model's components at a commit ([`ModelPlan`]) and puts
//! the exact bytes on disk ([`SourceClone::extract_model`]): streamed from the pack entry, the loose object or the LFS
//! object, within bounded memory, hashed on the way and checked against the git object ID or the pointer's size and
//! SHA-256 before anything gets a name.
//!
//! What can go wrong, and what defends against it: a commit that holds a big and a small model (the variant is part of
//! every name that is looked up), a pointer taken for a model ([`Pointer::parse`] detects leniently and accepts
//! strictly), a damaged cache (every object is hashed), a set of which half is new (all components are staged before the
//! first one is placed, and the component without which no set counts is placed last).
//!
//! The user's clone, its configuration and its refs are never written.

mod alternates;
mod background_sync;
mod batch;
mod blob;
mod child;
mod components;
mod delta;
mod endpoints;
mod error;
mod extract;
mod fetch_error;
mod git_credentials;
mod git_store;
mod id_hasher;
mod inflate;
mod lfs_fetch;
mod object_cache;
mod object_store;
mod plan;
mod pointer;
mod pointer_error;
mod revision;
mod source_clone;
mod sources;
mod user_config;
mod watch;

pub use batch::{Action, BatchAnswer, ObjectError, parse_batch_answer};
pub use components::SourceBlob;
pub use endpoints::{Endpoint, EndpointSource};
pub use error::{ErrorClass, ExtractError, MissingComponents};
pub use extract::{ExtractedFile, StagedCheck};
pub use fetch_error::{LfsFetchError, Tried};
pub use git_credentials::CredentialSources;
pub use git_store::{DEFAULT_UPSTREAM, GitFetchError, GitStore};
pub use lfs_fetch::{FetchOptions, FetchOutcomes, FetchedObject, LfsFetcher, WantedObject};
pub use object_cache::ObjectCache;
pub use plan::{ByteSource, ModelPlan, PlannedFile};
pub use pointer::{MAX_POINTER_SIZE, Pointer};
pub use pointer_error::PointerError;
pub use revision::GitId;
pub use source_clone::SourceClone;
pub use sources::{MissingObject, Preview, Sources, SourcesOptions};
pub use user_config::UserGitConfig;
pub use verified_download::{HttpOptions, HttpUrl, Netrc};
pub use watch::Watch;
