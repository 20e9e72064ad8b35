//! The manifest that devices read: a list of models, with every field and its order kept.

use std::str::FromStr;

use serde_json::{Map, Value};

use crate::{BehaviorVersion, IdError, ModelId};

/// Why a manifest was refused.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// The text is not JSON.
    #[error("the manifest is not valid JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// The JSON is not an object with a list `models` of objects.
    #[error("the manifest has no list \"models\" of objects: {found}")]
    Schema {
        /// What was found instead.
        found: String,
    },
    /// An entry has no `id`, or one that is not valid.
    #[error("entry {index} of the manifest has no valid \"id\": {why}")]
    Id {
        /// Position in the list, from 0.
        index: usize,
        /// What is wrong with it.
        why: String,
    },
    /// A field has another JSON type than devices expect.
    #[error("model {id} of the manifest has {field} = {value}; {expected} is expected")]
    Field {
        /// The model.
        id: ModelId,
        /// The field.
        field: &'static str,
        /// Its JSON text.
        value: String,
        /// What it should be.
        expected: &'static str,
    },
    /// Two entries have one ID.
    #[error("the manifest lists {id} twice")]
    Duplicate {
        /// The ID.
        id: ModelId,
    },
}

/// One model of a manifest. Typed access to the known fields; all others are kept as they are.
#[derive(Debug, Clone, PartialEq)]
pub struct ManifestEntry {
    id: ModelId,
    fields: Map<String, Value>,
}

impl ManifestEntry {
    /// An entry from its fields; `id` must be among them.
    ///
    /// # Errors
    /// [`IdError`] where `id` is missing or not valid.
    pub fn from_fields(fields: Map<String, Value>) -> Result<Self, IdError> {
        let id = ModelId::new(fields.get("id").and_then(Value::as_str).unwrap_or_default())?;
        Ok(Self { id, fields })
    }

    /// The model's ID.
    pub fn id(&self) -> &ModelId {
        &self.id
    }

    /// Gives the entry another ID; every other field stays.
    pub fn set_id(&mut self, id: ModelId) {
        self.fields.insert("id".to_owned(), Value::String(id.to_string()));
        self.id = id;
    }

    /// All fields, in their order.
    pub fn fields(&self) -> &Map<String, Value> {
        &self.fields
    }

    /// Sets a field other than `id`; a new one is appended.
    ///
    /// # Panics
    /// In debug builds, when used for `id`: that is [`Self::set_id`]'s.
    pub fn set(&mut self, field: &str, value: Value) {
        debug_assert_ne!(field, "id", "set_id changes the ID");
        self.fields.insert(field.to_owned(), value);
    }

    /// Removes a field other than `id` and closes the gap; the order of the others stays.
    pub fn remove(&mut self, field: &str) -> Option<Value> {
        debug_assert_ne!(field, "id", "an entry without an ID is no entry");
        self.fields.shift_remove(field)
    }

    /// The behaviour version; `None` where the field is absent, null or empty.
    ///
    /// # Errors
    /// [`ManifestError::Field`] where the field is something else than `vN`.
    pub fn version(&self) -> Result<Option<BehaviorVersion>, ManifestError> {
        match self.fields.get("version") {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) if text.is_empty() => Ok(None),
            Some(Value::String(text)) => match BehaviorVersion::from_str(text) {
                Ok(version) => Ok(Some(version)),
                Err(_) => Err(self.refused("version", "a behaviour version vN")),
            },
            Some(_) => Err(self.refused("version", "a behaviour version vN")),
        }
    }

    /// Whether the model needs the external GPU; false where the field is absent.
    ///
    /// # Errors
    /// [`ManifestError::Field`] where the field is not a boolean.
    pub fn uses_external_gpu(&self) -> Result<bool, ManifestError> {
        match self.fields.get("uses_external_gpu") {
            None | Some(Value::Null) => Ok(false),
            Some(Value::Bool(uses)) => Ok(*uses),
            Some(_) => Err(self.refused("uses_external_gpu", "true or false")),
        }
    }

    /// The name that people see, or the ID where there is none.
    pub fn display_name(&self) -> &str {
        self.fields.get("name").and_then(Value::as_str).unwrap_or(self.id.as_str())
    }

    fn refused(&self, field: &'static str, expected: &'static str) -> ManifestError {
        let value = self.fields.get(field).map(Value::to_string).unwrap_or_default();
        ManifestError::Field { id: self.id.clone(), field, value, expected }
    }
}

