//! Inputs and outputs: names, element types, shapes.

use std::fmt;

use serde::Serialize;

/// Element type of a tensor, by ONNX's own number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct ElementType(pub u64);

impl ElementType {
    /// 32-bit float.
    pub const FLOAT: ElementType = ElementType(1);
    /// Unsigned byte: camera images.
    pub const UINT8: ElementType = ElementType(2);
    /// 16-bit float.
    pub const FLOAT16: ElementType = ElementType(10);

    /// The name as numpy spells it, where there is one.
    #[must_use]
    pub fn name(self) -> Option<&'static str> {
        const NAMES: [&str; 16] = [
            "float32",
            "uint8",
            "int8",
            "uint16",
            "int16",
            "int32",
            "int64",
            "str",
            "bool",
            "float16",
            "float64",
            "uint32",
            "uint64",
            "complex64",
            "complex128",
            "bfloat16",
        ];
        let at = usize::try_from(self.0).ok()?.checked_sub(1)?;
        NAMES.get(at).copied()
    }
}

impl fmt::Display for ElementType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "element type {}", self.0),
        }
    }
}

impl Serialize for ElementType {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// One axis of a shape.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Dim {
    /// A fixed size.
    Fixed(u64),
    /// A size that is named and decided later.
    Symbolic(String),
    /// A size that is not given at all.
    Unknown,
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Dim::Fixed(size) => write!(f, "{size}"),
            Dim::Symbolic(name) => f.write_str(name),
            Dim::Unknown => f.write_str("?"),
        }
    }
}

/// An input or output of the graph.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TensorInfo {
    /// Its name.
    pub name: String,
    /// Element type.
    pub dtype: ElementType,
    /// Shape; `None` where the file gives none (or the value is no tensor).
    pub shape: Option<Vec<Dim>>,
}

/// Where the bytes of a weight lie in the file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Weight {
    /// Its name.
    pub name: String,
    /// Element type.
    pub dtype: ElementType,
    /// Offset from the start of the file.
    pub offset: u64,
    /// Length in bytes; 0 where the values are not stored as plain bytes.
    pub len: u64,
}

impl Weight {
    /// Smaller ones, of which there are many, are not listed.
    pub const SMALLEST: u64 = 1 << 10;
}

impl TensorInfo {
    /// The shape, where every axis is fixed; exporters write 0 for an axis that they do not know.
    #[must_use]
    pub fn fixed_shape(&self) -> Option<Vec<u64>> {
        let fixed = |dim: &Dim| match dim {
            Dim::Fixed(size) if *size > 0 => Some(*size),
            _ => None,
        };
        self.shape.as_ref()?.iter().map(fixed).collect()
    }

    /// The shape as text, such as `(1, 12, 128, 256)` or `(batch, ?)`.
    #[must_use]
    pub fn shape_text(&self) -> String {
        match &self.shape {
            Some(dims) => format!("({})", dims.iter().map(Dim::to_string).collect::<Vec<_>>().join(", ")),
            None => "no shape".to_owned(),
        }
    }
}
