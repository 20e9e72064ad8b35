//! A model as text for people.

use std::fmt;

use crate::model::OnnxModel;

impl fmt::Display for OnnxModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: ONNX model, {} bytes, {} of them weights", self.path, self.size, self.weight_bytes)?;
        let opsets: Vec<_> = self.opsets.iter().map(|o| format!("{} {}", o.domain, o.version)).collect();
        let opsets = opsets.join(", ");
        let (name, version) = (&self.producer_name, &self.producer_version);
        writeln!(f, "  IR {}, opset {}, producer {name} {version}", self.ir_version, opsets.trim())?;
        writeln!(f, "  {} nodes, {} weights", self.nodes, self.initializers)?;
        for (what, tensors) in [("input", &self.inputs), ("output", &self.outputs)] {
            for tensor in tensors {
                writeln!(f, "  {what} {} {} {}", tensor.name, tensor.dtype, tensor.shape_text())?;
            }
        }
        for (key, value) in self.properties.iter().filter(|(key, _)| *key != "output_slices") {
            writeln!(f, "  {key}: {}", value.chars().take(200).collect::<String>())?;
        }
        match self.resolved_slices() {
            Ok(slices) => {
                let slices: Vec<_> = slices
                    .iter()
                    .map(|(name, range)| format!("{name} {}:{}", range.start, range.end))
                    .collect();
                writeln!(f, "  slices {}", slices.join(", "))?;
            }
            Err(error) => writeln!(f, "  REFUSED: {}", error.fault)?,
        }
        let operators: Vec<_> =
            self.operators.iter().map(|(name, count)| format!("{name} {count}")).collect();
        writeln!(f, "  operators {}", operators.join(", "))
    }
}
