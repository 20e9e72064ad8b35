//! A small HTTP server that serves a branch of a bare repository as raw files, with the faults that hosts have.
#![allow(dead_code, clippy::allow_attributes, reason = "each test binary uses its own part of this")]

use std::{
    io::{BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    process::Command,
    sync::{Arc, Mutex},
    thread,
};

use camino::{Utf8Path, Utf8PathBuf};

/// What goes wrong with answers.
#[derive(Debug, Clone, Default)]
pub enum Fault {
    #[default]
    None,
    /// Files whose name ends so lose their last byte.
    DropTail(&'static str),
    /// Files whose name ends so are not found.
    Missing(&'static str),
    /// Files whose name begins so are served as they once were, whether or not they are still there.
    Kept(&'static str),
    /// Files whose name begins so are answered with an error of the server.
    Broken(&'static str),
}

pub struct RawHost {
    pub base: String,
    pub fault: Arc<Mutex<Fault>>,
}

impl RawHost {
    /// Serves the branches of the bare repository under `/<branch>/<file>`.
    pub fn serve(repository: &Utf8Path) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let base = format!("http://127.0.0.1:{}", listener.local_addr().unwrap().port());
        let fault = Arc::new(Mutex::new(Fault::None));
        let (repository, faults) = (repository.to_owned(), Arc::clone(&fault));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (repository, fault) = (repository.clone(), faults.lock().unwrap().clone());
                thread::spawn(move || answer(stream, &repository, &fault));
            }
        });
        Self { base, fault }
    }

    pub fn fail(&self, fault: Fault) {
        *self.fault.lock().unwrap() = fault;
    }
}

fn answer(stream: TcpStream, repository: &Utf8PathBuf, fault: &Fault) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let mut header = String::new();
    while reader.read_line(&mut header).ok()? > 2 {
        header.clear();
    }
    let path = line.split_whitespace().nth(1)?.trim_start_matches('/').to_owned();
    let (branch, name) = path.split_once('/')?;
    let object = format!("{branch}:{name}");
    let output =
        Command::new("git").args(["-C", repository.as_str(), "cat-file", "blob", &object]).output().ok()?;
    let mut body = output.stdout;
    let (mut found, mut broken) = (output.status.success(), false);
    match fault {
        Fault::DropTail(end) if name.ends_with(end) => drop(body.pop()),
        Fault::Missing(end) if name.ends_with(end) => found = false,
        Fault::Kept(start) if name.starts_with(start) => found = true,
        Fault::Broken(start) if name.starts_with(start) && !found => broken = true,
        _ => {}
    }
    let mut stream = stream;
    let status = match (broken, found) {
        (true, _) => "500 Internal Server Error",
        (false, true) => "200 OK",
        (false, false) => "404 Not Found",
    };
    let body = if found { body } else { b"not found".to_vec() };
    let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
    stream.write_all(head.as_bytes()).ok()?;
    stream.write_all(&body).ok()
}
