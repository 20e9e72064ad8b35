//! Model IDs and behaviour versions.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// Longest accepted model ID, in bytes. Real IDs have at most 14; the limit keeps every derived file name below the
/// 255 bytes that exFAT, APFS and ext4 share.
const MAX_ID_LEN: usize = 64;

/// Why a model ID, behaviour version or manifest version was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// The text is empty.
    #[error("a {what} cannot be empty")]
    Empty {
        /// What was being parsed.
        what: &'static str,
    },
    /// The text is longer than file names derived from it allow.
    #[error("{what} {text:?} is {len} bytes long; at most {max} are allowed")]
    TooLong {
        /// What was being parsed.
        what: &'static str,
        /// The refused text.
        text: String,
        /// Its length in bytes.
        len: usize,
        /// The limit in bytes.
        max: usize,
    },
    /// A character outside the accepted set.
    #[error(
        "{what} {text:?} contains {found:?} at position {at}; letters, digits, '-' and '_' are allowed, first a letter or digit"
    )]
    Character {
        /// What was being parsed.
        what: &'static str,
        /// The refused text.
        text: String,
        /// The first refused character.
        found: char,
        /// Its position in characters.
        at: usize,
    },
    /// A version that is not `v` followed by a number.
    #[error("{what} {text:?} is not of the form vN, such as v15")]
    Version {
        /// What was being parsed.
        what: &'static str,
        /// The refused text.
        text: String,
    },
}

/// The ID of a model in a catalog, such as `tr1422` or `rdf23`.
///
/// IDs name files on the host and on the device, so only ASCII letters, digits, `-` and `_` are accepted and the first
/// character is a letter or digit: no path separator, shell character, leading dot or option dash can get in.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ModelId(String);

impl ModelId {
    /// Validates `text` as a model ID.
    ///
    /// # Errors
    /// [`IdError`] names the text and the first character that is not allowed.
    pub fn new(text: impl Into<String>) -> Result<Self, IdError> {
        const WHAT: &str = "model ID";
        let text = text.into();
        if text.is_empty() {
            return Err(IdError::Empty { what: WHAT });
        }
        let refused = text
            .chars()
            .enumerate()
            .find(|&(at, c)| !(c.is_ascii_alphanumeric() || (at > 0 && (c == '-' || c == '_'))));
        if let Some((at, found)) = refused {
            return Err(IdError::Character { what: WHAT, text, found, at });
        }
        if text.len() > MAX_ID_LEN {
            return Err(IdError::TooLong { what: WHAT, len: text.len(), text, max: MAX_ID_LEN });
        }
        Ok(Self(text))
    }

    /// The ID as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the ID belongs to a person's own model (`local-*`), which is never downloaded, pruned or migrated.
    pub fn is_local(&self) -> bool {
        self.0.starts_with("local-")
    }
}

impl fmt::Display for ModelId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl AsRef<str> for ModelId {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl FromStr for ModelId {
    type Err = IdError;
    fn from_str(s: &str) -> Result<Self, IdError> {
        Self::new(s)
    }
}

impl TryFrom<String> for ModelId {
    type Error = IdError;
    fn try_from(text: String) -> Result<Self, IdError> {
        Self::new(text)
    }
}

impl From<ModelId> for String {
    fn from(id: ModelId) -> Self {
        id.0
    }
}

/// Parses `vN` without leading zeros.
fn parse_version(what: &'static str, text: &str) -> Result<u32, IdError> {
    text.strip_prefix('v')
        .filter(|n| {
            !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()) && (*n == "0" || !n.starts_with('0'))
        })
        .and_then(|n| n.parse().ok())
        .ok_or_else(|| IdError::Version { what, text: text.to_owned() })
}

macro_rules! version_type {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(u32);

        impl $name {
            /// The version with number `n`.
            pub const fn from_number(n: u32) -> Self {
                Self(n)
            }

            /// The number behind the `v`.
            pub const fn number(self) -> u32 {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&format!("v{}", self.0))
            }
        }

        impl FromStr for $name {
            type Err = IdError;
            fn from_str(s: &str) -> Result<Self, IdError> {
                parse_version($what, s).map(Self)
            }
        }

        impl TryFrom<String> for $name {
            type Error = IdError;
            fn try_from(text: String) -> Result<Self, IdError> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(version: $name) -> Self {
                version.to_string()
            }
        }
    };
}

version_type! {
    /// The behaviour version of a model, `vN`: which runtime contract the model drives on. It says nothing about the
    /// layout of the artifact.
    BehaviorVersion, "behaviour version"
}
version_type! {
    /// The version of a manifest and of the release namespace that goes with it, `vN`.
    ManifestVersion, "manifest version"
}

/// The known names closest to a mistyped one, best first, at most three. Distance is counted in edits (insert, delete,
/// replace, swap of neighbours); a name further away than a third of its length is no match.
pub fn near_matches<'a>(typed: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let mut scored: Vec<(usize, &str)> = known
        .into_iter()
        .map(|name| (edit_distance(typed, name), name))
        .filter(|&(distance, name)| {
            distance <= (name.len().max(typed.len()) / 3).max(1) || (typed.len() >= 3 && name.contains(typed))
        })
        .collect();
    scored.sort();
    scored.dedup();
    scored.into_iter().take(3).map(|(_, name)| name).collect()
}

/// Optimal string alignment distance over bytes; IDs and flags are ASCII.
fn edit_distance(a: &str, b: &str) -> usize {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut rows = vec![vec![0usize; b.len() + 1]; a.len() + 1];
    for (i, row) in rows.iter_mut().enumerate() {
        row[0] = i;
    }
    rows[0] = (0..=b.len()).collect();
    for i in 1..=a.len() {
        for j in 1..=b.len() {
            let replace = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replace.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = best;
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_ids_are_refused() {
        for text in [
            "", "a b", "a;b", "../x", "-rf", "_x", ".hidden", "a/b", "a\\b", "a$b", "ä", "a\n", "a.b", "$(x)",
        ] {
            assert!(ModelId::new(text).is_err(), "{text:?} must be refused");
        }
        assert!(ModelId::new("x".repeat(65)).is_err());
    }

    #[test]
    fn real_ids_are_accepted() {
        for text in ["tr1422", "michael-rl2", "deeprl3v23_", "local-mine", "sc"] {
            assert_eq!(ModelId::new(text).unwrap().as_str(), text);
        }
    }

    #[test]
    fn versions_parse_exactly() {
        assert_eq!("v15".parse::<BehaviorVersion>().unwrap().number(), 15);
        for text in ["15", "v", "v1.2", "V15", "v015", "v-1", "v99999999999"] {
            assert!(text.parse::<BehaviorVersion>().is_err(), "{text}");
        }
    }

    #[test]
    fn near_matches_prefer_the_closest() {
        let known = ["tr1422", "tr1522", "rdf2", "deeprl3", "deeprl33"];
        assert_eq!(near_matches("tr1242", known)[0], "tr1422");
        assert_eq!(near_matches("deeprl", known), ["deeprl3", "deeprl33"]);
        assert!(near_matches("completely-else", known).is_empty());
    }
}
