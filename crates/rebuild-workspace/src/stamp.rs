//! Size and modification time of a file: what a rerun looks at instead of hashing.

use std::{fs, io, time::UNIX_EPOCH};

use camino::Utf8Path;
use durable_fs::FsError;
use serde::{Deserialize, Serialize};

/// Size and modification time of a file. A file that shows the recorded stamp is taken for the recorded one; with another
/// time its content is hashed again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    /// Size in bytes.
    pub size: u64,
    /// Modification time in nanoseconds since 1970.
    pub modified_ns: i64,
}

impl Stamp {
    /// The stamp of the regular file at `path`; `None` where there is none.
    ///
    /// # Errors
    /// [`FsError::Io`] where the file cannot be looked at.
    pub fn of(path: &Utf8Path) -> Result<Option<Self>, FsError> {
        let found = match fs::metadata(path) {
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Ok(None);
            }
            found => found.map_err(FsError::io("look at", path))?,
        };
        if !found.is_file() {
            return Ok(None);
        }
        let modified = found.modified().map_err(FsError::io("look at", path))?;
        let since = modified.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
        Ok(Some(Self { size: found.len(), modified_ns: i64::try_from(since).unwrap_or(i64::MAX) }))
    }
}
