//! Verifying a set of parts and putting the file together again.

use std::fs::File;

use camino::Utf8Path;
use durable_fs::{Durability, Expected, FsError, Progress, Sha256, StagedFile, Written, sync_dir};
use model_catalog::Sha256Digest;

use crate::{
    KnownParts, Part, PartSet, PartsError,
    checksum::read_checksum,
    checksum_name, find_parts,
    pump::{Digests, Pump},
    set::part_name,
    stretch::Syncer,
};

/// Checks the parts of `name` in `dir` against their checksum and what else is known, and returns the set with the digest of
/// each part. `progress` is advanced by the bytes read.
///
/// # Errors
/// A [`PartsError`] that names what is wrong with the set.
pub fn verify(
    dir: &Utf8Path,
    name: &str,
    known: KnownParts<'_>,
    progress: &dyn Progress,
) -> Result<PartSet, PartsError> {
    let set = Candidate::find(dir, name, known)?;
    set.read(None, true, progress)
}

/// Puts the parts of `name` in `dir` together as `destination`: bounded memory, checked before it gets its name, synced,
/// renamed. `progress` is advanced by the bytes read.
///
/// # Errors
/// A [`PartsError`] that names what is wrong with the set; the destination is then as it was before.
pub fn join(
    dir: &Utf8Path,
    name: &str,
    destination: &Utf8Path,
    known: KnownParts<'_>,
    progress: &dyn Progress,
) -> Result<Written, PartsError> {
    let set = Candidate::find(dir, name, known)?;
    let mut target = Target { file: StagedFile::create(destination)?, syncer: Syncer::start() };
    let joined = set.read(Some(&mut target), known.parts.is_some(), progress)?;
    target.place(joined.size, joined.sha256)
}

struct Target {
    file: StagedFile,
    syncer: Syncer,
}

impl Target {
    fn write(&mut self, block: &[u8]) -> Result<(), FsError> {
        self.syncer.write(&mut self.file, block)
    }

    fn place(self, size: u64, sha256: Sha256Digest) -> Result<Written, PartsError> {
        let destination = self.file.destination().to_owned();
        self.syncer.finished(self.file);
        let mut synced = self.syncer.wait()?;
        for mut file in synced.files.drain(..) {
            if synced.durability == Durability::Unsupported {
                let mut hash = Sha256::new();
                file.read_back(&mut hash)?;
                let actual = hash.finish();
                if actual != sha256 {
                    return Err(PartsError::ReadBack { path: destination, expected: sha256, actual });
                }
            }
            file.place()?;
        }
        let parent = destination.parent().unwrap_or(Utf8Path::new("."));
        let directory = sync_dir(parent)?;
        let durability = if directory == Durability::Synced { synced.durability } else { directory };
        Ok(Written { size, sha256, durability })
    }
}

/// Parts that were found by name and whose sizes are possible.
struct Candidate<'a> {
    dir: &'a Utf8Path,
    name: &'a str,
    parts: Vec<Part>,
    /// The digest that they must make up.
    expected: Sha256Digest,
    listed: Option<&'a [Part]>,
}

impl<'a> Candidate<'a> {
    fn find(dir: &'a Utf8Path, name: &'a str, known: KnownParts<'a>) -> Result<Self, PartsError> {
        let found = find_parts(dir, name)?;
        let Some((&last, _)) = found.last_key_value() else {
            return Err(PartsError::NoParts { name: name.to_owned(), dir: dir.to_owned() });
        };
        if let Some(missing) = (0..last).find(|number| !found.contains_key(number)) {
            let next = found.range(missing..).next().map(|(_, part)| part.name.clone()).unwrap_or_default();
            return Err(PartsError::Gap { missing: part_name(name, missing), next, dir: dir.to_owned() });
        }
        let expected = expected_digest(dir, name, known)?;
        let set = Self { dir, name, parts: found.into_values().collect(), expected, listed: known.parts };
        set.check_sizes(known.whole)?;
        Ok(set)
    }

    /// Says what the sizes alone can say.
    fn check_sizes(&self, whole: Expected) -> Result<(), PartsError> {
        let actual: u64 = self.parts.iter().map(|part| part.size).sum();
        if let Some(listed) = self.listed {
            self.check_listed_sizes(listed)?;
        }
        if let Some(expected) = whole.size.filter(|&expected| expected != actual) {
            return Err(self.wrong_total(actual, expected));
        }
        // Every part but the last is of one size. A set that is not so has a part cut short, or one too many behind the
        // last: the bytes tell which, where there are no sizes to compare with.
        match self.odd_part() {
            Some(odd) => Err(self.tell_surplus_from_size(odd)),
            None => Ok(()),
        }
    }

    fn check_listed_sizes(&self, listed: &[Part]) -> Result<(), PartsError> {
        if let Some(surplus) = self.parts.get(listed.len()) {
            return Err(self.surplus(surplus));
        }
        for (part, listed) in self.parts.iter().zip(listed) {
            if part.size != listed.size {
                return Err(self.wrong_size(part, listed.size));
            }
        }
        if self.parts.len() < listed.len() {
            let total = |parts: &[Part]| parts.iter().map(|part| part.size).sum();
            return Err(self.incomplete(total(&self.parts), total(listed)));
        }
        Ok(())
    }

