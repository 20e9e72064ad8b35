//! The files of a job.

use std::collections::BTreeMap;

use camino::Utf8PathBuf;
use model_catalog::{
    BehaviorVersion, Camera, Component, ImageHistoryPipeline, InputFormat, ModelId, ModelType, RelPath,
    Sha256Digest, Target, Variant,
};
use serde::{Deserialize, Serialize};

use super::{RuntimeJob, RuntimeResult};
use crate::{
    BuildRecord, CompileError, DmBuildRecord, FileRecord,
    driver::request::{RunResult, WireMetadata},
};

/// Version of the job files.
pub const PROTOCOL: u32 = 1;

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobRequest {
    /// [`PROTOCOL`].
    pub protocol: u32,
    /// The work.
    #[serde(flatten)]
    pub kind: JobKind,
}

impl JobRequest {
    /// A request of this version.
    pub fn new(kind: JobKind) -> Self {
        Self { protocol: PROTOCOL, kind }
    }
}

/// The kinds of work.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum JobKind {
    /// Sources to an artifact.
    Compile(CompileJob),
    /// Driver monitoring's source to its four files.
    Dm(DmJob),
    /// An artifact over synthetic frames.
    Run(RunJob),
    /// The device's own runtime with a selected model.
    Runtime(RuntimeJob),
    /// The driver-monitoring set over synthetic frames.
    #[serde(rename = "dmrun")]
    DmRun(DmRunJob),
}

impl JobKind {
    /// The word in request and result.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Compile(_) => "compile",
            Self::Dm(_) => "dm",
            Self::Run(_) => "run",
            Self::Runtime(_) => "runtime",
            Self::DmRun(_) => "dmrun",
        }
    }
}

/// What the runner itself tells of a job under way, one JSON object a line among those of the work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum JobEvent {
    /// The artifact is written. Its proof is still to come, and its place too: it may be fetched, and counts for nothing
    /// until the result names the same digest.
    Written {
        /// Where it lies until it is proven, relative to the job's directory.
        file: RelPath,
        /// Its size in bytes.
        size: u64,
        /// Its SHA-256.
        sha256: Sha256Digest,
    },
}

/// One source file of a compile job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobSource {
    /// The component.
    pub component: Component,
    /// Its size variant.
    #[serde(default)]
    pub variant: Variant,
    /// The file, relative to the job's input directory.
    pub file: RelPath,
    /// Its size in bytes.
    pub size: u64,
    /// Its SHA-256.
    pub sha256: Sha256Digest,
}

/// Compiles one model. The artifact appears in the output directory under its usual name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CompileJob {
    /// The model.
    pub id: ModelId,
    /// Split or supercombo.
    pub input_format: InputFormat,
    /// Behaviour version, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<BehaviorVersion>,
    /// What is compiled for.
    pub target: Target,
    /// Where the artifact keeps its image history.
    pub image_history_pipeline: ImageHistoryPipeline,
    /// `embedded`, `tree` or `auto`, where the asker chooses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub toolchain: Option<String>,
    /// The interpreter, where the asker chooses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub python: Option<Utf8PathBuf>,
    /// Largest accepted difference between a replay and the first run; absent is exact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tolerance: Option<f64>,
    /// The sources; exactly those of the model.
    pub sources: Vec<JobSource>,
}

/// Compiles driver monitoring. Its four files appear in the output directory under their usual names.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DmJob {
    /// What is compiled for.
    pub target: Target,
    /// `embedded`, `tree` or `auto`, where the asker chooses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub toolchain: Option<String>,
    /// The interpreter, where the asker chooses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub python: Option<Utf8PathBuf>,
    /// Largest accepted difference between a replay and the first run; absent is exact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tolerance: Option<f64>,
    /// The source, relative to the job's input directory.
    pub file: RelPath,
    /// Its size in bytes.
    pub size: u64,
    /// Its SHA-256.
    pub sha256: Sha256Digest,
}

/// Runs one artifact. Raw outputs appear in the output directory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunJob {
    /// The artifact: absolute, or relative to the job's directory.
    pub artifact: Utf8PathBuf,
    /// Its SHA-256, so that runs of two artifacts never have one name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<Sha256Digest>,
    /// What it was compiled for.
    pub target: Target,
    /// Its type, where known: it decides a flag of tinygrad.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_type: Option<ModelType>,
    /// How much is run.
    #[serde(flatten)]
    pub drive: DriveJob,
    /// The interpreter, where the asker chooses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub python: Option<Utf8PathBuf>,
}

