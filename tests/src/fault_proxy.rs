//! A TCP proxy that a test can make slow, deaf or dead.

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{Receiver, sync_channel},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::Result;

const BLOCK: usize = 64 * 1024;
/// Blocks under way on a link with a delay.
const QUEUED: usize = 512;

#[derive(Debug, Default)]
struct State {
    /// Bytes that went through, both ways.
    moved: AtomicU64,
    /// Connections are cut when this many bytes went through; 0 is never.
    cut_at: AtomicU64,
    /// Bytes a second in each direction; 0 is as fast as it goes.
    rate: AtomicU64,
    delay_micros: AtomicU64,
    stalled: AtomicBool,
    refusing: AtomicBool,
    accepted: AtomicU64,
    open: Mutex<Vec<TcpStream>>,
}

/// The proxy; it ends with the process.
#[derive(Debug, Clone)]
pub struct FaultProxy {
    port: u16,
    state: Arc<State>,
}

impl FaultProxy {
    /// Listens at a free port and leads to `port`, both on the loopback interface.
    ///
    /// # Errors
    /// When no port is free.
    pub fn start(to: u16) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let proxy = Self { port: listener.local_addr()?.port(), state: Arc::default() };
        let state = Arc::clone(&proxy.state);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                state.accepted.fetch_add(1, Ordering::SeqCst);
                if state.refusing.load(Ordering::SeqCst) {
                    continue;
                }
                if let Ok(server) = TcpStream::connect(("127.0.0.1", to)) {
                    connect(&state, client, server);
                }
            }
        });
        Ok(proxy)
    }

    /// Where it listens.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Bytes that went through so far.
    #[must_use]
    pub fn moved(&self) -> u64 {
        self.state.moved.load(Ordering::SeqCst)
    }

    /// Connections so far.
    #[must_use]
    pub fn accepted(&self) -> u64 {
        self.state.accepted.load(Ordering::SeqCst)
    }

    /// Cuts every connection now.
    pub fn cut(&self) {
        for stream in open(&self.state).drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Cuts every connection after `bytes` more bytes.
    pub fn cut_after(&self, bytes: u64) {
        self.state.cut_at.store(self.moved() + bytes.max(1), Ordering::SeqCst);
    }

    /// Lets nothing through, without a word, until called with `false`.
    pub fn stall(&self, on: bool) {
        self.state.stalled.store(on, Ordering::SeqCst);
    }

    /// Ends new connections at once, until called with `false`.
    pub fn refuse(&self, on: bool) {
        self.state.refusing.store(on, Ordering::SeqCst);
    }

    /// Lets so many bytes a second through in each direction; 0 is as fast as it goes.
    pub fn throttle(&self, bytes_per_second: u64) {
        self.state.rate.store(bytes_per_second, Ordering::SeqCst);
    }

    /// Delays everything in each direction.
    pub fn delay(&self, by: Duration) {
        self.state.delay_micros.store(u64::try_from(by.as_micros()).unwrap_or(u64::MAX), Ordering::SeqCst);
    }
}

fn open(state: &State) -> std::sync::MutexGuard<'_, Vec<TcpStream>> {
    state.open.lock().unwrap_or_else(PoisonError::into_inner)
}

fn connect(state: &Arc<State>, client: TcpStream, server: TcpStream) {
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    for (from, to) in [(&client, &server), (&server, &client)] {
        if let (Ok(from), Ok(to), Ok(kept)) = (from.try_clone(), to.try_clone(), from.try_clone()) {
            open(state).push(kept);
            pump(Arc::clone(state), from, to);
        }
    }
}

/// Reads on one thread and writes on another, so that a delay does not lower the rate.
fn pump(state: Arc<State>, mut from: TcpStream, to: TcpStream) {
    let (sender, receiver) = sync_channel::<(Instant, Vec<u8>)>(QUEUED);
    let writing = Arc::clone(&state);
    let end = to.try_clone();
    thread::spawn(move || write_out(&writing, to, &receiver));
    thread::spawn(move || {
        let mut block = vec![0; BLOCK];
        while let Ok(read) = from.read(&mut block) {
            if read == 0 || sender.send((Instant::now(), block[..read].to_vec())).is_err() {
                break;
            }
            let moved = state.moved.fetch_add(read as u64, Ordering::SeqCst) + read as u64;
            let cut_at = state.cut_at.load(Ordering::SeqCst);
            if cut_at != 0 && moved >= cut_at && state.cut_at.swap(0, Ordering::SeqCst) != 0 {
                for stream in open(&state).drain(..) {
                    let _ = stream.shutdown(Shutdown::Both);
                }
            }
            let rate = state.rate.load(Ordering::SeqCst);
            if rate > 0 {
                thread::sleep(Duration::from_secs_f64(read as f64 / rate as f64));
            }
        }
        drop(sender);
        drop(end);
    });
}

fn write_out(state: &State, mut to: TcpStream, blocks: &Receiver<(Instant, Vec<u8>)>) {
    for (read_at, block) in blocks {
        let due = read_at + Duration::from_micros(state.delay_micros.load(Ordering::SeqCst));
        thread::sleep(due.saturating_duration_since(Instant::now()));
        while state.stalled.load(Ordering::SeqCst) {
            thread::sleep(Duration::from_millis(5));
        }
        if to.write_all(&block).is_err() {
            return;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}
