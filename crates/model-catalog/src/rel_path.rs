//! Relative, slash-separated paths: paths inside a git tree, a workspace or a job.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// Why a relative path was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path:?} is not a plain relative path: {why}")]
pub struct RelPathError {
    /// The refused text.
    pub path: String,
    /// What is wrong with it.
    pub why: &'static str,
}

/// A relative path with `/` between non-empty segments, none of them `.` or `..`: it cannot leave the directory that it
/// is joined to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RelPath(String);

impl RelPath {
    /// Validates `path`.
    ///
    /// # Errors
    /// [`RelPathError`] where the path is empty, absolute, has a backslash, a NUL, or an empty, `.` or `..` segment.
    pub fn new(path: impl Into<String>) -> Result<Self, RelPathError> {
        let path = path.into();
        let why = if path.is_empty() {
            "it is empty"
        } else if path.starts_with('/') {
            "it is absolute"
        } else if path.contains(['\\', '\0']) {
            "it contains a backslash or NUL"
        } else if path.split('/').any(|segment| matches!(segment, "" | "." | "..")) {
            "a segment is empty, '.' or '..'"
        } else {
            return Ok(Self(path));
        };
        Err(RelPathError { path, why })
    }

    /// The path as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The last segment.
    pub fn file_name(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or(&self.0)
    }
}

impl fmt::Display for RelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl AsRef<str> for RelPath {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl FromStr for RelPath {
    type Err = RelPathError;
    fn from_str(s: &str) -> Result<Self, RelPathError> {
        Self::new(s)
    }
}

impl TryFrom<String> for RelPath {
    type Error = RelPathError;
    fn try_from(path: String) -> Result<Self, RelPathError> {
        Self::new(path)
    }
}

impl From<RelPath> for String {
    fn from(path: RelPath) -> Self {
        path.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_cannot_leave_their_directory() {
        for path in ["", "/x", "a//b", "../x", "a/../b", "./a", "a/.", "a\\b", "a/", "a\0b"] {
            assert!(RelPath::new(path).is_err(), "{path:?}");
        }
        assert_eq!(RelPath::new("selfdrive/modeld/models").unwrap().file_name(), "models");
    }
}
