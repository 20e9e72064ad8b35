//! Git LFS pointers: detected leniently, accepted strictly.
//!
//! A blob that was meant as a pointer must never be compiled as a model, so anything that begins like one is treated as
//! one. What is then accepted is the published form alone, as implementations differ on everything else (a pointer with
//! CRLF is an object for one server and an error for the next).

use model_catalog::Sha256Digest;

use crate::PointerError;

/// A pointer is at most this long, in bytes; anything longer is content.
pub const MAX_POINTER_SIZE: u64 = 1024;

/// The first line of a pointer.
const VERSION: &str = "version https://git-lfs.github.com/spec/v1";

/// A Git LFS pointer: which object stands for the blob.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Pointer {
    /// SHA-256 of the object, which is also its ID.
    pub oid: Sha256Digest,
    /// Size of the object in bytes.
    pub size: u64,
}

impl Pointer {
    /// Whether content that begins with `head` was meant as a pointer: by its version line in any spelling, or by an `oid`
    /// line near the start.
    pub fn is_detected(head: &[u8]) -> bool {
        let head = &head[..head.len().min(MAX_POINTER_SIZE as usize)];
        let text = String::from_utf8_lossy(head).to_ascii_lowercase();
        let text = text.trim_start_matches(['\u{feff}', ' ', '\t', '\r', '\n']);
        let mentions_lfs = |line: &str| line.contains("git-lfs") || line.contains("hawser");
        let first = text.lines().next().unwrap_or_default();
        (first.starts_with("version") && mentions_lfs(first))
            || text.lines().take(4).any(|line| line.trim_start().starts_with("oid sha256:"))
    }

    /// Parses a whole blob: `None` where it is not a pointer, an error where it was meant as one but is malformed.
    ///
    /// # Errors
    /// [`PointerError`] names the offending line.
    pub fn parse(content: &[u8]) -> Result<Option<Self>, PointerError> {
        if !Self::is_detected(content) {
            return Ok(None);
        }
        accept(content).map(Some)
    }
}

impl std::fmt::Display for Pointer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{VERSION}\noid sha256:{}\nsize {}", self.oid, self.size)
    }
}

fn refuse(line: usize, text: &[u8], why: &'static str) -> PointerError {
    let text = String::from_utf8_lossy(&text[..text.len().min(120)]).into_owned();
    PointerError { line, text, why }
}

fn accept(content: &[u8]) -> Result<Pointer, PointerError> {
    let lines: Vec<&[u8]> = content.split(|&byte| byte == b'\n').collect();
    if content.len() as u64 > MAX_POINTER_SIZE {
        return Err(refuse(1, lines[0], "the blob begins like a pointer but is longer than 1024 bytes"));
    }
    for (index, line) in lines.iter().enumerate() {
        if line.ends_with(b"\r") {
            return Err(refuse(index + 1, line, "it ends with CR LF; a pointer's lines end with LF"));
        }
    }
    let line = |index: usize| lines.get(index).copied().unwrap_or_default();
    if line(0) != VERSION.as_bytes() {
        return Err(refuse(
            1,
            line(0),
            "the first line must be 'version https://git-lfs.github.com/spec/v1'",
        ));
    }
    if line(1).starts_with(b"ext-") {
        return Err(refuse(
            2,
            line(1),
            "pointers with extensions are not supported: the object is not the file",
        ));
    }
    let oid = parse_oid(line(1)).ok_or_else(|| {
        refuse(2, line(1), "the second line must be 'oid sha256:' and 64 lower-case hexadecimal digits")
    })?;
    let size = parse_size(line(2)).ok_or_else(|| {
        refuse(3, line(2), "the third line must be 'size ' and a decimal number without sign or zeros")
    })?;
    match (lines.len(), line(3)) {
        (4, b"") => Ok(Pointer { oid, size }),
        (3, _) => Err(refuse(3, line(2), "the last line must end with LF")),
        (_, extra) => Err(refuse(4, extra, "nothing may follow the size")),
    }
}

