//! How large a part and how large an unsplit file may be.

use model_catalog::MAX_PARTS;

use crate::PartsError;

const MIB: u64 = 1024 * 1024;

/// The size above which a file is split, in bytes.
///
/// Hosts of git repositories refuse files over 100 MiB (they say "MB" and count in MiB), so 104,857,600 bytes is the most;
/// it may be lowered, never raised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PartLimit(u64);

impl PartLimit {
    /// The hosts' limit: 100 MiB.
    pub const MAX: Self = Self(100 * MIB);

    /// A limit of `mib` MiB.
    ///
    /// # Errors
    /// [`PartsError::Limit`] for 0 and for more than 100.
    pub fn from_mib(mib: u64) -> Result<Self, PartsError> {
        mib.checked_mul(MIB).ok_or(PartsError::Limit { bytes: u64::MAX }).and_then(Self::from_bytes)
    }

    /// A limit of `bytes` bytes.
    ///
    /// # Errors
    /// [`PartsError::Limit`] for 0 and for more than 100 MiB.
    pub fn from_bytes(bytes: u64) -> Result<Self, PartsError> {
        if (1..=Self::MAX.0).contains(&bytes) { Ok(Self(bytes)) } else { Err(PartsError::Limit { bytes }) }
    }

    /// The limit in bytes.
    pub const fn bytes(self) -> u64 {
        self.0
    }

    /// Whether a file of `size` bytes is stored in parts.
    pub const fn needs_parts(self, size: u64) -> bool {
        size > self.0
    }
}

impl Default for PartLimit {
    fn default() -> Self {
        Self::MAX
    }
}

/// The size of every part but the last, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChunkSize(u64);

impl ChunkSize {
    /// Largest part, in MiB: below the hosts' limit by one, as they count in different units.
    pub const MAX_MIB: u64 = 99;

    /// Parts of `mib` MiB.
    ///
    /// # Errors
    /// [`PartsError::ChunkSize`] outside 1 to 99.
    pub fn from_mib(mib: u64) -> Result<Self, PartsError> {
        if (1..=Self::MAX_MIB).contains(&mib) {
            Ok(Self(mib * MIB))
        } else {
            Err(PartsError::ChunkSize { mib })
        }
    }

    /// Parts of `bytes` bytes, at least 1 and at most 99 MiB; other values are brought to the nearer of the two.
    pub const fn from_bytes(bytes: u64) -> Self {
        let most = Self::MAX_MIB * MIB;
        Self(if bytes == 0 {
            1
        } else if bytes > most {
            most
        } else {
            bytes
        })
    }

    /// The size in bytes.
    pub const fn bytes(self) -> u64 {
        self.0
    }

    /// The smaller of this size and a limit: parts must not be over a lowered limit themselves.
    #[must_use]
    pub fn within(self, limit: PartLimit) -> Self {
        Self(self.0.min(limit.bytes()))
    }

    /// Number of parts of a file `name` with `size` bytes. An empty file has one empty part.
    ///
    /// # Errors
    /// [`PartsError::TooMany`] names the smallest chunk size that fits, where one does.
    pub fn count(self, name: &str, size: u64) -> Result<usize, PartsError> {
        let count = size.div_ceil(self.0).max(1);
        match usize::try_from(count) {
            Ok(count) if count <= MAX_PARTS => Ok(count),
            _ => {
                let mib = size.div_ceil(MAX_PARTS as u64).div_ceil(MIB);
                let smallest_mib = (mib <= Self::MAX_MIB).then_some(mib);
                Err(PartsError::TooMany { name: name.to_owned(), size, chunk: self.0, count, smallest_mib })
            }
        }
    }
}

impl Default for ChunkSize {
    /// 95 MiB.
    fn default() -> Self {
        Self(95 * MIB)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limits_are_the_documented_ones() {
        assert_eq!(PartLimit::default().bytes(), 104_857_600);
        assert!(
            !PartLimit::default().needs_parts(104_857_600) && PartLimit::default().needs_parts(104_857_601)
        );
        assert!(
            PartLimit::from_mib(0).is_err()
                && PartLimit::from_mib(101).is_err()
                && PartLimit::from_mib(u64::MAX).is_err()
        );
        assert!(ChunkSize::from_mib(0).is_err() && ChunkSize::from_mib(100).is_err());
        assert_eq!(ChunkSize::default().bytes(), 95 * 1024 * 1024);
        assert_eq!(ChunkSize::default().within(PartLimit::from_mib(1).unwrap()).bytes(), MIB);
    }

    #[test]
    fn more_than_a_hundred_parts_name_the_chunk_that_fits() {
        let chunk = ChunkSize::from_mib(1).unwrap();
        assert_eq!(chunk.count("a", 100 * MIB).unwrap(), 100);
        let refused = chunk.count("a", 100 * MIB + 1).unwrap_err();
        assert!(
            matches!(refused, PartsError::TooMany { count: 101, smallest_mib: Some(2), .. }),
            "{refused}"
        );
        assert!(refused.to_string().contains("2 MiB"), "{refused}");
        assert_eq!(ChunkSize::from_mib(2).unwrap().count("a", 100 * MIB + 1).unwrap(), 51);
        let none = ChunkSize::default().count("a", 9901 * MIB).unwrap_err();
        assert!(matches!(none, PartsError::TooMany { smallest_mib: None, .. }), "{none}");
    }
}
