//! Files that are written under a temporary name and appear under their own in one step.

use std::{
    fs::{self, File},
    io::{self, Read, Seek, Write},
};

use camino::{Utf8Path, Utf8PathBuf};
use model_catalog::Sha256Digest;
use serde::Serialize;
use tempfile::{Builder, NamedTempFile};

use crate::{BLOCK, Durability, FsError, Progress, Sha256, ThreadedHasher, hash_file, sync_dir, sync_file};

/// Start of the names under which files are written; the process ID follows, so that a sweep can tell the living.
const TEMPORARY_PREFIX: &str = ".writing-";

/// What a file has to be before it gets its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Expected {
    /// Size in bytes, where known.
    pub size: Option<u64>,
    /// SHA-256, where known.
    pub sha256: Option<Sha256Digest>,
}

impl Expected {
    /// Both size and digest are known.
    pub const fn exactly(size: u64, sha256: Sha256Digest) -> Self {
        Self { size: Some(size), sha256: Some(sha256) }
    }

    /// Compares with what was found at `path`.
    ///
    /// # Errors
    /// [`FsError::Size`] or [`FsError::Digest`] at the first difference.
    pub fn check(&self, path: &Utf8Path, size: u64, sha256: Sha256Digest) -> Result<(), FsError> {
        if let Some(expected) = self.size.filter(|&expected| expected != size) {
            return Err(FsError::Size { path: path.to_owned(), expected, actual: size });
        }
        match self.sha256 {
            Some(expected) if expected != sha256 => {
                Err(FsError::Digest { path: path.to_owned(), expected, actual: sha256 })
            }
            _ => Ok(()),
        }
    }
}

/// What a committed file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// Size in bytes.
    pub size: u64,
    /// SHA-256 of the content.
    pub sha256: Sha256Digest,
    /// Whether the filesystem confirmed the sync.
    pub durability: Durability,
}

/// A file under a temporary name in its destination's directory, whose digest somebody else computes. Dropping it without
/// [`Self::place`] removes it. Several of them can be synced first and placed together; [`AtomicFile`] is the one for a
/// single file.
#[derive(Debug)]
pub struct StagedFile {
    destination: Utf8PathBuf,
    temporary: NamedTempFile,
}

impl StagedFile {
    /// Begins a file that will replace `destination`, whose directory must exist.
    ///
    /// # Errors
    /// [`FsError::Io`] where no file can be made in the directory.
    pub fn create(destination: impl Into<Utf8PathBuf>) -> Result<Self, FsError> {
        let destination = destination.into();
        let temporary = new_temporary(parent_of(&destination))
            .map_err(FsError::io("write a temporary file for", &destination))?;
        Ok(Self { destination, temporary })
    }

    /// Where the file will appear.
    pub fn destination(&self) -> &Utf8Path {
        &self.destination
    }

    /// Where the bytes are until they are placed, to be checked there.
    pub fn temporary_path(&self) -> &Utf8Path {
        Utf8Path::from_path(self.temporary.path())
            .unwrap_or_else(|| unreachable!("a temporary name is ASCII"))
    }

    /// The open file, to sync stretches of it while it grows.
    pub fn file(&self) -> &File {
        self.temporary.as_file()
    }

    /// Syncs the content to disk.
    ///
    /// # Errors
    /// [`FsError::Io`] where the system refuses for another reason than a filesystem without fsync.
    pub fn sync(&self) -> Result<Durability, FsError> {
        sync_file(self.temporary.as_file(), &self.destination)
    }

    /// Reads the content back from the start and gives it to `hash`: what proves a file on a filesystem without fsync.
    ///
    /// # Errors
    /// [`FsError::Io`] where it cannot be read.
    pub fn read_back(&mut self, hash: &mut Sha256) -> Result<u64, FsError> {
        let file = self.temporary.as_file_mut();
        let mut size = 0;
        let mut block = vec![0; BLOCK];
        file.rewind().map_err(FsError::io("read back", &self.destination))?;
        loop {
            match file.read(&mut block).map_err(FsError::io("read back", &self.destination))? {
                0 => return Ok(size),
                read => {
                    hash.update(&block[..read]);
                    size += read as u64;
                }
            }
        }
    }

    /// Renames over the destination. The directory is not synced: one [`sync_dir`] serves all files placed in it.
    ///
    /// # Errors
    /// [`FsError::Io`] where the system refuses; the destination is then as it was.
    pub fn place(self) -> Result<(), FsError> {
        let Self { destination, temporary } = self;
        temporary
            .persist(&destination)
            .map_err(|refused| FsError::io("replace", &destination)(refused.error))?;
        Ok(())
    }
}

impl Write for StagedFile {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.temporary.write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.temporary.flush()
    }
}

