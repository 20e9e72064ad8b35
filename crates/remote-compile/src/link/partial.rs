//! A file that arrives over a connection which may be cut.
//!
//! It grows under a name of its own beside its destination, which carries the digest that the whole must have: what a cut
//! connection left is the beginning of the same file or of nothing, and its digest is compared before it is continued. The
//! destination appears when size and digest of the whole are right and the bytes are on disk.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Seek, SeekFrom, Write},
    sync::mpsc::{SyncSender, sync_channel},
    thread::JoinHandle,
};

use camino::{Utf8Path, Utf8PathBuf};
use durable_fs::{BLOCK, Durability, Expected, FsError, Sha256, Written, sync_dir, sync_file};
use model_catalog::Sha256Digest;

const PREFIX: &str = ".incoming-";
const DIGEST_DIGITS: usize = 16;
/// Bytes between two syncs in the background, so that the last one has little left to do.
const SYNC_EVERY: u64 = 32 << 20;

/// Why an arriving file cannot be written.
#[derive(Debug)]
pub(crate) enum PartialError {
    /// Another connection still writes it.
    Busy,
    /// The file system refuses.
    Fs(FsError),
}

impl From<FsError> for PartialError {
    fn from(error: FsError) -> Self {
        Self::Fs(error)
    }
}

/// A file that arrives.
#[derive(Debug)]
pub(crate) struct PartialFile {
    destination: Utf8PathBuf,
    path: Utf8PathBuf,
    file: File,
    // Hashed by the thread that writes: the rest of the connection keeps the other processors busy, and what has just been
    // written is still in the cache of this one.
    hash: Sha256,
    len: u64,
    prefix: (u64, Sha256Digest),
    synced: u64,
    syncer: Option<Syncer>,
}

/// Syncs in the background while the file grows.
#[derive(Debug)]
struct Syncer {
    wanted: SyncSender<()>,
    thread: JoinHandle<()>,
}

impl Syncer {
    fn start(file: &File) -> Option<Self> {
        let file = file.try_clone().ok()?;
        let (wanted, wishes) = sync_channel::<()>(1);
        let thread = std::thread::spawn(move || {
            for () in wishes {
                // What it cannot do here, the sync at the end reports.
                let _ = file.sync_data();
            }
        });
        Some(Self { wanted, thread })
    }

    fn finish(self) {
        drop(self.wanted);
        let _ = self.thread.join();
    }
}

fn parent_of(path: &Utf8Path) -> &Utf8Path {
    path.parent().filter(|parent| !parent.as_str().is_empty()).unwrap_or(Utf8Path::new("."))
}

/// Under which name a file arrives.
fn partial_path(destination: &Utf8Path, sha256: Sha256Digest) -> Utf8PathBuf {
    let digest = sha256.to_string();
    let name = destination.file_name().unwrap_or("file");
    parent_of(destination).join(format!("{PREFIX}{}-{name}", &digest[..DIGEST_DIGITS]))
}

impl PartialFile {
    /// Opens what has arrived of the file with this digest, or begins it.
    pub(crate) fn open(
        destination: &Utf8Path,
        size: u64,
        sha256: Sha256Digest,
    ) -> Result<Self, PartialError> {
        let path = partial_path(destination, sha256);
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(FsError::io("create", &path))?;
        if let Err(fs::TryLockError::WouldBlock) = file.try_lock() {
            return Err(PartialError::Busy);
        }
        let (hash, found) = hash_prefix(&mut file, size).map_err(FsError::io("read", &path))?;
        let prefix = (found, hash.clone().finish());
        Ok(Self {
            destination: destination.to_owned(),
            path,
            file,
            hash,
            len: found,
            prefix,
            synced: found,
            syncer: None,
        })
    }

    /// How much was there when it was opened, and its digest.
    pub(crate) fn prefix(&self) -> (u64, Sha256Digest) {
        self.prefix
    }

    /// Begins again at byte 0.
    pub(crate) fn restart(&mut self) -> Result<(), FsError> {
        self.file.set_len(0).and_then(|()| self.file.rewind()).map_err(FsError::io("empty", &self.path))?;
        (self.hash, self.len) = (Sha256::new(), 0);
        self.synced = 0;
        Ok(())
    }

    /// Bytes so far.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Adds bytes.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), FsError> {
        self.file.write_all(bytes).map_err(FsError::io("write", &self.path))?;
        self.hash.update(bytes);
        self.len += bytes.len() as u64;
        if self.len - self.synced >= SYNC_EVERY {
            self.synced = self.len;
            if self.syncer.is_none() {
                self.syncer = Syncer::start(&self.file);
            }
            if let Some(syncer) = &self.syncer {
                // One that is still at work takes these bytes along with its next turn.
                let _ = syncer.wanted.try_send(());
            }
        }
        Ok(())
    }

    /// Checks, syncs and renames. What is not the expected file is removed.
    pub(crate) fn commit(self, expected: Expected) -> Result<Written, FsError> {
        let Self { destination, path, file, hash, len: size, syncer, .. } = self;
        let sha256 = hash.finish();
        if let Some(syncer) = syncer {
            syncer.finish();
        }
        if let Err(wrong) = expected.check(&destination, size, sha256) {
            let _ = fs::remove_file(&path);
            return Err(wrong);
        }
        let synced = sync_file(&file, &path)?;
        if synced == Durability::Unsupported {
            check_again(&path, Expected::exactly(size, sha256))?;
        }
        fs::rename(&path, &destination).map_err(FsError::io("replace", &destination))?;
        let directory = sync_dir(parent_of(&destination))?;
        let durability = if directory == Durability::Synced { synced } else { directory };
        Ok(Written { size, sha256, durability })
    }
}

