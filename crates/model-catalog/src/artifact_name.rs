//! Names of artifacts, parts and checksum files.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{IdError, ModelId};

/// Parts are numbered `.p00` to `.p99`.
pub const MAX_PARTS: usize = 100;

const DRIVING_SUFFIX: &str = "_driving_tinygrad.pkl";

/// The file name of a compiled driving artifact, `<id>_driving_tinygrad.pkl`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ArtifactName(ModelId);

impl ArtifactName {
    /// The artifact of model `id`.
    pub fn new(id: ModelId) -> Self {
        Self(id)
    }

    /// The model that the name is for.
    pub fn id(&self) -> &ModelId {
        &self.0
    }

    /// The file name of the checksum beside the parts.
    pub fn checksum_name(&self) -> String {
        format!("{self}.sha256")
    }

    /// Part `number` (0 to 99) of the artifact; `None` beyond that.
    pub fn part(&self, number: usize) -> Option<PartName> {
        PartName::new(&self.to_string(), number)
    }

    /// Parses a file name; `None` where it is not that of a driving artifact.
    ///
    /// # Errors
    /// The name has an artifact's form but its ID is not valid.
    pub fn parse(file_name: &str) -> Option<Result<Self, IdError>> {
        file_name.strip_suffix(DRIVING_SUFFIX).map(|id| ModelId::new(id).map(Self))
    }
}

impl fmt::Display for ArtifactName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}{DRIVING_SUFFIX}", self.0))
    }
}

/// The name of one part of a file, `<name>.pNN`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartName {
    whole: String,
    number: usize,
}

impl PartName {
    /// Part `number` (0 to 99) of the file `whole`; `None` beyond that.
    pub fn new(whole: &str, number: usize) -> Option<Self> {
        (number < MAX_PARTS && !whole.is_empty()).then(|| Self { whole: whole.to_owned(), number })
    }

    /// Parses `<name>.pNN`; exactly two digits.
    pub fn parse(file_name: &str) -> Option<Self> {
        let (whole, number) = file_name.rsplit_once(".p")?;
        let digits = number.len() == 2 && number.bytes().all(|b| b.is_ascii_digit());
        digits.then(|| number.parse().ok()).flatten().and_then(|number| Self::new(whole, number))
    }

    /// The file that this is a part of.
    pub fn whole(&self) -> &str {
        &self.whole
    }

    /// The position of the part, from 0.
    pub fn number(&self) -> usize {
        self.number
    }
}

impl fmt::Display for PartName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}.p{:02}", self.whole, self.number))
    }
}

/// What a file in the compiled or upload-ready folder is, by its name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ArtifactFile {
    /// The whole artifact.
    Whole(ArtifactName),
    /// One of its parts.
    Part(ArtifactName, usize),
    /// The checksum beside the parts.
    Checksum(ArtifactName),
}

impl ArtifactFile {
    /// Recognises a file name; `None` for files that are none of an artifact's.
    pub fn parse(file_name: &str) -> Option<Self> {
        let artifact = |name: &str| ArtifactName::parse(name)?.ok();
        if let Some(name) = artifact(file_name) {
            return Some(Self::Whole(name));
        }
        if let Some(name) = file_name.strip_suffix(".sha256") {
            return artifact(name).map(Self::Checksum);
        }
        let part = PartName::parse(file_name)?;
        artifact(part.whole()).map(|name| Self::Part(name, part.number()))
    }

    /// The artifact that the file belongs to.
    pub fn artifact(&self) -> &ArtifactName {
        match self {
            Self::Whole(name) | Self::Part(name, _) | Self::Checksum(name) => name,
        }
    }

    /// The name of the same file of another model.
    pub fn renamed(&self, id: ModelId) -> String {
        let name = ArtifactName::new(id);
        match self {
            Self::Whole(_) => name.to_string(),
            Self::Part(_, number) => format!("{name}.p{number:02}"),
            Self::Checksum(_) => name.checksum_name(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> ModelId {
        ModelId::new(text).unwrap()
    }

    #[test]
    fn names_are_recognised_by_their_exact_form() {
        let name = ArtifactName::new(id("rdf23"));
        assert_eq!(
            ArtifactFile::parse("rdf23_driving_tinygrad.pkl"),
            Some(ArtifactFile::Whole(name.clone()))
        );
        assert_eq!(
            ArtifactFile::parse("rdf23_driving_tinygrad.pkl.p07"),
            Some(ArtifactFile::Part(name.clone(), 7))
        );
        assert_eq!(
            ArtifactFile::parse("rdf23_driving_tinygrad.pkl.sha256"),
            Some(ArtifactFile::Checksum(name))
        );
        for other in [
            "._rdf23_driving_tinygrad.pkl",
            "rdf23_driving_tinygrad.pkl.p7",
            "rdf23_driving_tinygrad.pkl.p007",
            "rdf23_driving_tinygrad.pkl.p-1",
            "_driving_tinygrad.pkl",
            "multipart.json",
        ] {
            assert_eq!(ArtifactFile::parse(other), None, "{other}");
        }
    }

    #[test]
    fn renaming_keeps_the_kind_of_file() {
        let part = ArtifactFile::parse("a_driving_tinygrad.pkl.p99").unwrap();
        assert_eq!(part.renamed(id("a3")), "a3_driving_tinygrad.pkl.p99");
        assert_eq!(ArtifactName::new(id("a")).part(100), None);
    }
}
