//! The first `models` on a device.

use std::{fs::File, io::Read, sync::Arc};

use camino::Utf8Path;
use durable_fs::{FsError, Sha256};
use model_catalog::Sha256Digest;

use super::{SshError, SshOptions};
use crate::safety::{DeviceAddress, Refusal};

/// What the head of an executable says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BinaryFacts {
    /// Machine, as `uname -m` names it.
    pub machine: String,
    /// Whether it needs no loader and no library of the device.
    pub is_static: bool,
}

/// Why a file cannot be the device's `models`.
#[derive(Debug, thiserror::Error)]
pub enum BinaryProblem {
    /// It cannot be read.
    #[error(transparent)]
    Fs(#[from] FsError),
    /// It is no 64-bit ELF file.
    #[error(
        "{path} is not an executable for 64-bit Linux ({why}); name a static `models` that was built for the device"
    )]
    NotElf {
        /// The file.
        path: String,
        /// What is wrong.
        why: &'static str,
    },
    /// It is for another machine.
    #[error(
        "{path} is for {found} and the device is {wanted}; build one with `cargo build --release --package models --target {wanted}-unknown-linux-musl` where that target is installed"
    )]
    WrongMachine {
        /// The file.
        path: String,
        /// Its machine.
        found: String,
        /// The device's machine.
        wanted: String,
    },
    /// It needs libraries of the device.
    #[error("{path} is not statically linked; build one for a -linux-musl target")]
    NotStatic {
        /// The file.
        path: String,
    },
    /// The file is of another version, or no `models` at all.
    #[error("{path} is {found} and {wanted} is needed; take the `models` of the same build")]
    OtherVersion {
        /// The file.
        path: String,
        /// What it is, by what stands in it.
        found: String,
        /// What is needed.
        wanted: String,
    },
    /// The device's copy says another version than wanted.
    #[error("{path} says {found} on the device and {wanted} is needed; take the `models` of the same build")]
    WrongVersion {
        /// The file.
        path: String,
        /// What it says.
        found: String,
        /// What is needed.
        wanted: String,
    },
    /// The connection.
    #[error(transparent)]
    Ssh(#[from] SshError),
}

/// What stands in every `models`, with its version and the end of a line after it.
pub const VERSION_MARK: &str = "models embedded version: ";
/// No version is longer.
const MAX_VERSION: usize = 32;
/// Prints the values of the parameter that says whether the device is driving, wherever the device keeps it.
const ON_ROAD: &str =
    r#"cat /data/params/d/IsOnroad /dev/shm/params/d/IsOnroad "$PARAMS_ROOT/d/IsOnroad" 2>/dev/null"#;
const PT_INTERP: u32 = 3;
const MACHINES: [(u16, &str); 4] = [(62, "x86_64"), (183, "aarch64"), (40, "armv7l"), (243, "riscv64")];
/// No executable has a longer table of segments.
const MAX_TABLE: usize = 64 << 10;

/// Reads the head of an ELF file.
///
/// # Errors
/// [`BinaryProblem::NotElf`], [`BinaryProblem::Fs`].
pub fn examine_binary(path: &Utf8Path) -> Result<BinaryFacts, BinaryProblem> {
    let wrong = |why| BinaryProblem::NotElf { path: path.to_string(), why };
    let mut file = File::open(path).map_err(FsError::io("open", path))?;
    let mut head = Vec::new();
    (&mut file).take(MAX_TABLE as u64).read_to_end(&mut head).map_err(FsError::io("read", path))?;
    if head.get(..4) != Some(b"\x7fELF") {
        return Err(wrong("it is no ELF file"));
    }
    if head.get(4) != Some(&2) || head.get(5) != Some(&1) {
        return Err(wrong("it is not 64-bit little-endian"));
    }
    let short = |at: usize| head.get(at..at + 2).map(|bytes| u16::from_le_bytes([bytes[0], bytes[1]]));
    let machine = short(18).ok_or_else(|| wrong("it is cut short"))?;
    let machine = MACHINES
        .iter()
        .find(|(number, _)| *number == machine)
        .map_or_else(|| format!("machine {machine}"), |(_, name)| (*name).to_owned());
    let is_static = !has_interpreter(&head).ok_or_else(|| wrong("it is cut short"))?;
    Ok(BinaryFacts { machine, is_static })
}

