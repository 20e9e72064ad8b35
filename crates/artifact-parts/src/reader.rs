//! Reading a set of parts as the file that it is, without putting it together.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
};

use camino::{Utf8Path, Utf8PathBuf};

use crate::PartSet;

/// The whole file, read from its parts.
///
/// The sizes are those of the set, which [`crate::verify`] has compared; a part that has become shorter since is an error
/// of reading, never a silent end.
#[derive(Debug)]
pub struct PartsReader {
    /// Path and end offset of each part, in order.
    parts: Vec<(Utf8PathBuf, u64)>,
    size: u64,
    position: u64,
    open: Option<(usize, File)>,
}

impl PartsReader {
    /// The parts of `set` in `dir`.
    pub fn new(dir: &Utf8Path, set: &PartSet) -> Self {
        let ends = set.parts.iter().scan(0, |end, part| {
            *end += part.size;
            Some((dir.join(&part.name), *end))
        });
        Self { parts: ends.collect(), size: set.size, position: 0, open: None }
    }

    /// The part at the position, open and in place; with the bytes that are left of it.
    fn part(&mut self) -> io::Result<(&mut File, u64)> {
        let at = self.parts.partition_point(|(_, end)| *end <= self.position);
        let (path, end) = &self.parts[at];
        let start = at.checked_sub(1).map_or(0, |before| self.parts[before].1);
        let mut file = match self.open.take() {
            Some((open, file)) if open == at => file,
            _ => File::open(path)?,
        };
        file.seek(SeekFrom::Start(self.position - start))?;
        let (_, file) = self.open.insert((at, file));
        Ok((file, end - self.position))
    }
}

impl Read for PartsReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.position >= self.size || buffer.is_empty() {
            return Ok(0);
        }
        let (file, left) = self.part()?;
        let most = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        match file.read(&mut buffer[..most])? {
            0 => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "a part became shorter while it was read")),
            read => {
                self.position += read as u64;
                Ok(read)
            }
        }
    }
}

impl Seek for PartsReader {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let (base, offset) = match to {
            SeekFrom::Start(offset) => (offset, 0),
            SeekFrom::End(offset) => (self.size, offset),
            SeekFrom::Current(offset) => (self.position, offset),
        };
        let before = || io::Error::new(io::ErrorKind::InvalidInput, "seek to before the beginning");
        self.position = base.checked_add_signed(offset).ok_or_else(before)?;
        Ok(self.position)
    }
}

#[cfg(test)]
mod tests {
    use durable_fs::{Expected, NoProgress, write_atomic};
    use proptest::prelude::*;

    use super::*;
    use crate::{ChunkSize, SplitRequest, split};

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn any_reads_give_the_bytes_of_the_file(
            content in proptest::collection::vec(any::<u8>(), 0..3000),
            chunk in 40u64..900,
            reads in proptest::collection::vec((0u64..3200, 1usize..700), 1..12),
        ) {
            let guard = tempfile::tempdir().unwrap();
            let dir = Utf8Path::from_path(guard.path()).unwrap();
            write_atomic(dir.join("f"), &content).unwrap();
            let request = SplitRequest {
                source: &dir.join("f"),
                into: dir,
                name: None,
                chunk: ChunkSize::from_bytes(chunk),
                expected: Expected::default(),
                part_digests: false,
            };
            let set = split(&request, &NoProgress).unwrap();
            let mut reader = PartsReader::new(dir, &set);
            for (offset, len) in reads {
                reader.seek(SeekFrom::Start(offset)).unwrap();
                let mut got = Vec::new();
                reader.by_ref().take(len as u64).read_to_end(&mut got).unwrap();
                let from = usize::try_from(offset).unwrap().min(content.len());
                prop_assert_eq!(&got[..], &content[from..(from + len).min(content.len())]);
            }
            prop_assert_eq!(reader.seek(SeekFrom::End(0)).unwrap(), content.len() as u64);
            prop_assert!(reader.seek(SeekFrom::Current(-4000)).is_err());
        }
    }
}
