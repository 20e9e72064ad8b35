//! The part of OpenSSH's client configuration that decides where a connection goes.
//!
//! Supported: Host, Match (all, host, originalhost, user, localuser, canonical), Include, HostName, User, Port, ProxyJump,
//! IdentityFile, IdentitiesOnly, IdentityAgent, AddressFamily, UserKnownHostsFile, GlobalKnownHostsFile, IgnoreUnknown. A
//! directive that changes the route or the trust and is not supported is refused by name where it applies; one that has no
//! bearing on either is ignored and listed. The connection is made to what was checked here and by no other program, so a
//! reading that differs from OpenSSH's can fail to connect and cannot reach an unchecked address.

mod lines;
pub(in crate::safety) mod pattern;
mod settings;

use camino::{Utf8Path, Utf8PathBuf};

use self::lines::Line;
pub use self::settings::HostSettings;
use super::Refusal;

/// Who runs the program: fills in tokens and defaults.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalUser {
    /// Name of the user.
    pub name: String,
    /// Home directory.
    pub home: Utf8PathBuf,
}

/// A configuration: the user's file, then the system's.
#[derive(Debug, Clone, Default)]
pub struct SshConfig {
    files: Vec<Vec<Line>>,
}

impl SshConfig {
    /// A configuration without a line.
    pub fn empty() -> Self {
        Self::default()
    }

    /// Reads `~/.ssh/config` and `/etc/ssh/ssh_config` where they exist.
    ///
    /// # Errors
    /// [`Refusal::BadConfig`] where a file exists and cannot be read.
    pub fn load(user: &LocalUser) -> Result<Self, Refusal> {
        let mut config = Self::empty();
        config.add_file(&user.home.join(".ssh/config"), &user.home.join(".ssh"), user)?;
        config.add_file(Utf8Path::new("/etc/ssh/ssh_config"), Utf8Path::new("/etc/ssh"), user)?;
        Ok(config)
    }

    /// Reads one file instead of the usual two, as `ssh -F` does. An absent file is an error here.
    ///
    /// # Errors
    /// [`Refusal::BadConfig`] where it cannot be read.
    pub fn load_file(file: &Utf8Path, user: &LocalUser) -> Result<Self, Refusal> {
        if !file.is_file() {
            return Err(lines::unreadable(file, "no such file"));
        }
        let mut config = Self::empty();
        config.add_file(file, &user.home.join(".ssh"), user)?;
        Ok(config)
    }

    fn add_file(&mut self, file: &Utf8Path, include_dir: &Utf8Path, user: &LocalUser) -> Result<(), Refusal> {
        if file.exists() {
            self.files.push(lines::read_file(file, include_dir, user, 0)?);
        }
        Ok(())
    }

    /// A configuration from text; an `Include` is looked for relative to `include_dir`.
    ///
    /// # Errors
    /// [`Refusal::BadConfig`] where a line cannot be read.
    pub fn parse(text: &str, include_dir: &Utf8Path, user: &LocalUser) -> Result<Self, Refusal> {
        Ok(Self { files: vec![lines::read_text(text, Utf8Path::new("ssh_config"), include_dir, user, 0)?] })
    }

    /// What the configuration says of `host`, for the user and port of the command line where those were given.
    ///
    /// # Errors
    /// [`Refusal::UnsupportedDirective`] and [`Refusal::BadConfig`].
    pub fn lookup(
        &self,
        host: &str,
        user: Option<&str>,
        port: Option<u16>,
        local: &LocalUser,
    ) -> Result<HostSettings, Refusal> {
        settings::collect(&self.files, host, user, port, local)
    }
}
