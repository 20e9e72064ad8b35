//! What a user writes to name a device: `user@host`, `user@host:port`, `ssh://user@host:port`.

use super::Refusal;

/// A device as it was written, taken apart and not yet checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Destination {
    /// The text that was given.
    pub asked: String,
    /// The user, where one was named.
    pub user: Option<String>,
    /// The host as it was written, brackets kept.
    pub host: String,
    /// The port, where one was named.
    pub port: Option<u16>,
}

impl Destination {
    /// Takes `text` apart.
    ///
    /// # Errors
    /// [`Refusal::Malformed`] where a part is missing or has characters that no host, user or port has.
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        let malformed = |why| Refusal::Malformed { asked: text.to_owned(), why };
        if !text.is_ascii() {
            return Err(malformed("only ASCII characters are read the same way by every program"));
        }
        let rest = strip_scheme(text);
        let (user, place) = match rest.rsplit_once('@') {
            Some((user, place)) => (Some(user), place),
            None => (None, rest),
        };
        if user.is_some_and(|user| user.is_empty() || !user.chars().all(is_user_character)) {
            return Err(malformed("the user has characters that no user name has"));
        }
        let (host, port) =
            split_port(place).ok_or_else(|| malformed("the port is not a number from 1 to 65535"))?;
        if host.is_empty() || host.starts_with('-') || !host.chars().all(is_host_character) {
            return Err(malformed("the host has characters that no host name has"));
        }
        Ok(Self { asked: text.to_owned(), user: user.map(str::to_owned), host: host.to_owned(), port })
    }
}

fn strip_scheme(text: &str) -> &str {
    match text.get(..6) {
        Some(scheme) if scheme.eq_ignore_ascii_case("ssh://") => {
            text[6..].strip_suffix('/').unwrap_or(&text[6..])
        }
        _ => text,
    }
}

fn is_user_character(c: char) -> bool {
    c.is_ascii_alphanumeric() || "._-".contains(c)
}

fn is_host_character(c: char) -> bool {
    c.is_ascii_alphanumeric() || "._-:%[]".contains(c)
}

/// Splits `host:port`. More than one colon without brackets is an IPv6 address without a port.
fn split_port(place: &str) -> Option<(&str, Option<u16>)> {
    let (host, port) = match place.rfind(']') {
        Some(end) => (&place[..=end], place[end + 1..].strip_prefix(':')),
        None if place.matches(':').count() == 1 => match place.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (place, None),
        },
        None => (place, None),
    };
    if port.is_none() && host.len() != place.len() {
        return None;
    }
    match port {
        None => Some((host, None)),
        Some(port) => read_port(port).map(|port| (host, Some(port))),
    }
}

/// A port as digits only.
pub(super) fn read_port(text: &str) -> Option<u16> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse().ok().filter(|port| *port != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_found() {
        let parsed = Destination::parse("comma@192.168.3.109:22").unwrap();
        assert_eq!(
            (parsed.user.as_deref(), parsed.host.as_str(), parsed.port),
            (Some("comma"), "192.168.3.109", Some(22))
        );
        let parsed = Destination::parse("ssh://comma@[fe80::1%eth0]:2222/").unwrap();
        assert_eq!((parsed.host.as_str(), parsed.port), ("[fe80::1%eth0]", Some(2222)));
        assert_eq!(Destination::parse("fe80::1").unwrap().host, "fe80::1");
    }

    #[test]
    fn strange_text_is_refused() {
        for text in [
            "",
            "@host",
            "a b@host",
            "host:0",
            "host:99999",
            "host:",
            "h;ls",
            "user@",
            "-oProxyCommand=x",
            "\u{ff11}@h",
            "h/x",
        ] {
            assert_eq!(Destination::parse(text).unwrap_err().rule(), "malformed-device", "{text}");
        }
    }
}
