//! Restricted decoders: the `output_slices` of an ONNX file and the metadata pickle of a model.
//!
//! Both are pickles only by habit of their writers. The one thing that either may name is `slice`; a pickle that names
//! anything else is refused as a whole, used or not.

use indexmap::IndexMap;
use model_catalog::{ModelMetadata, SliceSpec};

use crate::read::{Construction, Graph, Kind, Limits, NodeId, PickleError};

/// A metadata pickle that is refused.
#[derive(Debug, thiserror::Error)]
pub enum MetadataError {
    /// The bytes are no well-formed pickle.
    #[error("the pickle is malformed {0}")]
    Pickle(#[from] PickleError),
    /// It names something other than `slice`.
    #[error(
        "the pickle names {global} at byte {offset}; metadata may name nothing but slice (it was not run)"
    )]
    Refused {
        /// Module and name.
        global: String,
        /// Offset of the opcode that names it.
        offset: u64,
    },
    /// `slice` is called with something else than three integers or `None`.
    #[error("the slice made at byte {offset} is not slice(start, stop, step) of integers or None")]
    Slice {
        /// Offset of the opcode that makes it.
        offset: u64,
    },
    /// A value is of another type than expected.
    #[error("{place} is {found}, expected {expected}")]
    Type {
        /// Where in the metadata.
        place: String,
        /// What it is.
        found: Kind,
        /// What it should be.
        expected: &'static str,
    },
    /// A key stands twice.
    #[error("{place} has the key {key:?} twice")]
    Duplicate {
        /// Where in the metadata.
        place: String,
        /// The key.
        key: String,
    },
    /// A field is missing.
    #[error("the metadata has no {0}")]
    Missing(&'static str),
}

/// Decodes a pickled `dict[str, slice]` without running it.
///
/// # Errors
/// [`MetadataError`] for anything but exactly that.
pub fn decode_slices(bytes: &[u8]) -> Result<IndexMap<String, SliceSpec>, MetadataError> {
    let graph = restricted(bytes)?;
    slices_of(&graph, graph.root())
}

/// Decodes a pickled metadata dict: `output_slices`, `input_shapes`, `output_shapes` and, where present,
/// `model_checkpoint`. Other keys are ignored as long as they are plain data.
///
/// # Errors
/// [`MetadataError`] for anything else.
pub fn decode_metadata(bytes: &[u8]) -> Result<ModelMetadata, MetadataError> {
    let graph = restricted(bytes)?;
    metadata_of(&graph, graph.root())
}

fn restricted(bytes: &[u8]) -> Result<Graph, MetadataError> {
    let graph = Graph::read_bytes(bytes, &Limits::small())?;
    let slice =
        |module: &[u8], name: &[u8]| name == b"slice" && matches!(module, b"builtins" | b"__builtin__");
    if let Some(g) = graph.globals().find(|g| !slice(g.module.as_bytes(), g.name.as_bytes())) {
        return Err(MetadataError::Refused { global: g.to_string(), offset: g.offset });
    }
    check_objects(&graph)?;
    Ok(graph)
}

/// Every object must be a slice, reachable or not: the loader makes them all.
fn check_objects(graph: &Graph) -> Result<(), MetadataError> {
    for object in graph.objects() {
        let plain = object.construction == Construction::Reduce
            && graph.as_global(object.callable).is_some()
            && object.state.is_none()
            && object.items.is_empty()
            && object.pairs.is_empty();
        let args = graph.as_tuple(object.args).unwrap_or_default();
        let bounds = args.len() == 3 && args.iter().all(|id| bound(graph, *id).is_some());
        if !plain || !bounds {
            return Err(MetadataError::Slice { offset: object.offset });
        }
    }
    Ok(())
}

fn bound(graph: &Graph, id: NodeId) -> Option<Option<i64>> {
    if graph.is_none(id) { Some(None) } else { graph.as_int(id).map(Some) }
}

/// The slices under one value of a graph.
///
/// # Errors
/// [`MetadataError`] where it is not a `dict[str, slice]`.
pub fn slices_of(graph: &Graph, id: NodeId) -> Result<IndexMap<String, SliceSpec>, MetadataError> {
    entries(graph, id, "output_slices", |place, value| {
        let Some(object) = graph.as_object(value) else { return Err(wrong(graph, value, place, "a slice")) };
        let by_slice = |g: crate::Global<'_>| g.is("builtins", "slice") || g.is("__builtin__", "slice");
        let args = graph.as_tuple(object.args).unwrap_or_default();
        let bounds = match args {
            [start, stop, step] => bound(graph, *start).zip(bound(graph, *stop)).zip(bound(graph, *step)),
            _ => None,
        };
        match bounds {
            Some(((start, stop), step)) if graph.as_global(object.callable).is_some_and(by_slice) => {
                Ok(SliceSpec { start, stop, step })
            }
            _ => Err(MetadataError::Slice { offset: object.offset }),
        }
    })
}

/// The metadata under one value of a graph.
///
/// # Errors
/// [`MetadataError`] where it is no metadata dict.
pub fn metadata_of(graph: &Graph, id: NodeId) -> Result<ModelMetadata, MetadataError> {
    if graph.as_dict(id).is_none() {
        return Err(wrong(graph, id, "the metadata", "a dict"));
    }
    let field = |name: &'static str| graph.get(id, name).ok_or(MetadataError::Missing(name));
    let model_checkpoint = match graph.get(id, "model_checkpoint") {
        Some(value) if !graph.is_none(value) => {
            let text =
                graph.as_str(value).ok_or_else(|| wrong(graph, value, "model_checkpoint", "a string"))?;
            Some(text.to_owned())
        }
        _ => None,
    };
    Ok(ModelMetadata {
        model_checkpoint,
        output_slices: slices_of(graph, field("output_slices")?)?,
        input_shapes: shapes(graph, field("input_shapes")?, "input_shapes")?,
        output_shapes: shapes(graph, field("output_shapes")?, "output_shapes")?,
    })
}

fn shapes(graph: &Graph, id: NodeId, place: &str) -> Result<IndexMap<String, Vec<u64>>, MetadataError> {
    entries(graph, id, place, |place, value| {
        let expected = "a tuple of non-negative integers";
        let Some(dims) = graph.as_sequence(value) else { return Err(wrong(graph, value, place, expected)) };
        let dim = |id: &NodeId| {
            let size = graph.as_int(*id).and_then(|size| u64::try_from(size).ok());
            size.ok_or_else(|| wrong(graph, *id, place, expected))
        };
        dims.iter().map(dim).collect()
    })
}

fn entries<T>(
    graph: &Graph,
    id: NodeId,
    place: &str,
    read: impl Fn(&str, NodeId) -> Result<T, MetadataError>,
) -> Result<IndexMap<String, T>, MetadataError> {
    let pairs = graph.as_dict(id).ok_or_else(|| wrong(graph, id, place, "a dict"))?;
    let mut out = IndexMap::with_capacity(pairs.len());
    for (key, value) in pairs {
        let key = graph.as_str(*key).ok_or_else(|| wrong(graph, *key, place, "a string key"))?;
        let value = read(&format!("{place}[{key:?}]"), *value)?;
        if out.insert(key.to_owned(), value).is_some() {
            return Err(MetadataError::Duplicate { place: place.to_owned(), key: key.to_owned() });
        }
    }
    Ok(out)
}

fn wrong(graph: &Graph, id: NodeId, place: &str, expected: &'static str) -> MetadataError {
    MetadataError::Type { place: place.to_owned(), found: graph.kind(id), expected }
}
