//! Blobs that are stored as deltas, put together block by block.
//!
//! A delta copies stretches of its base, so the base must be at hand as a whole: a small one in memory, a larger one in an
//! unnamed temporary file. Memory stays bounded at any size and length of chain.

use std::{
    fs::File,
    io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write},
};

use camino::{Utf8Path, Utf8PathBuf};
use durable_fs::BLOCK;

use crate::inflate::InflateReader;

/// An entry of a pack: where its compressed data begins, and how much it inflates to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PackedData {
    pub(crate) pack: Utf8PathBuf,
    pub(crate) data_offset: u64,
    pub(crate) inflated_size: u64,
}

impl PackedData {
    pub(crate) fn open(&self) -> io::Result<InflateReader<BufReader<File>>> {
        let mut file = BufReader::with_capacity(BLOCK, File::open(&self.pack)?);
        file.seek(SeekFrom::Start(self.data_offset))?;
        Ok(InflateReader::new(file))
    }
}

/// A whole object, and the deltas that lead from it to the wanted one, in the order in which they are applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DeltaChain {
    pub(crate) base: PackedData,
    pub(crate) deltas: Vec<PackedData>,
}

/// Bases up to this size are held in memory.
const IN_MEMORY: u64 = 4 * 1024 * 1024;

/// Something that can be read at any place.
enum Base {
    Memory(Vec<u8>),
    File(File),
}

impl Base {
    fn len(&self) -> io::Result<u64> {
        match self {
            Self::Memory(bytes) => Ok(bytes.len() as u64),
            Self::File(file) => Ok(file.metadata()?.len()),
        }
    }

    /// Adds `len` bytes at `offset` to `out`.
    fn copy_range(&mut self, offset: u64, len: usize, out: &mut Vec<u8>) -> io::Result<()> {
        match self {
            Self::Memory(bytes) => {
                let start = usize::try_from(offset).unwrap_or(usize::MAX);
                let range = start.checked_add(len).and_then(|end| bytes.get(start..end));
                out.extend_from_slice(range.ok_or_else(|| damaged("a delta copies from beyond its base"))?);
            }
            Self::File(file) => {
                let filled = out.len();
                out.resize(filled + len, 0);
                file.seek(SeekFrom::Start(offset))?;
                file.read_exact(&mut out[filled..])?;
            }
        }
        Ok(())
    }
}

fn damaged(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// Where the intermediate objects of a chain are gathered.
enum Gather {
    Memory(Vec<u8>),
    File(BufWriter<File>),
}

impl Gather {
    fn new(size: u64, scratch: &Utf8Path) -> io::Result<Self> {
        if size <= IN_MEMORY {
            return Ok(Self::Memory(Vec::with_capacity(size as usize)));
        }
        Ok(Self::File(BufWriter::with_capacity(BLOCK, tempfile::tempfile_in(scratch)?)))
    }

    fn add(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Memory(gathered) => gathered.extend_from_slice(bytes),
            Self::File(file) => file.write_all(bytes)?,
        }
        Ok(())
    }

    fn finish(self) -> io::Result<Base> {
        Ok(match self {
            Self::Memory(bytes) => Base::Memory(bytes),
            Self::File(file) => Base::File(file.into_inner().map_err(io::IntoInnerError::into_error)?),
        })
    }
}

impl DeltaChain {
    /// Size of the object that the chain leads to.
    pub(crate) fn result_size(&self) -> io::Result<u64> {
        let Some(last) = self.deltas.last() else { return Ok(self.base.inflated_size) };
        Ok(sizes(&mut BufReader::with_capacity(64, last.open()?))?.1)
    }

