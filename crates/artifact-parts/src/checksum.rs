//! The checksum file beside the parts.

use std::{fs, io};

use camino::Utf8Path;
use durable_fs::FsError;
use model_catalog::Sha256Digest;

use crate::PartsError;

/// Longest checksum file that is read: a digest, two spaces, a file name.
const LONGEST: u64 = 4096;

/// `<name>.sha256`.
pub fn checksum_name(name: &str) -> String {
    format!("{name}.sha256")
}

/// The text of the checksum file of `name`: `<64 hex>  <name>\n`.
pub fn checksum_text(name: &str, sha256: Sha256Digest) -> String {
    format!("{sha256}  {name}\n")
}

/// Digest and file name of a checksum text. Accepts what `sha256sum` and `openssl dgst -r` write (a `*` before the name),
/// and a text without a trailing newline or with CRLF.
pub fn parse_checksum(text: &str) -> Option<(Sha256Digest, &str)> {
    let line = text.strip_suffix('\n').unwrap_or(text);
    let line = line.strip_suffix('\r').unwrap_or(line);
    let (digest, rest) = line.split_at_checked(64)?;
    let name = rest.strip_prefix("  ").or_else(|| rest.strip_prefix(" *"))?;
    let plain = !name.is_empty() && !name.contains(['\n', '\r', '/', '\\', '\0']);
    digest.parse().ok().filter(|_| plain).map(|digest| (digest, name))
}

/// The digest in the checksum file of `name` in `dir`; `None` where there is no such file.
pub(crate) fn read_checksum(dir: &Utf8Path, name: &str) -> Result<Option<Sha256Digest>, PartsError> {
    let path = dir.join(checksum_name(name));
    let mut bytes = Vec::new();
    match fs::File::open(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => {
            let file = file.map_err(FsError::io("open", &path))?;
            io::Read::read_to_end(&mut io::Read::take(file, LONGEST), &mut bytes)
                .map_err(FsError::io("read", &path))?
        }
    };
    let text = String::from_utf8_lossy(&bytes);
    match parse_checksum(&text) {
        Some((digest, names)) if names == name => Ok(Some(digest)),
        Some((_, names)) => {
            Err(PartsError::ChecksumForeign { path, names: names.to_owned(), name: name.to_owned() })
        }
        None => Err(PartsError::ChecksumMalformed { path, found: text.chars().take(80).collect() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_text_is_that_of_the_usual_tools() {
        let digest = Sha256Digest::from_bytes([0xab; 32]);
        let text = checksum_text("a.pkl", digest);
        assert_eq!(text, format!("{}  a.pkl\n", "ab".repeat(32)));
        assert_eq!(parse_checksum(&text), Some((digest, "a.pkl")));
        assert_eq!(parse_checksum(&format!("{} *a.pkl\r\n", "AB".repeat(32))), Some((digest, "a.pkl")));
    }

    #[test]
    fn other_texts_are_refused() {
        let hex = "ab".repeat(32);
        for text in [
            "",
            "x",
            &hex,
            &format!("{hex} a"),
            &format!("{hex}  "),
            &format!("{hex}  ../a\n"),
            &format!("{hex}  a\nb\n"),
        ] {
            assert_eq!(parse_checksum(text), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(text in "\\PC{0,100}") {
            let _ = parse_checksum(&text);
        }
    }
}
