//! A small HTTP server on loopback that does what real servers will not do on request.
#![expect(clippy::unwrap_used, reason = "test support panics on failure")]
#![allow(dead_code, clippy::allow_attributes, reason = "each test binary uses its own part of the support")]

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

/// A request as it arrived.
#[derive(Debug, Clone)]
pub struct Seen {
    pub method: String,
    pub path: String,
    /// Names in lower case.
    pub headers: BTreeMap<String, String>,
    pub body: Vec<u8>,
    pub at: Instant,
}

impl Seen {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    /// The start of a `Range: bytes=N-`.
    pub fn range_start(&self) -> Option<usize> {
        self.header("range")?.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok()
    }
}

/// An answer, and what goes wrong with it.
#[derive(Debug, Clone)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// Send this many bytes of the body only, then close.
    pub cut_after: Option<usize>,
    /// Send this many bytes of the body only, then say nothing for so long.
    pub stall_after: Option<(usize, Duration)>,
    /// Wait so long between pieces of 1 KiB.
    pub pace: Option<Duration>,
    /// Leave the `Content-Length` out.
    pub no_length: bool,
}

impl Answer {
    pub fn new(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self {
            status,
            headers: Vec::new(),
            body: body.into(),
            cut_after: None,
            stall_after: None,
            pace: None,
            no_length: false,
        }
    }

    pub fn header(mut self, name: &str, value: impl ToString) -> Self {
        self.headers.push((name.to_owned(), value.to_string()));
        self
    }

    pub fn cut(mut self, after: usize) -> Self {
        self.cut_after = Some(after);
        self
    }

    /// What a correct server answers to a request for `content`.
    pub fn serve(seen: &Seen, content: &[u8]) -> Self {
        match seen.range_start() {
            Some(start) if start < content.len() => Self::new(206, &content[start..])
                .header("Content-Range", format!("bytes {start}-{}/{}", content.len() - 1, content.len())),
            Some(_) => Self::new(416, ""),
            None => Self::new(200, content),
        }
    }
}

type Handler = dyn Fn(&Seen, usize) -> Answer + Send + Sync;

pub struct FaultServer {
    pub address: String,
    seen: Arc<Mutex<Vec<Seen>>>,
    stop: Arc<AtomicBool>,
}

impl FaultServer {
    /// Serves with `handler`, which also learns how many requests came before.
    pub fn start(handler: impl Fn(&Seen, usize) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let stop = Arc::new(AtomicBool::new(false));
        let handler: Arc<Handler> = Arc::new(handler);
        let (all, ended) = (seen.clone(), stop.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if ended.load(Ordering::Relaxed) {
                    return;
                }
                let (all, handler) = (all.clone(), handler.clone());
                std::thread::spawn(move || serve(stream.unwrap(), &all, &*handler));
            }
        });
        Self { address, seen, stop }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }
}

impl Drop for FaultServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(&self.address);
    }
}

fn serve(stream: TcpStream, all: &Mutex<Vec<Seen>>, handler: &Handler) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let Some(seen) = read_request(&mut reader) else { return };
    let before = {
        let mut all = all.lock().unwrap();
        all.push(seen.clone());
        all.len() - 1
    };
    // The client may hang up in the middle: that is its right.
    let _ = answer(stream, handler(&seen, before));
}

fn read_request(reader: &mut impl BufRead) -> Option<Seen> {
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let mut words = line.split_whitespace();
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let length = headers.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(Seen { method, path, headers, body, at: Instant::now() })
}

fn answer(mut stream: TcpStream, answer: Answer) -> std::io::Result<()> {
    write!(stream, "HTTP/1.1 {} Whatever\r\nConnection: close\r\n", answer.status)?;
    if !answer.no_length {
        write!(stream, "Content-Length: {}\r\n", answer.body.len())?;
    }
    for (name, value) in &answer.headers {
        write!(stream, "{name}: {value}\r\n")?;
    }
    stream.write_all(b"\r\n")?;
    let (end, stall) = match (answer.cut_after, answer.stall_after) {
        (Some(end), _) => (end, Duration::ZERO),
        (_, Some((end, stall))) => (end, stall),
        _ => (answer.body.len(), Duration::ZERO),
    };
    let body = &answer.body[..end.min(answer.body.len())];
    match answer.pace {
        None => stream.write_all(body)?,
        Some(pace) => {
            for piece in body.chunks(1024) {
                stream.write_all(piece)?;
                stream.flush()?;
                std::thread::sleep(pace);
            }
        }
    }
    stream.flush()?;
    std::thread::sleep(stall);
    Ok(())
}
