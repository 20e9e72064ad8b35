//! The reader: opcodes to a bounded value graph.

mod access;
mod apply;
mod build;
mod display;
mod error;
mod form;
mod graph;
mod input;
mod limits;
mod literal;
mod machine;
pub(crate) mod opcode;
mod text;

pub use error::{Fault, Kind, PickleError};
pub use graph::{Construction, Global, Graph, NodeId, Object, Payload, PayloadKind, Value};
pub use input::Source;
pub use limits::Limits;
pub(crate) use opcode as op;
pub use text::Text;
