//! Patterns of host and user names: `*`, `?`, `!` and lists.

/// Whether `text` matches `pattern`, in which `*` stands for any run and `?` for any one character.
pub(in crate::safety) fn matches(text: &str, pattern: &str) -> bool {
    let (text, pattern) = (text.as_bytes(), pattern.as_bytes());
    let (mut at, mut want) = (0, 0);
    // Where to go on when the last star has to take one character more.
    let mut star: Option<(usize, usize)> = None;
    while at < text.len() {
        match pattern.get(want) {
            Some(b'*') => {
                star = Some((want, at));
                want += 1;
            }
            Some(b'?') => (at, want) = (at + 1, want + 1),
            Some(byte) if *byte == text[at] => (at, want) = (at + 1, want + 1),
            _ => match star {
                Some((position, taken)) => {
                    star = Some((position, taken + 1));
                    (at, want) = (taken + 1, position + 1);
                }
                None => return false,
            },
        }
    }
    pattern[want..].iter().all(|byte| *byte == b'*')
}

/// Whether `text` matches a list: at least one pattern does, and none that is negated with `!`.
pub(in crate::safety) fn matches_list<'a>(text: &str, patterns: impl IntoIterator<Item = &'a str>) -> bool {
    let mut found = false;
    for pattern in patterns {
        match pattern.strip_prefix('!') {
            Some(negated) if matches(text, negated) => return false,
            Some(_) => {}
            None => found |= matches(text, pattern),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards() {
        for (text, pattern, expected) in [
            ("comma", "comma", true),
            ("comma", "c*a", true),
            ("comma", "c?mma", true),
            ("comma", "*", true),
            ("", "*", true),
            ("comma", "c*x", false),
            ("comma", "comm", false),
            ("a.b.c", "*.c", true),
            ("aab", "*ab", true),
        ] {
            assert_eq!(matches(text, pattern), expected, "{text} {pattern}");
        }
        assert!(matches_list("a", ["!b", "*"]));
        assert!(!matches_list("b", ["*", "!b"]));
        assert!(!matches_list("a", ["!b"]));
    }
}
