//! Metadata of one ONNX model as artifacts carry it: checkpoint, output slices, input and output shapes.

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

/// A Python slice over the last axis of a model's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SliceSpec {
    /// First index; `None` is the beginning, a negative value counts from the end.
    pub start: Option<i64>,
    /// End index, exclusive; `None` is the end, a negative value counts from the end.
    pub stop: Option<i64>,
    /// Distance between indices; `None` is 1.
    pub step: Option<i64>,
}

/// A slice that does not fit the output that it is applied to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SliceError {
    /// The step is not 1.
    #[error("slice {slice} has step {step}; only 1 is used in driving models")]
    Step {
        /// The slice as Python prints it.
        slice: String,
        /// Its step.
        step: i64,
    },
    /// Start or stop lies outside the output.
    #[error("slice {slice} does not fit an output that is {width} wide")]
    OutOfRange {
        /// The slice as Python prints it.
        slice: String,
        /// Width of the output in elements.
        width: u64,
    },
    /// Stop lies before start.
    #[error("slice {slice} of an output {width} wide ends before it starts")]
    Reversed {
        /// The slice as Python prints it.
        slice: String,
        /// Width of the output in elements.
        width: u64,
    },
}

impl SliceSpec {
    /// The slice from `start` to `stop`.
    pub const fn new(start: Option<i64>, stop: Option<i64>) -> Self {
        Self { start, stop, step: None }
    }

    /// The index range of the slice in an output of `width` elements.
    ///
    /// Python clips a slice that reaches too far; a driving model whose slice does so is wrong, so this refuses it.
    ///
    /// # Errors
    /// [`SliceError`] for a step other than 1, an index outside the width, or a stop before the start.
    pub fn resolve(self, width: u64) -> Result<std::ops::Range<u64>, SliceError> {
        if let Some(step) = self.step.filter(|&step| step != 1) {
            return Err(SliceError::Step { slice: self.to_string(), step });
        }
        let index = |value: Option<i64>, default: u64| match value {
            None => Some(default),
            Some(index) if index < 0 => width.checked_sub(index.unsigned_abs()),
            Some(index) => u64::try_from(index).ok().filter(|&index| index <= width),
        };
        let (start, stop) = index(self.start, 0)
            .zip(index(self.stop, width))
            .ok_or_else(|| SliceError::OutOfRange { slice: self.to_string(), width })?;
        if start <= stop {
            Ok(start..stop)
        } else {
            Err(SliceError::Reversed { slice: self.to_string(), width })
        }
    }
}

impl std::fmt::Display for SliceSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let side = |value: Option<i64>| value.map(|v| v.to_string()).unwrap_or_default();
        write!(f, "{}:{}", side(self.start), side(self.stop))?;
        self.step.map_or(Ok(()), |step| write!(f, ":{step}"))
    }
}

/// What an artifact says of one of its models (`M` in the artifact layout). Maps keep the order of the ONNX file.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ModelMetadata {
    /// The training checkpoint that the model was exported from; absent in some models.
    pub model_checkpoint: Option<String>,
    /// Named slices of the output's last axis.
    pub output_slices: IndexMap<String, SliceSpec>,
    /// Input name to shape.
    pub input_shapes: IndexMap<String, Vec<u64>>,
    /// Output name to shape.
    pub output_shapes: IndexMap<String, Vec<u64>>,
}

impl ModelMetadata {
    /// Width of the output that the slices apply to: the last axis of `outputs`, or of the only output.
    pub fn output_width(&self) -> Option<u64> {
        let shape = match self.output_shapes.get("outputs") {
            Some(shape) => shape,
            None if self.output_shapes.len() == 1 => &self.output_shapes[0],
            None => return None,
        };
        shape.last().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn open_and_negative_ends_resolve() {
        assert_eq!(SliceSpec::new(Some(1064), Some(1576)).resolve(1576).unwrap(), 1064..1576);
        assert_eq!(SliceSpec::new(Some(0), None).resolve(1576).unwrap(), 0..1576);
        assert_eq!(SliceSpec::new(Some(-2), None).resolve(1000).unwrap(), 998..1000);
        assert_eq!(
            SliceSpec { step: Some(1), ..SliceSpec::new(None, Some(-2)) }.resolve(1000).unwrap(),
            0..998
        );
    }

    #[test]
    fn slices_outside_the_output_are_refused() {
        for (start, stop) in
            [(Some(0), Some(1001)), (Some(1001), None), (Some(-1001), None), (Some(5), Some(4))]
        {
            assert!(SliceSpec::new(start, stop).resolve(1000).is_err(), "{start:?}:{stop:?}");
        }
        assert!(SliceSpec { step: Some(2), ..SliceSpec::new(None, None) }.resolve(10).is_err());
        assert!(SliceSpec::new(Some(i64::MIN), None).resolve(10).is_err());
    }

    proptest! {
        #[test]
        fn a_resolved_slice_lies_inside(start: Option<i64>, stop: Option<i64>, width: u64) {
            if let Ok(range) = SliceSpec::new(start, stop).resolve(width) {
                prop_assert!(range.start <= range.end && range.end <= width);
            }
        }
    }
}