/// Whether a segment names a loader.
fn has_interpreter(head: &[u8]) -> Option<bool> {
    let number = |at: usize, bytes: usize| {
        let slice = head.get(at..at.checked_add(bytes)?)?;
        Some(slice.iter().rev().fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte)))
    };
    let table = usize::try_from(number(32, 8)?).ok()?;
    let (entry, count) = (usize::try_from(number(54, 2)?).ok()?, usize::try_from(number(56, 2)?).ok()?);
    for index in 0..count {
        let at = table.checked_add(index.checked_mul(entry)?)?;
        if number(at, 4)? == u64::from(PT_INTERP) {
            return Some(true);
        }
    }
    Some(false)
}

/// The version that stands in an executable of `models`: it may be for another machine, and is not run to be asked.
fn embedded_version(content: &[u8]) -> Option<&str> {
    let mark = VERSION_MARK.as_bytes();
    let after = |at: usize| {
        let text = &content[at + mark.len()..content.len().min(at + mark.len() + MAX_VERSION)];
        let line = text.split(|byte| *byte == b'\n').next().filter(|line| line.len() < text.len())?;
        let is_version = |byte: &u8| byte.is_ascii_alphanumeric() || b".-+".contains(byte);
        // The mark alone stands in programs that look for it.
        let version = Some(line).filter(|line| !line.is_empty() && line.iter().all(is_version))?;
        str::from_utf8(version).ok()
    };
    let starts = content.windows(mark.len()).enumerate().filter(|(_, window)| *window == mark);
    starts.map(|(at, _)| at).find_map(after)
}

/// Puts `binary` onto the device as its `models`: checked for machine, linkage and version, uploaded under another name, read
/// back, run there for its version, and only then given its name. A device that is driving is left alone. Returns what `--version` says.
///
/// # Errors
/// [`BinaryProblem`]; the device's `models` is then as it was.
pub fn bootstrap(
    address: &DeviceAddress,
    options: &SshOptions,
    binary: &Utf8Path,
    version: &str,
) -> Result<String, BinaryProblem> {
    let facts = examine_binary(binary)?;
    let content = std::fs::read(binary).map_err(FsError::io("read", binary))?;
    let runtime = super::device::runtime()?;
    runtime.block_on(upload::install(&Arc::new(address.clone()), options, binary, &facts, content, version))
}

mod upload {
    use russh_sftp::{client::SftpSession, protocol::OpenFlags};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::ssh::session::{self, Session, run};

    const EXECUTABLE: u32 = 0o755;

    pub(super) async fn install(
        address: &Arc<DeviceAddress>,
        options: &SshOptions,
        binary: &Utf8Path,
        facts: &BinaryFacts,
        content: Vec<u8>,
        version: &str,
    ) -> Result<String, BinaryProblem> {
        let path = binary.to_string();
        let session = session::connect_checked(address, options).await?;
        let (on_road, _, _) = run(&session, ON_ROAD).await?;
        if on_road.contains(&b'1') && !options.while_driving {
            return Err(SshError::from(Refusal::OnRoad { asked: address.asked().to_owned() }).into());
        }
        let (machine, _, _) = run(&session, "uname -m").await?;
        let wanted = String::from_utf8_lossy(&machine).trim().to_owned();
        if facts.machine != wanted {
            return Err(BinaryProblem::WrongMachine { path, found: facts.machine.clone(), wanted });
        }
        if !facts.is_static {
            return Err(BinaryProblem::NotStatic { path });
        }
        let embedded = embedded_version(&content);
        if embedded != Some(version) {
            let found = embedded.map_or_else(
                || "no `models` of a version that can be put there".to_owned(),
                |embedded| format!("`models` {embedded}"),
            );
            return Err(BinaryProblem::OtherVersion { path, found, wanted: version.to_owned() });
        }
        let new = options.root.join(&format!(".incoming-models-{}", std::process::id()));
        let result = try_out(&session, options, &new, &content, version, path).await;
        let finish = async {
            let sftp = open(&session).await?;
            if result.is_ok() {
                rename(&sftp, &session, &new, &options.models()).await
            } else {
                let _ = sftp.remove_file(&new).await;
                Ok(())
            }
        };
        let finished = finish.await;
        // Why it could not be used is more news than that it could not be removed.
        let said = result?;
        finished?;
        Ok(said)
    }

