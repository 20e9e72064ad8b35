//! What a host and the `models` on a device say to each other over one stream.
//!
//! Everything travels in frames with the number of a request, so that an upload, a download and a look at a job share one
//! channel (a device may allow a single one) and a request needs no round trip before its data. The device's side begins
//! with [`MAGIC`]: whatever a login script prints before that is skipped. What can go wrong: the stream ends at any byte (a
//! transfer ends with an explicit finish that carries size and digest), one side is of another version (the first exchange
//! says so), bytes are damaged (each file's SHA-256 is computed on both ends).

pub(crate) mod frame;
pub(crate) mod partial;

use camino::Utf8PathBuf;
use model_catalog::{RelPath, Sha256Digest};
use serde::{Deserialize, Serialize};

/// Version of the exchange. Both sides must have the same.
pub const LINK_PROTOCOL: u32 = 1;
/// The first bytes of the device's side.
pub const MAGIC: &[u8; 16] = b"\0models-link-1\n\0";
/// How long one side may be silent before the other takes the connection for dead. The host asks for a sign of life much
/// more often than this; a device that loads a model may leave it waiting for a while.
pub const SILENCE: std::time::Duration = std::time::Duration::from_secs(120);

/// A job's name as it is sent; the device takes it apart again before it touches a file.
pub(crate) type JobText = String;

/// What a host asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub(crate) enum Request {
    /// Both sides' versions, and whose jobs this is about; answered by [`Welcome`]. The first request of a connection.
    Hello { protocol: u32, owner: String },
    /// What the device is; answered by [`Facts`].
    Probe,
    /// Takes the device for the owner, where it is parked or the user insists; answered by nothing.
    Reserve { purpose: String, while_driving: bool },
    /// Gives it back; answered by nothing.
    Release,
    /// Names of jobs; answered by [`JobList`].
    Jobs,
    /// Is this file, or the beginning of it, there? Answered by [`Offered`].
    Offer { job: JobText, path: RelPath, size: u64, sha256: Sha256Digest },
    /// Data and an end follow; the file begins with the `from` bytes that an offer found. Answered by nothing.
    Put { job: JobText, path: RelPath, size: Option<u64>, sha256: Option<Sha256Digest>, from: u64 },
    /// Data follows after a [`Sending`]; the host already has `from` bytes with this digest. Answered by [`Sent`].
    Get { job: JobText, path: RelPath, from: u64, prefix: Option<Sha256Digest> },
    /// Starts a job, where the device is parked or the user insists; answered by nothing.
    Start { job: JobText, while_driving: bool },
    /// Waits up to `wait_ms` for news of a job. Answered by [`Look`] after the result and the events as data.
    Look { job: JobText, offset: u64, wait_ms: u64 },
    /// Ends a job; answered by nothing.
    Cancel { job: JobText },
    /// Removes a job; answered by nothing.
    Remove { job: JobText },
}

/// The answer to [`Request::Hello`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Welcome {
    pub(crate) protocol: u32,
    pub(crate) version: String,
}

/// The answer to the request `Probe`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Facts {
    /// Machine architecture, such as `aarch64`.
    pub architecture: String,
    /// Version of `models`.
    pub models_version: String,
    /// SHA-256 of the driver that it carries.
    pub driver_sha256: String,
    /// Bytes free where jobs are kept.
    pub free_bytes: u64,
    /// Whether the Snapdragon GPU is there.
    pub has_qcom_gpu: bool,
    /// The Python that a compile would use, and its version.
    pub python: Option<String>,
    /// Commit of the vendored tinygrad.
    pub tinygrad_commit: Option<String>,
    /// Highest temperature of the machine's zones, in degrees Celsius.
    pub temperature_celsius: Option<f64>,
    /// Product string of the external GPU's bridge, where one is plugged in.
    pub external_gpu_bridge: Option<String>,
    /// Whether the device is driving.
    pub is_on_road: bool,
    /// Jobs on the device, those of other hosts too.
    pub jobs: Vec<String>,
    /// Who holds the device, or held it last without giving it back.
    pub holder: Option<String>,
}

/// The answer to [`Request::Jobs`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct JobList {
    pub(crate) jobs: Vec<JobText>,
}

/// The answer to [`Request::Offer`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "have", rename_all = "snake_case")]
pub(crate) enum Offered {
    /// The whole file, equal.
    Whole,
    /// The first `size` bytes of something that was sent under the same digest.
    Prefix { size: u64, sha256: Sha256Digest },
    /// Nothing of it.
    Nothing,
}

/// The beginning of the answer to [`Request::Get`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Sending {
    /// Where the data begins: the host's `from`, or 0 where its prefix is another.
    pub(crate) from: u64,
    /// Size of the whole file.
    pub(crate) size: u64,
}

/// The end of the answer to [`Request::Get`], and what ends the data of a [`Request::Put`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Sent {
    pub(crate) size: u64,
    pub(crate) sha256: Sha256Digest,
}

/// The answer to [`Request::Look`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Look {
    pub(crate) state: LookState,
    /// Bytes of data that are the result; the rest are events.
    pub(crate) result_bytes: usize,
}

/// Where a job stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LookState {
    Absent,
    Staged,
    Running,
    Finished,
    Died(String),
}

/// The answer of a request that has nothing to say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Done {}

/// Why a request failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum Fault {
    Reserved {
        holder: String,
    },
    /// The device is driving.
    OnRoad,
    NoModels {
        path: Utf8PathBuf,
        why: String,
    },
    Space {
        needed: u64,
        free: u64,
    },
    Job {
        job: String,
        what: String,
        why: String,
    },
    /// Trying again can succeed: the same file is still being written by an older connection.
    Busy {
        why: String,
    },
    /// A file operation on the device failed.
    File {
        why: String,
        disk_full: bool,
    },
    /// The request is not one that this version serves.
    Request {
        why: String,
    },
}
