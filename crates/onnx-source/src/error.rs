//! Why a file is no usable ONNX model.

use artifact_pickle::MetadataError;
use camino::Utf8PathBuf;
use model_catalog::SliceError;

/// A file that is refused, with the reason and, for damage, the place.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {fault}{}", place(.offset, .fault))]
pub struct OnnxError {
    /// The file.
    pub path: Utf8PathBuf,
    /// Byte offset of the field at fault.
    pub offset: u64,
    /// The reason.
    pub fault: Fault,
}

fn place(offset: &u64, fault: &Fault) -> String {
    if fault.is_damage() { format!(" (at byte {offset})") } else { String::new() }
}

/// A fault before it is known which file it is in.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) offset: u64,
    pub(crate) fault: Fault,
}

impl Refusal {
    pub(crate) fn new(offset: u64, fault: Fault) -> Self {
        Refusal { offset, fault }
    }

    pub(crate) fn of(self, path: impl Into<Utf8PathBuf>) -> OnnxError {
        OnnxError { path: path.into(), offset: self.offset, fault: self.fault }
    }
}

/// The reasons for which a file is refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// The file could not be opened or read.
    #[error("cannot be read: {0}")]
    Io(std::io::Error),
    /// Zero bytes.
    #[error("the file is empty; extract the model again")]
    Empty,
    /// A Git LFS pointer stands in the model's place.
    #[error("this is a Git LFS pointer{}, not the model; extract the model again", .oid.as_ref().map(|o| format!(" to {o}")).unwrap_or_default())]
    LfsPointer {
        /// The object that it points to, where that line is readable.
        oid: Option<String>,
    },
    /// The file ends inside a field.
    #[error(
        "the file is truncated: it has {size} bytes and at least {missing} more are needed; extract it again"
    )]
    Truncated {
        /// Size of the file.
        size: u64,
        /// Bytes that are certainly missing.
        missing: u64,
    },
    /// A wire type that the field cannot have, or that protobuf does not define.
    #[error("field {field} has the wire type {wire}, so this is no ONNX model or it is damaged")]
    WireType {
        /// Field number.
        field: u64,
        /// The wire type found.
        wire: u8,
    },
    /// A field number that protobuf does not allow.
    #[error("{0} is no field number, so this is no ONNX model or it is damaged")]
    FieldNumber(u64),
    /// A varint longer than 64 bits or cut by its message's end.
    #[error("a number is malformed, so this is no ONNX model or it is damaged")]
    Varint,
    /// A field that reaches past the message that it is in.
    #[error("field {field} reaches {by} bytes past the message that it is in: the file is damaged")]
    Overrun {
        /// Field number.
        field: u64,
        /// By how much.
        by: u64,
    },
    /// Text that is not UTF-8.
    #[error("the text of field {0} is not UTF-8: the file is damaged")]
    NotUtf8(u64),
    /// Text longer than anything a driving model has.
    #[error("the text of field {field} has {len} bytes, more than the {limit} that are read")]
    TooLong {
        /// Field number.
        field: u64,
        /// Length in bytes.
        len: u64,
        /// Bound in bytes.
        limit: usize,
    },
    /// More of something than any driving model has.
    #[error("the model has more than {limit} {what}")]
    TooMany {
        /// What.
        what: &'static str,
        /// Bound.
        limit: usize,
    },
    /// No graph at all.
    #[error("the file has no graph, so it is no ONNX model")]
    NoGraph,
    /// More than one graph field: readers would merge or choose.
    #[error("the file has a second graph; readers disagree about which one counts")]
    SecondGraph,
    /// A graph without nodes.
    #[error("the graph is empty: it has no nodes")]
    EmptyGraph,
    /// A graph without outputs.
    #[error("the graph has no outputs")]
    NoOutputs,
    /// Weights in another file.
    #[error(
        "tensor {tensor:?} keeps its data in another file ({location:?}); driving models carry their weights"
    )]
    ExternalData {
        /// The tensor's name.
        tensor: String,
        /// The location that it names.
        location: String,
    },
    /// `output_slices` is absent from the metadata.
    #[error("the metadata has no output_slices, so the model's outputs cannot be told apart")]
    NoOutputSlices,
    /// A metadata key stands twice.
    #[error("the metadata has {0:?} twice; readers disagree about which one counts")]
    DuplicateProperty(String),
    /// `output_slices` is not base64.
    #[error("output_slices is not base64: {0}")]
    Base64(base64::DecodeError),
    /// `output_slices` is refused by the restricted decoder.
    #[error("output_slices is refused: {0}")]
    Slices(MetadataError),
    /// A slice does not fit the output.
    #[error("output slice {name:?} is wrong: {error}")]
    Slice {
        /// Name of the slice.
        name: String,
        /// What is wrong with it.
        error: SliceError,
    },
    /// No output that slices could apply to.
    #[error("output_slices applies to an output named \"outputs\" or to the only one; the model has {0}")]
    SlicedOutput(String),
    /// A shape that is not fixed.
    #[error("{tensor:?} has no fixed shape ({shape}); a driving model is compiled for fixed shapes")]
    Shape {
        /// Name of the input or output.
        tensor: String,
        /// The shape as found.
        shape: String,
    },
}

impl Fault {
    /// Whether the bytes themselves are at fault, so that the place helps.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        use Fault::{FieldNumber, NotUtf8, Overrun, TooLong, Truncated, Varint, WireType};
        matches!(
            self,
            WireType { .. }
                | FieldNumber(_)
                | Varint
                | Overrun { .. }
                | NotUtf8(_)
                | TooLong { .. }
                | Truncated { .. }
        )
    }
}