    async fn try_out(
        session: &Session,
        options: &SshOptions,
        new: &str,
        content: &[u8],
        version: &str,
        path: String,
    ) -> Result<String, BinaryProblem> {
        write(session, options, new, content).await?;
        // The name has no character that a shell reads.
        let (output, errors, status) = run(session, &format!("{new} --version")).await?;
        let said = String::from_utf8_lossy(&output).trim().to_owned();
        let found = if status == Some(0) { said } else { format!("nothing ({errors})") };
        if found.split_whitespace().last() == Some(version) {
            Ok(found)
        } else {
            Err(BinaryProblem::WrongVersion { path, found, wanted: version.to_owned() })
        }
    }

    async fn open(session: &Session) -> Result<SftpSession, SshError> {
        let lost = |error: russh::Error| SshError::lost(&session.host, error);
        let channel = session::open_channel(session).await?;
        channel.request_subsystem(true, "sftp").await.map_err(lost)?;
        SftpSession::new(channel.into_stream()).await.map_err(|error| SshError::lost(&session.host, error))
    }

    async fn write(
        session: &Session,
        options: &SshOptions,
        new: &str,
        content: &[u8],
    ) -> Result<(), SshError> {
        let lost = |error: &dyn std::fmt::Display| {
            SshError::lost(&session.host, format!("cannot write {new}: {error}"))
        };
        let sftp = open(session).await?;
        // It may exist already; whether it does is seen when the file is made.
        let _ = sftp.create_dir(options.root.to_string()).await;
        let flags = OpenFlags::CREATE | OpenFlags::WRITE | OpenFlags::TRUNCATE;
        let mut file = sftp.open_with_flags(new, flags).await.map_err(|error| lost(&error))?;
        file.write_all(content).await.map_err(|error| lost(&error))?;
        file.sync_all().await.map_err(|error| lost(&error))?;
        let mut attributes = russh_sftp::protocol::FileAttributes::empty();
        attributes.permissions = Some(EXECUTABLE);
        file.set_metadata(attributes).await.map_err(|error| lost(&error))?;
        file.close().await.map_err(|error| lost(&error))?;
        if read_back(&sftp, new).await.map_err(|error| lost(&error))? != Sha256::digest(content) {
            let _ = sftp.remove_file(new).await;
            return Err(lost(&"what arrived is not what was sent"));
        }
        sftp.close().await.map_err(|error| lost(&error))
    }

    async fn read_back(sftp: &SftpSession, path: &str) -> Result<Sha256Digest, String> {
        let mut file = sftp.open(path).await.map_err(|error| error.to_string())?;
        let (mut hash, mut block) = (Sha256::new(), vec![0; durable_fs::BLOCK]);
        loop {
            match file.read(&mut block).await.map_err(|error| error.to_string())? {
                0 => break,
                read => hash.update(&block[..read]),
            }
        }
        file.close().await.map_err(|error| error.to_string())?;
        Ok(hash.finish())
    }

    /// Replaces the old `models`. The protocol's own rename does not replace, so OpenSSH's `posix-rename` would be needed;
    /// `mv` of two fixed names does the same in one step.
    async fn rename(
        sftp: &SftpSession,
        session: &Session,
        new: &str,
        name: &str,
    ) -> Result<(), BinaryProblem> {
        let _ = sftp.close().await;
        let (_, errors, status) = run(session, &format!("mv -f {new} {name}")).await?;
        if status != Some(0) {
            return Err(SshError::lost(&session.host, format!("cannot rename {new}: {errors}")).into());
        }
        // The new name lasts over a power cut as well.
        let (_, errors, status) = run(session, "sync").await?;
        match status {
            Some(0) => Ok(()),
            _ => {
                Err(SshError::lost(&session.host, format!("{name} is there, but `sync` fails: {errors}"))
                    .into())
            }
        }
    }
}