/// Runs the driver-monitoring set. Raw outputs appear in the output directory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DmRunJob {
    /// The model: absolute, or relative to the job's directory.
    pub model: Utf8PathBuf,
    /// The warp of each camera (`WxH`), likewise.
    pub warps: BTreeMap<String, Utf8PathBuf>,
    /// SHA-256 of every file, so that runs of two sets never have one name.
    #[serde(default)]
    pub sha256: Vec<Sha256Digest>,
    /// What the metadata file says.
    pub metadata: WireMetadata,
    /// What the set was compiled for.
    pub target: Target,
    /// How much is run.
    #[serde(flatten)]
    pub drive: DriveJob,
    /// The interpreter, where the asker chooses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub python: Option<Utf8PathBuf>,
}

/// How much of a run is made, and what is kept of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DriveJob {
    /// Camera resolutions.
    pub cameras: Vec<Camera>,
    /// Steps per camera.
    pub steps: u32,
    /// Seed of the frames.
    pub seed: u32,
    /// What the frames show: `random`, `gradient`, `checkerboard`, `road`, or `structured`, which is the three in turn.
    #[serde(default = "random")]
    pub frames: String,
    /// Whether to show as well what the outputs depend on, and each warp alone.
    #[serde(default)]
    pub probes: bool,
    /// In how many of the first steps to record what the models are given.
    #[serde(default)]
    pub record: u32,
    /// How long to go on at the camera's rate after the steps, in seconds.
    #[serde(default)]
    pub soak_seconds: f64,
}

fn random() -> String {
    "random".to_owned()
}

/// How a job ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobStatus {
    /// It was done.
    Ok,
    /// It could not be done.
    Failed,
    /// It was stopped from outside.
    Cancelled,
}

/// Why a job failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobError {
    /// A stable word, such as `non_finite` or `python_missing`.
    pub kind: String,
    /// What happened.
    pub message: String,
    /// What to do next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Whether the machine and not the model is at fault.
    #[serde(default)]
    pub environment: bool,
}

impl From<&CompileError> for JobError {
    fn from(error: &CompileError) -> Self {
        Self {
            kind: error.code().to_owned(),
            message: error.to_string(),
            hint: error.advice(),
            environment: error.class() == crate::FaultClass::Environment,
        }
    }
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobResult {
    /// [`PROTOCOL`].
    pub protocol: u32,
    /// The kind of work.
    pub kind: String,
    /// How it ended.
    pub status: JobStatus,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<JobError>,
    /// The artifact of a compile job; its file is relative to the job's output directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact: Option<FileRecord>,
    /// How it was built.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build: Option<BuildRecord>,
    /// The files of a driver-monitoring job, relative to the job's output directory.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<FileRecord>,
    /// How they were built.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dm_build: Option<DmBuildRecord>,
    /// What a run job found; files are relative to the job's output directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunResult>,
    /// What a runtime job found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime: Option<RuntimeResult>,
}

impl JobResult {
    pub(crate) fn new(kind: &str, status: JobStatus) -> Self {
        Self {
            protocol: PROTOCOL,
            kind: kind.to_owned(),
            status,
            error: None,
            artifact: None,
            build: None,
            files: Vec::new(),
            dm_build: None,
            run: None,
            runtime: None,
        }
    }
}

/// Who works on a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobProcess {
    /// Process ID of the runner.
    pub pid: u32,
    /// When it started, in clock ticks since boot (Linux), so that a recycled ID is not taken for it.
    pub start_time: Option<u64>,
}

impl JobProcess {
    /// The running process.
    pub fn this() -> Self {
        let pid = std::process::id();
        Self { pid, start_time: Self::start_time_of(pid) }
    }

    /// When the process with this ID started; `None` where there is none, or where the system does not say.
    pub fn start_time_of(pid: u32) -> Option<u64> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The second field is the name in parentheses and may contain anything; field 22 is the start time.
        let after_name = &stat[stat.rfind(')')? + 1..];
        after_name.split_ascii_whitespace().nth(19)?.parse().ok()
    }

    /// Whether this very process still lives.
    pub fn is_alive(&self) -> bool {
        let exists = i32::try_from(self.pid).is_ok_and(durable_fs::is_process_alive);
        exists && (self.start_time.is_none() || Self::start_time_of(self.pid) == self.start_time)
    }
}
