//! The connection: hop by hop to the checked addresses.

use std::{
    borrow::Cow,
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use camino::Utf8PathBuf;
use russh::{
    ChannelMsg, Limits, Preferred, cipher,
    client::{self, Handle},
    keys::Algorithm,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::timeout,
};

use super::{
    SshError, SshOptions,
    host_check::{HostCheck, Seen},
    login,
};
use crate::safety::{DeviceAddress, HostKey, KnownHosts};

/// Signs of life of the SSH layer: so many in [`SshOptions::silence`].
const SIGNS_OF_LIFE: u32 = 8;
/// Bytes that may be under way: more than a link of 100 MB/s and 100 ms holds.
const WINDOW: u32 = 16 << 20;
/// The largest packet that is accepted: fewer and larger ones cost less.
const PACKET: u32 = 128 << 10;
const CHANNEL_TRIES: u32 = 40;
const CHANNEL_PAUSE: Duration = Duration::from_millis(50);
const REKEY_EVERY: Duration = Duration::from_secs(3600);
/// Prints the device's own addresses. Fixed text: nothing of it comes from input.
pub(super) const OWN_ADDRESSES: &str = "cat /proc/net/fib_trie /proc/net/if_inet6";

/// A connection to the device; the hosts on the way stay connected with it.
pub(super) struct Session {
    hops: Vec<Handle<HostCheck>>,
    pub(super) host: String,
}

impl Session {
    /// The handle of the device itself.
    pub(super) fn handle(&self) -> &Handle<HostCheck> {
        self.hops.last().unwrap_or_else(|| unreachable!("a checked address has at least one hop"))
    }
}

/// Connects, judges host keys, logs in, and asks the device for its own addresses before anything is written.
pub(super) async fn connect_checked(
    address: &Arc<DeviceAddress>,
    options: &SshOptions,
) -> Result<Session, SshError> {
    let session = connect(address, options).await?;
    let (text, _, _) = run(&session, OWN_ADDRESSES).await?;
    confirm_own_addresses(address, &session.host, &text)?;
    Ok(session)
}

/// Connects, judges host keys and logs in. Whoever goes on from here has to call [`confirm_own_addresses`] before anything is
/// written.
pub(super) async fn connect(address: &Arc<DeviceAddress>, options: &SshOptions) -> Result<Session, SshError> {
    let host = address.describe();
    let wait = options.connect_timeout * u32::try_from(address.hops().len()).unwrap_or(1);
    let connecting = async {
        let mut hops: Vec<Handle<HostCheck>> = Vec::new();
        for hop in 0..address.hops().len() {
            let (mut handle, _) = reach(address, options, hop, hops.last()).await?;
            login::log_in(&mut handle, &address.hops()[hop], options).await?;
            hops.push(handle);
        }
        Ok(Session { hops, host: host.clone() })
    };
    let late = || SshError::lost(&host, format!("no connection after {} s", wait.as_secs()));
    timeout(wait, connecting).await.unwrap_or_else(|_| Err(late()))
}

/// Learns the host key of the device without logging in to it: the first trust.
///
/// # Errors
/// [`SshError`] where it cannot be reached or the key is forbidden.
pub fn presented_host_key(address: &DeviceAddress, options: &SshOptions) -> Result<HostKey, SshError> {
    let runtime = super::device::runtime()?;
    let address = Arc::new(address.clone());
    let asked = async {
        let mut hops: Vec<Handle<HostCheck>> = Vec::new();
        let last = address.hops().len() - 1;
        for hop in 0..last {
            let (mut handle, _) = reach(&address, options, hop, hops.last()).await?;
            login::log_in(&mut handle, &address.hops()[hop], options).await?;
            hops.push(handle);
        }
        let seen = Arc::default();
        let reached = reach_with(&address, options, last, hops.last(), &seen).await;
        let key = seen.lock().unwrap_or_else(PoisonError::into_inner).key.clone();
        match (key, reached) {
            (Some(key), _) => Ok(key),
            (None, Err(error)) => Err(error),
            (None, Ok(_)) => Err(SshError::lost(&address.describe(), "it presents no host key")),
        }
    };
    runtime.block_on(async {
        let late = |_| Err(SshError::lost(&address.describe(), "no connection in time"));
        timeout(options.connect_timeout, asked).await.unwrap_or_else(late)
    })
}

async fn reach(
    address: &Arc<DeviceAddress>,
    options: &SshOptions,
    hop: usize,
    through: Option<&Handle<HostCheck>>,
) -> Result<(Handle<HostCheck>, Arc<Mutex<Seen>>), SshError> {
    let seen = Arc::default();
    let handle = reach_with(address, options, hop, through, &seen).await?;
    Ok((handle, seen))
}

async fn reach_with(
    address: &Arc<DeviceAddress>,
    options: &SshOptions,
    hop: usize,
    through: Option<&Handle<HostCheck>>,
    seen: &Arc<Mutex<Seen>>,
) -> Result<Handle<HostCheck>, SshError> {
    let (name, names, port) = address.host_names(hop);
    let known = Arc::new(KnownHosts::load(&known_hosts_files(address, options, hop))?);
    let config = Arc::new(config(options, &known, &names, port));
    let mut failed = SshError::lost(&name, "it has no address");
    for socket in &address.hops()[hop].addresses {
        address.confirm(*socket)?;
        let check = HostCheck {
            address: Arc::clone(address),
            hop,
            known: Arc::clone(&known),
            seen: Arc::clone(seen),
        };
        let made = match through {
            None => match dial(*socket, options.connect_timeout).await {
                Ok(stream) => handshake(&config, stream, check).await,
                Err(error) => Err(SshError::lost(&socket.to_string(), error)),
            },
            Some(jump) => {
                let asked = jump.channel_open_direct_tcpip(
                    socket.ip().to_string(),
                    u32::from(socket.port()),
                    "127.0.0.1",
                    0,
                );
                match asked.await {
                    Ok(channel) => handshake(&config, channel.into_stream(), check).await,
                    Err(error) => Err(SshError::lost(&socket.to_string(), error)),
                }
            }
        };
        match made {
            Ok(handle) => return Ok(handle),
            Err(error) => failed = error,
        }
        // A key that was refused at one address is not tried at the next one.
        if let Some(refusal) = seen.lock().unwrap_or_else(PoisonError::into_inner).refusal.take() {
            return Err(refusal.into());
        }
    }
    Err(failed)
}

async fn dial(socket: std::net::SocketAddr, wait: Duration) -> std::io::Result<TcpStream> {
    let stream =
        timeout(wait, TcpStream::connect(socket)).await.map_err(|_| std::io::ErrorKind::TimedOut)??;
    stream.set_nodelay(true)?;
    Ok(stream)
}

async fn handshake(
    config: &Arc<client::Config>,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    check: HostCheck,
) -> Result<Handle<HostCheck>, SshError> {
    let (name, ..) = check.address.host_names(check.hop);
    client::connect_stream(Arc::clone(config), stream, check)
        .await
        .map_err(|error| SshError::lost(&name, error))
}

fn known_hosts_files(address: &DeviceAddress, options: &SshOptions, hop: usize) -> Vec<Utf8PathBuf> {
    let mut files = options.known_hosts.clone();
    match &address.hops()[hop].settings.known_hosts {
        Some(named) => files.extend(named.iter().map(Utf8PathBuf::from)),
        None => {
            let home = options.local.home.join(".ssh");
            files.extend([
                home.join("known_hosts"),
                home.join("known_hosts2"),
                "/etc/ssh/ssh_known_hosts".into(),
            ]);
        }
    }
    files
}

fn config(options: &SshOptions, known: &KnownHosts, names: &[String], port: u16) -> client::Config {
    let mut preferred = Preferred { cipher: Cow::Borrowed(CIPHERS), ..Preferred::DEFAULT };
    // The types of key that are recorded are asked for first: a host with several keys is then not taken for a changed one.
    let recorded = known.algorithms(names, port);
    let mut keys = preferred.key.to_vec();
    keys.sort_by_key(|algorithm| !recorded.iter().any(|name| is_of_type(algorithm, name)));
    preferred.key = Cow::Owned(keys);
    if known.has_authority(names, port) {
        preferred.host_key_certificates = preferred.key.clone();
    }
    client::Config {
        limits: Limits::new(options.rekey_bytes.min(1 << 30), options.rekey_bytes.min(1 << 30), REKEY_EVERY),
        window_size: WINDOW,
        maximum_packet_size: PACKET,
        channel_buffer_size: 64,
        preferred,
        keepalive_interval: Some(options.silence / SIGNS_OF_LIFE),
        keepalive_max: SIGNS_OF_LIFE as usize,
        nodelay: true,
        ..client::Config::default()
    }
}

/// AES-GCM is several times faster than the rest where the processor knows AES, and both ends do.
const CIPHERS: &[cipher::Name] = &[
    cipher::AES_128_GCM,
    cipher::AES_256_GCM,
    cipher::CHACHA20_POLY1305,
    cipher::AES_256_CTR,
    cipher::AES_192_CTR,
    cipher::AES_128_CTR,
];

fn is_of_type(algorithm: &Algorithm, recorded: &str) -> bool {
    match algorithm {
        Algorithm::Rsa { .. } => recorded == "ssh-rsa",
        other => other.as_str() == recorded,
    }
}

/// Refuses a device that has a forbidden address itself, by what [`OWN_ADDRESSES`] printed there.
pub(super) fn confirm_own_addresses(
    address: &DeviceAddress,
    host: &str,
    text: &[u8],
) -> Result<(), SshError> {
    let own = read_addresses(&String::from_utf8_lossy(text));
    if own.is_empty() {
        let why =
            "it does not tell its own addresses, so it cannot be told from a forbidden device".to_owned();
        return Err(SshError::Protocol { host: host.to_owned(), why });
    }
    Ok(address.confirm_own_addresses(&own)?)
}

/// Runs a fixed command; its output, the end of its error output, and its exit status.
pub(super) async fn run(
    session: &Session,
    command: &str,
) -> Result<(Vec<u8>, String, Option<u32>), SshError> {
    const LIMIT: usize = 4 << 20;
    let lost = |error: russh::Error| SshError::lost(&session.host, error);
    let mut channel = open_channel(session).await?;
    channel.exec(true, command).await.map_err(lost)?;
    channel.eof().await.map_err(lost)?;
    let (mut output, mut errors, mut status) = (Vec::new(), Vec::new(), None);
    while let Some(message) = channel.wait().await {
        match message {
            ChannelMsg::Data { data } if output.len() < LIMIT => output.extend_from_slice(&data),
            ChannelMsg::ExtendedData { data, .. } if errors.len() < LIMIT => errors.extend_from_slice(&data),
            ChannelMsg::ExitStatus { exit_status } => status = Some(exit_status),
            _ => {}
        }
    }
    let _ = channel.close().await;
    Ok((output, String::from_utf8_lossy(&errors).trim().to_owned(), status))
}

/// Opens a channel. A device that allows a single one may take a moment to let go of the one before.
pub(super) async fn open_channel(session: &Session) -> Result<russh::Channel<client::Msg>, SshError> {
    let mut tries = 0;
    loop {
        match session.handle().channel_open_session().await {
            Err(russh::Error::ChannelOpenFailure(_)) if tries < CHANNEL_TRIES => {
                tries += 1;
                tokio::time::sleep(CHANNEL_PAUSE).await;
            }
            opened => return opened.map_err(|error| SshError::lost(&session.host, error)),
        }
    }
}

/// Reads `/proc/net/fib_trie` (an address stands before its `LOCAL` line) and `/proc/net/if_inet6`.
fn read_addresses(text: &str) -> Vec<IpAddr> {
    let mut found = Vec::new();
    let mut last = None;
    for line in text.lines() {
        if let Some((_, address)) = line.split_once("|-- ") {
            last = address.trim().parse::<IpAddr>().ok();
        } else if line.contains("host LOCAL") {
            found.extend(last);
        } else if let Some(digits) = line.split_ascii_whitespace().next().filter(|digits| digits.len() == 32)
            && let Ok(bits) = u128::from_str_radix(digits, 16)
        {
            found.push(IpAddr::V6(bits.into()));
        }
    }
    found.sort();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_addresses_are_read_from_the_kernel() {
        let text = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 0.0.0.0\n        /0 universe UNICAST\n     +-- 192.168.3.0/24 2 0 2\n\
                    \x20       |-- 192.168.3.109\n           /32 host LOCAL\n        |-- 192.168.3.255\n           /32 link BROADCAST\n\
                    fe80000000000000020c29fffe123456 02 40 20 80 wlan0\n";
        let found: Vec<String> = read_addresses(text).iter().map(ToString::to_string).collect();
        assert_eq!(found, ["192.168.3.109", "fe80::20c:29ff:fe12:3456"]);
    }
}
