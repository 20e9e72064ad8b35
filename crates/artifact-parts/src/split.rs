//! Splitting in one pass over the source.

use std::{
    fs::{self, File},
    io,
};

use camino::{Utf8Path, Utf8PathBuf};
use durable_fs::{
    Durability, Expected, FsError, Progress, Sha256, StagedFile, sweep_temporaries, sync_dir, write_atomic,
};
use model_catalog::Sha256Digest;

use crate::{
    ChunkSize, Part, PartSet, PartsError, checksum_name, checksum_text, find_parts,
    pump::{Digests, Pump},
    set::part_name,
    stretch::{Synced, Syncer},
};

/// What to split, and where to.
#[derive(Debug, Clone)]
pub struct SplitRequest<'a> {
    /// The file to split; it stays.
    pub source: &'a Utf8Path,
    /// The directory of the parts.
    pub into: &'a Utf8Path,
    /// The name that the parts are of; the source's own where `None`.
    pub name: Option<&'a str>,
    /// The size of every part but the last.
    pub chunk: ChunkSize,
    /// Size and digest that the source must have, where known.
    pub expected: Expected,
    /// Whether each part's own digest is computed too (on a third thread, from the same reading).
    pub part_digests: bool,
}

impl SplitRequest<'_> {
    fn name(&self) -> Result<&str, PartsError> {
        let name = self.name.or(self.source.file_name()).unwrap_or_default();
        let plain =
            !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\\', '\n', '\r', '\0']);
        if plain { Ok(name) } else { Err(PartsError::Name { name: name.to_owned() }) }
    }
}

/// Splits a file into parts and writes the checksum beside them.
///
/// The source is read once. Parts are written under temporary names and synced while the next one is written; when all are
/// on disk and the source's size and digest are right, an earlier checksum of the name is removed, the parts get their
/// names, parts of an earlier split beyond them are removed, and the checksum is written. `progress` is advanced by the
/// bytes read.
///
/// # Errors
/// [`PartsError::TooMany`] before anything is written; [`PartsError::Fs`] where the source is not the expected file or the
/// system refuses; [`PartsError::SourceChanged`]. The set that was there before is untouched by all of them, except where
/// the system refuses a rename: the set is then without checksum, and splitting again completes it.
pub fn split(request: &SplitRequest<'_>, progress: &dyn Progress) -> Result<PartSet, PartsError> {
    let name = request.name()?;
    let mut source = File::open(request.source).map_err(FsError::io("open", request.source))?;
    let size = source.metadata().map_err(FsError::io("read the size of", request.source))?.len();
    let count = request.chunk.count(name, size)?;
    if let Some(expected) = request.expected.size.filter(|&expected| expected != size) {
        return Err(FsError::Size { path: request.source.to_owned(), expected, actual: size }.into());
    }
    sweep_temporaries(request.into)?;
    let (sizes, digests, synced) = write_parts(request, name, &mut source, count, progress)?;
    let read: u64 = sizes.iter().sum();
    if read != size {
        return Err(PartsError::SourceChanged {
            path: request.source.to_owned(),
            expected: size,
            actual: read,
        });
    }
    let set = describe(name, &sizes, &digests);
    request.expected.check(request.source, set.size, set.sha256)?;
    place(request.into, &set, synced)?;
    Ok(set)
}

fn write_parts(
    request: &SplitRequest<'_>,
    name: &str,
    source: &mut File,
    count: usize,
    progress: &dyn Progress,
) -> Result<(Vec<u64>, Digests, Synced), PartsError> {
    let mut pump = Pump::start(request.part_digests);
    let mut syncer = Syncer::start();
    let mut sizes = Vec::with_capacity(count);
    for number in 0..count {
        let mut part = StagedFile::create(request.into.join(part_name(name, number)))?;
        // The last part takes one byte more than fits, so that a source that has grown is noticed.
        let most = request.chunk.bytes() + u64::from(number + 1 == count);
        let mut size = 0;
        while size < most {
            let block = pump.read(source, most - size).map_err(FsError::io("read", request.source))?;
            if block.is_empty() {
                break;
            }
            syncer.write(&mut part, block)?;
            size += block.len() as u64;
            progress.advance(block.len() as u64);
        }
        pump.cut();
        syncer.finished(part);
        sizes.push(size);
    }
    Ok((sizes, pump.finish(), syncer.wait()?))
}

fn describe(name: &str, sizes: &[u64], digests: &Digests) -> PartSet {
    let part = |(number, &size): (usize, &u64)| Part {
        name: part_name(name, number),
        size,
        sha256: digests.parts.get(number).copied(),
    };
    PartSet {
        name: name.to_owned(),
        size: sizes.iter().sum(),
        sha256: digests.prefixes.last().copied().unwrap_or_else(|| Sha256::digest(b"")),
        parts: sizes.iter().enumerate().map(part).collect(),
    }
}

/// Gives the written parts their names. The order of the steps keeps a checksum from ever standing beside parts that are not
/// its own: readers refuse a set without one.
fn place(dir: &Utf8Path, set: &PartSet, mut synced: Synced) -> Result<(), PartsError> {
    if synced.durability == Durability::Unsupported {
        read_back(dir, set.sha256, &mut synced)?;
    }
    let checksum = dir.join(checksum_name(&set.name));
    if remove_if_there(&checksum)? {
        let _ = sync_dir(dir)?;
    }
    synced.files.into_iter().try_for_each(StagedFile::place)?;
    let _ = sync_dir(dir)?;
    for (_, stale) in find_parts(dir, &set.name)?.into_iter().filter(|&(number, _)| number >= set.parts.len())
    {
        remove_if_there(&dir.join(stale.name))?;
    }
    write_atomic(&checksum, checksum_text(&set.name, set.sha256).as_bytes())?;
    Ok(())
}

fn read_back(dir: &Utf8Path, expected: Sha256Digest, synced: &mut Synced) -> Result<(), PartsError> {
    let mut hash = Sha256::new();
    for file in &mut synced.files {
        file.read_back(&mut hash)?;
    }
    let actual = hash.finish();
    if actual == expected {
        return Ok(());
    }
    let path = synced.files.first().map_or_else(|| dir.to_owned(), |file| file.destination().to_owned());
    Err(PartsError::ReadBack { path, expected, actual })
}

fn remove_if_there(path: &Utf8PathBuf) -> Result<bool, FsError> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(FsError::io("remove", path)(error)),
    }
}
