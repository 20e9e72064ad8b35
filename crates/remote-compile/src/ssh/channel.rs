//! The channel on which `models serve` answers.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::{Bytes, BytesMut};
use russh::{ChannelMsg, ChannelReadHalf, ChannelWriteHalf, client::Msg};
use serde::{Serialize, de::DeserializeOwned};
use tokio::{
    sync::{mpsc, watch},
    time::sleep,
};

use super::{
    SshError, SshOptions,
    error::FaultText,
    session::{self, OWN_ADDRESSES, Session},
};
use crate::{
    link::{
        Fault, LINK_PROTOCOL, MAGIC, Request, Welcome,
        frame::{self, HEADER, Header, Kind},
    },
    safety::DeviceAddress,
};

/// Frames that wait to be sent.
const QUEUED_FRAMES: usize = 4;
/// Pieces of an answer that wait to be taken: with a frame's data in each, the bound on its memory.
const QUEUED_PIECES: usize = 16;
/// What a login script may print before `models` answers.
const MAX_NOISE: usize = 1 << 20;
/// What follows the device's own addresses.
const ADDRESSES_END: &str = "-end-of-addresses-";
/// Lets the device's side begin.
const GO: &[u8] = b"go\n";
const ERROR_TAIL: usize = 2000;

/// A piece of an answer.
pub(super) enum Piece {
    Begin(Vec<u8>),
    /// The body of a data frame, in the packets that it came in.
    Data(Vec<Bytes>),
    Reply(Vec<u8>),
    Fault(Vec<u8>),
}

type Waiting = HashMap<u32, mpsc::Sender<Piece>>;

/// What the tasks of a channel share.
struct Shared {
    waiting: Mutex<Option<Waiting>>,
    heard: Mutex<Instant>,
    why: Mutex<String>,
    ended: watch::Sender<bool>,
}

impl Shared {
    fn waiting(&self) -> std::sync::MutexGuard<'_, Option<Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hear(&self) {
        *self.heard.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    fn silence(&self) -> Duration {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner).elapsed()
    }

    fn why(&self) -> String {
        self.why.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Ends every request that waits.
    fn end(&self, why: impl Into<String>) {
        if self.waiting().take().is_some() {
            *self.why.lock().unwrap_or_else(PoisonError::into_inner) = why.into();
            self.ended.send_replace(true);
        }
    }
}

/// The channel; dropping it ends the connection.
pub(super) struct Channel {
    shared: Arc<Shared>,
    frames: mpsc::Sender<Bytes>,
    next: AtomicU32,
    host: String,
    version: String,
}

impl Drop for Channel {
    fn drop(&mut self) {
        self.shared.end("the connection is no longer needed");
    }
}

/// A request under way.
pub(super) struct Call<'c> {
    channel: &'c Channel,
    id: u32,
    pieces: mpsc::Receiver<Piece>,
}

impl Channel {
    /// Starts `models serve` on the device and compares versions.
    ///
    /// One command does both, as a login shell may take its time to start: it prints the device's own addresses, waits until
    /// they were found to be allowed, and only then becomes `models`.
    pub(super) async fn open(
        session: Session,
        address: &DeviceAddress,
        options: &SshOptions,
    ) -> Result<Self, SshError> {
        let host = session.host.clone();
        let lost = |error: russh::Error| SshError::lost(&host, error);
        let channel = session::open_channel(&session).await?;
        // The path has no character that a shell reads, and the rest is fixed.
        let command =
            format!("{OWN_ADDRESSES}; echo {ADDRESSES_END}; read go && exec {} serve", options.models());
        channel.exec(true, command).await.map_err(lost)?;
        let (mut reader, writer) = channel.split();
        let mut rest = BytesMut::new();
        let text = read_until(&mut reader, &mut rest, ADDRESSES_END.as_bytes(), &host, options).await?;
        session::confirm_own_addresses(address, &host, &text)?;
        writer.data_bytes(GO).await.map_err(lost)?;
        read_until(&mut reader, &mut rest, MAGIC, &host, options).await?;
        let shared = Arc::new(Shared {
            waiting: Mutex::new(Some(HashMap::new())),
            heard: Mutex::new(Instant::now()),
            why: Mutex::default(),
            ended: watch::Sender::new(false),
        });
        let (frames, queue) = mpsc::channel(QUEUED_FRAMES);
        tokio::spawn(send_frames(Arc::clone(&shared), writer, queue));
        tokio::spawn(watch_silence(Arc::clone(&shared), frames.clone(), options.silence));
        tokio::spawn(receive(Arc::clone(&shared), reader, rest, session));
        let mut opened =
            Self { shared, frames, next: AtomicU32::new(1), host: host.clone(), version: String::new() };
        let welcome = opened.hello(&options.owner).await?;
        if welcome.protocol != LINK_PROTOCOL {
            let why = format!("it speaks version {} and this is version {LINK_PROTOCOL}", welcome.protocol);
            return Err(SshError::Protocol { host, why });
        }
        opened.version = welcome.version;
        Ok(opened)
    }

