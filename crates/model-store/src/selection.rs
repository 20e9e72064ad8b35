//! The selected model, and what was selected before.

use std::collections::BTreeMap;

use model_catalog::{BehaviorVersion, ModelId};
use serde::{Deserialize, Serialize};

use crate::{Param, ParamStore, StoreError};

/// The parameters of a selection in the order in which they are written: a reader that sees the new ID sees the version
/// that belongs to it.
pub const SELECTION: [Param; 5] = [
    Param::ModelVersion,
    Param::DrivingModelVersion,
    Param::DrivingModelName,
    Param::Model,
    Param::DrivingModel,
];

/// A model as it is selected.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Selection {
    /// Its ID in the store.
    pub id: ModelId,
    /// Its behaviour version, where known.
    pub version: Option<BehaviorVersion>,
    /// Its display name.
    pub name: String,
}

/// The bytes of every parameter of a selection, absent ones included.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot(pub BTreeMap<Param, Option<Vec<u8>>>);

impl Snapshot {
    /// The ID that was selected, for messages.
    pub fn id(&self) -> Option<String> {
        let value = self.0.get(&Param::Model)?.as_ref()?;
        Some(String::from_utf8_lossy(value).into_owned())
    }
}

impl ParamStore {
    /// The ID of the selected model as it stands; the two mirrors may differ after a kill, then the first one counts.
    ///
    /// # Errors
    /// [`StoreError`] where it cannot be read.
    pub fn selected(&self) -> Result<Option<String>, StoreError> {
        match self.text(Param::Model)? {
            Some(id) => Ok(Some(id)),
            None => self.text(Param::DrivingModel),
        }
    }

    /// What is selected now, byte for byte.
    ///
    /// # Errors
    /// [`StoreError`] where a parameter cannot be read.
    pub fn snapshot(&self) -> Result<Snapshot, StoreError> {
        let each = SELECTION.into_iter().map(|param| Ok((param, self.get(param)?)));
        Ok(Snapshot(each.collect::<Result<_, StoreError>>()?))
    }

    /// Selects a model in every mirror.
    ///
    /// # Errors
    /// [`StoreError`]; some parameters may be changed then, and [`Self::restore`] puts them back.
    pub fn select(&self, selection: &Selection) -> Result<(), StoreError> {
        let version = selection.version.map(|version| version.to_string()).unwrap_or_default();
        for param in SELECTION {
            let value = match param {
                Param::Model | Param::DrivingModel => selection.id.as_str(),
                Param::DrivingModelName => &selection.name,
                _ => &version,
            };
            self.put(param, value.as_bytes())?;
        }
        Ok(())
    }

    /// Puts back what `snapshot` holds, and looks that it is there. Every parameter is tried, whatever becomes of another.
    ///
    /// # Errors
    /// The first [`StoreError`].
    pub fn restore(&self, snapshot: &Snapshot) -> Result<(), StoreError> {
        let mut first = None;
        for param in SELECTION {
            let Some(value) = snapshot.0.get(&param) else { continue };
            // What is right is left alone: flash wears, and a held lock cannot stop what need not be done.
            let restored = match (self.get(param), value) {
                (Ok(now), value) if now == *value => Ok(()),
                (_, Some(value)) => self.put(param, value),
                (_, None) => self.remove(param),
            };
            if let Err(error) = restored {
                first.get_or_insert(error);
            }
        }
        first.map_or(Ok(()), Err)
    }
}
