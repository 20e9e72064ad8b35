//! What is known of a model without its weights, and the metadata that its artifact will carry.

use std::collections::BTreeMap;
use std::io::{Read, Seek};
use std::ops::Range;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use camino::{Utf8Path, Utf8PathBuf};
use indexmap::IndexMap;
use model_catalog::{ModelMetadata, SliceSpec};
use serde::Serialize;

use crate::error::{Fault, OnnxError, Refusal};
use crate::tensor::{TensorInfo, Weight};
use crate::walk::Walk;
use crate::wire::{Source, Wire};

/// A version of an operator set.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Opset {
    /// Its domain; empty is ONNX's own.
    pub domain: String,
    /// Its version.
    pub version: i64,
}

/// A model that passed the preflight.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct OnnxModel {
    /// Where it was read from.
    pub path: Utf8PathBuf,
    /// Size of the file in bytes.
    pub size: u64,
    /// Version of the format.
    pub ir_version: i64,
    /// The program that wrote it.
    pub producer_name: String,
    /// That program's version.
    pub producer_version: String,
    /// Domain of the model.
    pub domain: String,
    /// Version of the model within its domain.
    pub model_version: i64,
    /// Operator sets.
    pub opsets: Vec<Opset>,
    /// Name of the graph.
    pub graph_name: String,
    /// Inputs in the file's order; weights that are listed as inputs are left out.
    pub inputs: Vec<TensorInfo>,
    /// Outputs in the file's order.
    pub outputs: Vec<TensorInfo>,
    /// The metadata properties, as they stand in the file.
    pub properties: IndexMap<String, String>,
    /// Nodes of the graph (sub-graphs apart).
    pub nodes: u64,
    /// Operator, with its domain unless that is ONNX's own, to number of uses.
    pub operators: BTreeMap<String, u64>,
    /// Number of weights.
    pub initializers: u64,
    /// Bytes of tensor data in the file.
    pub weight_bytes: u64,
    /// The weights of the graph itself that are stored as plain bytes, from [`Weight::SMALLEST`] on.
    #[serde(skip)]
    pub weights: Vec<Weight>,
}

impl OnnxModel {
    /// Reads what is not weights. Time and memory do not grow with the weights.
    ///
    /// # Errors
    /// [`OnnxError`] for a file that is empty, an LFS pointer, truncated, damaged, no ONNX, without a graph, with an
    /// empty graph, or with data in other files.
    pub fn open(path: &Utf8Path) -> Result<OnnxModel, OnnxError> {
        let mut file = std::fs::File::open(path).map_err(|e| Refusal::new(0, Fault::Io(e)).of(path))?;
        Self::read(&mut file, path)
    }

    /// The same over any reader that can seek; `path` is for messages.
    ///
    /// # Errors
    /// As [`OnnxModel::open`].
    pub fn read<S: Read + Seek>(source: &mut S, path: &Utf8Path) -> Result<OnnxModel, OnnxError> {
        let mut model = read(source).map_err(|refusal| refusal.of(path))?;
        model.path = path.to_owned();
        Ok(model)
    }

    /// An input by name.
    #[must_use]
    pub fn input(&self, name: &str) -> Option<&TensorInfo> {
        self.inputs.iter().find(|tensor| tensor.name == name)
    }

    /// An output by name.
    #[must_use]
    pub fn output(&self, name: &str) -> Option<&TensorInfo> {
        self.outputs.iter().find(|tensor| tensor.name == name)
    }

    /// The metadata that the artifact will carry: slices as the file has them (checked against the output's width),
    /// fixed shapes, the checkpoint where it is named.
    ///
    /// # Errors
    /// [`OnnxError`] for missing or refused `output_slices`, a slice outside of the output, or a shape that is not
    /// fixed.
    pub fn metadata(&self) -> Result<ModelMetadata, OnnxError> {
        let metadata = ModelMetadata {
            model_checkpoint: self.properties.get("model_checkpoint").cloned(),
            output_slices: self.decode_slices()?,
            input_shapes: self.shapes(&self.inputs)?,
            output_shapes: self.shapes(&self.outputs)?,
        };
        self.resolve(&metadata)?;
        Ok(metadata)
    }

    /// Name to index range of every output slice, in the file's order.
    ///
    /// # Errors
    /// As [`OnnxModel::metadata`].
    pub fn resolved_slices(&self) -> Result<IndexMap<String, Range<u64>>, OnnxError> {
        self.resolve(&self.metadata()?)
    }

    fn refuse(&self, fault: Fault) -> OnnxError {
        Refusal::new(0, fault).of(&*self.path)
    }

    fn decode_slices(&self) -> Result<IndexMap<String, SliceSpec>, OnnxError> {
        let text = self.properties.get("output_slices").ok_or_else(|| self.refuse(Fault::NoOutputSlices))?;
        // Python's codec breaks lines every 76 characters.
        let dense: String = text.chars().filter(|c| !c.is_ascii_whitespace()).collect();
        let bytes = STANDARD.decode(dense).map_err(|e| self.refuse(Fault::Base64(e)))?;
        artifact_pickle::decode_slices(&bytes).map_err(|e| self.refuse(Fault::Slices(e)))
    }

    fn shapes(&self, tensors: &[TensorInfo]) -> Result<IndexMap<String, Vec<u64>>, OnnxError> {
        let shape = |tensor: &TensorInfo| match tensor.fixed_shape() {
            Some(shape) => Ok((tensor.name.clone(), shape)),
            None => {
                Err(self.refuse(Fault::Shape { tensor: tensor.name.clone(), shape: tensor.shape_text() }))
            }
        };
        tensors.iter().map(shape).collect()
    }

    fn resolve(&self, metadata: &ModelMetadata) -> Result<IndexMap<String, Range<u64>>, OnnxError> {
        let width = metadata.output_width().ok_or_else(|| {
            let names: Vec<_> = metadata.output_shapes.keys().cloned().collect();
            self.refuse(Fault::SlicedOutput(names.join(", ")))
        })?;
        let resolve = |(name, slice): (&String, &SliceSpec)| {
            let range = slice.resolve(width);
            let range = range.map_err(|error| self.refuse(Fault::Slice { name: name.clone(), error }))?;
            Ok((name.clone(), range))
        };
        metadata.output_slices.iter().map(resolve).collect()
    }
}

fn read(source: &mut dyn Source) -> Result<OnnxModel, Refusal> {
    let mut wire = Wire::new(source)?;
    if wire.size() == 0 {
        return Err(Refusal::new(0, Fault::Empty));
    }
    let (size, start) = (wire.size(), wire.peek()?);
    if let Some(fault) = lfs_pointer(start, size) {
        return Err(Refusal::new(0, fault));
    }
    Walk::new(&mut wire).run()
}

/// Lenient on purpose: a pointer with other line ends, a byte-order mark or a lost line is still no model.
fn lfs_pointer(start: &[u8], size: u64) -> Option<Fault> {
    if size > 4096 {
        return None;
    }
    let text = String::from_utf8_lossy(start);
    let lines = || text.trim_start_matches('\u{feff}').lines().map(str::trim);
    if !lines().any(|line| line.starts_with("version https://git-lfs.github.com/spec")) {
        return None;
    }
    let oid = lines().find_map(|line| line.strip_prefix("oid ").map(str::to_owned));
    Some(Fault::LfsPointer { oid })
}
