//! A writer for the small pickles that belong to a model: output slices and metadata.
//!
//! Protocol 4, one frame, the module and the class `slice` memoised once: what Python's own pickler reads back to
//! equal values. No time, no address, no hash order enters, so equal metadata gives equal bytes.

use indexmap::IndexMap;
use model_catalog::{ModelMetadata, SliceSpec};

use crate::read::op;

/// Pickles a `dict[str, slice]`.
#[must_use]
pub fn encode_slices(slices: &IndexMap<String, SliceSpec>) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.slices(slices);
    writer.finish()
}

/// Pickles a metadata dict: `model_checkpoint`, `output_slices`, `input_shapes`, `output_shapes`.
#[must_use]
pub fn encode_metadata(metadata: &ModelMetadata) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.dict(|w| {
        w.string("model_checkpoint");
        match &metadata.model_checkpoint {
            Some(text) => w.string(text),
            None => w.body.push(op::NONE),
        }
        w.string("output_slices");
        w.slices(&metadata.output_slices);
        w.string("input_shapes");
        w.shapes(&metadata.input_shapes);
        w.string("output_shapes");
        w.shapes(&metadata.output_shapes);
    });
    writer.finish()
}

#[derive(Default)]
struct Writer {
    body: Vec<u8>,
    /// Whether the class `slice` is memo entry 0 already.
    has_slice: bool,
}

impl Writer {
    fn finish(mut self) -> Vec<u8> {
        self.body.push(op::STOP);
        let mut out = vec![op::PROTO, 4, op::FRAME];
        out.extend_from_slice(&(self.body.len() as u64).to_le_bytes());
        out.append(&mut self.body);
        out
    }

    fn dict(&mut self, items: impl FnOnce(&mut Self)) {
        self.body.extend_from_slice(&[op::EMPTY_DICT, op::MARK]);
        items(self);
        self.body.push(op::SETITEMS);
    }

    fn string(&mut self, text: &str) {
        match u8::try_from(text.len()) {
            Ok(len) => self.body.extend_from_slice(&[op::SHORT_BINUNICODE, len]),
            Err(_) => {
                self.body.push(op::BINUNICODE8);
                self.body.extend_from_slice(&(text.len() as u64).to_le_bytes());
            }
        }
        self.body.extend_from_slice(text.as_bytes());
    }

    fn int(&mut self, value: i128) {
        if let Ok(small) = u8::try_from(value) {
            self.body.extend_from_slice(&[op::BININT1, small]);
        } else if let Ok(middle) = i32::try_from(value) {
            self.body.push(op::BININT);
            self.body.extend_from_slice(&middle.to_le_bytes());
        } else {
            self.body.extend_from_slice(&[op::LONG1, 16]);
            self.body.extend_from_slice(&value.to_le_bytes());
        }
    }

    fn bound(&mut self, value: Option<i64>) {
        match value {
            Some(value) => self.int(i128::from(value)),
            None => self.body.push(op::NONE),
        }
    }

    fn slices(&mut self, slices: &IndexMap<String, SliceSpec>) {
        self.dict(|w| {
            for (name, slice) in slices {
                w.string(name);
                w.slice_class();
                for bound in [slice.start, slice.stop, slice.step] {
                    w.bound(bound);
                }
                w.body.extend_from_slice(&[op::TUPLE3, op::REDUCE]);
            }
        });
    }

    fn slice_class(&mut self) {
        if self.has_slice {
            self.body.extend_from_slice(&[op::BINGET, 0]);
            return;
        }
        self.string("builtins");
        self.string("slice");
        self.body.extend_from_slice(&[op::STACK_GLOBAL, op::MEMOIZE]);
        self.has_slice = true;
    }

    fn shapes(&mut self, shapes: &IndexMap<String, Vec<u64>>) {
        self.dict(|w| {
            for (name, shape) in shapes {
                w.string(name);
                w.body.push(op::MARK);
                for dim in shape {
                    w.int(i128::from(*dim));
                }
                w.body.push(op::TUPLE);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{decode_metadata, decode_slices};
    use proptest::prelude::*;

    fn slice() -> impl Strategy<Value = SliceSpec> {
        (any::<Option<i64>>(), any::<Option<i64>>(), any::<Option<i64>>())
            .prop_map(|(start, stop, step)| SliceSpec { start, stop, step })
    }

    fn shapes() -> impl Strategy<Value = IndexMap<String, Vec<u64>>> {
        let dims = prop::collection::vec(0..=i64::MAX as u64, 0..6);
        prop::collection::vec((".{0,40}", dims), 0..8).prop_map(|items| items.into_iter().collect())
    }

    fn slices() -> impl Strategy<Value = IndexMap<String, SliceSpec>> {
        prop::collection::vec((".{0,80}", slice()), 0..20).prop_map(|items| items.into_iter().collect())
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(
            checkpoint in prop::option::of(".{0,300}"),
            output_slices in slices(),
            input_shapes in shapes(),
            output_shapes in shapes(),
        ) {
            prop_assert_eq!(&decode_slices(&encode_slices(&output_slices)).unwrap(), &output_slices);
            let metadata =
                ModelMetadata { model_checkpoint: checkpoint, output_slices, input_shapes, output_shapes };
            prop_assert_eq!(decode_metadata(&encode_metadata(&metadata)).unwrap(), metadata);
        }
    }
}
