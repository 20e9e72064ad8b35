//! Streaming copies that hash on the way.

use std::{
    fs::File,
    io::{Read, Write},
};

use camino::Utf8Path;
use model_catalog::Sha256Digest;

use crate::{AtomicFile, BLOCK, Expected, FsError, Progress, ProgressReader, Sha256, Written};

/// Copies everything from `reader` to `writer`; returns SHA-256 and size. `from` and `to` name them in errors.
///
/// # Errors
/// [`FsError::Io`] says which side failed.
pub fn copy_hashed(
    mut reader: impl Read,
    from: &Utf8Path,
    mut writer: impl Write,
    to: &Utf8Path,
) -> Result<(Sha256Digest, u64), FsError> {
    let mut hash = Sha256::new();
    let mut size = 0;
    let mut block = vec![0; BLOCK];
    loop {
        let read = read_some(&mut reader, &mut block).map_err(FsError::io("read", from))?;
        if read == 0 {
            return Ok((hash.finish(), size));
        }
        hash.update(&block[..read]);
        writer.write_all(&block[..read]).map_err(FsError::io("write", to))?;
        size += read as u64;
    }
}

fn read_some(reader: &mut impl Read, block: &mut [u8]) -> std::io::Result<usize> {
    loop {
        match reader.read(block) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// Copies a file: bounded memory, hashed on a second thread, checked against `expected`, synced, renamed.
///
/// # Errors
/// [`FsError`] of reading, writing or checking; the destination is then as it was.
pub fn copy_file(
    from: &Utf8Path,
    to: &Utf8Path,
    expected: Expected,
    progress: &dyn Progress,
) -> Result<Written, FsError> {
    let source = File::open(from).map_err(FsError::io("open", from))?;
    let mut reader = ProgressReader::new(source, progress);
    let mut file = AtomicFile::create(to)?;
    let mut block = vec![0; BLOCK];
    loop {
        match read_some(&mut reader, &mut block).map_err(FsError::io("read", from))? {
            0 => return file.commit(expected),
            read => file.write_all(&block[..read]).map_err(FsError::io("write", to))?,
        }
    }
}

/// SHA-256 and size of a file.
///
/// # Errors
/// [`FsError::Io`] where it cannot be read.
pub fn hash_file(path: &Utf8Path, progress: &dyn Progress) -> Result<(Sha256Digest, u64), FsError> {
    let file = File::open(path).map_err(FsError::io("open", path))?;
    copy_hashed(ProgressReader::new(file, progress), path, std::io::sink(), path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NoProgress;

    #[test]
    fn a_copy_is_checked_before_it_appears() {
        let dir = tempfile::tempdir().unwrap();
        let dir = Utf8Path::from_path(dir.path()).unwrap();
        let bytes: Vec<u8> = (0..400_000u32).map(|i| (i % 251) as u8).collect();
        std::fs::write(dir.join("a"), &bytes).unwrap();
        let expected = Expected::exactly(bytes.len() as u64, Sha256::digest(&bytes));
        let written = copy_file(&dir.join("a"), &dir.join("b"), expected, &NoProgress).unwrap();
        assert_eq!(std::fs::read(dir.join("b")).unwrap(), bytes);
        assert_eq!(hash_file(&dir.join("b"), &NoProgress).unwrap(), (written.sha256, written.size));

        let wrong = Expected { size: Some(1), sha256: None };
        copy_file(&dir.join("a"), &dir.join("c"), wrong, &NoProgress).unwrap_err();
        assert!(!dir.join("c").exists());
    }
}