/// A manifest: `{"models": [...]}` with any other top-level fields kept.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Manifest {
    /// The models, in the order of the file.
    pub models: Vec<ManifestEntry>,
    /// Top-level fields; `models` keeps its place among them.
    top_level: Map<String, Value>,
}

impl Manifest {
    /// Parses the JSON text of a manifest. Field types of known fields are checked, so that later reads cannot surprise.
    ///
    /// # Errors
    /// [`ManifestError`] names the entry and field.
    pub fn from_json(text: &str) -> Result<Self, ManifestError> {
        let schema = |found: &str| ManifestError::Schema { found: found.to_owned() };
        let mut top_level = match serde_json::from_str(text.trim_start_matches('\u{feff}'))? {
            Value::Object(fields) => fields,
            other => return Err(schema(&format!("the top level is {}", json_type(&other)))),
        };
        let list = match top_level.get_mut("models").map(Value::take) {
            Some(Value::Array(list)) => list,
            Some(other) => return Err(schema(&format!("\"models\" is {}", json_type(&other)))),
            None => return Err(schema("there is no \"models\"")),
        };
        let mut models: Vec<ManifestEntry> = Vec::with_capacity(list.len());
        let mut seen = std::collections::HashSet::new();
        for (index, value) in list.into_iter().enumerate() {
            let Value::Object(fields) = value else {
                return Err(schema(&format!("entry {index} is {}", json_type(&value))));
            };
            let entry = ManifestEntry::from_fields(fields)
                .map_err(|why| ManifestError::Id { index, why: why.to_string() })?;
            entry.version()?;
            entry.uses_external_gpu()?;
            if !seen.insert(entry.id.clone()) {
                return Err(ManifestError::Duplicate { id: entry.id });
            }
            models.push(entry);
        }
        Ok(Self { models, top_level })
    }

    /// The text that devices read: two-space indent, UTF-8 unescaped, a trailing newline.
    pub fn to_json(&self) -> String {
        let list = self.models.iter().map(|entry| Value::Object(entry.fields.clone())).collect();
        let mut top_level = self.top_level.clone();
        top_level.insert("models".to_owned(), Value::Array(list));
        let mut text = serde_json::to_string_pretty(&top_level)
            .unwrap_or_else(|_| unreachable!("a map of JSON values always serialises"));
        text.push('\n');
        text
    }

    /// The entry with this ID.
    pub fn get(&self, id: &ModelId) -> Option<&ManifestEntry> {
        self.models.iter().find(|entry| entry.id() == id)
    }

    /// A top-level field other than `models`.
    pub fn top_level(&self, field: &str) -> Option<&Value> {
        self.top_level.get(field).filter(|_| field != "models")
    }
}

const fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "{\n  \"note\": \"kept\",\n  \"models\": [\n    {\n      \"series\": \"OP 👀\",\n      \"id\": \"a\",\n      \"version\": \"v8\",\n      \"odd\": null\n    }\n  ],\n  \"after\": 1\n}\n";

    #[test]
    fn text_survives_byte_for_byte() {
        assert_eq!(Manifest::from_json(TEXT).unwrap().to_json(), TEXT);
    }

    #[test]
    fn fields_change_without_moving_others() {
        let mut manifest = Manifest::from_json(TEXT).unwrap();
        manifest.models[0].set_id(ModelId::new("a3").unwrap());
        manifest.models[0].remove("version");
        let keys: Vec<_> = manifest.models[0].fields().keys().cloned().collect();
        assert_eq!(keys, ["series", "id", "odd"]);
        assert_eq!(manifest.models[0].version().unwrap(), None);
    }

    #[test]
    fn wrong_schemas_name_the_place() {
        for (text, part) in [
            ("[]", "top level is a list"),
            ("{}", "no \"models\""),
            (r#"{"models": {}}"#, "an object"),
            (r#"{"models": [1]}"#, "entry 0"),
            (r#"{"models": [{"id": "a"}, {"name": "x"}]}"#, "entry 1"),
            (r#"{"models": [{"id": "a"}, {"id": "a"}]}"#, "twice"),
            (r#"{"models": [{"id": "a", "version": 8}]}"#, "behaviour version"),
            (r#"{"models": [{"id": "a", "uses_external_gpu": "yes"}]}"#, "true or false"),
        ] {
            let refused = Manifest::from_json(text).unwrap_err().to_string();
            assert!(refused.contains(part), "{text}: {refused}");
        }
    }
}
