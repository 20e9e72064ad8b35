//! The build record of an artifact: everything that decided its bytes, and how its proof went.
//!
//! The record stands beside the artifact on the device and in the workspace; it is never published. Nothing of it is inside
//! the artifact, so that equal inputs give equal bytes.

use std::collections::BTreeMap;

use artifact_pickle::{AbiDescription, AbiRecord};
use camino::{Utf8Path, Utf8PathBuf};
use model_catalog::{
    BehaviorVersion, ImageHistoryPipeline, ModelId, ModelType, Sha256Digest, Target, Variant,
};
use serde::{Deserialize, Serialize};

use crate::driver::request::{JitFacts, ProofCheck};

/// Version of the record's form.
pub const BUILD_RECORD_FORMAT: u32 = 1;

/// Name of the record of `id`, beside the artifact.
pub fn build_record_name(id: &ModelId) -> String {
    format!("{id}_build.json")
}

/// One source file as it was compiled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceRecord {
    /// The component, such as `driving_vision` or `dmonitoring_model`.
    pub component: String,
    /// Its size variant.
    pub variant: Variant,
    /// File name.
    pub file: String,
    /// Size in bytes.
    pub size: u64,
    /// SHA-256.
    pub sha256: Sha256Digest,
    /// The training checkpoint that the file names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_checkpoint: Option<String>,
}

/// Which code compiled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolRecord {
    /// Version of this project.
    pub version: String,
    /// `embedded` or `tree`.
    pub toolchain: String,
    /// SHA-256 of the driver.
    pub driver_sha256: Sha256Digest,
    /// SHA-256 of the program that ran the driver, where it could be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program_sha256: Option<Sha256Digest>,
}

/// Which tinygrad and Python compiled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TinygradRecord {
    /// tinygrad's version.
    pub version: String,
    /// Its commit, where the tree names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// Python's version.
    pub python: String,
    /// The interpreter.
    pub interpreter: Utf8PathBuf,
    /// What that tinygrad offers to a pickled jit; absent in records of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub abi: Option<AbiRecord>,
}

impl TinygradRecord {
    /// The description of that tinygrad, where the record or this program has one.
    #[must_use]
    pub fn description(&self) -> Option<AbiDescription> {
        self.abi.as_ref()?.description()
    }
}

/// A finished file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileRecord {
    /// File name.
    pub file: String,
    /// Size in bytes.
    pub size: u64,
    /// SHA-256.
    pub sha256: Sha256Digest,
}

/// How the proof in a fresh process went.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProofRecord {
    /// The seeds.
    pub seeds: [u32; 2],
    /// Largest accepted difference; 0 is exact.
    pub tolerance: f64,
    /// One entry for each jit and seed.
    pub checks: Vec<ProofCheck>,
}

/// The build record of one artifact.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BuildRecord {
    /// Version of the record's form.
    pub format: u32,
    /// The model.
    pub id: ModelId,
    /// What was compiled for.
    pub target: Target,
    /// The artifact's type.
    pub model_type: ModelType,
    /// Behaviour version, where known.
    pub behavior_version: Option<BehaviorVersion>,
    /// Where the artifact keeps its image history.
    pub image_history_pipeline: ImageHistoryPipeline,
    /// Steps of 20 Hz between two steps of context.
    pub frame_skip: u32,
    /// The source files.
    pub sources: Vec<SourceRecord>,
    /// Which code compiled.
    pub tool: ToolRecord,
    /// Which tinygrad compiled.
    pub tinygrad: TinygradRecord,
    /// Per jit: the devices that it uses.
    pub devices: BTreeMap<String, Vec<String>>,
    /// Per jit: its kernels.
    pub kernels: BTreeMap<String, u64>,
    /// Variables that the driver was given.
    pub environment: BTreeMap<String, String>,
    /// Seconds of each stage.
    pub seconds: BTreeMap<String, f64>,
    /// The proof.
    pub proof: ProofRecord,
    /// The artifact.
    pub artifact: FileRecord,
}

/// Name of the record of driver monitoring, beside its files.
pub const DM_BUILD_RECORD: &str = "dmonitoring_model_build.json";

/// The build record of driver monitoring.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DmBuildRecord {
    /// Version of the record's form.
    pub format: u32,
    /// What was compiled for.
    pub target: Target,
    /// The source file.
    pub source: SourceRecord,
    /// Which code compiled.
    pub tool: ToolRecord,
    /// Which tinygrad compiled.
    pub tinygrad: TinygradRecord,
    /// `model`, then one for each camera.
    pub jits: BTreeMap<String, JitFacts>,
    /// Variables that the driver was given.
    pub environment: BTreeMap<String, String>,
    /// Seconds of each stage.
    pub seconds: BTreeMap<String, f64>,
    /// The proof.
    pub proof: ProofRecord,
    /// The files.
    pub files: Vec<FileRecord>,
}

/// The commit of a tree's vendored tinygrad, where the tree names it.
pub fn vendored_commit(root: &Utf8Path) -> Option<String> {
    let text = std::fs::read_to_string(root.join("tinygrad_repo/TINYGRAD_COMMIT")).ok()?;
    let commit = text.trim();
    (!commit.is_empty()).then(|| commit.to_owned())
}
