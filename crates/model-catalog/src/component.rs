//! The ONNX components of a model and the names that they have in a repository, in a workspace and on the device.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{ModelId, RelPath};

/// The directories of a source repository in which components are looked for, in this order.
pub const COMPONENT_DIRECTORIES: [&str; 3] =
    ["openpilot/selfdrive/modeld/models", "selfdrive/modeld/models", "frogpilot/tinygrad_modeld/models"];

/// One ONNX component of a driving model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Component {
    /// The one file of a supercombo model.
    #[serde(rename = "driving_supercombo")]
    Supercombo,
    /// The vision model of a split model.
    #[serde(rename = "driving_vision")]
    Vision,
    /// The policy of a split model.
    #[serde(rename = "driving_policy")]
    Policy,
    /// The primary policy where it is named so.
    #[serde(rename = "driving_on_policy")]
    OnPolicy,
    /// The secondary policy.
    #[serde(rename = "driving_off_policy")]
    OffPolicy,
}

/// Component aliases in a file stem; the first match in this order wins, so that `off_policy` is not taken for `policy`.
const ALIASES: [(&str, Component); 7] = [
    ("supercombo", Component::Supercombo),
    ("off_policy", Component::OffPolicy),
    ("offpolicy", Component::OffPolicy),
    ("on_policy", Component::OnPolicy),
    ("onpolicy", Component::OnPolicy),
    ("policy", Component::Policy),
    ("vision", Component::Vision),
];

impl Component {
    /// Every component.
    pub const ALL: [Self; 5] =
        [Self::Supercombo, Self::Vision, Self::Policy, Self::OnPolicy, Self::OffPolicy];

    /// The name in files and records, such as `driving_vision`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Supercombo => "driving_supercombo",
            Self::Vision => "driving_vision",
            Self::Policy => "driving_policy",
            Self::OnPolicy => "driving_on_policy",
            Self::OffPolicy => "driving_off_policy",
        }
    }

    /// The component that an ID-free file stem names, by alias: `driving_off_policy`, `offpolicy`, `my_vision`.
    ///
    /// The caller removes a known `<id>_` prefix first: an ID may itself contain `policy` or `vision`.
    pub fn from_alias(stem: &str) -> Option<Self> {
        let stem = stem.to_ascii_lowercase();
        ALIASES.iter().find(|(alias, _)| stem.contains(alias)).map(|&(_, component)| component)
    }
}

impl fmt::Display for Component {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Which of the two sizes of a component: one ref may hold both, and one is never taken in place of the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Variant {
    /// The model for the device's own GPU.
    #[default]
    Standard,
    /// The larger model for an external GPU, `big_<component>.onnx`.
    ExternalGpu,
}

impl Variant {
    /// The variant that a source entry's `uses_external_gpu` asks for.
    pub const fn for_external_gpu(uses_external_gpu: bool) -> Self {
        if uses_external_gpu { Self::ExternalGpu } else { Self::Standard }
    }

    /// What stands before the component in file names: nothing or `big_`.
    pub const fn prefix(self) -> &'static str {
        match self {
            Self::Standard => "",
            Self::ExternalGpu => "big_",
        }
    }
}

/// One component in one variant: what a source file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ComponentFile {
    /// The component.
    pub component: Component,
    /// Its size variant.
    pub variant: Variant,
}

impl ComponentFile {
    /// `driving_vision.onnx` or `big_driving_vision.onnx`: the name in a source repository.
    pub fn repository_name(self) -> String {
        format!("{}{}.onnx", self.variant.prefix(), self.component)
    }

    /// `<id>_driving_vision.onnx` or `<id>_big_driving_vision.onnx`: the name in a workspace and on the device.
    pub fn workspace_name(self, id: &ModelId) -> String {
        format!("{id}_{}", self.repository_name())
    }

    /// The paths in a repository's tree where the file may be, in the order in which they are tried.
    pub fn candidate_paths(self) -> [RelPath; 3] {
        COMPONENT_DIRECTORIES.map(|directory| {
            RelPath::new(format!("{directory}/{}", self.repository_name()))
                .unwrap_or_else(|_| unreachable!("the directories and names are plain relative paths"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aliases_prefer_the_longer_name() {
        assert_eq!(Component::from_alias("driving_off_policy"), Some(Component::OffPolicy));
        assert_eq!(Component::from_alias("OnPolicy"), Some(Component::OnPolicy));
        assert_eq!(Component::from_alias("driving_policy"), Some(Component::Policy));
        assert_eq!(Component::from_alias("big_driving_vision"), Some(Component::Vision));
        assert_eq!(Component::from_alias("dmonitoring_model"), None);
    }

    #[test]
    fn both_variants_keep_their_names_apart() {
        let id = ModelId::new("rdf2").unwrap();
        let small = ComponentFile { component: Component::Supercombo, variant: Variant::Standard };
        let big = ComponentFile { variant: Variant::ExternalGpu, ..small };
        assert_eq!(small.workspace_name(&id), "rdf2_driving_supercombo.onnx");
        assert_eq!(big.workspace_name(&id), "rdf2_big_driving_supercombo.onnx");
        assert_eq!(big.candidate_paths()[1].as_str(), "selfdrive/modeld/models/big_driving_supercombo.onnx");
    }
}
