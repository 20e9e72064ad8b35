//! What is wrong with a file, as data.

use std::fmt;

use serde::Serialize;

/// Whether a finding makes the file unusable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Worth knowing.
    Warning,
    /// The file must not be used.
    Error,
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// A stable name for programs.
    pub code: &'static str,
    /// Where: `file`, `metadata.policy`, `run_policy`, ...
    pub place: String,
    /// What, and what was expected.
    pub message: String,
}

impl Finding {
    pub(crate) fn error(code: &'static str, place: impl Into<String>, message: impl Into<String>) -> Self {
        Finding { severity: Severity::Error, code, place: place.into(), message: message.into() }
    }

    pub(crate) fn warning(code: &'static str, place: impl Into<String>, message: impl Into<String>) -> Self {
        Finding { severity: Severity::Warning, code, place: place.into(), message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        write!(f, "{severity}: {}: {} [{}]", self.place, self.message, self.code)
    }
}
