//! The bytes of a download so far, in a file of a known name, so that the next attempt or the next run goes on from them.
//!
//! What is on disk is believed only as far as it was recorded: the record holds length and digest of a prefix that was
//! synced. A kill leaves a longer file, which is cut back; a power cut may leave other bytes, which the digest shows.

use std::{
    fs::{self, File, OpenOptions},
    io::{Read, Seek, SeekFrom, Write},
    sync::atomic::{AtomicU64, Ordering},
};

use camino::{Utf8Path, Utf8PathBuf};
use durable_fs::{BLOCK, Durability, Expected, FsError, Sha256, Written, sync_dir, sync_file, write_json};
use model_catalog::Sha256Digest;
use serde::{Deserialize, Serialize};

/// What is known of a partial file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    format: u32,
    /// Length of the prefix that was synced.
    length: u64,
    /// Its SHA-256.
    sha256: Sha256Digest,
    /// What the whole is expected to be; a prefix of something else is no use.
    expected_size: Option<u64>,
    expected_sha256: Option<Sha256Digest>,
    /// Where it came from, and which version of it.
    validator: Option<Validator>,
}

/// Which version of which address a prefix came from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Validator {
    pub(crate) url: String,
    pub(crate) etag: String,
}

const FORMAT: u32 = 1;

/// After so many bytes the prefix is synced and recorded.
const CHECKPOINT: u64 = 32 * 1024 * 1024;

/// A growing file. Where another process is downloading the same thing, it is a private one that is not kept.
#[derive(Debug)]
pub(crate) struct Partial {
    destination: Utf8PathBuf,
    path: Utf8PathBuf,
    file: File,
    expected: Expected,
    hash: Sha256,
    len: u64,
    recorded: u64,
    pub(crate) validator: Option<Validator>,
    private: bool,
    finished: bool,
}

static PRIVATE: AtomicU64 = AtomicU64::new(0);

impl Partial {
    /// Opens the partial file of `destination` and takes what is proven of it.
    pub(crate) fn open(destination: &Utf8Path, expected: Expected) -> Result<Self, FsError> {
        let shared = Utf8PathBuf::from(format!("{destination}.partial"));
        let file = open(&shared)?;
        let (file, path, private) = if file.try_lock().is_ok() && is_same_file(&file, &shared) {
            (file, shared, false)
        } else {
            let number = PRIVATE.fetch_add(1, Ordering::Relaxed);
            let path = Utf8PathBuf::from(format!("{destination}.partial-{}-{number}", std::process::id()));
            (open(&path)?, path, true)
        };
        let mut partial = Self {
            destination: destination.to_owned(),
            path,
            file,
            expected,
            hash: Sha256::new(),
            len: 0,
            recorded: 0,
            validator: None,
            private,
            finished: false,
        };
        partial.recover()?;
        Ok(partial)
    }

    fn record_path(&self) -> Utf8PathBuf {
        Utf8PathBuf::from(format!("{}.json", self.path))
    }

    fn recover(&mut self) -> Result<(), FsError> {
        let record =
            fs::read(self.record_path()).ok().and_then(|text| serde_json::from_slice::<Record>(&text).ok());
        let usable = record.filter(|record| {
            let same =
                (record.expected_size, record.expected_sha256) == (self.expected.size, self.expected.sha256);
            record.format == FORMAT && same && self.expected.size.is_none_or(|size| record.length <= size)
        });
        if let Some(record) = usable
            && let Some(hash) = self.hash_prefix(record.length)?
            && hash.clone().finish() == record.sha256
        {
            self.file.set_len(record.length).map_err(FsError::io("cut back", &self.path))?;
            self.file.seek(SeekFrom::End(0)).map_err(FsError::io("read", &self.path))?;
            self.hash = hash;
            self.len = record.length;
            self.recorded = record.length;
            self.validator = record.validator;
            return Ok(());
        }
        self.reset()
    }

    /// The hash of the first `length` bytes, or `None` where the file is shorter.
    fn hash_prefix(&mut self, length: u64) -> Result<Option<Sha256>, FsError> {
        self.file.rewind().map_err(FsError::io("read", &self.path))?;
        let mut hash = Sha256::new();
        let mut block = vec![0; BLOCK];
        let mut left = length;
        while left > 0 {
            let want = block.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            match self.file.read(&mut block[..want]).map_err(FsError::io("read", &self.path))? {
                0 => return Ok(None),
                read => {
                    hash.update(&block[..read]);
                    left -= read as u64;
                }
            }
        }
        Ok(Some(hash))
    }

    /// Bytes that are there.
    pub(crate) const fn len(&self) -> u64 {
        self.len
    }