fn parse_oid(line: &[u8]) -> Option<Sha256Digest> {
    let hex = std::str::from_utf8(line.strip_prefix(b"oid sha256:")?).ok()?;
    if hex.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return None;
    }
    hex.parse().ok()
}

fn parse_size(line: &[u8]) -> Option<u64> {
    let digits = std::str::from_utf8(line.strip_prefix(b"size ")?).ok()?;
    let plain =
        digits.bytes().all(|byte| byte.is_ascii_digit()) && (digits == "0" || !digits.starts_with('0'));
    plain.then(|| digits.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const OID: &str = "4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393";

    fn text() -> String {
        format!("{VERSION}\noid sha256:{OID}\nsize 12345\n")
    }

    #[test]
    fn the_published_form_is_accepted() {
        let pointer = Pointer::parse(text().as_bytes()).unwrap().unwrap();
        assert_eq!((pointer.oid.to_string().as_str(), pointer.size), (OID, 12345));
        assert_eq!(pointer.to_string(), text());
    }

    #[test]
    fn everything_else_that_looks_like_one_is_refused_with_its_line() {
        let good = text();
        for (content, line) in [
            (good.replace('\n', "\r\n"), 1),
            (good.replacen("12345\n", "12345\r\n", 1), 3),
            (format!("\u{feff}{good}"), 1),
            (format!(" {good}"), 1),
            (good.replace("spec/v1", "spec/v2"), 1),
            (good.replace("git-lfs.github.com", "hawser.github.com"), 1),
            (good.replacen("version https://git-lfs.github.com/spec/v1\n", "", 1), 1),
            (good.replace(OID, &OID.to_uppercase()), 2),
            (good.replace(OID, &OID[..63]), 2),
            (good.replace("oid", "ext-0-x"), 2),
            (good.replace("oid sha256", "oid sha512"), 2),
            (good.replace("12345", "-1"), 3),
            (good.replace("12345", "+1"), 3),
            (good.replace("12345", "0x10"), 3),
            (good.replace("12345", "007"), 3),
            (good.replace("12345", "99999999999999999999"), 3),
            (good.replace("size", "sise"), 3),
            (good.trim_end().to_owned(), 3),
            (format!("{good}x-note 1\n"), 4),
            (format!("{good}\n"), 4),
            (format!("{good}{}", " ".repeat(1024)), 1),
        ] {
            let refused = Pointer::parse(content.as_bytes()).unwrap_err();
            assert_eq!(refused.line, line, "{content:?}: {refused}");
        }
    }

    #[test]
    fn content_is_not_a_pointer() {
        for content in
            [&b""[..], b"\x08\x07\x12\x07pytorch", b"version 1 of something\n", b"../driving_policy.onnx"]
        {
            assert_eq!(Pointer::parse(content).unwrap(), None, "{content:?}");
        }
    }

    proptest! {
        #[test]
        fn a_written_pointer_is_read_back(bytes: [u8; 32], size: u64) {
            let pointer = Pointer { oid: Sha256Digest::from_bytes(bytes), size };
            prop_assert_eq!(Pointer::parse(pointer.to_string().as_bytes()).unwrap(), Some(pointer));
        }

        #[test]
        fn any_bytes_are_answered(content in proptest::collection::vec(any::<u8>(), 0..1200)) {
            let _ = Pointer::parse(&content);
        }

        #[test]
        fn one_changed_byte_is_never_the_same_pointer(at in 0usize..140, byte: u8) {
            let original = text();
            let mut changed = original.clone().into_bytes();
            let at = at % changed.len();
            prop_assume!(changed[at] != byte);
            changed[at] = byte;
            let good = Pointer::parse(original.as_bytes()).unwrap();
            prop_assert_ne!(Pointer::parse(&changed).ok().flatten(), good);
        }
    }
}