/// A file being written in its destination's directory. Dropping it without [`Self::commit`] removes what was written and
/// leaves the destination as it was.
#[derive(Debug)]
pub struct AtomicFile {
    staged: StagedFile,
    hasher: ThreadedHasher,
}

fn parent_of(path: &Utf8Path) -> &Utf8Path {
    path.parent().filter(|parent| !parent.as_str().is_empty()).unwrap_or(Utf8Path::new("."))
}

impl AtomicFile {
    /// Begins a file that will replace `destination`, whose directory must exist.
    ///
    /// # Errors
    /// [`FsError::Io`] where no file can be made in the directory.
    pub fn create(destination: impl Into<Utf8PathBuf>) -> Result<Self, FsError> {
        Ok(Self { staged: StagedFile::create(destination)?, hasher: ThreadedHasher::new() })
    }

    /// Where the file will appear.
    pub fn destination(&self) -> &Utf8Path {
        self.staged.destination()
    }

    /// Bytes written so far.
    pub fn written(&self) -> u64 {
        self.hasher.len()
    }

    /// Checks, syncs, renames over the destination and syncs the directory.
    ///
    /// # Errors
    /// [`FsError::Size`] or [`FsError::Digest`] where the content is not the expected; [`FsError::Io`] where the system
    /// refuses. The destination is as it was before in each case.
    pub fn commit(self, expected: Expected) -> Result<Written, FsError> {
        let Self { staged, hasher } = self;
        let size = hasher.len();
        let sha256 = hasher.finish();
        expected.check(staged.destination(), size, sha256)?;
        let durability = place(staged, Expected::exactly(size, sha256))?;
        Ok(Written { size, sha256, durability })
    }
}

