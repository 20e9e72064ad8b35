//! Hosts for tests: a small server with the faults that hosts have, and the real nginx.
#![allow(dead_code, clippy::allow_attributes, reason = "each test binary uses its own part of this")]

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use artifact_parts::{ChunkSize, ListedArtifact, PartSet, SplitRequest, split};
use camino::{Utf8Path, Utf8PathBuf};
use durable_fs::{Expected, NoProgress, Sha256, write_atomic};
use model_catalog::ModelId;
use verified_download::{HttpClient, HttpOptions};

pub const NAME: &str = "m3_driving_tinygrad.pkl";

/// Bytes that no part of resembles another.
pub fn bytes(size: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut out = Vec::with_capacity(size + 8);
    while out.len() < size {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        out.extend_from_slice(&state.to_le_bytes());
    }
    out.truncate(size);
    out
}

pub struct Place {
    _guard: tempfile::TempDir,
    pub dir: Utf8PathBuf,
}

impl Place {
    pub fn new() -> Self {
        let guard = tempfile::tempdir().unwrap();
        let dir = Utf8PathBuf::from_path_buf(guard.path().to_owned()).unwrap();
        for name in ["served", "to"] {
            fs::create_dir(dir.join(name)).unwrap();
        }
        Self { _guard: guard, dir }
    }

    pub fn served(&self) -> Utf8PathBuf {
        self.dir.join("served")
    }

    pub fn to(&self) -> Utf8PathBuf {
        self.dir.join("to")
    }

    pub fn target(&self) -> Utf8PathBuf {
        self.to().join(NAME)
    }

    /// Serves an artifact in parts.
    pub fn serve_parts(&self, content: &[u8], chunk: u64) -> ListedArtifact {
        let source = self.dir.join(NAME);
        write_atomic(&source, content).unwrap();
        let request = SplitRequest {
            source: &source,
            into: &self.served(),
            name: None,
            chunk: ChunkSize::from_bytes(chunk),
            expected: Expected::default(),
            part_digests: true,
        };
        let PartSet { name, size, sha256, parts } = split(&request, &NoProgress).unwrap();
        fs::remove_file(source).unwrap();
        ListedArtifact { id: ModelId::new("m3").unwrap(), filename: name, size, sha256, parts }
    }

    pub fn serve(&self, name: &str, content: &[u8]) {
        write_atomic(self.served().join(name), content).unwrap();
    }

    /// What is in the destination, hidden names included.
    pub fn left(&self) -> Vec<String> {
        let mut names: Vec<String> =
            self.to().read_dir_utf8().unwrap().map(|entry| entry.unwrap().file_name().to_owned()).collect();
        names.sort();
        names
    }
}

pub fn client() -> HttpClient {
    HttpClient::new(HttpOptions {
        attempts: 3,
        backoff: Duration::from_millis(2),
        stall_timeout: Duration::from_millis(700),
        per_host: 16,
        ..HttpOptions::default()
    })
    .unwrap()
}

/// A request as it came.
#[derive(Debug, Clone)]
pub struct Seen {
    pub name: String,
    pub range: Option<(u64, Option<u64>)>,
    pub if_range: Option<String>,
}

/// What goes wrong with an answer.
#[derive(Debug, Clone)]
pub enum Fault {
    Status(u16),
    /// Another body, with status 200.
    Body(Vec<u8>),
    /// So many bytes, then the connection closes.
    Cut(usize),
    /// So many bytes, then silence.
    Stall(usize),
    /// Ranges are ignored.
    NoRanges,
    /// A byte is wrong.
    Flip,
}

type Judge = dyn Fn(&Seen, usize) -> Option<Fault> + Send + Sync;

/// A server of a directory; `judge` is asked for each request, with how often the file was asked for before.
pub struct FaultHost {
    pub base: String,
    pub seen: Arc<Mutex<Vec<Seen>>>,
}

impl FaultHost {
    pub fn serve(
        dir: &Utf8Path,
        judge: impl Fn(&Seen, usize) -> Option<Fault> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let base = format!("http://127.0.0.1:{}/Models", listener.local_addr().unwrap().port());
        let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
        let (dir, log, judge) = (dir.to_owned(), Arc::clone(&seen), Arc::new(judge) as Arc<Judge>);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (dir, log, judge) = (dir.clone(), Arc::clone(&log), Arc::clone(&judge));
                thread::spawn(move || answer(stream, &dir, &log, &*judge));
            }
        });
        Self { base, seen }
    }

    pub fn asked(&self, name: &str) -> usize {
        self.seen.lock().unwrap().iter().filter(|seen| seen.name == name).count()
    }

    pub fn requests(&self) -> usize {
        self.seen.lock().unwrap().len()
    }
}