/// Hashes what is there, at most `size` bytes, and leaves the file at their end.
fn hash_prefix(file: &mut File, size: u64) -> io::Result<(Sha256, u64)> {
    if file.metadata()?.len() > size {
        file.set_len(0)?;
    }
    let mut hash = Sha256::new();
    let mut found = 0;
    let mut block = vec![0; BLOCK];
    loop {
        match file.read(&mut block)? {
            0 => break,
            read => {
                hash.update(&block[..read]);
                found += read as u64;
            }
        }
    }
    file.seek(SeekFrom::Start(found))?;
    Ok((hash, found))
}

fn check_again(path: &Utf8Path, expected: Expected) -> Result<(), FsError> {
    let (sha256, size) = durable_fs::hash_file(path, &durable_fs::NoProgress)?;
    expected.check(path, size, sha256)
}

/// Removes what arrived of `destination` and is not continued: all but what is of the contents `keep`.
pub(crate) fn remove_partials(destination: &Utf8Path, keep: Option<Sha256Digest>) -> Result<(), FsError> {
    let keep = keep.map(|digest| partial_path(destination, digest));
    let dir = parent_of(destination);
    let Some(name) = destination.file_name() else { return Ok(()) };
    let entries = match dir.read_dir_utf8() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(FsError::io("list", dir))?,
    };
    for entry in entries.filter_map(Result::ok) {
        let rest = entry.file_name().strip_prefix(PREFIX).and_then(|rest| rest.get(DIGEST_DIGITS + 1..));
        if rest == Some(name) && keep.as_deref() != Some(entry.path()) {
            let _ = fs::remove_file(entry.path());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dir() -> (tempfile::TempDir, Utf8PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = Utf8Path::from_path(dir.path()).unwrap().to_owned();
        (dir, path)
    }

    #[test]
    fn a_cut_file_is_continued_and_appears_when_whole() {
        let (_keep, dir) = dir();
        let bytes = b"first and second".as_slice();
        let (digest, size) = (Sha256::digest(bytes), bytes.len() as u64);
        let destination = dir.join("f");
        let mut partial = PartialFile::open(&destination, size, digest).unwrap();
        partial.write(&bytes[..5]).unwrap();
        assert!(matches!(PartialFile::open(&destination, size, digest), Err(PartialError::Busy)));
        drop(partial);
        assert!(!destination.exists());
        let mut partial = PartialFile::open(&destination, size, digest).unwrap();
        assert_eq!(partial.prefix(), (5, Sha256::digest(b"first")));
        partial.write(&bytes[5..]).unwrap();
        partial.commit(Expected::exactly(size, digest)).unwrap();
        assert_eq!(fs::read(&destination).unwrap(), bytes);
        assert_eq!(dir.read_dir_utf8().unwrap().count(), 1);
    }

    #[test]
    fn wrong_bytes_leave_nothing() {
        let (_keep, dir) = dir();
        let (destination, digest) = (dir.join("f"), Sha256::digest(b"right"));
        let mut partial = PartialFile::open(&destination, 5, digest).unwrap();
        partial.write(b"wrong").unwrap();
        partial.commit(Expected::exactly(5, digest)).unwrap_err();
        assert_eq!(dir.read_dir_utf8().unwrap().count(), 0);
    }

    #[test]
    fn what_arrived_of_another_content_is_removed() {
        let (_keep, dir) = dir();
        let destination = dir.join("f");
        drop(PartialFile::open(&destination, 5, Sha256::digest(b"older")).unwrap());
        drop(PartialFile::open(&dir.join("g"), 5, Sha256::digest(b"older")).unwrap());
        remove_partials(&destination, Some(Sha256::digest(b"newer"))).unwrap();
        let names: Vec<_> =
            dir.read_dir_utf8().unwrap().map(|entry| entry.unwrap().file_name().to_owned()).collect();
        assert_eq!(names.len(), 1);
        assert!(names[0].ends_with("-g"));
        remove_partials(&dir.join("g"), Some(Sha256::digest(b"older"))).unwrap();
        assert_eq!(dir.read_dir_utf8().unwrap().count(), 1);
        remove_partials(&dir.join("g"), None).unwrap();
        assert_eq!(dir.read_dir_utf8().unwrap().count(), 0);
    }
}
