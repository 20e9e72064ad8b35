//! Blobs as streams: bytes come from the pack entry or the loose file by plain reads and are inflated block by block.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read, Seek, SeekFrom},
};

use camino::{Utf8Path, Utf8PathBuf};
use durable_fs::{BLOCK, FsError};
use gix::odb::pack::data::{Entry, entry::Header};

use crate::{
    ExtractError, SourceClone, Watch,
    delta::{DeltaChain, PackedData},
    id_hasher::IdHasher,
    inflate::InflateReader,
    object_store::Place,
};

/// A blob that is being read. Nothing is proven before [`OpenBlob::copy_to`] or [`OpenBlob::read_small`] has returned.
pub(crate) struct OpenBlob {
    id: gix::ObjectId,
    size: u64,
    /// The loose file or the pack.
    path: Utf8PathBuf,
    content: Content,
}

enum Content {
    Stream(Box<dyn Read>),
    Delta(DeltaChain),
}

/// Deltas in a row beyond which a pack is taken for damaged; git makes 50 at most unless told otherwise, and never more than
/// 4095.
const MAX_CHAIN: usize = 4096;

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
        let damaged = |error| read_error(id, &pack, error);
        let entry = read_entry(&pack, offset).map_err(damaged)?;
        if entry.header == Header::Blob {
            let data = packed_data(&pack, &entry);
            let content = Content::Stream(Box::new(data.open().map_err(damaged)?));
            return Ok(OpenBlob { id, size: data.inflated_size, path: pack, content });
        }
        let chain = self.delta_chain(id, &pack, offset, entry)?;
        let size = chain.result_size().map_err(damaged)?;
        Ok(OpenBlob { id, size, content: Content::Delta(chain), path: pack })
    }

    /// Follows a delta to its base.
    fn delta_chain(
        &self,
        id: gix::ObjectId,
        pack: &Utf8Path,
        mut offset: u64,
        mut entry: Entry,
    ) -> Result<DeltaChain, ExtractError> {
        let damaged = |why: String| corrupt(id, pack, why);
        let mut deltas = Vec::new();
        while deltas.len() < MAX_CHAIN {
            let base_offset = match entry.header {
                Header::Blob => {
                    deltas.reverse();
                    return Ok(DeltaChain { base: packed_data(pack, &entry), deltas });
                }
                Header::OfsDelta { base_distance } => {
                    offset.checked_sub(base_distance).filter(|_| base_distance > 0)
                }
                Header::RefDelta { base_id } => self.objects().offset_in(pack, base_id),
                other => return Err(damaged(format!("it is a {other:?} and not a blob"))),
            };
            deltas.push(packed_data(pack, &entry));
            offset =
                base_offset.ok_or_else(|| damaged("the base of its delta is not in the pack".to_owned()))?;
            entry = read_entry(pack, offset).map_err(|error| read_error(id, pack, error))?;
        }
        Err(damaged(format!("it is made of more than {MAX_CHAIN} deltas")))
    }
}

fn read_entry(pack: &Utf8Path, offset: u64) -> io::Result<Entry> {
    let mut file = BufReader::with_capacity(64, File::open(pack)?);
    file.seek(SeekFrom::Start(offset))?;
    Entry::from_read(&mut file, offset, gix::hash::Kind::Sha1.len_in_bytes())
}

fn packed_data(pack: &Utf8Path, entry: &Entry) -> PackedData {
    PackedData {
        pack: pack.to_owned(),
        data_offset: entry.data_offset,
        inflated_size: entry.decompressed_size,
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
    Ok(OpenBlob { id, size, content: Content::Stream(Box::new(reader)), path })
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
        matches!(self.content, Content::Delta(_))
    }

    /// Gives every block to `sink` and then checks size and object ID. The base of a delta may lie in `scratch` meanwhile.
    pub(crate) fn copy_to(
        self,
        scratch: &Utf8Path,
        watch: &Watch<'_>,
        mut sink: impl FnMut(&[u8]) -> Result<(), ExtractError>,
    ) -> Result<(), ExtractError> {
        let Self { id, size, path, content } = self;
        let mut hash = IdHasher::new(size);
        let mut copied = 0;
        let mut take = |block: &[u8]| -> Result<(), Stop> {
            watch.check()?;
            copied += block.len() as u64;
            if copied > size {
                return Err(Stop::TooLong);
            }
            hash.update(block);
            sink(block)?;
            watch.progress.advance(block.len() as u64);
            Ok(())
        };
        let outcome = match content {
            Content::Stream(reader) => copy_stream(reader, &mut take),
            Content::Delta(chain) => chain.copy_to(scratch, &mut take),
        };
        match outcome {
            Ok(()) | Err(Stop::TooLong) => {}
            Err(Stop::Read(error)) => return Err(read_error(id, &path, error)),
            Err(Stop::Other(error)) => return Err(error),
        }
        if copied != size {
            let why = format!("it inflates to {copied} bytes or more; its header says {size}");
            return Err(corrupt(id, &path, why));
        }
        let actual = hash.finish();
        if actual != id {
            return Err(corrupt(id, &path, format!("its content has the ID {actual}")));
        }
        Ok(())
    }

    /// The whole content of a blob of at most `limit` bytes, checked; `None` where it is longer.
    pub(crate) fn read_small(self, limit: u64) -> Result<Option<Vec<u8>>, ExtractError> {
        if self.size > limit {
            return Ok(None);
        }
        let mut content = Vec::new();
        let scratch =
            Utf8PathBuf::from_path_buf(std::env::temp_dir()).unwrap_or_else(|_| Utf8PathBuf::from("."));
        self.copy_to(&scratch, &Watch::nobody(), |block| {
            content.extend_from_slice(block);
            Ok(())
        })?;
        Ok(Some(content))
    }

    /// The first `len` bytes of a longer blob, unchecked; nothing of a delta, which would have to be put together for it.
    pub(crate) fn read_head(self, len: u64) -> Result<Vec<u8>, ExtractError> {
        let Self { id, path, content, .. } = self;
        let mut head = Vec::new();
        if let Content::Stream(reader) = content {
            reader.take(len).read_to_end(&mut head).map_err(|error| read_error(id, &path, error))?;
        }
        Ok(head)
    }
}

/// Why copying ended early.
enum Stop {
    TooLong,
    Read(io::Error),
    Other(ExtractError),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Self::Read(error)
    }
}

impl From<ExtractError> for Stop {
    fn from(error: ExtractError) -> Self {
        Self::Other(error)
    }
}

fn copy_stream(
    mut reader: Box<dyn Read>,
    take: &mut impl FnMut(&[u8]) -> Result<(), Stop>,
) -> Result<(), Stop> {
    let mut block = vec![0; BLOCK];
    loop {
        match reader.read(&mut block) {
            Ok(0) => return Ok(()),
            Ok(read) => take(&block[..read])?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
}
