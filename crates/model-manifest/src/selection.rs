//! Where a selection that a device stored under an older namespace ends up.

use std::{collections::BTreeSet, fmt};

use model_catalog::ModelId;
use serde::Serialize;

use crate::IdMap;

/// Names that devices take for another model.
pub(crate) const ALIASES: [(&str, &str); 1] = [("sc", "sc2")];

/// What a device appends to an ID that the catalog does not have.
const DEVICE_SUFFIX: &str = "3";

/// What becomes of a stored selection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "fate", rename_all = "snake_case")]
pub enum SelectionFate {
    /// The same model, under its release ID.
    Same {
        /// The release ID.
        id: ModelId,
    },
    /// Another model, which has the old ID (or what devices make of it) as its release ID.
    Other {
        /// What the device selects.
        id: ModelId,
        /// The source ID of that model.
        is: ModelId,
        /// The release ID of the model that was meant.
        meant: ModelId,
    },
    /// Nothing in the catalog: the device falls back to its built-in model, although the model is there under another ID.
    Lost {
        /// The release ID of the model that was meant.
        meant: ModelId,
    },
}

/// A stored selection and its fate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Selection {
    /// The stored ID.
    pub stored: String,
    /// What becomes of it.
    #[serde(flatten)]
    pub fate: SelectionFate,
}

impl Selection {
    /// The stored ID and the release ID, where they are of the same model.
    pub(crate) fn unchanged(&self) -> Option<String> {
        match &self.fate {
            SelectionFate::Same { id } => Some(format!("{} as {id}", self.stored)),
            SelectionFate::Other { .. } | SelectionFate::Lost { .. } => None,
        }
    }

    /// Whether the device keeps driving the same model.
    pub fn is_expected(&self) -> bool {
        matches!(self.fate, SelectionFate::Same { .. })
    }
}

impl fmt::Display for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stored = &self.stored;
        match &self.fate {
            SelectionFate::Same { id } => write!(f, "{stored} stays the same model, as {id}"),
            SelectionFate::Other { id, is, meant } => {
                write!(
                    f,
                    "{stored} becomes another model: devices take {id}, which is {is}; {meant} was meant"
                )
            }
            SelectionFate::Lost { meant } => {
                write!(
                    f,
                    "{stored} is not found by devices and falls back to the built-in model; it is now {meant}"
                )
            }
        }
    }
}

/// The fate of every ID of the old namespace, and of the aliases that devices know. `releases` gives each old ID its release
/// ID; `catalog` are the IDs of the new manifest.
pub fn selections<'a>(releases: &IdMap, catalog: impl IntoIterator<Item = &'a ModelId>) -> Vec<Selection> {
    let catalog: BTreeSet<&ModelId> = catalog.into_iter().collect();
    let aliases = ALIASES.iter().filter_map(|&(alias, id)| {
        let meant = releases.release_of(&ModelId::new(id).ok()?)?;
        Some((alias, id, meant))
    });
    let own = releases.iter().map(|(old, new)| (old.as_str(), old.as_str(), new));
    own.chain(aliases)
        .map(|(stored, resolved, meant)| {
            let fate = match resolve(resolved, &catalog) {
                Some(id) if id == meant => SelectionFate::Same { id: id.clone() },
                Some(id) => {
                    let is = releases.source_of(id).unwrap_or(id).clone();
                    SelectionFate::Other { id: id.clone(), is, meant: meant.clone() }
                }
                None => SelectionFate::Lost { meant: meant.clone() },
            };
            Selection { stored: stored.to_owned(), fate }
        })
        .collect()
}

/// What devices do with a stored ID: the ID itself where the catalog has it, else the ID with the suffix.
fn resolve<'a>(stored: &str, catalog: &BTreeSet<&'a ModelId>) -> Option<&'a ModelId> {
    let find = |text: String| {
        let id = ModelId::new(text).ok()?;
        catalog.get(&id).copied()
    };
    find(stored.to_owned()).or_else(|| find(format!("{stored}{DEVICE_SUFFIX}")))
}
