//! What a build record keeps of the tinygrad that compiled: enough to judge the artifact wherever it turns up.

use model_catalog::Sha256Digest;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{AbiDescription, AbiError};

/// The tinygrad of a build: the digest of its description, and the description where no program carries it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Stored")]
pub struct AbiRecord {
    /// Digest of the description.
    pub digest: Sha256Digest,
    /// The description, where it is none of those that come with this program.
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<AbiDescription>,
}

/// As it is read: the digest is not yet compared with the description.
#[derive(Deserialize)]
struct Stored {
    digest: Sha256Digest,
    #[serde(default)]
    description: Option<AbiDescription>,
}

impl TryFrom<Stored> for AbiRecord {
    type Error = AbiError;

    fn try_from(stored: Stored) -> Result<Self, AbiError> {
        let Stored { digest, description } = stored;
        if let Some(description) = &description {
            let actual = description.digest();
            if actual != digest {
                let (tinygrad, stated) = (description.tinygrad.clone(), digest.to_string());
                return Err(AbiError::Digest { tinygrad, stated, actual });
            }
        }
        Ok(AbiRecord { digest, description })
    }
}

impl AbiRecord {
    /// The record of the tinygrad that is described.
    #[must_use]
    pub fn of(description: &AbiDescription) -> Self {
        let digest = description.digest();
        let is_known = AbiDescription::known().iter().any(|known| known.digest() == digest);
        AbiRecord { digest, description: (!is_known).then(|| description.clone()) }
    }

    /// What a build record says of its tinygrad, where it says it; `build` is the record's JSON object.
    ///
    /// # Errors
    /// [`AbiError`] where what it says is damaged.
    pub fn of_build(build: &Map<String, Value>) -> Result<Option<Self>, AbiError> {
        match build.get("tinygrad").and_then(|tinygrad| tinygrad.get("abi")) {
            None | Some(Value::Null) => Ok(None),
            Some(abi) => Ok(Some(serde_json::from_value(abi.clone())?)),
        }
    }

    /// The description: the record's own, else the built-in one of this digest; `None` where this program knows none.
    #[must_use]
    pub fn description(&self) -> Option<AbiDescription> {
        let built_in = || AbiDescription::known().into_iter().find(|known| known.digest() == self.digest);
        self.description.clone().or_else(built_in)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known() -> AbiDescription {
        AbiDescription::known_as("0.14.0").expect("is built in")
    }

    /// A tinygrad that no program knows: one class of 0.14.0 is missing.
    fn unknown() -> AbiDescription {
        let mut description = known();
        description.tinygrad = "0.99.0".to_owned();
        description.classes.pop_first();
        description.digest = None;
        description
    }

    #[test]
    fn a_known_tinygrad_is_recorded_by_its_digest_alone() {
        let record = AbiRecord::of(&known());
        let text = serde_json::to_string(&record).expect("is JSON");
        assert_eq!(text, format!(r#"{{"digest":"{}"}}"#, known().digest()));
        let read: AbiRecord = serde_json::from_str(&text).expect("is a record");
        assert_eq!(read.description().expect("is built in").tinygrad, "0.14.0");
    }

    #[test]
    fn an_unknown_tinygrad_is_recorded_whole() {
        let text = serde_json::to_string(&AbiRecord::of(&unknown())).expect("is JSON");
        let read: AbiRecord = serde_json::from_str(&text).expect("is a record");
        assert_eq!(read.description(), Some(unknown()));
        let other = format!(r#"{{"digest":"{}"}}"#, "0".repeat(64));
        let other: AbiRecord = serde_json::from_str(&other).expect("is a record");
        assert_eq!(other.description(), None);
    }

    #[test]
    fn a_record_whose_description_was_edited_is_refused() {
        let text = serde_json::to_string(&AbiRecord::of(&unknown())).expect("is JSON");
        let edited = text.replacen("\"positional_min\":2", "\"positional_min\":1", 1);
        assert_ne!(text, edited);
        let message = serde_json::from_str::<AbiRecord>(&edited).expect_err("was edited").to_string();
        assert!(message.contains("the ABI description of tinygrad 0.99.0 was edited"), "{message}");
        let build =
            |abi: &str| serde_json::from_str(&format!(r#"{{"tinygrad":{{"abi":{abi}}}}}"#)).expect("is JSON");
        assert!(AbiRecord::of_build(&build(&edited)).is_err());
        assert!(AbiRecord::of_build(&build(&text)).expect("is whole").is_some());
        assert_eq!(AbiRecord::of_build(&build("null")).expect("is nothing"), None);
    }
}
