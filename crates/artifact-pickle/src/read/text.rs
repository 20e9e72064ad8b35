//! Strings, and the literals of protocol 0.

use std::borrow::Cow;
use std::fmt;

/// A Python string: UTF-8, but lone surrogates (three bytes each) may stand in it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Text<'g>(&'g [u8]);

impl<'g> Text<'g> {
    /// The caller has had the bytes through [`is_python_utf8`].
    pub(crate) fn checked(bytes: &'g [u8]) -> Self {
        Text(bytes)
    }

    /// The bytes as stored.
    #[must_use]
    pub fn as_bytes(self) -> &'g [u8] {
        self.0
    }

    /// The string, where it has no lone surrogate.
    #[must_use]
    pub fn as_str(self) -> Option<&'g str> {
        std::str::from_utf8(self.0).ok()
    }

    /// The string, with U+FFFD for what is no scalar value.
    #[must_use]
    pub fn to_string_lossy(self) -> Cow<'g, str> {
        String::from_utf8_lossy(self.0)
    }
}

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_string_lossy())
    }
}

impl fmt::Debug for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.to_string_lossy(), f)
    }
}

/// UTF-8 as Python's `surrogatepass` reads it.
pub(crate) fn is_python_utf8(mut bytes: &[u8]) -> bool {
    loop {
        let Err(error) = std::str::from_utf8(bytes) else { return true };
        let rest = &bytes[error.valid_up_to()..];
        match rest {
            [0xed, 0xa0..=0xbf, 0x80..=0xbf, ..] => bytes = &rest[3..],
            _ => return false,
        }
    }
}

/// A decimal integer as picklers write it: an optional sign, digits without a leading zero.
pub(crate) fn decimal(line: &[u8]) -> Option<Integer> {
    let (negative, digits) = match line {
        [b'-', rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    let canonical = matches!(digits, [b'0'] | [b'1'..=b'9', ..]) && digits.iter().all(u8::is_ascii_digit);
    if !canonical || digits.len() > 4300 {
        return None;
    }
    if let Some(small) = std::str::from_utf8(line).ok().and_then(|text| text.parse().ok()) {
        return Some(Integer::Small(small));
    }
    Some(Integer::Big(twos_complement(magnitude(digits), negative)))
}

/// An integer of any width.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Integer {
    Small(i64),
    /// Two's complement, little endian.
    Big(Vec<u8>),
}

/// An integer from its two's complement, little-endian bytes.
pub(crate) fn from_twos_complement(bytes: &[u8]) -> Integer {
    let fill = if bytes.last().is_some_and(|b| b & 0x80 != 0) { 0xff } else { 0 };
    let significant = bytes.iter().rposition(|&b| b != fill).map_or(0, |at| at + 1);
    let sign_fits = significant < 8 || (significant == 8 && (bytes[7] & 0x80 == fill & 0x80));
    if !sign_fits {
        return Integer::Big(bytes.to_vec());
    }
    let mut wide = [fill; 8];
    wide[..significant].copy_from_slice(&bytes[..significant]);
    Integer::Small(i64::from_le_bytes(wide))
}

/// Digits to little-endian base-256.
fn magnitude(digits: &[u8]) -> Vec<u8> {
    let mut bytes: Vec<u8> = Vec::new();
    for digit in digits {
        let mut carry = u32::from(digit - b'0');
        for byte in &mut bytes {
            carry += u32::from(*byte) * 10;
            *byte = carry as u8;
            carry >>= 8;
        }
        if carry > 0 {
            bytes.push(carry as u8);
        }
    }
    bytes
}

fn twos_complement(mut bytes: Vec<u8>, negative: bool) -> Vec<u8> {
    bytes.push(0);
    if negative {
        let mut carry = true;
        for byte in &mut bytes {
            let (sum, overflow) = (!*byte).overflowing_add(u8::from(carry));
            (*byte, carry) = (sum, overflow);
        }
    }
    bytes
}

/// A float as `repr` writes it.
pub(crate) fn float(line: &[u8]) -> Option<f64> {
    let plain = line.iter().all(|b| b.is_ascii_digit() || matches!(b, b'+' | b'-' | b'.' | b'e'));
    let special = matches!(line, b"inf" | b"-inf" | b"nan" | b"-nan");
    if plain || special { std::str::from_utf8(line).ok()?.parse().ok() } else { None }
}

/// The raw-unicode-escape of protocol 0 to UTF-8 (surrogates kept as three bytes each).
pub(crate) fn raw_unicode_escape(line: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(line.len());
    let mut rest = line;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'\\' {
            push_code_point(&mut out, u32::from(byte))?;
            continue;
        }
        let width = match after.first() {
            Some(b'u') => 4,
            Some(b'U') => 8,
            other => {
                // A backslash that starts no escape stands for itself, and so does what follows it.
                out.push(b'\\');
                if let Some(&byte) = other {
                    push_code_point(&mut out, u32::from(byte))?;
                    rest = &after[1..];
                }
                continue;
            }
        };
        let digits = std::str::from_utf8(after.get(1..=width)?).ok()?;
        if !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
            return None;
        }
        push_code_point(&mut out, u32::from_str_radix(digits, 16).ok()?)?;
        rest = &after[1 + width..];
    }
    Some(out)
}

