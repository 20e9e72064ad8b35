//! The `.netrc` format: machine, login, password.

use crate::Credentials;

/// Credentials by host, as a `.netrc` file lists them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Netrc {
    machines: Vec<(Option<String>, Credentials)>,
}

impl Netrc {
    /// Parses the text of a netrc file; what is not understood is skipped, as other programs do.
    pub fn parse(text: &str) -> Self {
        let mut netrc = Self::default();
        let mut current: Option<(Option<String>, String, String)> = None;
        let mut in_macro = false;
        for line in text.lines() {
            if in_macro {
                // A macro ends with an empty line.
                in_macro = !line.trim().is_empty();
                continue;
            }
            let line = if line.trim_start().starts_with('#') { "" } else { line };
            let mut words = line.split_whitespace();
            while let Some(word) = words.next() {
                match (word, &mut current) {
                    ("machine", _) => {
                        netrc.push(current.take());
                        current = words
                            .next()
                            .map(|host| (Some(host.to_ascii_lowercase()), String::new(), String::new()));
                    }
                    ("default", _) => {
                        netrc.push(current.take());
                        current = Some((None, String::new(), String::new()));
                    }
                    ("login", Some((_, login, _))) => *login = words.next().unwrap_or_default().to_owned(),
                    ("password", Some((.., password))) => {
                        *password = words.next().unwrap_or_default().to_owned()
                    }
                    ("macdef", _) => {
                        in_macro = true;
                        break;
                    }
                    _ => {}
                }
            }
        }
        netrc.push(current);
        netrc
    }

    fn push(&mut self, entry: Option<(Option<String>, String, String)>) {
        if let Some((host, login, password)) = entry {
            self.machines.push((host, Credentials::new(login, password)));
        }
    }

    /// The credentials for `host`: its own entry, else the default entry.
    pub fn find(&self, host: &str) -> Option<&Credentials> {
        let of = |wanted: Option<&str>| {
            self.machines
                .iter()
                .find(|(machine, _)| machine.as_deref() == wanted)
                .map(|(_, credentials)| credentials)
        };
        of(Some(&host.to_ascii_lowercase())).or_else(|| of(None))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn entries_defaults_comments_and_macros() {
        let netrc = Netrc::parse(
            "# mine\nmachine a.example login u password p\nmacdef init\nmachine evil login x password y\n\n\
             machine b.example\n  login v\n  account z\n  password q\ndefault login anonymous password mail",
        );
        assert_eq!(netrc.find("A.example"), Some(&Credentials::new("u", "p")));
        assert_eq!(netrc.find("b.example"), Some(&Credentials::new("v", "q")));
        assert_eq!(netrc.find("evil"), Some(&Credentials::new("anonymous", "mail")));
        assert_eq!(Netrc::parse("machine a login u password p").find("b"), None);
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in "(machine|default|login|password|macdef| |\n|[a-z]){0,40}") {
            let _ = Netrc::parse(&text).find("a");
        }
    }
}
