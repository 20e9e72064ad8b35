//! What is inside of a file: which kind it is, and its parts as typed data.

mod captured;
mod contract;
mod driving;
mod finding;
mod jit;
mod kernel;
mod queues;

use std::ops::Range;

use indexmap::IndexMap;
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
    /// The jit of a driver-monitoring model.
    DmModel(Box<JitView>),
    /// The jit of a driver-monitoring warp.
    DmWarp(Box<JitView>),
    /// The jit of a driving model's camera warp, alone in a file.
    CameraWarp(Box<JitView>),
    /// One jit that is none of these.
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
            Content::DmModel(_) => FileKind::DmModel,
            Content::DmWarp(_) => FileKind::DmWarp,
            Content::CameraWarp(_) => FileKind::CameraWarp,
            Content::Jit(_) => FileKind::Jit,
            Content::Metadata(_) => FileKind::Metadata,
            Content::Other { .. } => FileKind::Other,
        }
    }

    /// The metadata of every model in it; that of a metadata pickle has the name `metadata`.
    #[must_use]
    pub fn models(&self) -> Vec<(&str, &ModelMetadata)> {
        match self {
            Content::Driving(view) => {
                view.metadata.iter().map(|(name, model)| (name.as_str(), model)).collect()
            }
            Content::Metadata(model) => vec![("metadata", model)],
            _ => Vec::new(),
        }
    }

    /// The slices of every model as index ranges of its output. One that does not fit the output is left out; a finding names it.
    #[must_use]
    pub fn slices(&self) -> IndexMap<String, IndexMap<String, Range<u64>>> {
        let resolved = |model: &ModelMetadata| {
            let width = model.output_width()?;
            let slices = model.output_slices.iter();
            Some(
                slices.filter_map(|(name, slice)| Some((name.clone(), slice.resolve(width).ok()?))).collect(),
            )
        };
        let models = self.models().into_iter();
        models.map(|(name, model)| (name.to_owned(), resolved(model).unwrap_or_default())).collect()
    }

    /// Every jit by name; a single jit has the name `jit`.
    #[must_use]
    pub fn jits(&self) -> Vec<(&str, &JitView)> {
        match self {
            Content::Driving(view) => view.jits.iter().map(|(name, jit)| (name.as_str(), jit)).collect(),
            Content::DmModel(jit) | Content::DmWarp(jit) | Content::CameraWarp(jit) | Content::Jit(jit) => {
                vec![("jit", jit)]
            }
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
        return (single_jit(jit), findings);
    }
    let value = graph.show(root).to_string();
    let message = "the pickle is no driving artifact, no jit and no metadata".to_owned();
    (Content::Other { value }, vec![Finding::error("unrecognised", "file", message)])
}

/// Which jit it is, by the inputs that it asks for: files of one kind and of another differ in nothing else.
fn single_jit(jit: JitView) -> Content {
    let jit = Box::new(jit);
    match jit.matrices() {
        0 if jit.takes_dm_image() => Content::DmModel(jit),
        1 if jit.inputs.len() == 2 => Content::DmWarp(jit),
        2 => Content::CameraWarp(jit),
        _ => Content::Jit(jit),
    }
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