fn answer(stream: TcpStream, dir: &Utf8Path, log: &Mutex<Vec<Seen>>, judge: &Judge) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let mut headers = BTreeMap::new();
    loop {
        let mut header = String::new();
        if reader.read_line(&mut header).ok()? <= 2 {
            break;
        }
        let (name, value) = header.trim().split_once(':')?;
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let range = headers.get("range").and_then(|range| {
        let (start, end) = range.strip_prefix("bytes=")?.split_once('-')?;
        Some((start.parse().ok()?, end.parse().ok()))
    });
    let name = line.split_whitespace().nth(1)?.strip_prefix("/Models/")?.to_owned();
    let seen = Seen { name, range, if_range: headers.get("if-range").cloned() };
    let before = {
        let mut log = log.lock().unwrap();
        let before = log.iter().filter(|other| other.name == seen.name).count();
        log.push(seen.clone());
        before
    };
    respond(stream, dir, &seen, judge(&seen, before))
}

fn respond(mut stream: TcpStream, dir: &Utf8Path, seen: &Seen, fault: Option<Fault>) -> Option<()> {
    let content = fs::read(dir.join(&seen.name)).ok();
    let (mut status, mut body) = match (&fault, content) {
        (Some(Fault::Status(status)), _) => (*status, b"refused".to_vec()),
        (Some(Fault::Body(body)), _) => (200, body.clone()),
        (_, None) => (404, b"not found".to_vec()),
        (_, Some(content)) => (200, content),
    };
    let etag = format!("\"{}\"", Sha256::digest(&body));
    let mut extra = String::new();
    let has_body = !body.is_empty();
    let same = seen.if_range.as_ref().is_none_or(|tag| *tag == etag);
    if let (200, Some((start, end)), true, false) =
        (status, seen.range.filter(|_| has_body), same, matches!(fault, Some(Fault::NoRanges)))
    {
        let total = body.len() as u64;
        let end = end.unwrap_or(total - 1).min(total - 1);
        body = body[start as usize..=end as usize].to_vec();
        status = 206;
        extra = format!("content-range: bytes {start}-{end}/{total}\r\n");
    }
    if matches!(fault, Some(Fault::Flip)) {
        let middle = body.len() / 2;
        body[middle] ^= 1;
    }
    let head = format!(
        "HTTP/1.1 {status} X\r\ncontent-length: {}\r\netag: {etag}\r\n{extra}connection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).ok()?;
    match fault {
        Some(Fault::Cut(len)) => stream.write_all(&body[..len.min(body.len())]).ok(),
        Some(Fault::Stall(len)) => {
            stream.write_all(&body[..len.min(body.len())]).ok()?;
            stream.flush().ok()?;
            thread::sleep(Duration::from_secs(3));
            Some(())
        }
        _ => stream.write_all(&body).ok(),
    }
}

/// The real nginx, serving a directory on loopback; ended when dropped.
pub struct Nginx {
    child: Child,
    pub base: String,
}

impl Nginx {
    /// `None` where it is not installed.
    pub fn serve(place: &Place) -> Option<Self> {
        let program = ["nginx", "/usr/sbin/nginx"].into_iter().find(|program| {
            Command::new(program).arg("-v").stderr(Stdio::null()).status().is_ok_and(|s| s.success())
        })?;
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let prefix = place.dir.join("nginx");
        fs::create_dir(&prefix).unwrap();
        let conf = format!(
            "daemon off; pid {prefix}/pid; error_log {prefix}/error.log; worker_processes 1;\n\
             events {{ worker_connections 64; }}\n\
             http {{ access_log off; client_body_temp_path {prefix}/b; proxy_temp_path {prefix}/p; fastcgi_temp_path {prefix}/f;\n\
             uwsgi_temp_path {prefix}/u; scgi_temp_path {prefix}/s; types {{}} default_type application/octet-stream;\n\
             server {{ listen 127.0.0.1:{port}; location /Models/ {{ alias {}/; }} }} }}\n",
            place.served()
        );
        write_atomic(prefix.join("nginx.conf"), conf.as_bytes()).unwrap();
        // Workers of an nginx started as root have another user, who must reach the files.
        for dir in [&place.dir, &place.served()] {
            fs::set_permissions(dir, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        }
        let child = Command::new(program)
            .args(["-p", prefix.as_str(), "-c", prefix.join("nginx.conf").as_str()])
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let deadline = Instant::now() + Duration::from_secs(5);
        while TcpStream::connect(("127.0.0.1", port)).is_err() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(20));
        }
        Some(Self { child, base: format!("http://127.0.0.1:{port}/Models") })
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // The master ends its workers on SIGTERM; a kill would leave them.
        let pid = self.child.id().to_string();
        let _ = Command::new("kill").args(["-TERM", &pid]).status();
        let _ = self.child.wait();
    }
}
