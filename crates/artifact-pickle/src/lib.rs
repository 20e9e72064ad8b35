//! Compiled model artifacts read as data.
//!
//! A pickle is a program: loading one runs whatever it names. This crate reads the opcodes into a bounded value graph
//! ([`Graph`]) and calls nothing. What can go wrong is a stream made to exhaust its reader, one that loaders read
//! differently than a checker does, or one that names what it must not; the defences are [`Limits`], a machine that
//! refuses every ambiguity at a byte offset, and exact lists of what may be named.
//!
//! - [`Graph::read`] / [`Graph::read_bytes`]: the reader.
//! - [`decode_slices`], [`decode_metadata`]: restricted decoders of the small pickles beside a model.
//! - [`encode_slices`], [`encode_metadata`]: a writer for the same.

mod metadata;
mod read;
mod write;

pub use metadata::{MetadataError, decode_metadata, decode_slices, metadata_of, slices_of};
pub use read::{
    Construction, Fault, Global, Graph, Kind, Limits, NodeId, Object, Payload, PayloadKind, PickleError,
    Source, Text, Value,
};
pub use write::{encode_metadata, encode_slices};