    /// The version of the device's `models`.
    pub(super) fn version(&self) -> &str {
        &self.version
    }

    async fn hello(&self, owner: &str) -> Result<Welcome, SshError> {
        let mut pieces = self.register(0)?;
        let body = self.encode(&Request::Hello { protocol: LINK_PROTOCOL, owner: owner.to_owned() })?;
        self.frames.send(frame::encode(0, Kind::Request, &body).into()).await.map_err(|_| self.gone())?;
        match pieces.recv().await {
            Some(Piece::Reply(body)) => self.decode(&body),
            Some(Piece::Fault(body)) => Err(self.fault(&body)),
            _ => Err(self.gone()),
        }
    }

    /// Whether the connection has ended.
    pub(super) fn is_gone(&self) -> bool {
        self.shared.waiting().is_none()
    }

    fn gone(&self) -> SshError {
        let why = self.shared.why();
        SshError::lost(&self.host, if why.is_empty() { "the connection was lost" } else { &why })
    }

    fn register(&self, id: u32) -> Result<mpsc::Receiver<Piece>, SshError> {
        let (sender, receiver) = mpsc::channel(QUEUED_PIECES);
        match &mut *self.shared.waiting() {
            Some(waiting) => waiting.insert(id, sender),
            None => return Err(self.gone()),
        };
        Ok(receiver)
    }

    fn encode(&self, value: &impl Serialize) -> Result<Vec<u8>, SshError> {
        serde_json::to_vec(value).map_err(|error| self.misunderstood(&error))
    }

    fn decode<T: DeserializeOwned>(&self, body: &[u8]) -> Result<T, SshError> {
        serde_json::from_slice(body).map_err(|error| self.misunderstood(&error))
    }

    fn misunderstood(&self, error: &serde_json::Error) -> SshError {
        SshError::Protocol { host: self.host.clone(), why: error.to_string() }
    }

    fn fault(&self, body: &[u8]) -> SshError {
        match self.decode::<Fault>(body) {
            Ok(fault) => SshError::Fault { host: self.host.clone(), fault: FaultText(fault) },
            Err(error) => error,
        }
    }

    /// Sends a request. Called from threads outside the runtime.
    pub(super) fn begin(&self, request: &Request) -> Result<Call<'_>, SshError> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let pieces = self.register(id)?;
        let call = Call { channel: self, id, pieces };
        call.send(Kind::Request, &self.encode(request)?)?;
        Ok(call)
    }

    /// Sends a request and waits for its answer.
    pub(super) fn ask<T: DeserializeOwned>(&self, request: &Request) -> Result<T, SshError> {
        self.begin(request)?.answer()
    }
}

