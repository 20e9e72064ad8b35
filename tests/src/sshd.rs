//! A real OpenSSH server on the loopback interface, with keys of its own: this machine plays the remote device.

use std::{
    fs,
    net::{TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use camino::{Utf8Path, Utf8PathBuf};

use crate::{run, wait_for};

/// The server's program, or the reason why there is none.
///
/// # Errors
/// When it is not installed.
pub fn find_sshd() -> Result<Utf8PathBuf> {
    let places = ["/usr/sbin/sshd", "/usr/local/sbin/sshd", "/usr/bin/sshd"];
    let found = places.iter().map(Utf8PathBuf::from).find(|place| place.is_file());
    found.context("sshd is not installed; `cargo xtask setup --tests` installs it")
}

/// A running server; dropping it ends it and every connection to it.
#[derive(Debug)]
pub struct Sshd {
    dir: Utf8PathBuf,
    port: u16,
    child: Option<Child>,
}

fn keygen(file: &Utf8Path, kind: &str, passphrase: &str) -> Result<()> {
    let mut command = Command::new("ssh-keygen");
    command.args(["-q", "-t", kind, "-N", passphrase, "-C", "test", "-f", file.as_str()]);
    run(&mut command)?.expect_code(0);
    Ok(())
}

/// A free port of the loopback interface. Another process could take it before it is used; a test that hits that fails at
/// its start.
fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

impl Sshd {
    /// Starts a server whose files are in `dir`, with more lines of `sshd_config` where a test needs them.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start(dir: &Utf8Path, more: &[&str]) -> Result<Self> {
        fs::create_dir_all(dir)?;
        for kind in ["ed25519", "ecdsa"] {
            keygen(&dir.join(format!("host_{kind}")), kind, "")?;
        }
        keygen(&dir.join("user_key"), "ed25519", "")?;
        put(&dir.join("authorized_keys"), &fs::read_to_string(dir.join("user_key.pub"))?)?;
        let mut server = Self { dir: dir.to_owned(), port: free_port()?, child: None };
        server.write_config(more)?;
        server.resume()?;
        Ok(server)
    }

    fn write_config(&self, more: &[&str]) -> Result<()> {
        let dir = &self.dir;
        let mut lines = vec![
            format!("Port {}", self.port),
            "ListenAddress 127.0.0.1".to_owned(),
            format!("HostKey {dir}/host_ed25519"),
            format!("HostKey {dir}/host_ecdsa"),
            format!("AuthorizedKeysFile {dir}/authorized_keys"),
            format!("PidFile {dir}/pid"),
            "StrictModes no".to_owned(),
            "UsePAM no".to_owned(),
            "PasswordAuthentication no".to_owned(),
            "PermitRootLogin yes".to_owned(),
            "PrintMotd no".to_owned(),
            "LogLevel ERROR".to_owned(),
            "MaxStartups 100".to_owned(),
            "Subsystem sftp internal-sftp".to_owned(),
        ];
        lines.extend(more.iter().map(|line| (*line).to_owned()));
        put(&dir.join("sshd_config"), &(lines.join("\n") + "\n"))
    }

    /// Starts the server again after [`Self::pause`].
    ///
    /// # Errors
    /// When it does not answer.
    pub fn resume(&mut self) -> Result<()> {
        if nix::unistd::geteuid().is_root() {
            // The directory of the server's unprivileged half, which a package's service file would make.
            fs::create_dir_all("/run/sshd")?;
        }
        let log = fs::OpenOptions::new().create(true).append(true).open(self.dir.join("sshd.log"))?;
        let mut command = Command::new(find_sshd()?);
        command.args(["-D", "-e", "-f", self.dir.join("sshd_config").as_str()]);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn()?;
        self.child = Some(child);
        let port = self.port;
        wait_for("sshd to answer", Duration::from_secs(10), || {
            TcpStream::connect(("127.0.0.1", port)).is_ok()
        })
    }

    /// Ends the server that takes connections; those that exist go on.
    pub fn pause(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Ends the server's process of every connection.
    ///
    /// # Errors
    /// When processes cannot be listed.
    pub fn cut_connections(&self) -> Result<usize> {
        let Some(child) = &self.child else { bail!("the server does not run") };
        let mut cut = 0;
        for pid in children_of(child.id())? {
            crate::send_signal(pid, crate::Signal::SIGKILL)?;
            cut += 1;
        }
        Ok(cut)
    }

    /// The port it listens at.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The key that may log in.
    #[must_use]
    pub fn user_key(&self) -> Utf8PathBuf {
        self.dir.join("user_key")
    }

    /// The line of a known_hosts file for the server at `port` (that of a proxy before it, for instance).
    ///
    /// # Errors
    /// When the key cannot be read.
    pub fn known_hosts_line(&self, port: u16) -> Result<String> {
        let key = fs::read_to_string(self.dir.join("host_ed25519.pub"))?;
        let fields: Vec<&str> = key.split_whitespace().take(2).collect();
        Ok(format!("[127.0.0.1]:{port} {}\n", fields.join(" ")))
    }

    /// Fingerprint of the server's Ed25519 key.
    ///
    /// # Errors
    /// When `ssh-keygen` does not say it.
    pub fn fingerprint(&self) -> Result<String> {
        let mut command = Command::new("ssh-keygen");
        command.args(["-l", "-f", self.dir.join("host_ed25519.pub").as_str()]);
        let outcome = run(&mut command)?;
        outcome.expect_code(0);
        let text = outcome.stdout.clone();
        Ok(text.split_whitespace().nth(1).context("a fingerprint")?.to_owned())
    }

    /// The options of OpenSSH's own clients for this server.
    #[must_use]
    pub fn client_options(&self, port: u16) -> Vec<String> {
        let known = self.dir.join("known_hosts_of_clients");
        if let Ok(line) = self.known_hosts_line(port) {
            let _ = put(&known, &line);
        }
        let key = self.user_key();
        ["-F", "none", "-i", key.as_str(), "-o"]
            .map(str::to_owned)
            .into_iter()
            .chain([format!("UserKnownHostsFile={known}"), "-o".to_owned(), "BatchMode=yes".to_owned()])
            .chain(["-o".to_owned(), format!("Port={port}")])
            .collect()
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        let _ = self.cut_connections();
        self.pause();
    }
}

/// The processes that `parent` started and that still run.
fn children_of(parent: u32) -> Result<Vec<u32>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").context("list processes")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { continue };
        let fields = stat.rsplit_once(')').map(|(_, rest)| rest.split_whitespace().collect::<Vec<_>>());
        if fields.and_then(|fields| fields.get(1)?.parse::<u32>().ok()) == Some(parent) {
            found.push(pid);
        }
    }
    Ok(found)
}

#[expect(clippy::disallowed_methods, reason = "the tests' own files need not be durable")]
fn put(path: &Utf8Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("write {path}"))
}