    fn wrong_total(&self, actual: u64, expected: u64) -> PartsError {
        let mut end = 0;
        for part in &self.parts {
            if end == expected && end > 0 {
                return self.surplus(part);
            }
            end += part.size;
        }
        match self.odd_part() {
            Some(odd) => self.wrong_size(&self.parts[odd], self.chunk()),
            None if actual < expected => self.incomplete(actual, expected),
            None => {
                let last = &self.parts[self.parts.len() - 1];
                self.wrong_size(last, expected.saturating_sub(actual - last.size))
            }
        }
    }

    /// The size that every part but the last should have: that of the largest.
    fn chunk(&self) -> u64 {
        self.parts.iter().map(|part| part.size).max().unwrap_or(0)
    }

    /// The first part that is smaller than the largest although another follows; an empty part behind others counts too.
    fn odd_part(&self) -> Option<usize> {
        let chunk = self.chunk();
        let last = self.parts.len() - 1;
        let short = self.parts[..last].iter().position(|part| part.size != chunk);
        short.or_else(|| (last > 0 && self.parts[last].size == 0).then_some(last))
    }

    fn tell_surplus_from_size(&self, odd: usize) -> PartsError {
        match self.pump(None, false, &durable_fs::NoProgress) {
            Err(error) => error,
            Ok(digests) => match self.whole_before_end(&digests) {
                Some(part) => self.surplus(part),
                None => self.wrong_size(&self.parts[odd], self.chunk()),
            },
        }
    }

    /// The first part behind a beginning that is already the whole file.
    fn whole_before_end(&self, digests: &Digests) -> Option<&Part> {
        let end = digests.prefixes.iter().position(|&prefix| prefix == self.expected)?;
        self.parts.get(end + 1)
    }

    fn read(
        &self,
        target: Option<&mut Target>,
        part_digests: bool,
        progress: &dyn Progress,
    ) -> Result<PartSet, PartsError> {
        let digests = self.pump(target, part_digests, progress)?;
        let actual = digests.prefixes.last().copied().unwrap_or_else(|| Sha256::digest(b""));
        if let Some(wrong) = self.wrong_part(&digests) {
            return Err(wrong);
        }
        if actual != self.expected {
            if let Some(surplus) = self.whole_before_end(&digests) {
                return Err(self.surplus(surplus));
            }
            return Err(PartsError::WholeDigest {
                name: self.name.to_owned(),
                dir: self.dir.to_owned(),
                count: self.parts.len(),
                expected: self.expected,
                actual,
            });
        }
        let mut parts = self.parts.clone();
        for (part, digest) in parts.iter_mut().zip(&digests.parts) {
            part.sha256 = Some(*digest);
        }
        let size = parts.iter().map(|part| part.size).sum();
        Ok(PartSet { name: self.name.to_owned(), size, sha256: actual, parts })
    }

    /// The first part whose content is not the listed one.
    fn wrong_part(&self, digests: &Digests) -> Option<PartsError> {
        let listed = self.listed?;
        let wrong = |(number, part): (usize, &Part)| {
            let (expected, actual) = (part.sha256?, *digests.parts.get(number)?);
            (expected != actual).then_some((number, expected, actual))
        };
        let (number, expected, actual) = listed.iter().enumerate().find_map(wrong)?;
        let path = self.dir.join(&self.parts[number].name);
        Some(match listed.iter().find(|part| part.sha256 == Some(actual)) {
            Some(other) => PartsError::Misplaced { path, holds: other.name.clone() },
            None => PartsError::PartDigest { path, expected, actual },
        })
    }

    fn pump(
        &self,
        mut target: Option<&mut Target>,
        part_digests: bool,
        progress: &dyn Progress,
    ) -> Result<Digests, PartsError> {
        let mut pump = Pump::start(part_digests);
        for part in &self.parts {
            let path = self.dir.join(&part.name);
            let mut file = File::open(&path).map_err(FsError::io("open", &path))?;
            let mut size = 0;
            loop {
                let block = pump.read(&mut file, u64::MAX).map_err(FsError::io("read", &path))?;
                if block.is_empty() {
                    break;
                }
                if let Some(target) = target.as_deref_mut() {
                    target.write(block)?;
                }
                size += block.len() as u64;
                progress.advance(block.len() as u64);
            }
            if size != part.size {
                return Err(PartsError::SourceChanged { path, expected: part.size, actual: size });
            }
            pump.cut();
        }
        Ok(pump.finish())
    }

    fn surplus(&self, part: &Part) -> PartsError {
        PartsError::Surplus { part: part.name.clone(), dir: self.dir.to_owned() }
    }

    fn wrong_size(&self, part: &Part, expected: u64) -> PartsError {
        PartsError::PartSize { path: self.dir.join(&part.name), actual: part.size, expected }
    }

    fn incomplete(&self, actual: u64, expected: u64) -> PartsError {
        PartsError::Incomplete { name: self.name.to_owned(), dir: self.dir.to_owned(), actual, expected }
    }
}

fn expected_digest(dir: &Utf8Path, name: &str, known: KnownParts<'_>) -> Result<Sha256Digest, PartsError> {
    let path = || dir.join(checksum_name(name));
    match (read_checksum(dir, name)?, known.whole.sha256) {
        (Some(stated), Some(expected)) if stated != expected => {
            Err(PartsError::ChecksumDisagrees { path: path(), stated, expected })
        }
        (Some(stated), _) => Ok(stated),
        (None, Some(expected)) if known.without_checksum => Ok(expected),
        (None, _) => Err(PartsError::ChecksumMissing { path: path() }),
    }
}