fn push_code_point(out: &mut Vec<u8>, code: u32) -> Option<()> {
    match char::from_u32(code) {
        Some(c) => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        None if (0xd800..0xe000).contains(&code) => {
            out.extend_from_slice(&[0xed, 0x80 | (code >> 6 & 0x3f) as u8, 0x80 | (code & 0x3f) as u8])
        }
        None => return None,
    }
    Some(())
}

/// The quoted, escaped ASCII of Python 2's `STRING`.
pub(crate) fn quoted(line: &[u8]) -> Option<Vec<u8>> {
    let (&quote, rest) = line.split_first()?;
    let (&last, mut body) = rest.split_last()?;
    if quote != last || !matches!(quote, b'\'' | b'"') {
        return None;
    }
    let mut out = Vec::with_capacity(body.len());
    while let Some((&byte, after)) = body.split_first() {
        body = after;
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        let (&escape, after) = body.split_first()?;
        body = after;
        out.push(match escape {
            b'\\' | b'\'' | b'"' => escape,
            b'n' => b'\n',
            b't' => b'\t',
            b'r' => b'\r',
            b'x' => {
                let digits = body.get(..2)?;
                body = &body[2..];
                let text = std::str::from_utf8(digits).ok()?;
                if !digits.iter().all(u8::is_ascii_hexdigit) {
                    return None;
                }
                u8::from_str_radix(text, 16).ok()?
            }
            _ => return None,
        });
    }
    out.is_ascii().then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_of_any_width() {
        assert_eq!(decimal(b"0"), Some(Integer::Small(0)));
        assert_eq!(decimal(b"-9223372036854775808"), Some(Integer::Small(i64::MIN)));
        let big = Integer::Big(vec![0, 0, 0, 0, 0, 0, 0, 128, 0]);
        assert_eq!(decimal(b"9223372036854775808"), Some(big));
        for refused in [&b"007"[..], b"+1", b"1_0", b"0x10", b" 1", b"", b"-", b"1L"] {
            assert_eq!(decimal(refused), None, "{refused:?}");
        }
        assert_eq!(from_twos_complement(&[]), Integer::Small(0));
        assert_eq!(from_twos_complement(&[0xff]), Integer::Small(-1));
        assert_eq!(from_twos_complement(&[0xff, 0]), Integer::Small(255));
        assert_eq!(from_twos_complement(&i64::MIN.to_le_bytes()), Integer::Small(i64::MIN));
        let wide = [0, 0, 0, 0, 0, 0, 0, 0x80, 0];
        assert_eq!(from_twos_complement(&wide), Integer::Big(wide.to_vec()));
    }

    #[test]
    fn escapes_follow_python() {
        assert_eq!(raw_unicode_escape(b"a\\u000ab"), Some(b"a\nb".to_vec()));
        assert_eq!(raw_unicode_escape(b"\\\\u000a"), Some(b"\\\\u000a".to_vec()));
        assert_eq!(raw_unicode_escape(b"\xe9"), Some("é".as_bytes().to_vec()));
        assert_eq!(raw_unicode_escape(b"\\U0001f440"), Some("👀".as_bytes().to_vec()));
        assert_eq!(raw_unicode_escape(b"\\ud800"), Some(vec![0xed, 0xa0, 0x80]));
        assert_eq!(raw_unicode_escape(b"\\u12"), None);
        assert_eq!(raw_unicode_escape(b"\\U00110000"), None);
        assert!(is_python_utf8(&[b'a', 0xed, 0xa0, 0x80, b'b']));
        assert!(!is_python_utf8(&[0xed, 0xa0]));
        assert_eq!(quoted(b"'a\\'\\x41\\n'"), Some(b"a'A\n".to_vec()));
        assert_eq!(quoted(b"'a"), None);
        assert_eq!(quoted(b"'\\xff'"), None);
    }
}
