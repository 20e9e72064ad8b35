//! Whom a host key belongs to: known_hosts files.
//!
//! A key that differs from a recorded one is *changed*, also where it is of another type: only a host of which nothing at all
//! is recorded is *unknown*. A line that cannot be read is an error where it may concern the host, because a lost
//! `@revoked` would be worse than a stop.

use base64::{Engine, engine::general_purpose::STANDARD};
use camino::{Utf8Path, Utf8PathBuf};
use hmac::{Hmac, KeyInit, Mac};
use sha1::Sha1;

use super::{HostKey, Refusal, ssh_config::pattern};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mark {
    Plain,
    Authority,
    Revoked,
}

#[derive(Debug, Clone)]
struct Entry {
    mark: Mark,
    hosts: String,
    key: HostKey,
    place: String,
}

/// What is recorded of a host key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It is recorded for this host.
    Known,
    /// Other keys are recorded for this host: their fingerprints and where.
    Changed(Vec<String>, String),
    /// It is revoked; where.
    Revoked(String),
    /// Nothing is recorded for this host.
    Unknown,
}

/// The entries of several files.
#[derive(Debug, Clone, Default)]
pub struct KnownHosts {
    entries: Vec<Entry>,
}

impl KnownHosts {
    /// Reads files; one that does not exist is empty.
    ///
    /// # Errors
    /// [`Refusal::BadConfig`] where a file or a line cannot be read.
    pub fn load(files: &[Utf8PathBuf]) -> Result<Self, Refusal> {
        let mut known = Self::default();
        for file in files.iter().filter(|file| file.exists()) {
            let text = std::fs::read_to_string(file).map_err(|error| bad(file, 0, error.to_string()))?;
            known.add(&text, file)?;
        }
        Ok(known)
    }

    /// Reads text; `name` is how messages call it.
    ///
    /// # Errors
    /// [`Refusal::BadConfig`] where a line cannot be read.
    pub fn parse(text: &str, name: &Utf8Path) -> Result<Self, Refusal> {
        let mut known = Self::default();
        known.add(text, name)?;
        Ok(known)
    }

    fn add(&mut self, text: &str, name: &Utf8Path) -> Result<(), Refusal> {
        for (index, raw) in text.lines().enumerate() {
            let mut fields = raw.split_ascii_whitespace().peekable();
            let mark = match fields.peek() {
                None => continue,
                Some(first) if first.starts_with('#') => continue,
                Some(&"@cert-authority") => Mark::Authority,
                Some(&"@revoked") => Mark::Revoked,
                Some(first) if first.starts_with('@') => {
                    return Err(bad(name, index + 1, format!("the marker {first} is not supported")));
                }
                Some(_) => Mark::Plain,
            };
            if mark != Mark::Plain {
                fields.next();
            }
            let (Some(hosts), Some(algorithm), Some(blob)) = (fields.next(), fields.next(), fields.next())
            else {
                return Err(bad(name, index + 1, "a host, a key type and a key are needed".to_owned()));
            };
            let key = HostKey::from_base64(blob).filter(|key| key.algorithm() == algorithm);
            let key = key.ok_or_else(|| bad(name, index + 1, format!("the key is not a {algorithm} key")))?;
            let place = format!("{name} line {}", index + 1);
            self.entries.push(Entry { mark, hosts: hosts.to_owned(), key, place });
        }
        Ok(())
    }

    /// What is recorded of `key` for a host that goes by `names` (its name, its address) at `port`.
    pub fn judge(&self, names: &[String], port: u16, key: &HostKey) -> Verdict {
        if let Some(place) = self.revoked(names, port, key) {
            return Verdict::Revoked(place);
        }
        let mut recorded = self.matching(names, port, Mark::Plain).peekable();
        let Some(first) = recorded.peek().map(|entry| entry.place.clone()) else { return Verdict::Unknown };
        let recorded: Vec<_> = recorded.collect();
        // Each name that has keys must have this one: an address that is known by another key is another machine.
        let agrees = names.iter().all(|name| {
            let own: Vec<_> = recorded.iter().filter(|entry| entry.names(name, port)).collect();
            own.is_empty() || own.iter().any(|entry| entry.key == *key)
        });
        if agrees {
            return Verdict::Known;
        }
        Verdict::Changed(recorded.iter().map(|entry| entry.key.fingerprint()).collect(), first)
    }

    /// What is recorded of the authority `key` that signed a certificate of this host.
    pub fn judge_authority(&self, names: &[String], port: u16, key: &HostKey) -> Verdict {
        if let Some(place) = self.revoked(names, port, key) {
            return Verdict::Revoked(place);
        }
        let mut authorities = self.matching(names, port, Mark::Authority);
        if authorities.any(|entry| entry.key == *key) { Verdict::Known } else { Verdict::Unknown }
    }

    /// Whether an authority is recorded for this host, so that a certificate is worth asking for.
    pub fn has_authority(&self, names: &[String], port: u16) -> bool {
        self.matching(names, port, Mark::Authority).next().is_some()
    }

    /// The algorithms of the keys that are recorded for this host: those to ask for first.
    pub fn algorithms(&self, names: &[String], port: u16) -> Vec<String> {
        self.matching(names, port, Mark::Plain).map(|entry| entry.key.algorithm().to_owned()).collect()
    }

    fn revoked(&self, names: &[String], port: u16, key: &HostKey) -> Option<String> {
        self.matching(names, port, Mark::Revoked)
            .find(|entry| entry.key == *key)
            .map(|entry| entry.place.clone())
    }

