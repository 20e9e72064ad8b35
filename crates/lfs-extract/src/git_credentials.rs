//! Credentials for LFS servers: from the address, from netrc, from git's credential helpers.

use std::{
    collections::HashMap,
    io::Write,
    process::{Command, Stdio},
    sync::{Mutex, PoisonError},
};

use camino::Utf8PathBuf;
use verified_download::{Credentials, HttpUrl, Netrc, Scheme};

/// Where credentials come from.
#[derive(Debug, Clone, Default)]
pub struct CredentialSources {
    /// The user's netrc file, parsed.
    pub netrc: Netrc,
    /// A directory in which `git credential` is asked (its helpers and their configuration are the user's); `None` asks no
    /// helper.
    pub git_in: Option<Utf8PathBuf>,
}

/// Credentials as they were found, kept for the length of a run.
#[derive(Debug)]
pub(crate) struct CredentialStore {
    sources: CredentialSources,
    helped: Mutex<HashMap<String, Option<Credentials>>>,
}

impl CredentialStore {
    pub(crate) fn new(sources: CredentialSources) -> Self {
        Self { sources, helped: Mutex::default() }
    }

    /// What is known without asking a helper.
    pub(crate) fn known(&self, url: &HttpUrl) -> Option<Credentials> {
        let helped =
            self.helped.lock().unwrap_or_else(PoisonError::into_inner).get(&url.origin()).cloned().flatten();
        helped.or_else(|| url.credentials().cloned()).or_else(|| self.sources.netrc.find(url.host()).cloned())
    }

    /// Asks git's helpers once per origin; `None` where they know nothing (or were asked before, to no avail).
    pub(crate) fn ask(&self, url: &HttpUrl) -> Option<Credentials> {
        let mut helped = self.helped.lock().unwrap_or_else(PoisonError::into_inner);
        if helped.contains_key(&url.origin()) {
            return None;
        }
        let found = self.git_credential("fill", url, None).and_then(|output| parse_fill(&output));
        helped.insert(url.origin(), found.clone());
        found
    }

    /// Tells the helpers whether what they gave was right.
    pub(crate) fn report(&self, url: &HttpUrl, credentials: &Credentials, accepted: bool) {
        // A helper that cannot remember is no reason to fail.
        let _ = self.git_credential(if accepted { "approve" } else { "reject" }, url, Some(credentials));
        if !accepted {
            self.helped.lock().unwrap_or_else(PoisonError::into_inner).insert(url.origin(), None);
        }
    }

    fn git_credential(
        &self,
        action: &str,
        url: &HttpUrl,
        credentials: Option<&Credentials>,
    ) -> Option<String> {
        let dir = self.sources.git_in.as_ref()?;
        let scheme = if url.scheme() == Scheme::Https { "https" } else { "http" };
        let host = if url.port() == url.scheme().default_port() {
            url.host().to_owned()
        } else {
            format!("{}:{}", url.host(), url.port())
        };
        let path = url.path().trim_start_matches('/');
        let mut question = format!("protocol={scheme}\nhost={host}\npath={path}\n");
        if let Some(credentials) = credentials {
            question.push_str(&format!(
                "username={}\npassword={}\n",
                credentials.user(),
                credentials.secret()
            ));
        }
        question.push('\n');
        let mut child = Command::new("git")
            .args(["-C", dir.as_str(), "-c", "core.askPass=", "credential", action])
            .env("GIT_TERMINAL_PROMPT", "0")
            .env_remove("GIT_ASKPASS")
            .env_remove("SSH_ASKPASS")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        // The pipe is closed at the end of the statement, which ends git's reading.
        child.stdin.take()?.write_all(question.as_bytes()).ok()?;
        let output = child.wait_with_output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

fn parse_fill(output: &str) -> Option<Credentials> {
    let value = |key: &str| output.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    Some(Credentials::new(value("username")?, value("password")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_helpers_answer_is_read() {
        let answer = "protocol=https\nhost=h\nusername=u\npassword=p=w\n";
        assert_eq!(parse_fill(answer), Some(Credentials::new("u", "p=w")));
        assert_eq!(parse_fill("username=u\n"), None);
    }

    #[test]
    fn the_address_goes_before_netrc() {
        let netrc = Netrc::parse("machine h login n password m");
        let store = CredentialStore::new(CredentialSources { netrc, git_in: None });
        let known = |url: &str| store.known(&HttpUrl::parse(url).unwrap());
        assert_eq!(known("https://u:p@h/"), Some(Credentials::new("u", "p")));
        assert_eq!(known("https://h/"), Some(Credentials::new("n", "m")));
        assert_eq!(known("https://other/"), None);
        assert_eq!(store.ask(&HttpUrl::parse("https://other/").unwrap()), None);
    }
}