impl Write for AtomicFile {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let written = self.staged.write(buf)?;
        self.hasher.update(&buf[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.staged.flush()
    }
}

fn new_temporary(dir: &Utf8Path) -> io::Result<NamedTempFile> {
    let prefix = format!("{TEMPORARY_PREFIX}{}-", std::process::id());
    let mut builder = Builder::new();
    builder.prefix(&prefix);
    // The files are for every user of the workspace, as an ordinary file would be; the umask still applies.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    builder.tempfile_in(dir)
}

/// Syncs and renames. Where the filesystem knows no fsync, the bytes are read back and hashed before the rename.
fn place(mut staged: StagedFile, expected: Expected) -> Result<Durability, FsError> {
    let durability = staged.sync()?;
    if durability == Durability::Unsupported {
        let mut hash = Sha256::new();
        let size = staged.read_back(&mut hash)?;
        expected.check(staged.destination(), size, hash.finish())?;
    }
    let destination = staged.destination().to_owned();
    staged.place()?;
    let directory = sync_dir(parent_of(&destination))?;
    Ok(if directory == Durability::Synced { durability } else { directory })
}

/// Replaces `destination` by `bytes` in one durable step.
///
/// # Errors
/// [`FsError::Io`]; the destination is then as it was.
pub fn write_atomic(destination: impl AsRef<Utf8Path>, bytes: &[u8]) -> Result<Written, FsError> {
    let destination = destination.as_ref();
    let mut file = AtomicFile::create(destination)?;
    file.write_all(bytes).map_err(FsError::io("write", destination))?;
    file.commit(Expected::default())
}

/// Replaces `destination` by `value` as JSON: two-space indent, UTF-8 unescaped, trailing newline.
///
/// # Errors
/// [`FsError::Json`] where the value cannot be written as JSON, [`FsError::Io`] where the file cannot be written.
pub fn write_json(destination: impl AsRef<Utf8Path>, value: &impl Serialize) -> Result<Written, FsError> {
    let destination = destination.as_ref();
    let mut text = serde_json::to_vec_pretty(value)
        .map_err(|source| FsError::Json { path: destination.to_owned(), source })?;
    text.push(b'\n');
    write_atomic(destination, &text)
}

/// Gives a file that another program wrote its final name: hashed, checked, synced, renamed over `destination`, directory
/// synced. Both names must be on one filesystem.
///
/// # Errors
/// [`FsError`] of reading, checking or renaming; `from` and the destination are then as they were.
pub fn place_file(
    from: &Utf8Path,
    destination: &Utf8Path,
    expected: Expected,
    progress: &dyn Progress,
) -> Result<Written, FsError> {
    let (sha256, size) = hash_file(from, progress)?;
    expected.check(from, size, sha256)?;
    let file = File::open(from).map_err(FsError::io("open", from))?;
    let synced = sync_file(&file, from)?;
    fs::rename(from, destination).map_err(FsError::io("replace", destination))?;
    let directory = sync_dir(parent_of(destination))?;
    let durability = if directory == Durability::Synced { synced } else { directory };
    Ok(Written { size, sha256, durability })
}

/// Whether a name is that of a file being written.
pub(crate) fn is_temporary_name(name: &str) -> bool {
    name.starts_with(TEMPORARY_PREFIX)
}

/// Removes what processes that no longer live left half written in `dir`, and returns what was removed. Files that a living
/// process writes stay.
///
/// # Errors
/// [`FsError::Io`] where the directory cannot be listed or a leftover cannot be removed.
pub fn sweep_temporaries(dir: &Utf8Path) -> Result<Vec<Utf8PathBuf>, FsError> {
    let mut removed = Vec::new();
    for name in crate::apple_double::all_names(dir)? {
        let Some(rest) = name.strip_prefix(TEMPORARY_PREFIX) else { continue };
        let writer = rest.split('-').next().and_then(|digits| digits.parse().ok());
        if writer.is_some_and(crate::lock::is_process_alive) {
            continue;
        }
        let path = dir.join(&name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            result => result.map_err(FsError::io("remove the leftover", &path))?,
        }
        removed.push(path);
    }
    removed.sort();
    Ok(removed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn temp() -> (tempfile::TempDir, Utf8PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = Utf8PathBuf::from_path_buf(dir.path().to_owned()).unwrap();
        (dir, path)
    }

    fn names(dir: &Utf8Path) -> Vec<String> {
        crate::apple_double::all_names(dir).unwrap()
    }

    #[test]
    fn a_committed_file_has_its_content_and_digest() {
        let (_guard, dir) = temp();
        let written = write_atomic(dir.join("f"), b"content").unwrap();
        assert_eq!(fs::read(dir.join("f")).unwrap(), b"content");
        assert_eq!((written.size, written.sha256), (7, Sha256::digest(b"content")));
        assert_eq!(names(&dir), ["f"]);
    }

    #[test]
    fn a_dropped_or_refused_file_leaves_the_old_one() {
        let (_guard, dir) = temp();
        fs::write(dir.join("f"), b"old").unwrap();
        let mut file = AtomicFile::create(dir.join("f")).unwrap();
        file.write_all(b"new").unwrap();
        drop(file);
        for expected in [
            Expected { size: Some(4), sha256: None },
            Expected { size: None, sha256: Some(Sha256::digest(b"other")) },
        ] {
            let mut file = AtomicFile::create(dir.join("f")).unwrap();
            file.write_all(b"new").unwrap();
            let refused = file.commit(expected).unwrap_err();
            assert_eq!(refused.kind(), crate::FsErrorKind::Mismatch);
        }
        assert_eq!(fs::read(dir.join("f")).unwrap(), b"old");
        assert_eq!(names(&dir), ["f"]);
    }

    #[test]
    fn a_placed_file_is_checked_before_it_replaces_the_old_one() {
        let (_guard, dir) = temp();
        fs::write(dir.join("made"), b"new").unwrap();
        fs::write(dir.join("f"), b"old").unwrap();
        let wrong = Expected { size: Some(9), sha256: None };
        place_file(&dir.join("made"), &dir.join("f"), wrong, &crate::NoProgress).unwrap_err();
        assert_eq!(fs::read(dir.join("f")).unwrap(), b"old");
        let written =
            place_file(&dir.join("made"), &dir.join("f"), Expected::default(), &crate::NoProgress).unwrap();
        assert_eq!((written.size, written.sha256), (3, Sha256::digest(b"new")));
        assert_eq!(names(&dir), ["f"]);
    }

    #[test]
    fn only_leftovers_of_dead_processes_are_swept() {
        let (_guard, dir) = temp();
        let mine = AtomicFile::create(dir.join("f")).unwrap();
        // Process IDs stay below 2^22 on Linux and 99999 on macOS: this one never lives.
        fs::write(dir.join(".writing-999999999-abc"), b"half").unwrap();
        fs::write(dir.join("kept"), b"").unwrap();
        assert_eq!(sweep_temporaries(&dir).unwrap(), [dir.join(".writing-999999999-abc")]);
        drop(mine);
        assert_eq!(names(&dir), ["kept"]);
    }

    #[test]
    fn errors_name_path_and_cause() {
        let (_guard, dir) = temp();
        let refused = write_atomic(dir.join("no/such/f"), b"").unwrap_err();
        assert_eq!(refused.kind(), crate::FsErrorKind::NotFound);
        assert!(refused.to_string().contains("no/such/f"), "{refused}");
    }

    #[test]
    fn json_is_indented_unescaped_and_ends_with_a_newline() {
        let (_guard, dir) = temp();
        write_json(dir.join("f.json"), &serde_json::json!({"name": "Deep 👀"})).unwrap();
        assert_eq!(fs::read_to_string(dir.join("f.json")).unwrap(), "{\n  \"name\": \"Deep 👀\"\n}\n");
    }
}
