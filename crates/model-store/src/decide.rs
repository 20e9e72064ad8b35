//! Which artifact runs: one pure decision.

use std::{collections::BTreeMap, fmt};

use model_catalog::{BehaviorVersion, ModelId};
use serde::Serialize;

use crate::StoreCatalog;

/// The key of the model that comes with the system and is always there.
pub const BUILT_IN: &str = "rdf";

/// What is known of an installed file without loading it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Inspected {
    /// It may be loaded.
    Good {
        /// The behaviour version that it carries.
        version: Option<BehaviorVersion>,
    },
    /// It must not be loaded.
    Refused {
        /// Why, in one sentence.
        why: String,
    },
}

/// Everything that the decision rests on.
#[derive(Debug, Clone)]
pub struct Situation<'s> {
    /// The stored ID of the selected model.
    pub selected: Option<&'s str>,
    /// What the device knows of models.
    pub catalog: &'s StoreCatalog,
    /// The installed files.
    pub installed: &'s BTreeMap<ModelId, Inspected>,
    /// Whether the external GPU is there and ready.
    pub has_external_gpu: bool,
}

/// Why the built-in model runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum BuiltInBecause {
    /// Nothing is selected.
    NothingSelected,
    /// It is what is selected.
    Selected,
    /// The catalog has no such model.
    Unknown {
        /// The stored ID.
        id: String,
    },
    /// The model needs the external GPU, which is not there.
    NoExternalGpu {
        /// The model.
        id: ModelId,
    },
    /// The model is not installed.
    NotInstalled {
        /// The model.
        id: ModelId,
    },
    /// Its file must not be loaded.
    Refused {
        /// The model.
        id: ModelId,
        /// Why.
        why: String,
    },
    /// Its file behaves as another version than the catalog says: it would drive on the wrong contract.
    Version {
        /// The model.
        id: ModelId,
        /// The catalog's version.
        catalog: BehaviorVersion,
        /// The file's version.
        file: BehaviorVersion,
    },
}

impl BuiltInBecause {
    /// Whether the built-in model stands in for another one.
    pub const fn is_fallback(&self) -> bool {
        !matches!(self, Self::NothingSelected | Self::Selected)
    }
}

impl fmt::Display for BuiltInBecause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NothingSelected => write!(f, "no model is selected"),
            Self::Selected => write!(f, "it is selected"),
            Self::Unknown { id } => write!(f, "the catalog has no model {id:?}"),
            Self::NoExternalGpu { id } => write!(f, "{id} needs the external GPU, which is not there"),
            Self::NotInstalled { id } => write!(f, "{id} is not installed"),
            Self::Refused { id, why } => write!(f, "the file of {id} must not be loaded: {why}"),
            Self::Version { id, catalog, file } => {
                write!(f, "the file of {id} behaves as {file}, the catalog says {catalog}")
            }
        }
    }
}

/// What runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "runs", rename_all = "snake_case")]
pub enum Decision {
    /// The model that comes with the system.
    BuiltIn {
        /// Why.
        because: BuiltInBecause,
    },
    /// An installed artifact.
    Artifact {
        /// The model.
        id: ModelId,
        /// The behaviour version to drive with, where known.
        version: Option<BehaviorVersion>,
    },
}

/// Decides. Anything but a known, installed, sound artifact of the right version, with the GPU that it needs, is answered with
/// the built-in model.
pub fn decide(situation: &Situation<'_>) -> Decision {
    let built_in = |because| Decision::BuiltIn { because };
    let Some(selected) = situation.selected.map(str::trim).filter(|text| !text.is_empty()) else {
        return built_in(BuiltInBecause::NothingSelected);
    };
    if selected == BUILT_IN {
        return built_in(BuiltInBecause::Selected);
    }
    let Some((id, model)) = situation.catalog.resolve(selected) else {
        return built_in(BuiltInBecause::Unknown { id: selected.to_owned() });
    };
    let id = id.clone();
    if model.uses_external_gpu && !situation.has_external_gpu {
        return built_in(BuiltInBecause::NoExternalGpu { id });
    }
    match situation.installed.get(&id) {
        None => built_in(BuiltInBecause::NotInstalled { id }),
        Some(Inspected::Refused { why }) => built_in(BuiltInBecause::Refused { id, why: why.clone() }),
        Some(Inspected::Good { version }) => match (model.version, *version) {
            (Some(catalog), Some(file)) if catalog != file => {
                built_in(BuiltInBecause::Version { id, catalog, file })
            }
            (catalog, file) => Decision::Artifact { id, version: catalog.or(file) },
        },
    }
}

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;
