//! One captured jit: devices, kernels, buffers and the inputs that it expects.
//!
//! Read structurally, so that jits of every known revision come out alike: by the names of classes and the places of
//! their arguments, never by operation numbers, which mean something else in each revision.

use std::collections::BTreeSet;

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
            let message = format!("{} buffers carry more or fewer bytes than they hold", self.buffers.misfits);
            findings.push(Finding::error("jit.buffer", place, message));
        }
        if self.steps == 0 {
            findings.push(Finding::error("jit.steps", place, "the jit has no steps to run"));
        }
        findings
    }

    /// An input by name.
    #[must_use]
    pub fn input(&self, name: &str) -> Option<&JitInput> {
        self.inputs.iter().find(|input| input.name == name)
    }
}

struct Walk<'g> {
    graph: &'g Graph,
    seen: Vec<bool>,
    /// Input slot to number of elements.
    sizes: Vec<(i64, u64)>,
    view: JitView,
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

    fn operation_arg(&self, id: NodeId) -> Option<NodeId> {
        self.graph.args_of(id, "tinygrad.uop.ops", "UOp")?.get(3).copied()
    }

    fn operation_sources(&self, id: NodeId) -> &'g [NodeId] {
        let args = self.graph.args_of(id, "tinygrad.uop.ops", "UOp");
        args.and_then(|args| args.get(2)).and_then(|src| self.graph.as_tuple(*src)).unwrap_or_default()
    }

    fn constant(&self, id: NodeId) -> Option<u64> {
        let value = self.graph.as_int(self.operation_arg(id)?)?;
        if self.operation_sources(id).is_empty() { u64::try_from(value).ok() } else { None }
    }

    // --- the captured part ---

    /// `TinyJit(None, CapturedJit(result, steps, ..., names, inputs))`
    fn captured(&mut self, jit: NodeId) {
        let graph = self.graph;
        let args = graph.as_object(jit).and_then(|object| graph.as_tuple(object.args)).unwrap_or_default();
        let Some(captured) = args.get(1).and_then(|id| graph.as_object(*id)) else { return };
        let Some([_, steps, .., names, inputs]) = graph.as_tuple(captured.args) else { return };
        self.count_steps(*steps, 0);
        let names = graph.as_sequence(*names).unwrap_or_default();
        for (slot, input) in graph.as_sequence(*inputs).unwrap_or_default().iter().enumerate() {
            let input = self.input(slot, names.get(slot).copied(), *input);
            self.view.devices.extend(input.device.clone());
            self.view.inputs.push(input);
        }
    }

    /// A list of items, or a linear operation whose sources are calls; a call of a graph holds a linear again.
    fn count_steps(&mut self, id: NodeId, depth: usize) {
        let graph = self.graph;
        let items = graph.as_list(id).unwrap_or_else(|| self.operation_sources(id));
        for item in items {
            let called = self.operation_sources(*item).first().copied();
            let arg = called.and_then(|id| self.operation_arg(id));
            let is_graph = arg.is_some_and(|arg| graph.as_str(arg) == Some("graph"));
            match called.and_then(|id| self.operation_sources(id).first().copied()) {
                Some(linear) if is_graph && depth < 4 => self.count_steps(linear, depth + 1),
                _ => {
                    let runner = arg.or_else(|| graph.attribute(*item, "prg"));
                    let class = runner.and_then(|id| graph.class_of(id));
                    let launches = |name: &[u8]| matches!(name, b"ProgramInfo" | b"CompiledRunner");
                    self.view.launches += usize::from(class.is_some_and(|c| launches(c.name.as_bytes())));
                    self.view.steps += 1;
                }
            }
        }
    }

    /// `(view, variables, dtype, device)`
    fn input(&self, slot: usize, name: Option<NodeId>, info: NodeId) -> JitInput {
        let graph = self.graph;
        let parts = graph.as_tuple(info).unwrap_or_default();
        let shape = parts.first().and_then(|view| self.shape(*view));
        let of_slot = self.sizes.iter().find(|(of, _)| *of == slot as i64).map(|(_, size)| *size);
        let product = shape.as_ref().and_then(|dims| dims.iter().try_fold(1u64, |a, b| a.checked_mul(*b)));
        JitInput {
            name: match name {
                Some(name) => graph.as_str(name).map_or_else(|| graph.show(name).to_string(), str::to_owned),
                None => format!("in a container, {slot}"),
            },
            dtype: parts.get(2).and_then(|dtype| self.dtype(*dtype)),
            elements: of_slot.or(product),
            shape,
            device: parts.get(3).and_then(|device| graph.as_str(*device)).map(str::to_owned),
        }
    }

    /// A reshape's second source: one size, a stack of sizes, a constant vector, or (in older revisions) one size whose
    /// type has as many lanes as there are axes.
    fn shape(&self, view: NodeId) -> Option<Vec<u64>> {
        let sizes = *self.operation_sources(view).get(1)?;
        if let Some(size) = self.constant(sizes) {
            return Some(vec![size; self.lanes(sizes)]);
        }
        let size = |id: &NodeId| self.graph.as_int(*id).and_then(|size| u64::try_from(size).ok());
        if let Some(vector) = self.operation_arg(sizes).and_then(|arg| self.graph.as_tuple(arg)) {
            return vector.iter().map(size).collect();
        }
        let stack = self.operation_sources(sizes);
        if stack.is_empty() { None } else { stack.iter().map(|id| self.constant(*id)).collect() }
    }

    /// `DType(priority, bits, name, format, lanes, scalar)` of older revisions.
    fn lanes(&self, operation: NodeId) -> usize {
        let graph = self.graph;
        let dtype = graph.args_of(operation, "tinygrad.uop.ops", "UOp").and_then(|args| args.get(1));
        let args =
            dtype.and_then(|dtype| graph.args_of(*dtype, "tinygrad.dtype", "DType")).unwrap_or_default();
        let lanes = args.get(4).and_then(|lanes| graph.as_int(*lanes)).unwrap_or(1);
        usize::try_from(lanes).ok().filter(|lanes| (1..=16).contains(lanes)).unwrap_or(1)
    }

    /// `DType(priority, bits, name, ...)`, in numpy's words.
    fn dtype(&self, id: NodeId) -> Option<String> {
        let name = self.graph.args_of(id, "tinygrad.dtype", "DType")?.get(2)?;
        let name = self.graph.as_str(*name)?;
        Some(
            match name {
                "unsigned char" => "uint8",
                "signed char" => "int8",
                "unsigned short" => "uint16",
                "short" => "int16",
                "unsigned int" => "uint32",
                "int" => "int32",
                "unsigned long" => "uint64",
                "long" => "int64",
                "half" => "float16",
                "float" => "float32",
                "double" => "float64",
                other => other,
            }
            .to_owned(),
        )
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
