//! What is wrong with an LFS pointer.

/// Why a blob that looks like an LFS pointer is not accepted as one. Each names the line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line} {text:?}: {why}")]
pub struct PointerError {
    /// The offending line, counted from 1.
    pub line: usize,
    /// The line as it stands, shortened.
    pub text: String,
    /// What is wrong with it.
    pub why: &'static str,
}
