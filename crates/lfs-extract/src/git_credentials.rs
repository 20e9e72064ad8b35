//! Credentials for LFS servers: from the address, from netrc, from git's credential helpers.

use std::{
    collections::HashMap,
    process::Command,
    sync::{Mutex, PoisonError, atomic::AtomicBool},
    time::Duration,
};

use camino::Utf8PathBuf;
use verified_download::{Credentials, HttpError, HttpUrl, Netrc, Scheme};

use crate::child::{Ended, run_within};

/// Where credentials come from.
#[derive(Debug, Clone)]
pub struct CredentialSources {
    /// The user's netrc file, parsed.
    pub netrc: Netrc,
    /// A directory in which `git credential` is asked (its helpers and their configuration are the user's); `None` asks no
    /// helper.
    pub git_in: Option<Utf8PathBuf>,
    /// How long a helper may take; one that asks a person needs a while.
    pub helper_limit: Duration,
}

impl Default for CredentialSources {
    fn default() -> Self {
        Self { netrc: Netrc::default(), git_in: None, helper_limit: Duration::from_secs(120) }
    }
}

/// A helper that is only told something is not waited for any longer than this.
const TELLING_LIMIT: Duration = Duration::from_secs(10);

/// What the helpers said for an origin.
#[derive(Debug, Clone)]
enum Helped {
    With(Credentials),
    Nothing,
    /// They did not answer, and why.
    Silent(String),
}

/// Credentials as they were found, kept for the length of a run.
#[derive(Debug)]
pub(crate) struct CredentialStore {
    sources: CredentialSources,
    helped: Mutex<HashMap<String, Helped>>,
}

impl CredentialStore {
    pub(crate) fn new(sources: CredentialSources) -> Self {
        Self { sources, helped: Mutex::default() }
    }

    /// What is known without asking a helper.
    pub(crate) fn known(&self, url: &HttpUrl) -> Option<Credentials> {
        let helped = self.helped.lock().unwrap_or_else(PoisonError::into_inner).get(&url.origin()).cloned();
        let helped = match helped {
            Some(Helped::With(credentials)) => Some(credentials),
            _ => None,
        };
        helped.or_else(|| url.credentials().cloned()).or_else(|| self.sources.netrc.find(url.host()).cloned())
    }

    /// Asks git's helpers once per origin; `None` where they know nothing (or were asked before, to no avail).
    ///
    /// # Errors
    /// [`HttpError::Credentials`] where they did not answer within the limit, [`HttpError::Interrupted`] after a stop.
    pub(crate) fn ask(&self, url: &HttpUrl, stop: &AtomicBool) -> Result<Option<Credentials>, HttpError> {
        let mut helped = self.helped.lock().unwrap_or_else(PoisonError::into_inner);
        let silent = |why| Err(HttpError::Credentials { url: url.to_string(), why });
        match helped.get(&url.origin()) {
            Some(Helped::Silent(why)) => return silent(why.clone()),
            Some(_) => return Ok(None),
            None => {}
        }
        let found = match self.git_credential("fill", url, None, self.sources.helper_limit, stop) {
            Asked::Answer(output) => parse_fill(&output).map_or(Helped::Nothing, Helped::With),
            Asked::Nothing => Helped::Nothing,
            Asked::Late => Helped::Silent(self.no_answer(url, stop)),
            Asked::Stopped => return Err(HttpError::Interrupted),
        };
        helped.insert(url.origin(), found.clone());
        match found {
            Helped::With(credentials) => Ok(Some(credentials)),
            Helped::Nothing => Ok(None),
            Helped::Silent(why) => silent(why),
        }
    }

    fn no_answer(&self, url: &HttpUrl, stop: &AtomicBool) -> String {
        let helpers = match self.helpers(url, stop) {
            names if names.is_empty() => "git's credential helpers".to_owned(),
            names => format!("the git credential helper {}", names.join(" or ")),
        };
        format!(
            "{helpers} gave no answer within {} s and was ended; see what it waits for with `printf \
             'protocol={}\\nhost={}\\n\\n' | git credential fill`, or put the credentials into ~/.netrc",
            self.sources.helper_limit.as_secs_f32(),
            scheme(url),
            host(url),
        )
    }

