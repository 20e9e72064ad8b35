//! The part list: every artifact of a release with its digest, and each part with its own.
//!
//! A reader that knows the list need not probe for parts, and checks each of them on its own. It may be signed (ed25519, in
//! minisign's format): the checksum beside the parts comes from the same host as the parts, a signature does not.

use model_catalog::{ArtifactName, ManifestVersion, ModelId, PartName, Sha256Digest};
use serde::{Deserialize, Serialize};

use crate::Part;

/// The version of the list's format.
const FORMAT: u32 = 1;

/// Why a part list was refused.
#[derive(Debug, thiserror::Error)]
pub enum PartListError {
    /// The text is not a part list.
    #[error("the part list is not valid: {0}")]
    Json(#[from] serde_json::Error),
    /// It is of a newer form.
    #[error("the part list has format {found}; this version understands {FORMAT}: use a newer one")]
    Newer {
        /// Its format.
        found: u32,
    },
    /// An entry contradicts itself.
    #[error("the part list is wrong about {filename}: {why}")]
    Entry {
        /// The artifact.
        filename: String,
        /// What is wrong.
        why: &'static str,
    },
}

/// One artifact of a release.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedArtifact {
    /// The model, by release ID.
    pub id: ModelId,
    /// File name of the whole artifact.
    pub filename: String,
    /// Its size in bytes.
    pub size: u64,
    /// Its SHA-256.
    pub sha256: Sha256Digest,
    /// Its parts in order, each with its SHA-256; empty where the artifact is published whole.
    #[serde(default)]
    pub parts: Vec<Part>,
}

/// The artifacts of a release.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartList {
    /// The format, 1.
    pub format: u32,
    /// The manifest that the list goes with.
    pub manifest: ManifestVersion,
    /// The artifacts, in the manifest's order.
    pub artifacts: Vec<ListedArtifact>,
}

impl PartList {
    /// The list of a release.
    pub fn new(manifest: ManifestVersion, artifacts: Vec<ListedArtifact>) -> Self {
        Self { format: FORMAT, manifest, artifacts }
    }

    /// The file name of a namespace's list.
    pub fn file_name(manifest: ManifestVersion) -> String {
        format!("model_parts_{manifest}.json")
    }

    /// The file name of the signature beside it.
    pub fn signature_name(manifest: ManifestVersion) -> String {
        format!("{}.minisig", Self::file_name(manifest))
    }

    /// Parses a list and checks that its entries agree with themselves.
    ///
    /// # Errors
    /// [`PartListError`] names the entry.
    pub fn from_json(text: &str) -> Result<Self, PartListError> {
        #[derive(Deserialize)]
        struct Header {
            format: u32,
        }
        let Header { format: found } = serde_json::from_str(text)?;
        if found > FORMAT {
            return Err(PartListError::Newer { found });
        }
        let list: Self = serde_json::from_str(text)?;
        list.artifacts.iter().try_for_each(ListedArtifact::check)?;
        Ok(list)
    }

    /// The text of the list.
    ///
    /// # Errors
    /// The JSON error, which a list of valid types does not give.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }

    /// The artifact of a model.
    pub fn get(&self, id: &ModelId) -> Option<&ListedArtifact> {
        self.artifacts.iter().find(|artifact| artifact.id == *id)
    }
}

impl ListedArtifact {
    fn check(&self) -> Result<(), PartListError> {
        let refused = |why| Err(PartListError::Entry { filename: self.filename.clone(), why });
        if self.filename != ArtifactName::new(self.id.clone()).to_string() {
            return refused("the file name is not that of the model");
        }
        for (number, part) in self.parts.iter().enumerate() {
            if PartName::new(&self.filename, number).map(|name| name.to_string()).as_ref() != Some(&part.name)
            {
                return refused("a part has another name than its place asks for");
            }
            if part.sha256.is_none() {
                return refused("a part has no SHA-256");
            }
        }
        let total = self.parts.iter().try_fold(0u64, |total, part| total.checked_add(part.size));
        if !self.parts.is_empty() && total != Some(self.size) {
            return refused("the sizes of the parts do not add up to that of the artifact");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list() -> PartList {
        let part = |number: usize, size| Part {
            name: format!("a3_driving_tinygrad.pkl.p{number:02}"),
            size,
            sha256: Some(Sha256Digest::from_bytes([number as u8; 32])),
        };
        let artifact = ListedArtifact {
            id: ModelId::new("a3").unwrap(),
            filename: "a3_driving_tinygrad.pkl".to_owned(),
            size: 15,
            sha256: Sha256Digest::from_bytes([7; 32]),
            parts: vec![part(0, 10), part(1, 5)],
        };
        PartList::new(ManifestVersion::from_number(23), vec![artifact])
    }

    #[test]
    fn text_and_list_round_trip() {
        let text = list().to_json().unwrap();
        assert_eq!(PartList::from_json(&text).unwrap(), list());
        assert!(text.starts_with("{\n  \"format\": 1,\n  \"manifest\": \"v23\",\n") && text.ends_with("}\n"));
    }

    #[test]
    fn contradictions_are_refused() {
        let refused = |change: &dyn Fn(&mut ListedArtifact)| {
            let mut list = list();
            change(&mut list.artifacts[0]);
            PartList::from_json(&list.to_json().unwrap()).unwrap_err().to_string()
        };
        assert!(refused(&|artifact| artifact.size = 16).contains("add up"));
        assert!(refused(&|artifact| artifact.parts.swap(0, 1)).contains("another name"));
        assert!(refused(&|artifact| artifact.parts[1].sha256 = None).contains("no SHA-256"));
        assert!(refused(&|artifact| artifact.filename = "../x".to_owned()).contains("not that of the model"));
        assert!(refused(&|artifact| artifact.parts[0].size = u64::MAX).contains("add up"));
        let newer = list().to_json().unwrap().replace("\"format\": 1", "\"format\": 2");
        assert!(matches!(PartList::from_json(&newer), Err(PartListError::Newer { found: 2 })));
        assert!(PartList::from_json("<html>").is_err());
    }
}
