//! Blobs as streams: bytes come from the pack entry or the loose file by plain reads and are inflated block by block.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Cursor, Read, Seek, SeekFrom},
};

use camino::{Utf8Path, Utf8PathBuf};
use durable_fs::{BLOCK, FsError};
use gix::odb::pack::data::{Entry, entry::Header};
use sha1::{Digest as _, Sha1};

use crate::{ExtractError, SourceClone, Watch, inflate::InflateReader, object_store::Place};

/// A blob that is being read. Nothing is proven before [`OpenBlob::copy_to`] or [`OpenBlob::read_small`] has returned.
pub(crate) struct OpenBlob {
    id: gix::ObjectId,
    size: u64,
    /// The loose file or the pack.
    path: Utf8PathBuf,
    /// Whether it had to be put together in memory from a delta.
    delta: bool,
    reader: Box<dyn Read>,
}

impl SourceClone {
    /// Opens the blob `id` of the component `what`.
    pub(crate) fn open_blob(&self, id: gix::ObjectId, what: &str) -> Result<OpenBlob, ExtractError> {
        let place = self.objects().find(id).ok_or_else(|| ExtractError::ObjectMissing {
            id: id.to_string(),
            what: what.to_owned(),
            looked_in: self.objects().dirs().to_vec(),
        })?;
        match place {
            Place::Loose(path) => open_loose(id, path),
            Place::Packed { pack, offset } => self.open_packed(id, pack, offset),
        }
    }

    fn open_packed(
        &self,
        id: gix::ObjectId,
        pack: Utf8PathBuf,
        offset: u64,
    ) -> Result<OpenBlob, ExtractError> {
        let damaged = |why: String| corrupt(id, &pack, why);
        let mut file = BufReader::with_capacity(BLOCK, open(&pack)?);
        file.seek(SeekFrom::Start(offset)).map_err(FsError::io("read", &pack))?;
        let entry = Entry::from_read(&mut file, offset, id.kind().len_in_bytes())
            .map_err(|error| read_error(id, &pack, error))?;
        match entry.header {
            Header::Blob => {
                let size = entry.decompressed_size;
                Ok(OpenBlob {
                    id,
                    size,
                    delta: false,
                    reader: Box::new(InflateReader::new(file)),
                    path: pack,
                })
            }
            Header::OfsDelta { .. } | Header::RefDelta { .. } => {
                let object =
                    self.reader().repository.find_object(id).map_err(|error| damaged(error.to_string()))?;
                if object.kind != gix::object::Kind::Blob {
                    return Err(damaged(format!("it is a {} and not a blob", object.kind)));
                }
                let content = object.detach().data;
                let size = content.len() as u64;
                Ok(OpenBlob { id, size, delta: true, reader: Box::new(Cursor::new(content)), path: pack })
            }
            other => Err(damaged(format!("it is a {other:?} and not a blob"))),
        }
    }
}

fn open(path: &Utf8Path) -> Result<File, ExtractError> {
    Ok(File::open(path).map_err(FsError::io("open", path))?)
}

fn corrupt(id: gix::ObjectId, path: &Utf8Path, why: String) -> ExtractError {
    ExtractError::Corrupt { what: format!("git object {id}"), path: path.to_owned(), why }
}

/// Damage of the data is told apart from a refusal of the system.
fn read_error(id: gix::ObjectId, path: &Utf8Path, error: io::Error) -> ExtractError {
    match error.raw_os_error() {
        Some(_) => FsError::io("read", path)(error).into(),
        None => corrupt(id, path, error.to_string()),
    }
}

/// Longest header of a loose object: `commit `, a 20-digit size and the NUL.
const MAX_LOOSE_HEADER: u64 = 32;

fn open_loose(id: gix::ObjectId, path: Utf8PathBuf) -> Result<OpenBlob, ExtractError> {
    let mut reader =
        BufReader::with_capacity(BLOCK, InflateReader::new(BufReader::with_capacity(BLOCK, open(&path)?)));
    let mut header = Vec::new();
    (&mut reader)
        .take(MAX_LOOSE_HEADER)
        .read_until(0, &mut header)
        .map_err(|error| read_error(id, &path, error))?;
    let size = header
        .strip_suffix(b"\0")
        .and_then(|header| std::str::from_utf8(header).ok()?.strip_prefix("blob ")?.parse().ok())
        .ok_or_else(|| {
            corrupt(id, &path, format!("{:?} is no blob header", String::from_utf8_lossy(&header)))
        })?;
    Ok(OpenBlob { id, size, delta: false, reader: Box::new(reader), path })
}

impl OpenBlob {
    /// Size in bytes, as the object's header says.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// The loose file or the pack that holds it.
    pub(crate) fn path(&self) -> &Utf8Path {
        &self.path
    }

    /// Whether the blob is stored as a delta.
    pub(crate) fn is_delta(&self) -> bool {
        self.delta
    }

    /// Gives every block to `sink` and then checks size and object ID.
    pub(crate) fn copy_to(
        mut self,
        watch: &Watch<'_>,
        mut sink: impl FnMut(&[u8]) -> Result<(), ExtractError>,
    ) -> Result<(), ExtractError> {
        let mut hash = Sha1::new();
        hash.update(format!("blob {}\0", self.size));
        let mut block = vec![0; BLOCK];
        let mut copied = 0;
        loop {
            watch.check()?;
            let read = match self.reader.read(&mut block) {
                Ok(0) => return self.check(copied, hash),
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(read_error(self.id, &self.path, error)),
            };
            copied += read as u64;
            if copied > self.size {
                return self.check(copied, hash);
            }
            hash.update(&block[..read]);
            sink(&block[..read])?;
            watch.progress.advance(read as u64);
        }
    }

    fn check(&self, copied: u64, hash: Sha1) -> Result<(), ExtractError> {
        if copied != self.size {
            let why = format!("it inflates to {copied} bytes or more; its header says {}", self.size);
            return Err(corrupt(self.id, &self.path, why));
        }
        let digest: [u8; 20] = hash.finalize().into();
        if digest != self.id.as_slice() {
            let actual = gix::ObjectId::from(digest);
            return Err(corrupt(self.id, &self.path, format!("its content has the ID {actual}")));
        }
        Ok(())
    }

    /// The whole content of a blob of at most `limit` bytes, checked; `None` where it is longer.
    pub(crate) fn read_small(self, limit: u64) -> Result<Option<Vec<u8>>, ExtractError> {
        if self.size > limit {
            return Ok(None);
        }
        let mut content = Vec::new();
        self.copy_to(&Watch::nobody(), |block| {
            content.extend_from_slice(block);
            Ok(())
        })?;
        Ok(Some(content))
    }

    /// The first `len` bytes of a longer blob; nothing is checked.
    pub(crate) fn read_head(self, len: u64) -> Result<Vec<u8>, ExtractError> {
        let Self { id, path, reader, .. } = self;
        let mut head = Vec::new();
        reader.take(len).read_to_end(&mut head).map_err(|error| read_error(id, &path, error))?;
        Ok(head)
    }
}
