//! Whether the outputs are those that the runtime reads.

use model_catalog::{ModelType, PolicyKey, SliceError};

use super::{CONTROL_OUTPUTS, DM_OUTPUTS, REQUIRED_OUTPUTS};
use crate::{Check, Recording, Verdict, decode::layout_of, recording::Slice};

pub(super) fn judge(
    recording: &Recording,
    slices: &[Slice],
    bad: &[(PolicyKey, String, SliceError)],
) -> Vec<Verdict> {
    let mut found = Vec::new();
    let has = |name: &str| slices.iter().any(|slice| slice.name == name && !slice.range.is_empty());
    let required: &[&str] = if recording.model_type.is_some() { &REQUIRED_OUTPUTS } else { &DM_OUTPUTS };
    for name in required.iter().filter(|name| !has(name)) {
        found.push(Verdict {
            slice: Some((*name).to_owned()),
            ..Verdict::failure(Check::Missing, "the required output is missing")
        });
    }
    for slice in slices.iter().filter(|slice| !slice.range.is_empty()) {
        if layout_of(&slice.name, slice.range.len()).is_none() {
            let text = format!("{} values are of no generation of models", slice.range.len());
            found.push(Verdict::failure(Check::Shape, text).in_slice(slice.output, &slice.name));
        }
    }
    if recording.model_type.is_some() && !CONTROL_OUTPUTS.iter().any(|name| has(name)) {
        let text = format!("no output controls the car: one of {} is needed", CONTROL_OUTPUTS.join(", "));
        found.push(Verdict::failure(Check::NoControl, text));
    }
    found.extend(bad.iter().map(|(output, name, error)| {
        Verdict::failure(Check::Layout, error.to_string()).in_slice(*output, name)
    }));
    let expected = recording.model_type.map_or(&[PolicyKey::Model][..], ModelType::metadata_keys);
    for run in &recording.cameras {
        for key in expected {
            let text = match (run.outputs.get(key), recording.metadata.get(key)) {
                (None, _) => format!("the artifact gave no output {key}"),
                (_, None) => format!("the artifact has no metadata of {key}"),
                (Some(series), Some(_)) if series.steps() == 0 => format!("output {key} has no step"),
                (Some(series), Some(metadata)) => match metadata.output_width() {
                    Some(width) if width != series.width() as u64 => {
                        format!("output {key} is {} wide; its metadata says {width}", series.width())
                    }
                    _ => continue,
                },
            };
            found
                .push(Verdict { output: Some(*key), ..Verdict::failure(Check::Layout, text) }.on(run.camera));
        }
    }
    if recording.cameras.is_empty() {
        found.push(Verdict::failure(Check::Layout, "no camera was run"));
    }
    found
}
