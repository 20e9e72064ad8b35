//! Names of jobs.

use std::{fmt, str::FromStr};

use model_catalog::{ModelId, Sha256Digest};

/// Hexadecimal digits of the request's digest in a name: enough that two requests of one model never share one.
const DIGEST_DIGITS: usize = 16;

/// Text that names no job.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not the name of a job: <kind>.<model>.<16 hexadecimal digits> is needed")]
pub struct JobNameError {
    /// The refused text.
    pub text: String,
}

/// The name of a job, and of its directory on the device: kind, model and the beginning of its request's SHA-256.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobName {
    text: String,
    kind_len: usize,
    model: ModelId,
}

impl JobName {
    /// The name of the job of `kind` (lower-case letters) for `model` with this request.
    ///
    /// # Errors
    /// [`JobNameError`] where `kind` is not a lower-case word.
    pub fn new(kind: &str, model: &ModelId, request: Sha256Digest) -> Result<Self, JobNameError> {
        let digest = request.to_string();
        format!("{kind}.{model}.{}", &digest[..DIGEST_DIGITS]).parse()
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// What the job does.
    pub fn kind(&self) -> &str {
        &self.text[..self.kind_len]
    }

    /// The model that it is for.
    pub fn model(&self) -> &ModelId {
        &self.model
    }
}

impl FromStr for JobName {
    type Err = JobNameError;

    fn from_str(text: &str) -> Result<Self, JobNameError> {
        let refused = || JobNameError { text: text.chars().take(120).collect() };
        let parts: Vec<&str> = text.split('.').collect();
        let [kind, model, digest] = parts[..] else { return Err(refused()) };
        let is_word = !kind.is_empty() && kind.bytes().all(|b| b.is_ascii_lowercase());
        let is_digest =
            digest.len() == DIGEST_DIGITS && digest.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        let model = ModelId::new(model).map_err(|_| refused())?;
        if is_word && is_digest {
            Ok(Self { text: text.to_owned(), kind_len: kind.len(), model })
        } else {
            Err(refused())
        }
    }
}

impl fmt::Display for JobName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_carries_kind_model_and_request() {
        let model = ModelId::new("michael-rl2").unwrap();
        let name = JobName::new("compile", &model, Sha256Digest::from_bytes([0xab; 32])).unwrap();
        assert_eq!(name.as_str(), "compile.michael-rl2.abababababababab");
        assert_eq!((name.kind(), name.model()), ("compile", &model));
        assert_eq!(name.as_str().parse::<JobName>().unwrap(), name);
    }

    #[test]
    fn other_directories_are_no_jobs() {
        for text in [
            "",
            "x",
            "compile.m",
            "compile.m.0",
            "../m.0123456789abcdef",
            "a.b.c.0123456789abcdef",
            "Compile.m.0123456789abcdef",
            "compile.a b.0123456789abcdef",
            "compile.m.0123456789ABCDEF",
        ] {
            assert!(text.parse::<JobName>().is_err(), "{text}");
        }
    }
}
