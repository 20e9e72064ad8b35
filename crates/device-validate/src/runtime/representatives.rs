//! Which models stand for the catalog.

use model_catalog::{BehaviorVersion, InputFormat, ModelId};

/// A model that may stand for others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// The model.
    pub id: ModelId,
    /// Its behaviour version, where known.
    pub version: Option<BehaviorVersion>,
    /// Split or supercombo.
    pub input_format: InputFormat,
    /// Whether it needs an external GPU, which not every device has.
    pub uses_external_gpu: bool,
}

/// What a model stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Split models of this behaviour version.
    Version(u32),
    /// Supercombo models.
    Supercombo,
}

impl Role {
    /// Every role of a release.
    pub const ALL: [Self; 5] =
        [Self::Version(8), Self::Version(11), Self::Version(12), Self::Version(15), Self::Supercombo];

    /// Whether a candidate can stand for the others of this role.
    pub fn fits(self, candidate: &Candidate) -> bool {
        let is_supercombo = candidate.input_format == InputFormat::Supercombo;
        !candidate.uses_external_gpu
            && match self {
                Self::Version(number) => {
                    !is_supercombo && candidate.version == Some(BehaviorVersion::from_number(number))
                }
                Self::Supercombo => is_supercombo,
            }
    }
}

impl std::fmt::Display for Role {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Version(number) => write!(f, "v{number}"),
            Self::Supercombo => write!(f, "supercombo"),
        }
    }
}

/// The first candidate of each role, in the order of the candidates, and the roles that nobody fills.
pub fn representatives(candidates: &[Candidate]) -> (Vec<(Role, ModelId)>, Vec<Role>) {
    let (mut found, mut missing) = (Vec::new(), Vec::new());
    for role in Role::ALL {
        match candidates.iter().find(|candidate| role.fits(candidate)) {
            Some(candidate) => found.push((role, candidate.id.clone())),
            None => missing.push(role),
        }
    }
    (found, missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(id: &str, version: u32, input_format: InputFormat, uses_external_gpu: bool) -> Candidate {
        let version = Some(BehaviorVersion::from_number(version));
        Candidate { id: ModelId::new(id).unwrap(), version, input_format, uses_external_gpu }
    }

    #[test]
    fn each_role_has_its_first_model_and_empty_roles_are_named() {
        use InputFormat::{Split, Supercombo};
        let candidates = [
            candidate("a", 8, Split, false),
            candidate("b", 8, Split, false),
            candidate("big", 11, Split, true),
            candidate("c", 15, Supercombo, false),
            candidate("d", 12, Split, false),
        ];
        let (found, missing) = representatives(&candidates);
        let found: Vec<_> = found.iter().map(|(role, id)| format!("{role} {id}")).collect();
        assert_eq!(found, ["v8 a", "v12 d", "supercombo c"]);
        assert_eq!(missing, [Role::Version(11), Role::Version(15)]);
        assert_eq!(representatives(&[]).1, Role::ALL);
    }
}
