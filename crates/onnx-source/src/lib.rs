//! Preflight and metadata of ONNX driving models.
//!
//! The protobuf wire is walked with buffered reads that seek over weights, so memory and time do not grow with the
//! model. What can go wrong is a file that is no model (empty, a Git LFS pointer, a saved web page), a cut copy, damage
//! inside, weights kept in other files (a path that someone else chose), and `output_slices`, which is a pickle in a text
//! property: each is refused with its own message, and nothing is ever run.

mod error;
mod model;
mod report;
mod roles;
mod tensor;
mod walk;
mod wire;

pub use error::{Fault, OnnxError};
pub use model::{OnnxModel, Opset};
pub use roles::{InputRole, input_role};
pub use tensor::{Dim, ElementType, TensorInfo, Weight};
