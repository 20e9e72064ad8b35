//! What the device knows of models: its parameters and the caches beside its artifacts.

use std::collections::BTreeMap;

use camino::Utf8Path;
use durable_fs::FsError;
use model_catalog::{BehaviorVersion, Manifest, ModelId};
use serde_json::Value;

use crate::{Param, ParamStore, StoreError};

/// Caches are some kilobytes.
const MAX_CACHE: u64 = 8 << 20;
/// Names of artifacts that another program gave them.
const ALIASES: [(&str, &str); 1] = [("sc", "sc2")];
/// What a release adds to an ID.
const SUFFIX: &str = "3";

/// One model of the catalog.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CatalogModel {
    /// Its display name.
    pub name: String,
    /// Its behaviour version, where known.
    pub version: Option<BehaviorVersion>,
    /// Whether it needs the external GPU.
    pub uses_external_gpu: bool,
}

/// Every model that the device may select.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StoreCatalog {
    /// The models by ID.
    pub models: BTreeMap<ModelId, CatalogModel>,
}

impl StoreCatalog {
    /// The catalog of a release manifest.
    ///
    /// # Errors
    /// [`StoreError::CatalogValue`] where an entry is not what a manifest has.
    pub fn from_manifest(manifest: &Manifest) -> Result<Self, StoreError> {
        let models = manifest.models.iter().map(|entry| {
            let refused = |why: String| StoreError::CatalogValue {
                list: "the manifest".to_owned(),
                value: entry.id().to_string(),
                why,
            };
            let model = CatalogModel {
                name: entry.display_name().to_owned(),
                version: entry.version().map_err(|error| refused(error.to_string()))?,
                uses_external_gpu: entry.uses_external_gpu().map_err(|error| refused(error.to_string()))?,
            };
            Ok((entry.id().clone(), model))
        });
        Ok(Self { models: models.collect::<Result<_, StoreError>>()? })
    }

    /// The catalog that the parameters hold, with what the caches in `store` add: versions, and which models need the
    /// external GPU. Local models are those of the caches.
    ///
    /// # Errors
    /// [`StoreError`] where lists do not belong together, or a cache cannot be read.
    pub fn of_device(params: &ParamStore, store: &Utf8Path) -> Result<Self, StoreError> {
        let ids = list(params, Param::AvailableModels)?;
        let names = list_of(params, Param::AvailableModelNames, ids.len())?;
        let versions = list_of(params, Param::ModelVersions, ids.len())?;
        let cached_versions = cache(store, ".model_versions.json")?;
        let artifacts = cache(store, ".model_artifacts.json")?;
        let mut models = BTreeMap::new();
        let of_caches = cached_versions.iter().chain(&artifacts).map(|(id, _)| id.clone());
        for id in ids.iter().cloned().chain(of_caches.filter(|id| id.starts_with("local-"))) {
            let refused = |why: String| StoreError::CatalogValue {
                list: Param::AvailableModels.to_string(),
                value: id.clone(),
                why,
            };
            let at = ids.iter().position(|other| *other == id);
            let listed = at.and_then(|at| versions.get(at)).filter(|text| !text.is_empty()).cloned();
            let cached = || cached_versions.get(&id).and_then(Value::as_str).map(str::to_owned);
            let version = listed.or_else(cached).map(|text| text.parse::<BehaviorVersion>());
            let tag = artifacts.get(&id).and_then(|artifact| artifact.get("uses_external_gpu"));
            let model = CatalogModel {
                name: at.and_then(|at| names.get(at)).cloned().unwrap_or_default(),
                version: version.transpose().map_err(|error| refused(error.to_string()))?,
                uses_external_gpu: tag.and_then(Value::as_bool).unwrap_or(false),
            };
            models.insert(ModelId::new(&id).map_err(|error| refused(error.to_string()))?, model);
        }
        Ok(Self { models })
    }

    /// The model of the catalog that a stored ID means: the ID itself, the model that it is an alias of, or its name in this
    /// release. A local model has one name only.
    pub fn resolve(&self, stored: &str) -> Option<(&ModelId, &CatalogModel)> {
        let find = |text: &str| self.models.get_key_value(&ModelId::new(text).ok()?);
        if stored.starts_with("local-") {
            return find(stored);
        }
        let alias = ALIASES.iter().find(|(alias, _)| *alias == stored).map(|(_, id)| *id);
        let named = [Some(stored), alias].into_iter().flatten();
        named.into_iter().find_map(|id| find(id).or_else(|| find(&format!("{id}{SUFFIX}"))))
    }
}

fn list(params: &ParamStore, param: Param) -> Result<Vec<String>, StoreError> {
    let text = params.text(param)?.unwrap_or_default();
    if text.is_empty() {
        return Ok(Vec::new());
    }
    Ok(text.split(',').map(|item| item.trim().to_owned()).collect())
}

/// A list that has an entry for each model, or is not set at all.
fn list_of(params: &ParamStore, param: Param, models: usize) -> Result<Vec<String>, StoreError> {
    let list = list(params, param)?;
    if list.is_empty() || list.len() == models {
        Ok(list)
    } else {
        Err(StoreError::Catalog { list: param, found: list.len(), models })
    }
}

fn cache(store: &Utf8Path, name: &str) -> Result<serde_json::Map<String, Value>, StoreError> {
    let path = store.join(name);
    let size = match std::fs::metadata(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(serde_json::Map::new()),
        found => found.map_err(FsError::io("look at the cache", &path))?.len(),
    };
    if size > MAX_CACHE {
        return Err(StoreError::TooLarge { path, size });
    }
    let text = std::fs::read(&path).map_err(FsError::io("read the cache", &path))?;
    Ok(serde_json::from_slice(&text).map_err(|source| FsError::Json { path, source })?)
}

#[cfg(test)]
#[path = "catalog_tests.rs"]
mod tests;
