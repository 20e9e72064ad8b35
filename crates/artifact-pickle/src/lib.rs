//! Compiled model artifacts read as data.
//!
//! A pickle is a program: loading one runs whatever it names. This crate reads the opcodes into a bounded value graph
//! ([`Graph`]) and calls nothing. What can go wrong is a stream made to exhaust its reader, one that loaders read
//! differently than a checker does, or one that names what it must not; the defences are [`Limits`], a machine that
//! refuses every ambiguity at a byte offset, and exact lists of what may be named.
//!
//! - [`Graph::read`] / [`Graph::read_bytes`]: the reader.
//! - [`inspect`], [`verify`], [`diff`]: what is in an artifact, whether it may be used, what differs.
//! - [`AbiDescription`], [`AllowList`]: what a tinygrad offers, what a file may name.
//! - [`decode_slices`], [`decode_metadata`]: restricted decoders of the small pickles beside a model.
//! - [`encode_slices`], [`encode_metadata`]: a writer for the same.

mod abi;
mod diff;
mod digest;
mod inspect;
mod metadata;
mod read;
mod report;
mod safety;
mod verify;
mod view;
mod write;

pub(crate) use abi::state_names as abi_state_names;
pub use abi::{AbiClass, AbiDescription, AbiError, AbiProblem, AbiProblemKind, AbiRecord, Mismatch};
pub use diff::{Change, Diff, DiffError, JitDiff, Overlap, diff};
pub use digest::{ContentDigest, Digests};
pub use inspect::{
    AbiReport, FileFacts, InspectError, InspectOptions, Inspection, inspect, inspect_source,
    inspect_with_graph,
};
pub use metadata::{MetadataError, decode_metadata, decode_slices, metadata_of, slices_of};
pub use read::{
    Construction, Fault, Global, Graph, Kind, Limits, NodeId, Object, Payload, PayloadKind, PickleError,
    Source, Text, Value,
};
pub use safety::{AllowList, FileKind, Refusal, RefusalKind};
pub use verify::{Expectations, Verdict, judge, verify};
pub use view::{Buffers, Content, DrivingView, Finding, JitInput, JitView, Kernel, Language, Severity};
pub use write::{encode_metadata, encode_slices};