impl Call<'_> {
    pub(super) fn send(&self, kind: Kind, body: &[u8]) -> Result<(), SshError> {
        self.send_frame(frame::encode(self.id, kind, body).into())
    }

    /// Sends a data frame whose first bytes were kept free for its header; returns what can be used again later.
    pub(super) fn send_block(&self, mut block: BytesMut) -> Result<Bytes, SshError> {
        frame::stamp(&mut block, self.id, Kind::Data);
        let block = block.freeze();
        self.send_frame(block.clone())?;
        Ok(block)
    }

    fn send_frame(&self, frame: Bytes) -> Result<(), SshError> {
        if self.channel.is_gone() {
            return Err(self.channel.gone());
        }
        self.channel.frames.blocking_send(frame).map_err(|_| self.channel.gone())
    }

    pub(super) fn send_json(&self, kind: Kind, value: &impl Serialize) -> Result<(), SshError> {
        self.send(kind, &self.channel.encode(value)?)
    }

    /// The next piece of the answer; a fault is an error.
    pub(super) fn next(&mut self) -> Result<Piece, SshError> {
        match self.pieces.blocking_recv() {
            Some(Piece::Fault(body)) => Err(self.channel.fault(&body)),
            Some(piece) => Ok(piece),
            None => Err(self.channel.gone()),
        }
    }

    /// A fault that has already arrived, while data is still being sent.
    pub(super) fn early_fault(&mut self) -> Result<(), SshError> {
        match self.pieces.try_recv() {
            Ok(Piece::Fault(body)) => Err(self.channel.fault(&body)),
            Ok(_) => Err(self.unexpected()),
            Err(mpsc::error::TryRecvError::Empty) => Ok(()),
            Err(mpsc::error::TryRecvError::Disconnected) => Err(self.channel.gone()),
        }
    }

    pub(super) fn decode<T: DeserializeOwned>(&self, body: &[u8]) -> Result<T, SshError> {
        self.channel.decode(body)
    }

    pub(super) fn unexpected(&self) -> SshError {
        SshError::Protocol { host: self.channel.host.clone(), why: "an answer out of turn".to_owned() }
    }

    /// Waits for the answer of a request without data.
    pub(super) fn answer<T: DeserializeOwned>(mut self) -> Result<T, SshError> {
        match self.next()? {
            Piece::Reply(body) => self.decode(&body),
            _ => Err(self.unexpected()),
        }
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        if let Some(waiting) = &mut *self.channel.shared.waiting() {
            waiting.remove(&self.id);
        }
    }
}

/// Reads up to `mark`, and leaves in `seen` what follows it. What stands before it, such as what a login script prints, is
/// returned.
async fn read_until(
    reader: &mut ChannelReadHalf,
    seen: &mut BytesMut,
    mark: &[u8],
    host: &str,
    options: &SshOptions,
) -> Result<BytesMut, SshError> {
    let (mut errors, mut status) = (Vec::new(), None);
    loop {
        if let Some(at) = seen.windows(mark.len()).position(|window| window == mark) {
            let before = seen.split_to(at);
            let _ = seen.split_to(mark.len());
            return Ok(before);
        }
        if seen.len() > MAX_NOISE {
            break;
        }
        match reader.wait().await {
            Some(ChannelMsg::Data { data }) => seen.extend_from_slice(&data),
            Some(ChannelMsg::ExtendedData { data, .. }) => errors.extend_from_slice(&data),
            Some(ChannelMsg::ExitStatus { exit_status }) => status = Some(exit_status),
            Some(ChannelMsg::Close) | None => break,
            Some(_) => {}
        }
    }
    let errors = String::from_utf8_lossy(&errors);
    let tail: String =
        errors.trim().chars().rev().take(ERROR_TAIL).collect::<Vec<_>>().into_iter().rev().collect();
    let path = options.models().into();
    match status {
        Some(status) => {
            let why = if tail.is_empty() {
                format!("exit status {status}")
            } else {
                format!("{tail} (exit status {status})")
            };
            Err(SshError::NoModels { host: host.to_owned(), path, why })
        }
        None if seen.len() > MAX_NOISE => Err(SshError::Protocol {
            host: host.to_owned(),
            why: "a login script prints without end".to_owned(),
        }),
        None => Err(SshError::lost(host, "the connection was lost while `models` was started")),
    }
}

async fn send_frames(shared: Arc<Shared>, writer: ChannelWriteHalf<Msg>, mut queue: mpsc::Receiver<Bytes>) {
    let mut ended = shared.ended.subscribe();
    while let Some(frame) = queue.recv().await {
        // A session that has died does not wake whoever waits for its window.
        let sent = tokio::select! {
            sent = writer.data_bytes(frame) => sent.is_ok(),
            _ = ended.wait_for(|ended| *ended) => return,
        };
        if !sent {
            shared.end("the connection was lost");
            return;
        }
        // Accepted bytes are a sign of life too: the device has opened its window for them.
        shared.hear();
    }
    let _ = writer.eof().await;
}

