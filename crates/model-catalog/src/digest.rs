//! SHA-256 digests as values.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// Text that is not 64 hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a SHA-256 digest: 64 hexadecimal digits are needed")]
pub struct ParseDigestError {
    /// The refused text.
    pub text: String,
}

/// A SHA-256 digest, written as 64 lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Sha256Digest([u8; 32]);

impl Sha256Digest {
    /// The digest with these bytes.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The 32 bytes of the digest.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for Sha256Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Sha256Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sha256Digest({self})")
    }
}

impl FromStr for Sha256Digest {
    type Err = ParseDigestError;

    fn from_str(text: &str) -> Result<Self, ParseDigestError> {
        let refused = || ParseDigestError { text: text.chars().take(80).collect() };
        let digits = text.as_bytes();
        if digits.len() != 64 {
            return Err(refused());
        }
        let mut bytes = [0u8; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let digit = |c: u8| (c as char).to_digit(16);
            let (high, low) = digit(pair[0]).zip(digit(pair[1])).ok_or_else(refused)?;
            // Both are below 16, so the value fits a byte.
            *byte = (high * 16 + low) as u8;
        }
        Ok(Self(bytes))
    }
}

impl TryFrom<String> for Sha256Digest {
    type Error = ParseDigestError;
    fn try_from(text: String) -> Result<Self, ParseDigestError> {
        text.parse()
    }
}

impl From<Sha256Digest> for String {
    fn from(digest: Sha256Digest) -> Self {
        digest.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn text_and_bytes_round_trip(bytes: [u8; 32]) {
            let digest = Sha256Digest::from_bytes(bytes);
            prop_assert_eq!(digest.to_string().parse::<Sha256Digest>().unwrap(), digest);
            prop_assert_eq!(digest.to_string().to_uppercase().parse::<Sha256Digest>().unwrap(), digest);
        }

        #[test]
        fn any_text_is_parsed_or_refused(text in ".{0,70}") {
            let _ = text.parse::<Sha256Digest>();
        }
    }

    #[test]
    fn wrong_length_and_letters_are_refused() {
        assert!("ab".parse::<Sha256Digest>().is_err());
        assert!("g".repeat(64).parse::<Sha256Digest>().is_err());
        assert!("é".repeat(32).parse::<Sha256Digest>().is_err());
    }
}