    /// Throws away what is there.
    pub(crate) fn reset(&mut self) -> Result<(), FsError> {
        self.file.set_len(0).map_err(FsError::io("empty", &self.path))?;
        self.file.rewind().map_err(FsError::io("empty", &self.path))?;
        self.hash = Sha256::new();
        (self.len, self.recorded) = (0, 0);
        self.validator = None;
        match fs::remove_file(self.record_path()) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(FsError::io("remove", self.record_path())(error))
            }
            _ => Ok(()),
        }
    }

    /// Adds bytes.
    pub(crate) fn append(&mut self, bytes: &[u8]) -> Result<(), FsError> {
        self.file.write_all(bytes).map_err(FsError::io("write", &self.path))?;
        self.hash.update(bytes);
        self.len += bytes.len() as u64;
        if self.len - self.recorded >= CHECKPOINT { self.checkpoint() } else { Ok(()) }
    }

    fn checkpoint(&mut self) -> Result<(), FsError> {
        if self.private || self.len == self.recorded {
            return Ok(());
        }
        let _ = sync_file(&self.file, &self.path)?;
        let record = Record {
            format: FORMAT,
            length: self.len,
            sha256: self.hash.clone().finish(),
            expected_size: self.expected.size,
            expected_sha256: self.expected.sha256,
            validator: self.validator.clone(),
        };
        write_json(self.record_path(), &record)?;
        self.recorded = self.len;
        Ok(())
    }

    /// The digest of everything there.
    pub(crate) fn digest(&self) -> Sha256Digest {
        self.hash.clone().finish()
    }

    /// Checks, syncs and gives the file its name.
    pub(crate) fn finish(mut self) -> Result<Written, FsError> {
        let sha256 = self.digest();
        self.expected.check(&self.path, self.len, sha256)?;
        let mut durability = sync_file(&self.file, &self.path)?;
        if durability == Durability::Unsupported {
            let read_back = self.hash_prefix(self.len)?.unwrap_or_default().finish();
            Expected::exactly(self.len, sha256).check(&self.path, self.len, read_back)?;
        }
        fs::rename(&self.path, &self.destination).map_err(FsError::io("replace", &self.destination))?;
        self.finished = true;
        let _ = fs::remove_file(self.record_path());
        let parent = self.destination.parent().unwrap_or(Utf8Path::new("."));
        if sync_dir(parent)? == Durability::Unsupported {
            durability = Durability::Unsupported;
        }
        Ok(Written { size: self.len, sha256, durability })
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        // Neither failure loses more than the bytes that were downloaded since the last record.
        if self.private || self.len == 0 {
            let _ = fs::remove_file(self.record_path());
            let _ = fs::remove_file(&self.path);
        } else {
            let _ = self.checkpoint();
        }
    }
}

fn open(path: &Utf8Path) -> Result<File, FsError> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .map_err(FsError::io("open", path))
}

/// Whether `path` still names the open file: its last owner may have renamed it before the lock was taken.
#[cfg(unix)]
fn is_same_file(file: &File, path: &Utf8Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let identity = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    file.metadata().ok().map(identity) == fs::metadata(path).ok().map(identity)
}

#[cfg(not(unix))]
fn is_same_file(_file: &File, _path: &Utf8Path) -> bool {
    true
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests damage files directly")]
mod tests {
    use super::*;

    fn whole() -> (Vec<u8>, Expected) {
        let bytes: Vec<u8> = (0..100_000u32).map(|i| (i % 253) as u8).collect();
        let expected = Expected::exactly(bytes.len() as u64, Sha256::digest(&bytes));
        (bytes, expected)
    }

    #[test]
    fn a_dropped_prefix_is_taken_up_and_a_damaged_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let destination = Utf8Path::from_path(dir.path()).unwrap().join("f");
        let (bytes, expected) = whole();
        let mut partial = Partial::open(&destination, expected).unwrap();
        partial.append(&bytes[..40_000]).unwrap();
        drop(partial);
        // A kill leaves more bytes than were recorded.
        let path = dir.path().join("f.partial");
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"unrecorded").unwrap();
        let mut partial = Partial::open(&destination, expected).unwrap();
        assert_eq!(partial.len(), 40_000);
        partial.append(&bytes[40_000..50_000]).unwrap();
        drop(partial);
        let mut content = fs::read(&path).unwrap();
        content[3] ^= 1;
        fs::write(&path, &content).unwrap();
        assert_eq!(Partial::open(&destination, expected).unwrap().len(), 0);
    }

    #[test]
    fn a_prefix_of_something_else_is_not_used() {
        let dir = tempfile::tempdir().unwrap();
        let destination = Utf8Path::from_path(dir.path()).unwrap().join("f");
        let (bytes, expected) = whole();
        let mut partial = Partial::open(&destination, expected).unwrap();
        partial.append(&bytes[..40_000]).unwrap();
        drop(partial);
        let other = Expected::exactly(expected.size.unwrap(), Sha256::digest(b"other"));
        assert_eq!(Partial::open(&destination, other).unwrap().len(), 0);
    }

    #[test]
    fn two_at_once_do_not_share_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let destination = Utf8Path::from_path(dir.path()).unwrap().join("f");
        let (bytes, expected) = whole();
        let mut first = Partial::open(&destination, expected).unwrap();
        let mut second = Partial::open(&destination, expected).unwrap();
        first.append(&bytes).unwrap();
        second.append(&bytes).unwrap();
        first.finish().unwrap();
        second.finish().unwrap();
        assert_eq!(fs::read(&destination).unwrap(), bytes);
        let names: Vec<_> =
            fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["f"]);
    }
}
