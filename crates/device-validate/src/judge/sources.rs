//! Whether the artifact is of the sources that the workspace has.

use std::collections::BTreeMap;

use model_catalog::{ModelMetadata, PolicyKey};

use crate::{Check, Recording, Verdict};

/// Compares the artifact's metadata with what the ONNX files themselves say.
pub(super) fn judge(recording: &Recording, sources: &BTreeMap<PolicyKey, ModelMetadata>) -> Vec<Verdict> {
    let mut found = Vec::new();
    for (key, source) in sources {
        let Some(metadata) = recording.metadata.get(key) else { continue };
        for (name, slice) in &source.output_slices {
            let text = match metadata.output_slices.get(name) {
                None => format!("the artifact does not have this slice of its ONNX ({slice})"),
                Some(other) if other != slice => format!("the artifact has {other}, its ONNX {slice}"),
                Some(_) => continue,
            };
            found.push(Verdict::failure(Check::Slices, text).in_slice(*key, name));
        }
        for name in metadata.output_slices.keys().filter(|name| !source.output_slices.contains_key(*name)) {
            let verdict = Verdict::failure(Check::Slices, "the ONNX does not have this slice");
            found.push(verdict.in_slice(*key, name));
        }
        if metadata.model_checkpoint != source.model_checkpoint {
            let text = |checkpoint: &Option<String>| checkpoint.clone().unwrap_or_else(|| "none".to_owned());
            let text = format!(
                "{key} is of checkpoint {}, the ONNX in the workspace of {}",
                text(&metadata.model_checkpoint),
                text(&source.model_checkpoint)
            );
            found.push(Verdict { output: Some(*key), ..Verdict::failure(Check::Sources, text) });
        }
    }
    found
}
