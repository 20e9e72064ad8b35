//! What is served in the place of a file.

use std::{fs::File, io::Read};

use camino::Utf8Path;
use durable_fs::FsError;

/// Bytes that are looked at.
const HEAD: u64 = 1024;

/// Something that is no artifact and no part of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Foreign {
    /// Nothing.
    Empty,
    /// A Git LFS pointer instead of the object.
    LfsPointer,
    /// A web page.
    Page,
    /// A text that says what went wrong.
    ErrorText,
}

impl Foreign {
    /// What it is, in words.
    pub const fn what(self) -> &'static str {
        match self {
            Self::Empty => "empty",
            Self::LfsPointer => "a Git LFS pointer",
            Self::Page => "a web page",
            Self::ErrorText => "an error text",
        }
    }

    /// What to do.
    pub const fn hint(self) -> &'static str {
        match self {
            Self::Empty => "the upload was cut off: publish it again",
            Self::LfsPointer => "the file was published through LFS: use an address that serves its content",
            Self::Page | Self::ErrorText => {
                "the host needs another address, or a login: open it in a browser"
            }
        }
    }
}

/// Looks at the beginning of a file that nobody vouches for. `None` where it may be an artifact or a part of one.
///
/// # Errors
/// [`FsError::Io`] where it cannot be read.
pub fn recognise(path: &Utf8Path) -> Result<Option<Foreign>, FsError> {
    let mut head = Vec::new();
    File::open(path)
        .and_then(|file| file.take(HEAD).read_to_end(&mut head))
        .map_err(FsError::io("read", path))?;
    Ok(of_head(&head))
}

fn of_head(head: &[u8]) -> Option<Foreign> {
    if head.is_empty() {
        return Some(Foreign::Empty);
    }
    // Lenient about a byte-order mark, line ends and blanks in front: a pointer or page is recognised in any dress.
    let text = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head).trim_ascii_start();
    let begins = |start: &[u8]| text.len() >= start.len() && text[..start.len()].eq_ignore_ascii_case(start);
    if begins(b"version https://git-lfs") || begins(b"version http://git-media") {
        return Some(Foreign::LfsPointer);
    }
    if begins(b"<!doctype") || begins(b"<html") || begins(b"<?xml") || begins(b"<head") {
        return Some(Foreign::Page);
    }
    let words = [
        &b"404"[..],
        b"404:",
        b"not found",
        b"access denied",
        b"{\"message\"",
        b"{\"error\"",
        b"{\"errors\"",
    ];
    // A part may begin with any bytes, but not be short and readable from end to end.
    let readable = head.len() < HEAD as usize
        && head.iter().all(|&byte| (b' '..0x7f).contains(&byte) || byte.is_ascii_whitespace());
    (readable && words.iter().any(|word| begins(word))).then_some(Foreign::ErrorText)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_hosts_serve_instead_is_recognised() {
        for (head, foreign) in [
            (&b""[..], Foreign::Empty),
            (b"version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 5\n", Foreign::LfsPointer),
            (
                b"\xef\xbb\xbfversion https://git-lfs.github.com/spec/v1\r\noid sha256:ab\r\n",
                Foreign::LfsPointer,
            ),
            (b"\n<!DOCTYPE html><html>", Foreign::Page),
            (b"404: Not Found", Foreign::ErrorText),
            (b"{\"message\": \"rate limit\"}", Foreign::ErrorText),
        ] {
            assert_eq!(of_head(head), Some(foreign), "{}", String::from_utf8_lossy(head));
        }
        for content in
            [&b"\x80\x04\x95"[..], b"random bytes of a part", b"404 in a part \x00 with other bytes"]
        {
            assert_eq!(of_head(content), None);
        }
    }
}
