//! The captured part of a jit: its steps, and the inputs that it checks its callers for.

use super::jit::{JitInput, Walk};
use crate::read::NodeId;

impl Walk<'_> {
    /// `TinyJit(None, CapturedJit(result, steps, ..., names, inputs))`
    pub(super) fn captured(&mut self, jit: NodeId) {
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
