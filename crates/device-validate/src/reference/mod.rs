//! The outputs compared with those of ONNX Runtime on the same inputs.
//!
//! The device records what its warps made of the frames and the small inputs of the first steps. Here the state is built anew
//! from these and from the artifact's own outputs ([`feeds`]), ONNX Runtime runs the workspace's ONNX files on it, and every
//! slice is compared ([`compare`]). So each model inside an artifact is judged on the inputs that it has to have had: what
//! differs is its own fault, whether a backend is silently wrong, the weights are others, or a queue holds something else.

mod compare;
mod feeds;
mod run;

use serde::{Deserialize, Serialize};

pub use compare::{Precision, ReferenceOutput, SliceComparison, compare};
pub use feeds::{Feed, FeedInput, FeedValues, feeds};
pub(crate) use run::{SourceModel, run_reference};

/// What a comparison showed; kept in the record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReferenceReport {
    /// The reference and its version.
    pub runtime: String,
    /// What decided the tolerances.
    pub precision: Precision,
    /// Steps that were compared, over all cameras.
    pub steps: usize,
    /// Every slice.
    pub slices: Vec<SliceComparison>,
}