    fn matching<'a>(&'a self, names: &'a [String], port: u16, mark: Mark) -> impl Iterator<Item = &'a Entry> {
        self.entries
            .iter()
            .filter(move |entry| entry.mark == mark && names.iter().any(|name| entry.names(name, port)))
    }
}

impl Entry {
    /// Whether the line is about `name` at `port`. Other ports than 22 are written `[name]:port`.
    fn names(&self, name: &str, port: u16) -> bool {
        let name = name.to_ascii_lowercase();
        let wanted = if port == 22 { name } else { format!("[{name}]:{port}") };
        if let Some(hashed) = self.hosts.strip_prefix("|1|") {
            return hash_matches(hashed, &wanted);
        }
        let lowered = self.hosts.to_ascii_lowercase();
        pattern::matches_list(&wanted, lowered.split(','))
    }
}

fn hash_matches(hashed: &str, name: &str) -> bool {
    let Some((salt, hash)) = hashed.split_once('|') else { return false };
    let (Ok(salt), Ok(hash)) = (STANDARD.decode(salt), STANDARD.decode(hash)) else { return false };
    let Ok(mut mac) = Hmac::<Sha1>::new_from_slice(&salt) else { return false };
    mac.update(name.as_bytes());
    mac.verify_slice(&hash).is_ok()
}

fn bad(file: &Utf8Path, line: usize, why: String) -> Refusal {
    Refusal::BadConfig { file: file.to_string(), line, why }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ED: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJdD7y3aLq454yWBdwLWbieU1ebz9/cu7/QEXn9OIeZJ";
    const ED2: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAILIG2T/B0l0gaqj3puu510tu9N1OkQ4znY3LYuEm5zCF";
    const EC: &str = "ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBBJxT9fDUUUzkVFLmWV/G2pvIZ4XyqD6D3KbFQWJrB5yv0V6SqPQvEFUfUE8Pvt+Zs4A5aYR6kN8QpD4lAaj0mw4=";

    fn key(line: &str) -> HostKey {
        HostKey::from_base64(line.split(' ').nth(1).unwrap()).unwrap()
    }

    fn judge(text: &str, name: &str, port: u16, line: &str) -> Verdict {
        KnownHosts::parse(text, "known_hosts".into()).unwrap().judge(&[name.to_owned()], port, &key(line))
    }

    #[test]
    fn a_recorded_key_is_known_and_another_is_changed() {
        let text = format!("# comment\n\ncomma,192.168.3.109 {ED} note\n");
        assert_eq!(judge(&text, "Comma", 22, ED), Verdict::Known);
        assert!(matches!(judge(&text, "comma", 22, ED2), Verdict::Changed(..)));
        assert_eq!(judge(&text, "other", 22, ED), Verdict::Unknown);
    }

    #[test]
    fn another_type_of_key_does_not_make_a_changed_host_unknown() {
        let text = format!("comma {ED}\n");
        assert!(matches!(judge(&text, "comma", 22, EC), Verdict::Changed(..)));
        let both = format!("comma {ED}\ncomma {EC}\n");
        assert_eq!(judge(&both, "comma", 22, EC), Verdict::Known);
    }

    #[test]
    fn the_port_is_part_of_the_name() {
        let text = format!("[comma]:2222 {ED}\n");
        assert_eq!(judge(&text, "comma", 2222, ED), Verdict::Known);
        assert_eq!(judge(&text, "comma", 22, ED), Verdict::Unknown);
    }

    #[test]
    fn hashed_names_are_found() {
        // Made by `ssh-keygen -H` from `example.com`.
        let salt = STANDARD.encode([7_u8; 20]);
        let mut mac = Hmac::<Sha1>::new_from_slice(&[7_u8; 20]).unwrap();
        mac.update(b"[comma]:2222");
        let text = format!("|1|{salt}|{} {ED}\n", STANDARD.encode(mac.finalize().into_bytes()));
        assert_eq!(judge(&text, "comma", 2222, ED), Verdict::Known);
        assert!(matches!(judge(&text, "comma", 2222, ED2), Verdict::Changed(..)));
        assert_eq!(judge(&text, "comma", 22, ED), Verdict::Unknown);
    }

    #[test]
    fn a_revoked_key_is_revoked_although_it_is_also_recorded() {
        let text = format!("comma {ED}\n@revoked * {ED}\n");
        assert!(matches!(judge(&text, "comma", 22, ED), Verdict::Revoked(_)));
    }

    #[test]
    fn authorities_are_apart_from_keys() {
        let known = KnownHosts::parse(&format!("@cert-authority *.lan {ED}\n"), "k".into()).unwrap();
        let names = ["comma.lan".to_owned()];
        assert_eq!(known.judge(&names, 22, &key(ED)), Verdict::Unknown);
        assert_eq!(known.judge_authority(&names, 22, &key(ED)), Verdict::Known);
        assert_eq!(known.judge_authority(&names, 22, &key(ED2)), Verdict::Unknown);
        assert!(known.has_authority(&names, 22));
    }

    #[test]
    fn name_and_address_must_agree() {
        let known = KnownHosts::parse(&format!("comma {ED}\n10.0.0.5 {ED2}\n"), "k".into()).unwrap();
        let names = ["comma".to_owned(), "10.0.0.5".to_owned()];
        assert!(matches!(known.judge(&names, 22, &key(ED)), Verdict::Changed(..)));
    }

    #[test]
    fn a_line_that_cannot_be_read_stops() {
        for text in
            ["comma ssh-ed25519", "@other comma ssh-ed25519 AAAA", "comma ssh-rsa AAAAC3NzaC1lZDI1NTE5"]
        {
            assert_eq!(KnownHosts::parse(text, "k".into()).unwrap_err().rule(), "bad-ssh-config");
        }
    }
}
