//! One captured jit: devices, kernels, buffers and the inputs that it expects.
//!
//! Read structurally, so that jits of every known revision come out alike: by the names of classes and the places of
//! their arguments, never by operation numbers, which mean something else in each revision.

use std::collections::BTreeSet;

use model_catalog::{CAMERAS, Camera, DM_WARP_TARGET};
use serde::Serialize;

use super::finding::Finding;
use super::kernel::Kernel;
use crate::read::{Graph, NodeId, Object, Payload, Value};

/// Memory that a jit carries.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Buffers {
    /// Buffers in all, views among them.
    pub count: usize,
    /// Buffers whose contents are in the file.
    pub carried: usize,
    /// Bytes of those contents.
    pub bytes: u64,
    /// Buffers whose contents are not as long as their size and type say.
    pub misfits: usize,
}

/// An input that the jit checks its callers for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct JitInput {
    /// Keyword, or position.
    pub name: String,
    /// Element type.
    pub dtype: Option<String>,
    /// Shape, where the jit records one (a flat input has none).
    pub shape: Option<Vec<u64>>,
    /// Number of elements, where the jit records it.
    pub elements: Option<u64>,
    /// Device that the input must be on.
    pub device: Option<String>,
}

/// One captured jit.
#[derive(Debug, Clone, Serialize)]
pub struct JitView {
    /// The class that it is pickled as.
    pub class: String,
    /// Devices of its buffers, inputs and programs.
    pub devices: BTreeSet<String>,
    /// The inputs, in the order in which it checks them.
    pub inputs: Vec<JitInput>,
    /// Distinct compiled programs.
    pub kernels: Vec<Kernel>,
    /// Steps of one run: launches and copies.
    pub steps: usize,
    /// Steps that launch a kernel.
    pub launches: usize,
    /// Memory that it carries.
    pub buffers: Buffers,
    /// Contents of buffers, in stream order.
    #[serde(skip)]
    pub(crate) contents: Vec<Payload>,
}

/// Elements of a 3x3 matrix.
const MATRIX: u64 = 9;

const JIT: &[u8] = b"tinygrad.engine.jit";

/// Whether a value is a pickled jit.
pub(super) fn is_jit(graph: &Graph, id: NodeId) -> bool {
    graph.class_of(id).is_some_and(|class| {
        class.module.as_bytes() == JIT && matches!(class.name.as_bytes(), b"TinyJit" | b"_TinyJit")
    })
}

impl JitView {
    pub(crate) fn read(graph: &Graph, id: NodeId) -> JitView {
        let mut walk = Walk {
            graph,
            seen: vec![false; graph.len()],
            sizes: Vec::new(),
            view: JitView {
                class: graph.class_of(id).map(|class| class.to_string()).unwrap_or_default(),
                devices: BTreeSet::new(),
                inputs: Vec::new(),
                kernels: Vec::new(),
                steps: 0,
                launches: 0,
                buffers: Buffers::default(),
                contents: Vec::new(),
            },
        };
        walk.all(id);
        walk.captured(id);
        walk.view.contents.sort_by_key(|payload| payload.offset);
        walk.view
    }

    pub(super) fn findings(&self, place: &str) -> Vec<Finding> {
        let mut findings = Vec::new();
        if self.kernels.is_empty() {
            findings.push(Finding::error("jit.empty", place, "the jit has no kernels: nothing was captured"));
        }
        if self.buffers.misfits > 0 {
            let message =
                format!("{} buffers carry more or fewer bytes than they hold", self.buffers.misfits);
            findings.push(Finding::error("jit.buffer", place, message));
        }
        if self.steps == 0 {
            findings.push(Finding::error("jit.steps", place, "the jit has no steps to run"));
        }
        findings
    }

    /// Inputs that are a projection matrix: nine floats.
    pub(super) fn matrices(&self) -> usize {
        self.inputs.iter().filter(|input| input.elements == Some(MATRIX)).count()
    }

    /// Whether an input is the luminance image that a driver-monitoring warp makes.
    pub(super) fn takes_dm_image(&self) -> bool {
        let (width, height) = DM_WARP_TARGET;
        let pixels = u64::from(width) * u64::from(height);
        self.inputs.iter().any(|input| input.elements == Some(pixels))
    }

    /// The camera whose frames a warp takes; `None` where no input has the size of one.
    #[must_use]
    pub fn camera(&self) -> Option<Camera> {
        let of_frame = |camera: &Camera| {
            let size = Some(camera.frame_size());
            self.inputs.iter().any(|input| input.elements == size)
        };
        CAMERAS.into_iter().find(of_frame)
    }

    /// An input by name.
    #[must_use]
    pub fn input(&self, name: &str) -> Option<&JitInput> {
        self.inputs.iter().find(|input| input.name == name)
    }
}

pub(super) struct Walk<'g> {
    pub(super) graph: &'g Graph,
    seen: Vec<bool>,
    /// Input slot to number of elements.
    pub(super) sizes: Vec<(i64, u64)>,
    pub(super) view: JitView,
}

impl<'g> Walk<'g> {
    /// Visits everything that is reachable, once.
    fn all(&mut self, from: NodeId) {
        let mut pending = vec![from];
        while let Some(id) = pending.pop() {
            if std::mem::replace(&mut self.seen[id.index()], true) {
                continue;
            }
            match self.graph.value(id) {
                Value::Tuple(items) | Value::List(items) | Value::Set(items) | Value::FrozenSet(items) => {
                    pending.extend_from_slice(items);
                }
                Value::Dict(pairs) => pending.extend(pairs.iter().flat_map(|(key, value)| [*key, *value])),
                Value::Object(object) => {
                    self.object(id, object);
                    pending.push(object.args);
                    pending.extend(object.state);
                }
                _ => {}
            }
        }
    }