    /// The helpers that are configured for an address.
    fn helpers(&self, url: &HttpUrl, stop: &AtomicBool) -> Vec<String> {
        let Some(dir) = self.sources.git_in.as_ref() else { return Vec::new() };
        let mut command = Command::new("git");
        command.args(["-C", dir.as_str(), "config", "--get-regexp", r"^credential\.(.*\.)?helper$"]);
        let Ok(Ended::ByItself(true, lines)) = run_within(&mut command, b"", TELLING_LIMIT, stop) else {
            return Vec::new();
        };
        let lines = String::from_utf8_lossy(&lines);
        let named = lines.lines().filter_map(|line| line.split_once(' '));
        let own = named.filter(|(key, helper)| {
            let for_this = *key == "credential.helper" || key.contains(url.host());
            for_this && !helper.trim().is_empty()
        });
        own.map(|(_, helper)| format!("`{}`", helper.chars().take(80).collect::<String>())).collect()
    }

    /// Tells the helpers whether what they gave was right.
    pub(crate) fn report(&self, url: &HttpUrl, credentials: &Credentials, accepted: bool, stop: &AtomicBool) {
        let limit = self.sources.helper_limit.min(TELLING_LIMIT);
        let action = if accepted { "approve" } else { "reject" };
        // A helper that cannot remember is no reason to fail.
        let _ = self.git_credential(action, url, Some(credentials), limit, stop);
        if !accepted {
            self.helped.lock().unwrap_or_else(PoisonError::into_inner).insert(url.origin(), Helped::Nothing);
        }
    }

    fn git_credential(
        &self,
        action: &str,
        url: &HttpUrl,
        credentials: Option<&Credentials>,
        limit: Duration,
        stop: &AtomicBool,
    ) -> Asked {
        let Some(dir) = self.sources.git_in.as_ref() else { return Asked::Nothing };
        let path = url.path().trim_start_matches('/');
        let mut question = format!("protocol={}\nhost={}\npath={path}\n", scheme(url), host(url));
        if let Some(credentials) = credentials {
            question.push_str(&format!(
                "username={}\npassword={}\n",
                credentials.user(),
                credentials.secret()
            ));
        }
        question.push('\n');
        let mut command = Command::new("git");
        command
            .args(["-C", dir.as_str(), "-c", "core.askPass=", "credential", action])
            .env("GIT_TERMINAL_PROMPT", "0")
            .env_remove("GIT_ASKPASS")
            .env_remove("SSH_ASKPASS");
        match run_within(&mut command, question.as_bytes(), limit, stop) {
            Ok(Ended::ByItself(true, output)) => Asked::Answer(String::from_utf8_lossy(&output).into_owned()),
            Ok(Ended::ByItself(false, _)) | Err(_) => Asked::Nothing,
            Ok(Ended::Late) => Asked::Late,
            Ok(Ended::Stopped) => Asked::Stopped,
        }
    }
}

/// What came of asking the helpers.
enum Asked {
    Answer(String),
    Nothing,
    Late,
    Stopped,
}

fn scheme(url: &HttpUrl) -> &'static str {
    if url.scheme() == Scheme::Https { "https" } else { "http" }
}

/// The host, with the port where it is not the usual one.
fn host(url: &HttpUrl) -> String {
    if url.port() == url.scheme().default_port() {
        url.host().to_owned()
    } else {
        format!("{}:{}", url.host(), url.port())
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
        let store = CredentialStore::new(CredentialSources { netrc, ..Default::default() });
        let known = |url: &str| store.known(&HttpUrl::parse(url).unwrap());
        assert_eq!(known("https://u:p@h/"), Some(Credentials::new("u", "p")));
        assert_eq!(known("https://h/"), Some(Credentials::new("n", "m")));
        assert_eq!(known("https://other/"), None);
        let asked = store.ask(&HttpUrl::parse("https://other/").unwrap(), &AtomicBool::new(false));
        assert!(matches!(asked, Ok(None)));
    }
}
