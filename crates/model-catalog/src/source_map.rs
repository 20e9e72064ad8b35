//! Source maps (where each model's ONNX comes from) and release maps (what recovered sources are called in a release).

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{InputFormat, ModelId, Variant};

/// Why a source map was refused.
#[derive(Debug, thiserror::Error)]
pub enum SourceMapError {
    /// The text is not JSON of the expected schema.
    #[error(
        "the source map is not valid: {0}; each entry needs \"ref\" and \"input_format\" (split or supercombo)"
    )]
    Json(#[from] serde_json::Error),
    /// One ID stands in two maps with different sources.
    #[error("model {id} has two different sources: {first} and {second}; remove one of the two entries")]
    Conflict {
        /// The ID that both maps have.
        id: ModelId,
        /// The ref in the first map.
        first: String,
        /// The ref in the second map.
        second: String,
    },
}

/// Where one model's sources are.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SourceEntry {
    /// A 40-digit commit ID, or a branch, tag or short hash.
    #[serde(rename = "ref")]
    pub git_ref: String,
    /// Split or supercombo.
    pub input_format: InputFormat,
    /// Whether the `big_` files are meant: the model then needs an external GPU.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub uses_external_gpu: bool,
    /// Fields that this version does not know; they are kept.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl SourceEntry {
    /// Which files of the repository the entry means.
    pub fn variant(&self) -> Variant {
        Variant::for_external_gpu(self.uses_external_gpu)
    }
}

/// A source map: model ID to source, in the order of its file.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SourceMap {
    /// The entries.
    pub entries: IndexMap<ModelId, SourceEntry>,
}

impl SourceMap {
    /// Parses the JSON text of a source map.
    ///
    /// # Errors
    /// [`SourceMapError::Json`] where the text has another schema or an invalid ID.
    pub fn from_json(text: &str) -> Result<Self, SourceMapError> {
        Ok(serde_json::from_str(text)?)
    }

    /// Adds the entries of another map behind those of this one. An equal entry is kept once.
    ///
    /// # Errors
    /// [`SourceMapError::Conflict`] where both maps have an ID with different sources; nothing is changed then.
    pub fn merge(&mut self, other: Self) -> Result<(), SourceMapError> {
        let conflict = other.entries.iter().find_map(|(id, second)| {
            let first = self.entries.get(id).filter(|first| *first != second)?;
            Some(SourceMapError::Conflict {
                id: id.clone(),
                first: first.git_ref.clone(),
                second: second.git_ref.clone(),
            })
        });
        if let Some(conflict) = conflict {
            return Err(conflict);
        }
        self.entries.extend(other.entries);
        Ok(())
    }
}

/// Source ID to release ID, for sources whose release name does not follow from the namespace's suffix.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ReleaseMap {
    /// The mappings, in the order of the file.
    pub entries: IndexMap<ModelId, ModelId>,
}

impl ReleaseMap {
    /// Parses the JSON text of a release map.
    ///
    /// # Errors
    /// The JSON error where the text is not an object of valid IDs.
    pub fn from_json(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAP: &str = r#"{"b": {"ref": "main", "input_format": "split", "note": [1]},
        "a": {"ref": "v1", "input_format": "supercombo", "uses_external_gpu": true}}"#;

    #[test]
    fn order_and_unknown_fields_are_kept() {
        let map = SourceMap::from_json(MAP).unwrap();
        let again = serde_json::to_string(&map).unwrap();
        assert_eq!(
            again,
            r#"{"b":{"ref":"main","input_format":"split","note":[1]},"a":{"ref":"v1","input_format":"supercombo","uses_external_gpu":true}}"#
        );
    }

    #[test]
    fn a_conflict_changes_nothing() {
        let mut map = SourceMap::from_json(MAP).unwrap();
        let before = map.clone();
        let other = SourceMap::from_json(
            r#"{"c": {"ref": "x", "input_format": "split"}, "b": {"ref": "other", "input_format": "split"}}"#,
        );
        let refused = map.merge(other.unwrap()).unwrap_err().to_string();
        assert!(refused.contains("main") && refused.contains("other"), "{refused}");
        assert_eq!(map, before);
        map.merge(before.clone()).unwrap();
        assert_eq!(map, before);
    }

    #[test]
    fn hostile_ids_do_not_get_in() {
        assert!(SourceMap::from_json(r#"{"../x": {"ref": "main", "input_format": "split"}}"#).is_err());
    }
}
