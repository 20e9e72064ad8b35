//! `http` and `https` addresses: parsed once, joined for redirects, printed without secrets.

use std::fmt;

use crate::Credentials;

/// Text that is not an address this client can ask.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text} is not an http or https address: {why}")]
pub struct UrlError {
    /// The refused text, without what stands before an `@`.
    pub text: String,
    /// What is wrong with it.
    pub why: &'static str,
}

/// How the server is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scheme {
    /// Plain.
    Http,
    /// With TLS.
    Https,
}

impl Scheme {
    /// The port that is meant where none is written.
    pub const fn default_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }

    const fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }
}

/// An address. Credentials that were written in it are kept apart and are no part of its text.
#[derive(Clone, PartialEq, Eq)]
pub struct HttpUrl {
    scheme: Scheme,
    host: String,
    port: u16,
    /// Path and query, beginning with `/`.
    path: String,
    credentials: Option<Credentials>,
}

impl HttpUrl {
    /// Parses an absolute address.
    ///
    /// # Errors
    /// [`UrlError`] where the scheme is another, the host is missing, or a part is malformed.
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        let refused = |why| UrlError { text: without_userinfo(text), why };
        let (scheme, rest) = text.split_once("://").ok_or_else(|| refused("it has no scheme"))?;
        let scheme = match scheme.to_ascii_lowercase().as_str() {
            "http" => Scheme::Http,
            "https" => Scheme::Https,
            _ => return Err(refused("its scheme is neither http nor https")),
        };
        if text.bytes().any(|byte| byte <= b' ' || byte == 0x7f) {
            return Err(refused("it contains a space or control character"));
        }
        let rest = rest.split('#').next().unwrap_or_default();
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let (userinfo, host_port) = match authority.rsplit_once('@') {
            Some((userinfo, host_port)) => (Some(userinfo), host_port),
            None => (None, authority),
        };
        let (host, port) =
            split_port(host_port, scheme).ok_or_else(|| refused("its host or port is malformed"))?;
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        let credentials = userinfo.map(parse_userinfo);
        Ok(Self { scheme, host: host.to_ascii_lowercase(), port, path, credentials })
    }

    /// The address that a `Location` of this one means.
    ///
    /// # Errors
    /// [`UrlError`] where it is an address that this client cannot ask.
    pub fn join(&self, location: &str) -> Result<Self, UrlError> {
        if location.contains("://") {
            return Self::parse(location);
        }
        if let Some(rest) = location.strip_prefix("//") {
            return Self::parse(&format!("{}://{rest}", self.scheme.as_str()));
        }
        let directory = || {
            let path = self.path.split('?').next().unwrap_or("/");
            &path[..=path.rfind('/').unwrap_or(0)]
        };
        let path = match location.as_bytes().first() {
            Some(b'/') => location.to_owned(),
            Some(b'?') => format!("{}{location}", self.path.split('?').next().unwrap_or("/")),
            _ => format!("{}{location}", directory()),
        };
        Self::parse(&format!("{}{path}", self.origin()))
    }

    /// Adds path segments, keeping what is there: `https://h/a.git` and `info/lfs` give `https://h/a.git/info/lfs`.
    pub fn with_suffix(&self, suffix: &str) -> Self {
        let path = format!("{}/{}", self.path.trim_end_matches('/'), suffix.trim_start_matches('/'));
        Self { path, ..self.clone() }
    }

    /// Scheme, host and port: what credentials belong to.
    pub fn origin(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        if self.port == self.scheme.default_port() {
            format!("{}://{host}", self.scheme.as_str())
        } else {
            format!("{}://{host}:{}", self.scheme.as_str(), self.port)
        }
    }

    /// The scheme.
    pub const fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// The host, lower case, an IPv6 address without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Path and query.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The credentials that were written in the address.
    pub const fn credentials(&self) -> Option<&Credentials> {
        self.credentials.as_ref()
    }
}

