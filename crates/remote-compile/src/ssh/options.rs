//! How a device is reached.

use std::{
    collections::HashMap,
    fmt,
    str::FromStr,
    sync::{Arc, Mutex, atomic::AtomicBool},
    time::Duration,
};

use camino::{Utf8Path, Utf8PathBuf};
use russh::keys::PrivateKey;

use crate::safety::LocalUser;

/// Asks for the passphrase of a key file; `None` leaves the key out.
pub type Passphrases = Arc<dyn Fn(&Utf8Path) -> Option<String> + Send + Sync>;

/// Decrypted keys, by file.
pub(super) type Unlocked = Arc<Mutex<HashMap<Utf8PathBuf, PrivateKey>>>;

/// An absolute path on the device that means the same to every shell: it has no character that one would read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemotePath(Utf8PathBuf);

/// Text that is no such path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} cannot be a path on the device: an absolute path of letters, digits and . _ - is needed")]
pub struct RemotePathError {
    /// The refused text.
    pub text: String,
}

impl FromStr for RemotePath {
    type Err = RemotePathError;

    fn from_str(text: &str) -> Result<Self, RemotePathError> {
        let plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
        let climbs = text.split('/').any(|part| part == "..");
        if text.starts_with('/') && text.len() > 1 && text.chars().all(plain) && !climbs {
            Ok(Self(text.trim_end_matches('/').into()))
        } else {
            Err(RemotePathError { text: text.chars().take(200).collect() })
        }
    }
}

impl fmt::Display for RemotePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.0.as_str())
    }
}

impl RemotePath {
    /// The path as text.
    pub fn as_path(&self) -> &Utf8Path {
        &self.0
    }

    /// The path of a file in this directory, whose name has no other characters either.
    pub(super) fn join(&self, name: &str) -> String {
        format!("{}/{name}", self.0)
    }
}

/// How a device is reached and kept.
#[derive(Clone)]
pub struct SshOptions {
    /// Directory on the device that holds `models` and `jobs`.
    pub root: RemotePath,
    /// Who runs this program: default key files and known hosts are in the home directory.
    pub local: LocalUser,
    /// Socket of the SSH agent.
    pub agent: Option<Utf8PathBuf>,
    /// Asks for passphrases of key files.
    pub passphrases: Option<Passphrases>,
    /// Files of known hosts beside those that the SSH configuration or the home directory has.
    pub known_hosts: Vec<Utf8PathBuf>,
    /// Who this host is to the device: the same for every run of one workspace on one machine, and for nothing else.
    pub owner: String,
    /// How long a connection may take to be made, login included.
    pub connect_timeout: Duration,
    /// How long the device may be silent before the connection is taken for lost.
    pub silence: Duration,
    /// How long a device that was not reached yet is tried before it is given up.
    pub first_patience: Duration,
    /// How long a lost connection is made again before it is given up.
    pub patience: Duration,
    /// Keys whose passphrases were asked for: a connection that is made again asks nobody.
    pub(super) unlocked: Unlocked,
    /// Bytes after which keys are exchanged anew.
    pub rekey_bytes: usize,
    /// Whether to work on a device that is on the road.
    pub while_driving: bool,
    /// Set when the user wants to stop: transfers end and keep what has arrived.
    pub stop: Arc<AtomicBool>,
}

impl SshOptions {
    /// The default directory on the device, outside the tree that its updater owns.
    pub const DEFAULT_ROOT: &'static str = "/data/model-rebuild";

    /// Options with the usual times.
    pub fn new(root: RemotePath, local: LocalUser, owner: impl Into<String>) -> Self {
        Self {
            root,
            local,
            agent: None,
            passphrases: None,
            known_hosts: Vec::new(),
            owner: owner.into(),
            connect_timeout: Duration::from_secs(20),
            silence: crate::link::SILENCE,
            first_patience: Duration::from_secs(60),
            patience: crate::supervise::PATIENCE,
            unlocked: Unlocked::default(),
            rekey_bytes: 1 << 30,
            while_driving: false,
            stop: Arc::default(),
        }
    }

    /// Where `models` is on the device.
    pub fn models(&self) -> String {
        self.root.join("models")
    }
}

impl fmt::Debug for SshOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SshOptions")
            .field("root", &self.root)
            .field("owner", &self.owner)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_holds_nothing_that_a_shell_reads() {
        assert_eq!("/data/model-rebuild/".parse::<RemotePath>().unwrap().to_string(), "/data/model-rebuild");
        for text in
            ["", "/", "data", "/a b", "/a;b", "/a$b", "/a/../b", "/a'b", "/a\nb", "/a*", "~/x", "/\u{e4}"]
        {
            assert!(text.parse::<RemotePath>().is_err(), "{text}");
        }
    }
}
