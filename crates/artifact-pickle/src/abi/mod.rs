//! The classes and enum values of a tinygrad, as its own process describes them.
//!
//! An artifact gives positional arguments and integers that only make sense to one revision. What can go wrong: a class
//! that has become a function, one argument more or less, and an enum whose members have moved, so that a number still
//! is a member but means another operation.

mod check;
mod implied;
mod record;

use std::collections::{BTreeMap, HashMap};

use model_catalog::Sha256Digest;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub(crate) use check::state_names;
pub use check::{AbiProblem, AbiProblemKind, Mismatch};
pub use record::AbiRecord;

/// A description that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AbiError {
    /// It is no description.
    #[error("not an ABI description ({0}); make one with the driver's `abi` operation")]
    Json(#[from] serde_json::Error),
    /// It was changed after it was made.
    #[error(
        "the ABI description of tinygrad {tinygrad} was edited: its digest is {actual}, it says {stated}"
    )]
    Digest {
        /// The revision it describes.
        tinygrad: String,
        /// The digest that it states.
        stated: String,
        /// The digest of its content.
        actual: Sha256Digest,
    },
}

/// One class or function.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AbiClass {
    /// `class` or `function`.
    #[serde(default = "class")]
    pub kind: String,
    /// Fewest positional arguments.
    pub positional_min: usize,
    /// Most positional arguments; `None` is without end.
    pub positional_max: Option<usize>,
    /// Names of the positional parameters.
    pub parameters: Vec<String>,
    /// Names that a state sets; `None` is any.
    pub fields: Option<Vec<String>>,
    /// Names that a state may hold besides: values computed once and kept. `None` where it was not described.
    #[serde(default)]
    pub cached: Option<Vec<String>>,
}

fn class() -> String {
    "class".to_owned()
}

/// What one tinygrad offers to a pickled jit. Keys are `module:name`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AbiDescription {
    /// Version or commit.
    pub tinygrad: String,
    /// The Python that described it.
    #[serde(default)]
    pub python: String,
    /// Classes and functions.
    pub classes: BTreeMap<String, AbiClass>,
    /// Enums: member to value.
    pub enums: BTreeMap<String, BTreeMap<String, i64>>,
    /// Names that jits of other revisions use and this one does not have.
    #[serde(default)]
    pub missing: Vec<String>,
    /// SHA-256 over classes, enums and missing names; checked when read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
}

impl AbiDescription {
    /// Reads a description.
    ///
    /// # Errors
    /// [`AbiError`] where it is none, or where its digest is not that of its content.
    pub fn from_json(text: &str) -> Result<Self, AbiError> {
        serde_json::from_str::<AbiDescription>(text)?.checked()
    }

    /// The description itself, where the digest that it states is that of its content.
    ///
    /// # Errors
    /// [`AbiError::Digest`] where it is not.
    pub fn checked(self) -> Result<Self, AbiError> {
        let actual = self.digest();
        match &self.digest {
            Some(stated) if *stated != actual.to_string() => {
                Err(AbiError::Digest { tinygrad: self.tinygrad.clone(), stated: stated.clone(), actual })
            }
            _ => Ok(self),
        }
    }

    /// The digest of what decides whether a jit loads: neither the label nor the Python enters.
    #[must_use]
    pub fn digest(&self) -> Sha256Digest {
        let body = json!({ "classes": self.classes, "enums": self.enums, "missing": self.missing });
        durable_fs::Sha256::digest(sorted(&body).to_string().as_bytes())
    }

    /// The descriptions that come with this program, oldest first.
    ///
    /// # Panics
    /// Never: they are part of the program and read by a test.
    #[must_use]
    pub fn known() -> Vec<AbiDescription> {
        let read = |text| AbiDescription::from_json(text).expect("the built-in descriptions are valid");
        BUILT_IN.iter().map(|text| read(text)).collect()
    }

    /// The built-in description of a version or of a commit (its first characters are enough).
    #[must_use]
    pub fn known_as(label: &str) -> Option<AbiDescription> {
        let matches = |d: &AbiDescription| {
            d.tinygrad == label
                || (label.len() >= 7 && d.tinygrad.starts_with(label) && d.tinygrad.len() == 40)
        };
        Self::known().into_iter().find(matches)
    }

    /// Value to member of an enum.
    pub(crate) fn members(&self, key: &str) -> HashMap<i64, &str> {
        let members = self.enums.get(key).into_iter().flatten();
        members.map(|(name, value)| (*value, name.as_str())).collect()
    }
}

const BUILT_IN: [&str; 4] = [
    include_str!("../../../../data/abi/tinygrad-0.12.0.json"),
    include_str!("../../../../data/abi/tinygrad-0.13.0.json"),
    include_str!("../../../../data/abi/tinygrad-443f976.json"),
    include_str!("../../../../data/abi/tinygrad-0.14.0.json"),
];

/// Keys in order all the way down, as the describing process writes them before it takes the digest.
fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let ordered: BTreeMap<&String, Value> = map.iter().map(|(k, v)| (k, sorted(v))).collect();
            Value::Object(ordered.into_iter().map(|(k, v)| (k.clone(), v)).collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(sorted).collect()),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_descriptions_are_whole() {
        let known = AbiDescription::known();
        assert_eq!(known.len(), 4);
        assert!(known.iter().all(|d| d.digest.is_some()));
        assert!(AbiDescription::known_as("443f976").is_some());
        assert!(AbiDescription::known_as("0.14.0").is_some());
        assert!(AbiDescription::known_as("0.1").is_none());
    }

    #[test]
    fn an_edited_description_is_refused() {
        let edited = BUILT_IN[3].replacen("\"positional_max\": 4", "\"positional_max\": 6", 1);
        let message = AbiDescription::from_json(&edited).unwrap_err().to_string();
        assert!(message.starts_with("the ABI description of tinygrad 0.14.0 was edited"), "{message}");
        assert!(AbiDescription::from_json("[]").is_err());
    }
}