    fn object(&mut self, id: NodeId, object: Object<'g>) {
        let Some(class) = self.graph.as_global(object.callable) else { return };
        let args = self.graph.as_tuple(object.args).unwrap_or_default();
        match class.name.as_bytes() {
            b"UOp" => self.operation(args),
            b"Buffer" => self.buffer(args),
            b"ParamArg" | b"Target" => self.device(self.graph.attribute(id, "device")),
            b"CompiledRunner" => self.compiled_runner(args),
            _ => {}
        }
    }

    fn device(&mut self, id: Option<NodeId>) {
        if let Some(device) = id.and_then(|id| self.graph.as_str(id)).filter(|device| !device.is_empty()) {
            self.view.devices.insert(device.to_owned());
        }
    }

    /// `Buffer(device, size, dtype, opaque, options, initial_value, ...)`
    fn buffer(&mut self, args: &[NodeId]) {
        self.device(args.first().copied());
        self.view.buffers.count += 1;
        if let Some(contents) = args.get(5).and_then(|id| self.contents(*id)) {
            if self.buffer_size(args).is_some_and(|size| size != contents.len) {
                self.view.buffers.misfits += 1;
            }
            self.view.buffers.carried += 1;
            self.view.buffers.bytes += contents.len;
            self.view.contents.push(contents);
        }
    }

    /// Elements times the bits of the type, in bytes.
    fn buffer_size(&self, args: &[NodeId]) -> Option<u64> {
        let elements = u64::try_from(self.graph.as_int(*args.get(1)?)?).ok()?;
        let dtype = self.graph.args_of(*args.get(2)?, "tinygrad.dtype", "DType")?;
        let bits = u64::try_from(self.graph.as_int(*dtype.get(1)?)?).ok()?;
        Some(elements.checked_mul(bits.max(8))? / 8)
    }

    /// Bytes, an out-of-band buffer, or a bytearray made of bytes.
    fn contents(&self, id: NodeId) -> Option<Payload> {
        let inner = self.graph.args_of(id, "builtins", "bytearray").and_then(|args| args.first().copied());
        self.graph.as_payload(inner.unwrap_or(id))
    }

    /// `UOp(op, dtype, src, arg, ...)`: programs by their `ProgramInfo`, input slots by their `ParamArg`.
    fn operation(&mut self, args: &'g [NodeId]) {
        let [_, _, sources, arg, ..] = args else { return };
        let Some(class) = self.graph.class_of(*arg) else { return };
        let sources = self.graph.as_tuple(*sources).unwrap_or_default();
        match class.name.as_bytes() {
            b"ProgramInfo" => self.program(sources, *arg),
            b"ParamArg" => {
                let slot = self.graph.attribute(*arg, "slot").and_then(|slot| self.graph.as_int(slot));
                let size = sources.first().and_then(|size| self.constant(*size));
                self.sizes.extend(slot.zip(size));
            }
            _ => {}
        }
    }

    fn program(&mut self, sources: &[NodeId], info: NodeId) {
        let graph = self.graph;
        let name = graph.attribute(info, "name").and_then(|name| graph.as_str(name)).unwrap_or("?");
        let parts: Vec<NodeId> = sources.iter().filter_map(|id| self.operation_arg(*id)).collect();
        let is_source =
            |id: &&NodeId| graph.as_text(**id).is_some_and(|text| text.as_bytes().contains(&b'\n'));
        let source = parts.iter().find(is_source).copied();
        let binary = parts.iter().find(|id| graph.as_payload(**id).is_some()).copied();
        self.view.kernels.push(Kernel::new(graph, name, source, binary));
    }

    /// `CompiledRunner(ProgramSpec)` of older revisions; still older ones gave the compiled code as a second argument.
    fn compiled_runner(&mut self, args: &[NodeId]) {
        let [spec, rest @ ..] = args else { return };
        let graph = self.graph;
        let name = graph.attribute(*spec, "name").and_then(|name| graph.as_str(name)).unwrap_or("?");
        let binary = rest.first().copied().filter(|id| graph.as_payload(*id).is_some());
        let binary = binary.or_else(|| graph.attribute(*spec, "lib"));
        self.view.kernels.push(Kernel::new(graph, name, graph.attribute(*spec, "src"), binary));
        self.device(graph.attribute(*spec, "device"));
    }

    pub(super) fn operation_arg(&self, id: NodeId) -> Option<NodeId> {
        self.graph.args_of(id, "tinygrad.uop.ops", "UOp")?.get(3).copied()
    }

    pub(super) fn operation_sources(&self, id: NodeId) -> &'g [NodeId] {
        let args = self.graph.args_of(id, "tinygrad.uop.ops", "UOp");
        args.and_then(|args| args.get(2)).and_then(|src| self.graph.as_tuple(*src)).unwrap_or_default()
    }

    pub(super) fn constant(&self, id: NodeId) -> Option<u64> {
        let value = self.graph.as_int(self.operation_arg(id)?)?;
        if self.operation_sources(id).is_empty() { u64::try_from(value).ok() } else { None }
    }
}

impl Graph {
    /// An attribute from an object's state: a dict, or the slots behind it.
    #[must_use]
    pub fn attribute(&self, object: NodeId, name: &str) -> Option<NodeId> {
        let state = self.as_object(object)?.state?;
        match self.value(state) {
            Value::Tuple([own, slots]) => self.get(*slots, name).or_else(|| self.get(*own, name)),
            _ => self.get(state, name),
        }
    }
}
