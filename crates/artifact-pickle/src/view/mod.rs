//! What is inside of a file: which kind it is, and its parts as typed data.

mod captured;
mod contract;
mod driving;
mod finding;
mod jit;
mod kernel;
mod queues;

use model_catalog::ModelMetadata;
use serde::Serialize;

pub use driving::DrivingView;
pub use finding::{Finding, Severity};
pub use jit::{Buffers, JitInput, JitView};
pub use kernel::{Kernel, Language};

use crate::metadata::metadata_of;
use crate::read::{Graph, NodeId};
use crate::safety::FileKind;

/// A file's content.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Content {
    /// A driving artifact.
    Driving(Box<DrivingView>),
    /// One jit: the driver-monitoring model or a camera warp.
    Jit(Box<JitView>),
    /// Metadata of a model.
    Metadata(Box<ModelMetadata>),
    /// None of these; the value as text.
    Other {
        /// The value, cut.
        value: String,
    },
}

impl Content {
    /// The kind, for what the file may name.
    #[must_use]
    pub fn kind(&self) -> FileKind {
        match self {
            Content::Driving(_) => FileKind::Driving,
            Content::Jit(_) => FileKind::Jit,
            Content::Metadata(_) => FileKind::Metadata,
            Content::Other { .. } => FileKind::Other,
        }
    }

    /// Every jit by name; a single jit has the name `jit`.
    #[must_use]
    pub fn jits(&self) -> Vec<(&str, &JitView)> {
        match self {
            Content::Driving(view) => view.jits.iter().map(|(name, jit)| (name.as_str(), jit)).collect(),
            Content::Jit(jit) => vec![("jit", jit)],
            Content::Metadata(_) | Content::Other { .. } => Vec::new(),
        }
    }
}

/// Recognises a file and reads its parts; findings are what does not fit its layout.
pub(crate) fn view(graph: &Graph) -> (Content, Vec<Finding>) {
    let root = graph.root();
    let has = |key| graph.get(root, key).is_some();
    if graph.as_dict(root).is_some() && (has("format_version") || has("run_policy") || has("model_type")) {
        let (view, mut findings) = driving::read(graph);
        contract::check(&view, &mut findings);
        return (Content::Driving(Box::new(view)), findings);
    }
    if has("output_slices") && has("input_shapes") {
        return metadata(graph, root);
    }
    if jit::is_jit(graph, root) {
        let jit = JitView::read(graph, root);
        let findings = jit.findings("jit");
        return (Content::Jit(Box::new(jit)), findings);
    }
    let value = graph.show(root).to_string();
    let message = "the pickle is no driving artifact, no jit and no metadata".to_owned();
    (Content::Other { value }, vec![Finding::error("unrecognised", "file", message)])
}

fn metadata(graph: &Graph, root: NodeId) -> (Content, Vec<Finding>) {
    match metadata_of(graph, root) {
        Ok(metadata) => {
            let mut findings = Vec::new();
            contract::check_metadata("metadata", &metadata, &mut findings);
            (Content::Metadata(Box::new(metadata)), findings)
        }
        Err(error) => {
            let value = graph.show(root).to_string();
            (Content::Other { value }, vec![Finding::error("metadata", "metadata", error.to_string())])
        }
    }
}