/// Asks for a sign of life now and then; ends everything after too long a silence.
async fn watch_silence(shared: Arc<Shared>, frames: mpsc::Sender<Bytes>, limit: Duration) {
    let mut ended = shared.ended.subscribe();
    loop {
        tokio::select! {
            () = sleep(limit / 8) => {}
            _ = ended.wait_for(|ended| *ended) => return,
        }
        let silence = shared.silence();
        if silence >= limit {
            shared.end(format!("the device has been silent for {} s", silence.as_secs()));
            return;
        }
        if silence >= limit / 16 {
            // A full queue has frames under way already.
            let _ = frames.try_send(frame::encode(0, Kind::Ping, b"").into());
        }
    }
}

/// Takes the stream apart and hands each piece to the request that waits for it. Holds the session: when this ends, the
/// connection does.
async fn receive(shared: Arc<Shared>, mut reader: ChannelReadHalf, rest: BytesMut, session: Session) {
    let mut ended = shared.ended.subscribe();
    let mut parser = Parser { rest, frame: None, pieces: Vec::new() };
    let mut errors = Vec::new();
    let why = loop {
        if let Err(why) = parser.hand_out(&shared).await {
            break why;
        }
        let message = tokio::select! {
            message = reader.wait() => message,
            _ = ended.wait_for(|ended| *ended) => break String::new(),
        };
        match message {
            Some(ChannelMsg::Data { data }) => {
                shared.hear();
                parser.take(data);
            }
            Some(ChannelMsg::ExtendedData { data, .. }) if errors.len() < ERROR_TAIL => {
                errors.extend_from_slice(&data)
            }
            Some(ChannelMsg::Close) | None => {
                let said = String::from_utf8_lossy(&errors).trim().to_owned();
                break if said.is_empty() {
                    "the connection was lost".to_owned()
                } else {
                    format!("`models` ended: {said}")
                };
            }
            Some(_) => {}
        }
    };
    shared.end(why);
    let _ = session.handle().disconnect(russh::Disconnect::ByApplication, "", "").await;
}

/// Frames out of packets, data without copying.
struct Parser {
    rest: BytesMut,
    frame: Option<(Header, usize)>,
    /// What has come of the data frame that is under way.
    pieces: Vec<Bytes>,
}

impl Parser {
    fn take(&mut self, data: Bytes) {
        if self.rest.is_empty() {
            self.rest = data.try_into_mut().unwrap_or_else(|shared| BytesMut::from(&shared[..]));
        } else {
            self.rest.extend_from_slice(&data);
        }
    }

    async fn hand_out(&mut self, shared: &Shared) -> Result<(), String> {
        loop {
            let (header, left) = match self.frame.take() {
                Some(frame) => frame,
                None => {
                    if self.rest.len() < HEADER {
                        return Ok(());
                    }
                    let mut bytes = [0; HEADER];
                    bytes.copy_from_slice(&self.rest.split_to(HEADER));
                    let header = Header::decode(bytes).map_err(|error| error.to_string())?;
                    (header, header.length)
                }
            };
            if header.kind == Kind::Data {
                if self.rest.is_empty() && left > 0 {
                    self.frame = Some((header, left));
                    return Ok(());
                }
                let piece = self.rest.split_to(left.min(self.rest.len())).freeze();
                let left = left - piece.len();
                self.pieces.push(piece);
                if left > 0 {
                    self.frame = Some((header, left));
                } else {
                    // Whole frames: whoever waits is woken once for many packets.
                    let pieces = std::mem::take(&mut self.pieces);
                    deliver(shared, header.request, Piece::Data(pieces), false).await;
                }
                continue;
            }
            if self.rest.len() < left {
                self.frame = Some((header, left));
                return Ok(());
            }
            let body = self.rest.split_to(left).to_vec();
            match header.kind {
                Kind::Begin => deliver(shared, header.request, Piece::Begin(body), false).await,
                Kind::Reply => deliver(shared, header.request, Piece::Reply(body), true).await,
                Kind::Fault => deliver(shared, header.request, Piece::Fault(body), true).await,
                Kind::Ping => {}
                _ => return Err("the device sent what only a host sends".to_owned()),
            }
        }
    }
}

async fn deliver(shared: &Shared, request: u32, piece: Piece, is_last: bool) {
    let sender = match &mut *shared.waiting() {
        Some(waiting) if is_last => waiting.remove(&request),
        Some(waiting) => waiting.get(&request).cloned(),
        None => None,
    };
    if let Some(sender) = sender {
        // A caller that no longer wants the answer is not waited for.
        let _ = sender.send(piece).await;
    }
}