/// Scheme, host, port and path with the query left out: signed queries are secrets too.
impl fmt::Display for HttpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.split('?').next().unwrap_or_default();
        let hidden = if path.len() < self.path.len() { "?..." } else { "" };
        write!(f, "{}{path}{hidden}", self.origin())
    }
}

impl fmt::Debug for HttpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HttpUrl({self})")
    }
}

fn without_userinfo(text: &str) -> String {
    match (text.find("://"), text.rfind('@')) {
        (Some(scheme), Some(at)) if at > scheme => format!("{}{}", &text[..scheme + 3], &text[at + 1..]),
        _ => text.to_owned(),
    }
}

fn split_port(text: &str, scheme: Scheme) -> Option<(&str, u16)> {
    let (host, rest) = match text.strip_prefix('[') {
        Some(bracketed) => bracketed.split_once(']')?,
        None => text.split_at(text.find(':').unwrap_or(text.len())),
    };
    let port = match rest.strip_prefix(':') {
        None if rest.is_empty() => scheme.default_port(),
        Some("") => scheme.default_port(),
        Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => digits.parse().ok()?,
        _ => return None,
    };
    (!host.is_empty() && !host.contains(['%', '\\', '<', '>', '"'])).then_some((host, port))
}

fn parse_userinfo(text: &str) -> Credentials {
    let (user, secret) = text.split_once(':').unwrap_or((text, ""));
    Credentials::new(percent_decode(user), percent_decode(secret))
}

fn percent_decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let escaped = bytes
            .get(at + 1..at + 3)
            .and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
        match (bytes[at], escaped) {
            (b'%', Some(byte)) => {
                decoded.push(byte);
                at += 3;
            }
            (byte, _) => {
                decoded.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn url(text: &str) -> HttpUrl {
        HttpUrl::parse(text).unwrap()
    }

    #[test]
    fn parts_are_told_apart_and_secrets_hidden() {
        let parsed = url("HTTPS://us%40er:p%3Aw@Example.ORG:8443/a/b?sig=1#frag");
        assert_eq!((parsed.host(), parsed.port(), parsed.path()), ("example.org", 8443, "/a/b?sig=1"));
        assert_eq!(parsed.credentials(), Some(&Credentials::new("us@er", "p:w")));
        assert_eq!(parsed.to_string(), "https://example.org:8443/a/b?...");
        assert_eq!(url("http://[::1]:80").origin(), "http://[::1]");
        assert_eq!(url("http://h?x").path(), "/?x");
    }

    #[test]
    fn what_cannot_be_asked_is_refused_without_its_secret() {
        for text in [
            "ftp://h/",
            "h/x",
            "http://",
            "http://h:x/",
            "http://h:99999/",
            "http://h /",
            "ssh://git@h/x",
            "http://h\r\nX: y/",
        ] {
            assert!(HttpUrl::parse(text).is_err(), "{text}");
        }
        let refused = HttpUrl::parse("https://user:secret@h:x/").unwrap_err().to_string();
        assert!(!refused.contains("secret"), "{refused}");
    }

    #[test]
    fn locations_are_joined() {
        let base = url("https://h:1/a/b?q");
        for (location, joined) in [
            ("/c", "https://h:1/c"),
            ("c", "https://h:1/a/c"),
            ("//o/c", "https://o/c"),
            ("http://o:2/", "http://o:2/"),
        ] {
            assert_eq!(base.join(location).unwrap().to_string(), joined);
        }
        assert_eq!(base.join("?z").unwrap().path(), "/a/b?z");
        assert!(base.join("file:///etc/passwd").is_err());
        assert_eq!(url("https://h/a.git/").with_suffix("info/lfs").to_string(), "https://h/a.git/info/lfs");
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(text in ".{0,60}", location in ".{0,30}") {
            if let Ok(parsed) = HttpUrl::parse(&text) {
                let _ = parsed.join(&location);
                prop_assert_eq!(HttpUrl::parse(&format!("{}{}", parsed.origin(), parsed.path())).map(|again| again.origin()), Ok(parsed.origin()));
            }
            let _ = HttpUrl::parse(&format!("http://{text}"));
        }
    }
}
