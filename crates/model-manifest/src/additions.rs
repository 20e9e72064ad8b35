//! Models that join a catalog without an entry in the manifest before: kept as data, by manifest version.

use indexmap::IndexMap;
use model_catalog::{Manifest, ManifestEntry, ManifestVersion, ModelId};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::ManifestWorkError;

/// The additions that this version carries, as JSON text.
pub const EMBEDDED_ADDITIONS: &str = include_str!("../../../data/model_manifest_additions.json");

/// One entry to add where its ID is missing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Addition {
    /// The entry's fields, in the order in which they are written.
    pub entry: Map<String, Value>,
    /// The model that it comes after; at the end where `None` or where that model is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<ModelId>,
}

/// The additions by manifest version.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Additions {
    versions: IndexMap<ManifestVersion, Vec<Addition>>,
}

impl Additions {
    /// Parses the JSON text of an additions file.
    ///
    /// # Errors
    /// [`ManifestWorkError::Additions`] where the text has another schema or an entry has no valid ID.
    pub fn from_json(text: &str) -> Result<Self, ManifestWorkError> {
        let refused = |why: String| ManifestWorkError::Additions { why };
        let additions: Self = serde_json::from_str(text).map_err(|error| refused(error.to_string()))?;
        for addition in additions.versions.values().flatten() {
            ManifestEntry::from_fields(addition.entry.clone()).map_err(|error| refused(error.to_string()))?;
        }
        Ok(additions)
    }

    /// The additions of this version.
    ///
    /// # Errors
    /// [`ManifestWorkError::Additions`] where the embedded file is not valid.
    pub fn embedded() -> Result<Self, ManifestWorkError> {
        Self::from_json(EMBEDDED_ADDITIONS)
    }

    /// Adds to `manifest` what its version gains and it lacks; returns the IDs that were added.
    pub fn apply(&self, version: ManifestVersion, manifest: &mut Manifest) -> Vec<ModelId> {
        let mut added = Vec::new();
        for addition in self.versions.get(&version).into_iter().flatten() {
            let Ok(entry) = ManifestEntry::from_fields(addition.entry.clone()) else { continue };
            if manifest.get(entry.id()).is_some() {
                continue;
            }
            added.push(entry.id().clone());
            let place = |after: &ModelId| manifest.models.iter().position(|entry| entry.id() == after);
            let at =
                addition.after.as_ref().and_then(place).map_or(manifest.models.len(), |before| before + 1);
            manifest.models.insert(at, entry);
        }
        added
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(manifest: &Manifest) -> Vec<&str> {
        manifest.models.iter().map(|entry| entry.id().as_str()).collect()
    }

    #[test]
    fn the_embedded_additions_are_valid_and_find_their_place() {
        let additions = Additions::embedded().unwrap();
        let v23 = ManifestVersion::from_number(23);
        let mut manifest = Manifest::from_json(r#"{"models": [{"id": "rdfv23"}, {"id": "z"}]}"#).unwrap();
        assert_eq!(additions.apply(v23, &mut manifest).len(), 1);
        assert_eq!(ids(&manifest), ["rdfv23", "rdf23", "z"]);
        assert!(additions.apply(v23, &mut manifest).is_empty());
        let mut manifest = Manifest::from_json(r#"{"models": [{"id": "z"}]}"#).unwrap();
        additions.apply(v23, &mut manifest);
        assert_eq!(ids(&manifest), ["z", "rdf23"]);
        additions.apply(ManifestVersion::from_number(21), &mut manifest);
        assert_eq!(ids(&manifest), ["z", "rdf23"]);
        additions.apply(ManifestVersion::from_number(22), &mut manifest);
        let added = manifest.models.last().unwrap();
        assert_eq!(
            (added.display_name(), added.version().unwrap().unwrap().number()),
            ("Deep RL 3 V2 👀📡", 15)
        );
    }

    #[test]
    fn entries_without_a_valid_id_are_refused() {
        for text in
            [r#"{"v22": [{"entry": {}}]}"#, r#"{"22": []}"#, r#"{"v22": [{"entry": {"id": "../x"}}]}"#]
        {
            assert!(Additions::from_json(text).is_err(), "{text}");
        }
    }
}
