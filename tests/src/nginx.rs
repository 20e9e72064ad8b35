//! A real nginx on the loopback interface that serves a directory: the host that devices fetch from.

use std::{
    fs,
    net::{TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result};
use camino::{Utf8Path, Utf8PathBuf};

use crate::{Signal, send_signal, wait_for};

/// The server's program, or the reason why there is none.
///
/// # Errors
/// When it is not installed.
pub fn find_nginx() -> Result<Utf8PathBuf> {
    let places = ["/usr/sbin/nginx", "/usr/local/sbin/nginx", "/usr/bin/nginx", "/opt/homebrew/bin/nginx"];
    let found = places.iter().map(Utf8PathBuf::from).find(|place| place.is_file());
    found.context("nginx is not installed; `cargo xtask setup --tests` installs it")
}

/// A running server; dropping it ends it.
#[derive(Debug)]
pub struct Nginx {
    base: String,
    log: Utf8PathBuf,
    child: Child,
}

impl Nginx {
    /// Serves `served` under `/`; the server's own files go to `dir`. `more` stands in the `location` of everything, such as
    /// `limit_rate 1m;`.
    ///
    /// # Errors
    /// When it is not installed or does not start.
    pub fn serve(dir: &Utf8Path, served: &Utf8Path, more: &str) -> Result<Self> {
        let program = find_nginx()?;
        for needed in [dir, served] {
            fs::create_dir_all(needed).with_context(|| format!("make {needed}"))?;
        }
        // Another process could take the port before nginx does; the test then fails at its start.
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let (conf, log) = (dir.join("nginx.conf"), dir.join("access.log"));
        write_config(&conf, &configuration(dir, served, port, more))?;
        let mut command = Command::new(program);
        command.args(["-p", dir.as_str(), "-c", conf.as_str(), "-e", dir.join("error.log").as_str()]);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let server = Self { base: format!("http://127.0.0.1:{port}"), log, child };
        wait_for("nginx", Duration::from_secs(10), || TcpStream::connect(("127.0.0.1", port)).is_ok())
            .with_context(|| fs::read_to_string(dir.join("error.log")).unwrap_or_default())?;
        Ok(server)
    }

    /// The address of the served directory, without a slash at the end.
    #[must_use]
    pub fn base(&self) -> &str {
        &self.base
    }

    /// What was asked for so far: method, path, status and range, one line a request.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub fn requests(&self) -> Result<Vec<String>> {
        let text = fs::read_to_string(&self.log).with_context(|| format!("read {}", self.log))?;
        Ok(text.lines().map(str::to_owned).collect())
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // The master ends its workers on SIGTERM; a kill would leave them.
        let _ = send_signal(self.child.id(), Signal::SIGTERM);
        let _ = self.child.wait();
    }
}

fn configuration(dir: &Utf8Path, served: &Utf8Path, port: u16, more: &str) -> String {
    // Workers of an nginx that root starts are root too: what a test makes in its temporary directory is readable by its
    // owner only.
    let user = if crate::is_root() { "user root;" } else { "" };
    format!(
        "{user} daemon off; pid {dir}/pid; worker_processes 1;\n\
         events {{ worker_connections 64; }}\n\
         http {{\n\
         log_format asked '$request_method $uri $status $http_range'; access_log {dir}/access.log asked;\n\
         client_body_temp_path {dir}/body; proxy_temp_path {dir}/proxy; fastcgi_temp_path {dir}/fastcgi;\n\
         uwsgi_temp_path {dir}/uwsgi; scgi_temp_path {dir}/scgi;\n\
         types {{ text/html html; }} default_type application/octet-stream;\n\
         server {{ listen 127.0.0.1:{port}; location / {{ root {served}; {more} }} }}\n\
         }}\n"
    )
}

#[expect(clippy::disallowed_methods, reason = "the configuration of a server that has not begun")]
fn write_config(path: &Utf8Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("write {path}"))
}
