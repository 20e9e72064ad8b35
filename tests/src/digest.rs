//! SHA-256 by the tests' own means.

use std::{fs::File, io::Read};

use anyhow::{Context, Result};
use camino::Utf8Path;
use sha2::{Digest, Sha256};

/// SHA-256 of bytes as 64 hex digits.
#[must_use]
pub fn sha256_bytes(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// SHA-256 of a file as 64 hex digits.
///
/// # Errors
/// When it cannot be read.
pub fn sha256_file(path: &Utf8Path) -> Result<String> {
    let mut file = File::open(path).with_context(|| format!("open {path}"))?;
    let (mut hash, mut block) = (Sha256::new(), vec![0; 1 << 16]);
    loop {
        match file.read(&mut block).with_context(|| format!("read {path}"))? {
            0 => return Ok(hex(&hash.finalize())),
            read => hash.update(&block[..read]),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