    /// Puts the object together and gives it to `sink` block by block; temporary files lie in `scratch`.
    pub(crate) fn copy_to<E: From<io::Error>>(
        &self,
        scratch: &Utf8Path,
        mut sink: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut gather = Gather::new(self.base.inflated_size, scratch)?;
        let mut reader = self.base.open()?.take(self.base.inflated_size);
        let mut block = vec![0; BLOCK];
        loop {
            match reader.read(&mut block)? {
                0 => break,
                read => gather.add(&block[..read])?,
            }
        }
        drop(block);
        let Some((last, earlier)) = self.deltas.split_last() else {
            return Err(damaged("a delta chain without a delta").into());
        };
        let mut base = gather.finish()?;
        for delta in earlier {
            let mut stream = BufReader::with_capacity(BLOCK, delta.open()?);
            let (_, size) = sizes(&mut stream)?;
            let mut gather = Gather::new(size, scratch)?;
            apply(&mut base, delta, |bytes| gather.add(bytes))?;
            base = gather.finish()?;
        }
        apply(&mut base, last, &mut sink)
    }
}

/// Size of the base and of the result, at the start of a delta.
fn sizes(delta: &mut impl Read) -> io::Result<(u64, u64)> {
    Ok((read_size(delta)?, read_size(delta)?))
}

fn read_size(delta: &mut impl Read) -> io::Result<u64> {
    let (mut size, mut shift) = (0u64, 0u32);
    loop {
        let byte = read_byte(delta)?;
        size |= u64::from(byte & 0x7f)
            .checked_shl(shift)
            .ok_or_else(|| damaged("a size in a delta is too long"))?;
        shift += 7;
        if byte & 0x80 == 0 {
            return Ok(size);
        }
    }
}

fn read_byte(delta: &mut impl Read) -> io::Result<u8> {
    let mut byte = [0];
    delta.read_exact(&mut byte)?;
    Ok(byte[0])
}

/// The little-endian number whose present bytes `bits` names.
fn read_sparse(delta: &mut impl Read, bits: u8, count: u32) -> io::Result<u64> {
    let mut value = 0;
    for index in 0..count {
        if bits & (1 << index) != 0 {
            value |= u64::from(read_byte(delta)?) << (8 * index);
        }
    }
    Ok(value)
}

fn apply<E: From<io::Error>>(
    base: &mut Base,
    delta: &PackedData,
    mut sink: impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let mut stream = BufReader::with_capacity(BLOCK, delta.open()?);
    let (base_size, mut left) = sizes(&mut stream)?;
    if base_size != base.len()? {
        return Err(damaged("a delta does not belong to its base").into());
    }
    let mut out = Vec::with_capacity(2 * BLOCK);
    while left > 0 {
        let op = read_byte(&mut stream)?;
        if op & 0x80 != 0 {
            let offset = read_sparse(&mut stream, op & 0x0f, 4)?;
            let mut len = read_sparse(&mut stream, (op >> 4) & 0x07, 3)?;
            if len == 0 {
                len = 0x1_0000;
            }
            left = left.checked_sub(len).ok_or_else(|| damaged("a delta makes more than it says"))?;
            // A copy may be as long as 16 MiB: it is handed on in blocks.
            let (mut at, end) = (offset, offset + len);
            while at < end {
                let piece = usize::try_from(end - at).unwrap_or(BLOCK).min(BLOCK);
                base.copy_range(at, piece, &mut out)?;
                at += piece as u64;
                flush(&mut out, BLOCK, &mut sink)?;
            }
        } else if op == 0 {
            return Err(damaged("a delta has a reserved instruction").into());
        } else {
            left =
                left.checked_sub(u64::from(op)).ok_or_else(|| damaged("a delta makes more than it says"))?;
            let filled = out.len();
            out.resize(filled + usize::from(op), 0);
            stream.read_exact(&mut out[filled..])?;
            flush(&mut out, BLOCK, &mut sink)?;
        }
    }
    flush(&mut out, 1, &mut sink)
}

/// Hands on what was gathered once it is at least `enough`.
fn flush<E>(
    out: &mut Vec<u8>,
    enough: usize,
    sink: &mut impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    if out.len() >= enough {
        sink(out)?;
        out.clear();
    }
    Ok(())
}
