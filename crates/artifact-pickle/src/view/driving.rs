//! The view of a driving artifact of the layout `tinygrad_single_v1`.

use indexmap::IndexMap;
use model_catalog::{CAMERAS, Camera, ModelMetadata};
use serde::Serialize;

use super::finding::Finding;
use super::jit::{JitView, is_jit};
use crate::metadata::metadata_of;
use crate::read::{Graph, NodeId};

/// A driving artifact. Fields are `None` where the file lacks them or has another type there; a finding says so.
#[derive(Debug, Clone, Default, Serialize)]
pub struct DrivingView {
    /// Version of the layout.
    pub format_version: Option<i64>,
    /// `vision_policy`, `vision_multi_policy` or `supercombo`.
    pub model_type: Option<String>,
    /// Model key to metadata.
    pub metadata: IndexMap<String, ModelMetadata>,
    /// `policy` or `warp`.
    pub image_history_pipeline: Option<String>,
    /// Behaviour version, where it is known.
    pub behavior_version: Option<String>,
    /// Order of the policies' outputs; a supercombo has none.
    pub policy_order: Option<Vec<String>>,
    /// Frames of the run between two of the context.
    pub frame_skip: Option<i64>,
    /// Keywords of `run_policy`.
    pub policy_input_keys: Option<Vec<String>>,
    /// Keywords of the warps.
    pub warp_input_keys: Option<Vec<String>>,
    /// `run_policy`, then a warp for each camera as `1928x1208`.
    pub jits: IndexMap<String, JitView>,
    /// The keys in the file's order; cameras as `1928x1208`.
    pub keys: Vec<String>,
}

impl DrivingView {
    /// The cameras that it has a warp for.
    #[must_use]
    pub fn cameras(&self) -> Vec<Camera> {
        CAMERAS.into_iter().filter(|camera| self.jits.contains_key(&camera.to_string())).collect()
    }

    /// The jit that runs the models.
    #[must_use]
    pub fn run_policy(&self) -> Option<&JitView> {
        self.jits.get("run_policy")
    }
}

pub(super) fn read(graph: &Graph) -> (DrivingView, Vec<Finding>) {
    let mut reader = Reader { graph, view: DrivingView::default(), findings: Vec::new() };
    for (key, value) in graph.as_dict(graph.root()).unwrap_or_default() {
        reader.entry(*key, *value);
    }
    (reader.view, reader.findings)
}

struct Reader<'g> {
    graph: &'g Graph,
    view: DrivingView,
    findings: Vec<Finding>,
}

impl Reader<'_> {
    fn entry(&mut self, key: NodeId, value: NodeId) {
        let Some(name) = self.key_name(key) else {
            let shown = self.graph.show(key).to_string();
            self.findings.push(Finding::error(
                "layout.key",
                "file",
                format!("{shown} is no key of an artifact"),
            ));
            return;
        };
        if self.view.keys.contains(&name) {
            let message = format!("the key {name} stands twice");
            self.findings.push(Finding::error("layout.duplicate", "file", message));
        }
        self.view.keys.push(name.clone());
        self.field(&name, value);
    }

    /// A string, or a pair of integers: a camera.
    fn key_name(&self, key: NodeId) -> Option<String> {
        if let Some(name) = self.graph.as_str(key) {
            return Some(name.to_owned());
        }
        match self.graph.as_tuple(key)? {
            [width, height] => {
                Some(format!("{}x{}", self.graph.as_int(*width)?, self.graph.as_int(*height)?))
            }
            _ => None,
        }
    }

    fn field(&mut self, name: &str, value: NodeId) {
        let graph = self.graph;
        match name {
            "format_version" => {
                self.view.format_version = self.expect(name, value, "an int", graph.as_int(value))
            }
            "frame_skip" => self.view.frame_skip = self.expect(name, value, "an int", graph.as_int(value)),
            "model_type" => self.view.model_type = self.string(name, value),
            "image_history_pipeline" => self.view.image_history_pipeline = self.string(name, value),
            "behavior_version" => self.view.behavior_version = self.string(name, value),
            "policy_order" => {
                let items = graph.as_list(value).and_then(|items| self.strings(items));
                self.view.policy_order = self.expect(name, value, "a list of strings", items);
            }
            "policy_input_keys" | "warp_input_keys" => {
                let items = graph.as_tuple(value).and_then(|items| self.strings(items));
                let items = self.expect(name, value, "a tuple of strings", items);
                match name {
                    "policy_input_keys" => self.view.policy_input_keys = items,
                    _ => self.view.warp_input_keys = items,
                }
            }
            "metadata" => self.metadata(value),
            _ => self.jit(name, value),
        }
    }

    fn expect<T>(&mut self, name: &str, value: NodeId, what: &str, read: Option<T>) -> Option<T> {
        if read.is_none() {
            let message = format!("{name} is {}, expected {what}", self.graph.kind(value));
            self.findings.push(Finding::error("layout.type", name, message));
        }
        read
    }

    fn string(&mut self, name: &str, value: NodeId) -> Option<String> {
        let text = self.graph.as_str(value).map(str::to_owned);
        self.expect(name, value, "a string", text)
    }

    fn strings(&self, items: &[NodeId]) -> Option<Vec<String>> {
        items.iter().map(|id| self.graph.as_str(*id).map(str::to_owned)).collect()
    }

    fn metadata(&mut self, value: NodeId) {
        let pairs = self.graph.as_dict(value);
        for (key, value) in self.expect("metadata", value, "a dict", pairs).unwrap_or_default() {
            let key = self.graph.show(*key).to_string().trim_matches('"').to_owned();
            match metadata_of(self.graph, *value) {
                Ok(metadata) => drop(self.view.metadata.insert(key, metadata)),
                Err(error) => {
                    let place = format!("metadata.{key}");
                    self.findings.push(Finding::error("metadata", place, error.to_string()));
                }
            }
        }
    }

    fn jit(&mut self, name: &str, value: NodeId) {
        if is_jit(self.graph, value) {
            let jit = JitView::read(self.graph, value);
            self.findings.extend(jit.findings(name));
            self.view.jits.insert(name.to_owned(), jit);
        } else if name == "run_policy" || name.starts_with(|c: char| c.is_ascii_digit()) {
            let message = format!("{name} is {}, expected a captured jit", self.graph.kind(value));
            self.findings.push(Finding::error("layout.type", name, message));
        }
    }
}
