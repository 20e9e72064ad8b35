//! Digests of a file and of the contents in it, from one read.

use std::io::{self, Read, Seek, SeekFrom};

use durable_fs::{Sha256, ThreadedHasher};
use model_catalog::Sha256Digest;
use serde::Serialize;

use crate::read::{Payload, Source};

const BLOCK: usize = 128 << 10;

/// A stretch of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ContentDigest {
    /// Offset in the file.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
    /// SHA-256.
    pub sha256: Sha256Digest,
}

/// Digests of a file and of its contents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Digests {
    /// SHA-256 of the whole file.
    pub sha256: Sha256Digest,
    /// Every payload in file order, each place once.
    pub contents: Vec<ContentDigest>,
}

impl Digests {
    /// The digest of a stretch.
    #[must_use]
    pub fn of(&self, payload: Payload) -> Option<Sha256Digest> {
        let at =
            self.contents.binary_search_by_key(&(payload.offset, payload.len), |d| (d.offset, d.len)).ok()?;
        Some(self.contents[at].sha256)
    }
}

/// The file is hashed on a second thread, its contents on this one.
pub(crate) fn digest_all<S: Read + Seek + ?Sized>(
    source: &mut S,
    payloads: &[Payload],
) -> io::Result<Digests> {
    let mut places: Vec<(u64, u64)> = payloads.iter().map(|p| (p.offset, p.len)).collect();
    places.sort_unstable();
    places.dedup();
    source.rewind()?;
    let mut whole = ThreadedHasher::new();
    let mut block = vec![0; BLOCK];
    let mut contents = Vec::with_capacity(places.len());
    let mut at = 0;
    for (offset, len) in places {
        at = pass(source, &mut block, offset - at, |bytes| whole.update(bytes))? + at;
        let mut own = Sha256::new();
        at += pass(source, &mut block, len, |bytes| {
            whole.update(bytes);
            own.update(bytes);
        })?;
        contents.push(ContentDigest { offset, len, sha256: own.finish() });
    }
    loop {
        match source.read(&mut block)? {
            0 => break,
            count => whole.update(&block[..count]),
        }
    }
    Ok(Digests { sha256: whole.finish(), contents })
}

/// Digests of some payloads only.
pub(crate) fn digest_each(source: &mut dyn Source, payloads: &[Payload]) -> io::Result<Vec<Sha256Digest>> {
    let mut block = vec![0; BLOCK];
    let mut out = Vec::with_capacity(payloads.len());
    for payload in payloads {
        source.seek(SeekFrom::Start(payload.offset))?;
        let mut own = Sha256::new();
        pass(source, &mut block, payload.len, |bytes| own.update(bytes))?;
        out.push(own.finish());
    }
    Ok(out)
}

fn pass<S: Read + ?Sized>(
    source: &mut S,
    block: &mut [u8],
    len: u64,
    mut take: impl FnMut(&[u8]),
) -> io::Result<u64> {
    let mut left = len;
    while left > 0 {
        let want = left.min(block.len() as u64) as usize;
        source.read_exact(&mut block[..want])?;
        take(&block[..want]);
        left -= want as u64;
    }
    Ok(len)
}
