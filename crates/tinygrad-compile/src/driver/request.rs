//! Requests to the driver and the results of its operations.

use std::collections::BTreeMap;

use artifact_pickle::AbiDescription;
use camino::Utf8PathBuf;
use model_catalog::{
    BehaviorVersion, Camera, ImageHistoryPipeline, ModelMetadata, ModelType, PolicyKey, Sha256Digest,
    SliceSpec, Target,
};
use serde::{Deserialize, Deserializer, Serialize, de::Error as _};

use super::PROTOCOL;
use crate::Cache;

/// Seeds of the proof: the first is replayed bit for bit, the second must give other outputs.
pub const SEEDS: [u32; 2] = [42, 43];

/// A slice by name, start, stop and step.
type NamedSlice = (String, Option<i64>, Option<i64>, Option<i64>);

/// Metadata of one ONNX file, in the form of the protocol: lists of pairs, so that no JSON library can reorder them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WireMetadata {
    /// The training checkpoint.
    pub model_checkpoint: Option<String>,
    /// Name, start, stop and step.
    pub output_slices: Vec<NamedSlice>,
    /// Input name and shape.
    pub input_shapes: Vec<(String, Vec<u64>)>,
    /// Output name and shape.
    pub output_shapes: Vec<(String, Vec<u64>)>,
}

impl From<&ModelMetadata> for WireMetadata {
    fn from(metadata: &ModelMetadata) -> Self {
        let slices = metadata
            .output_slices
            .iter()
            .map(|(name, slice)| (name.clone(), slice.start, slice.stop, slice.step));
        let shapes = |map: &indexmap::IndexMap<String, Vec<u64>>| {
            map.iter().map(|(n, s)| (n.clone(), s.clone())).collect()
        };
        Self {
            model_checkpoint: metadata.model_checkpoint.clone(),
            output_slices: slices.collect(),
            input_shapes: shapes(&metadata.input_shapes),
            output_shapes: shapes(&metadata.output_shapes),
        }
    }
}

impl From<WireMetadata> for ModelMetadata {
    fn from(wire: WireMetadata) -> Self {
        let slices = wire
            .output_slices
            .into_iter()
            .map(|(name, start, stop, step)| (name, SliceSpec { start, stop, step }));
        Self {
            model_checkpoint: wire.model_checkpoint,
            output_slices: slices.collect(),
            input_shapes: wire.input_shapes.into_iter().collect(),
            output_shapes: wire.output_shapes.into_iter().collect(),
        }
    }
}

/// One ONNX file of a compile request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ModelRequest {
    /// The key under which its metadata stands in the artifact.
    pub key: PolicyKey,
    /// The file.
    pub onnx: Utf8PathBuf,
    /// SHA-256 of the file.
    pub sha256: Sha256Digest,
    /// What was read from it.
    pub metadata: WireMetadata,
}

/// `compile`: ONNX files to an artifact.
#[derive(Debug, Clone, Serialize)]
pub struct CompileRequest {
    protocol: u32,
    op: &'static str,
    /// The artifact's type.
    pub model_type: ModelType,
    /// Where it keeps its image history.
    pub image_history_pipeline: ImageHistoryPipeline,
    /// Steps of 20 Hz between two steps of context.
    pub frame_skip: Option<u32>,
    /// Behaviour version, where known.
    pub behavior_version: Option<BehaviorVersion>,
    /// What is compiled for.
    pub target: Target,
    /// Camera resolutions that get a warp.
    pub cameras: Vec<Camera>,
    /// The models, in the order of the artifact's metadata.
    pub models: Vec<ModelRequest>,
    /// Where the artifact is written.
    pub artifact: Utf8PathBuf,
    /// Where the values of the proof are left for the fresh process.
    pub handover: Utf8PathBuf,
    /// Whether the artifact is written in the out-of-band form.
    pub out_of_band: bool,
    /// Seeds of the proof.
    pub seeds: [u32; 2],
    /// Largest accepted difference between a replay and the first run.
    pub tolerance: f64,
    /// Whether the run ends with the proof, in a process of its own.
    pub prove: bool,
    /// Where captured camera warps are kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_dir: Option<Utf8PathBuf>,
    /// Bound of that directory in MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_limit_mib: Option<u64>,
    /// Names the model in events of a batch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
}

/// What a compile request has besides the sources.
#[derive(Debug, Clone)]
pub struct ProofFiles {
    /// Where the artifact is written.
    pub artifact: Utf8PathBuf,
    /// Where the values of the proof are left.
    pub handover: Utf8PathBuf,
}

impl CompileRequest {
    /// The request for `plan` with the models that were read for it.
    pub fn new(plan: &crate::CompilePlan, models: Vec<ModelRequest>, files: &ProofFiles) -> Self {
        Self {
            protocol: PROTOCOL,
            op: "compile",
            model_type: plan.model_type,
            image_history_pipeline: plan.image_history_pipeline,
            frame_skip: Some(plan.frame_skip),
            behavior_version: plan.version,
            target: plan.target,
            cameras: plan.cameras.clone(),
            models,
            artifact: files.artifact.clone(),
            handover: files.handover.clone(),
            out_of_band: plan.target.is_out_of_band(),
            seeds: SEEDS,
            tolerance: plan.tolerance,
            prove: true,
            cache_dir: None,
            cache_limit_mib: None,
            label: None,
        }
    }

    /// Takes camera warps from `cache` and keeps them there.
    pub fn keep_warps(&mut self, cache: Option<&Cache>) {
        self.cache_dir = cache.map(Cache::warps);
        self.cache_limit_mib = cache.map(|cache| cache.limit_mib);
    }
}

/// Result of `compile`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CompileResult {
    /// tinygrad's version.
    pub tinygrad: String,
    /// Python's version.
    pub python: String,
    /// What that tinygrad offers to a pickled jit.
    #[serde(deserialize_with = "checked")]
    pub abi: AbiDescription,
    /// Per jit: the devices that it uses.
    #[serde(default)]
    pub devices: BTreeMap<String, Vec<String>>,
    /// Per jit: its kernels.
    #[serde(default)]
    pub kernels: BTreeMap<String, u64>,
    /// Per stage: seconds.
    #[serde(default)]
    pub seconds: BTreeMap<String, f64>,
    /// Bytes of the artifact.
    pub size: u64,
    /// The proof: one entry for each jit and seed.
    #[serde(default)]
    pub checks: Vec<ProofCheck>,
    /// What a newer driver adds.
    #[serde(flatten)]
    pub more: BTreeMap<String, serde_json::Value>,
}

/// One replay that gave the handed-over values.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProofCheck {
    /// The jit.
    pub jit: String,
    /// The seed.
    pub seed: u32,
    /// Outputs that were compared.
    pub outputs: u64,
    /// Queues that were compared.
    pub queues: u64,
}

/// `batch`: many models from one warm process.
#[derive(Debug, Clone, Serialize)]
pub struct BatchRequest {
    protocol: u32,
    op: &'static str,
    requests: Vec<CompileRequest>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_dir: Option<Utf8PathBuf>,
}

impl BatchRequest {
    /// The batch of `requests`, with camera warps from `cache`.
    pub fn new(requests: Vec<CompileRequest>, cache: Option<&Cache>) -> Self {
        Self { protocol: PROTOCOL, op: "batch", requests, cache_dir: cache.map(Cache::warps) }
    }
}

/// `dm`: the driver-monitoring model and its camera warps, each a file of its own.
#[derive(Debug, Clone, Serialize)]
pub struct DmRequest {
    protocol: u32,
    op: &'static str,
    onnx: Utf8PathBuf,
    sha256: Sha256Digest,
    metadata: WireMetadata,
    target: Target,
    cameras: Vec<Camera>,
    outputs: DmOutputs,
    handover: Utf8PathBuf,
    seeds: [u32; 2],
    tolerance: f64,
}

/// Where the files of driver monitoring are written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DmOutputs {
    /// The model's jit.
    pub model: Utf8PathBuf,
    /// The warp of each camera (`WxH`).
    pub warps: BTreeMap<String, Utf8PathBuf>,
}

impl DmRequest {
    /// The request for a model that was read from `onnx`.
    pub fn new(
        source: ModelRequest,
        target: Target,
        outputs: DmOutputs,
        handover: Utf8PathBuf,
        tolerance: f64,
    ) -> Self {
        Self {
            protocol: PROTOCOL,
            op: "dm",
            onnx: source.onnx,
            sha256: source.sha256,
            metadata: source.metadata,
            target,
            cameras: model_catalog::CAMERAS.to_vec(),
            outputs,
            handover,
            seeds: SEEDS,
            tolerance,
        }
    }
}

/// `dm_replay`: drives driver-monitoring files that another compiler made.
#[derive(Debug, Clone, Serialize)]
pub struct DmReplayRequest {
    protocol: u32,
    op: &'static str,
    onnx: Utf8PathBuf,
    sha256: Sha256Digest,
    metadata: WireMetadata,
    target: Target,
    cameras: Vec<Camera>,
    outputs: DmOutputs,
    handover: Utf8PathBuf,
    seeds: [u32; 2],
    tolerance: f64,
}

impl DmReplayRequest {
    /// The request for `outputs`, made of `source`; values are kept in `scratch`.
    pub fn new(
        outputs: DmOutputs,
        source: ModelRequest,
        target: Target,
        scratch: Utf8PathBuf,
        tolerance: f64,
    ) -> Self {
        Self {
            protocol: PROTOCOL,
            op: "dm_replay",
            onnx: source.onnx,
            sha256: source.sha256,
            metadata: source.metadata,
            target,
            cameras: model_catalog::CAMERAS.to_vec(),
            outputs,
            handover: scratch,
            seeds: SEEDS,
            tolerance,
        }
    }
}

/// Result of `dm_replay`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DmReplayResult {
    /// One entry for each jit and seed.
    pub checks: Vec<ProofCheck>,
}

/// Result of `dm`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DmResult {
    /// tinygrad's version.
    pub tinygrad: String,
    /// Python's version.
    pub python: String,
    /// What that tinygrad offers to a pickled jit.
    #[serde(deserialize_with = "checked")]
    pub abi: AbiDescription,
    /// `model`, then one for each camera.
    pub jits: BTreeMap<String, JitFacts>,
    /// The proof: one entry for each jit and seed.
    pub checks: Vec<ProofCheck>,
    /// Per stage: seconds.
    #[serde(default)]
    pub seconds: BTreeMap<String, f64>,
}

/// What is known of one jit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JitFacts {
    /// The devices that it uses.
    pub devices: Vec<String>,
    /// Its kernels.
    pub kernels: u64,
    /// Bytes of its file.
    pub size: u64,
}

/// `run`: drives an artifact over synthetic frames.
#[derive(Debug, Clone, Serialize)]
pub struct RunRequest {
    protocol: u32,
    op: &'static str,
    /// The artifact.
    pub artifact: Utf8PathBuf,
    /// Whether it is in the out-of-band form.
    pub out_of_band: bool,
    /// Where the raw outputs go.
    pub out_dir: Utf8PathBuf,
    /// Camera resolutions.
    pub cameras: Vec<Camera>,
    /// Steps per camera.
    pub steps: u32,
    /// Seed of the frames.
    pub seed: u32,
    /// What the frames show.
    pub frames: String,
    /// Whether to show as well what the outputs depend on, and each warp alone.
    pub probes: bool,
    /// In how many of the first steps to record what the models are given.
    pub record: u32,
    /// How long to go on at the camera's rate after the steps, in seconds.
    pub soak_seconds: f64,
}

impl RunRequest {
    /// The same for an artifact in the out-of-band form.
    #[must_use]
    pub fn out_of_band(mut self, out_of_band: bool) -> Self {
        self.out_of_band = out_of_band;
        self
    }

    /// `steps` steps of random frames on each of `cameras`.
    pub fn new(
        artifact: Utf8PathBuf,
        out_dir: Utf8PathBuf,
        cameras: Vec<Camera>,
        steps: u32,
        seed: u32,
    ) -> Self {
        let frames = "random".to_owned();
        Self {
            protocol: PROTOCOL,
            op: "run",
            artifact,
            out_of_band: false,
            out_dir,
            cameras,
            steps,
            seed,
            frames,
            probes: false,
            record: 0,
            soak_seconds: 0.0,
        }
    }
}

/// `dm_run`: drives the driver-monitoring set over synthetic frames.
#[derive(Debug, Clone, Serialize)]
pub struct DmRunRequest {
    protocol: u32,
    op: &'static str,
    /// The model.
    pub model: Utf8PathBuf,
    /// The warp of each camera (`WxH`).
    pub warps: BTreeMap<String, Utf8PathBuf>,
    /// What was read from the metadata file.
    pub metadata: WireMetadata,
    /// What the set was compiled for.
    pub target: Target,
    /// Everything that a run of a driving artifact is asked, too.
    #[serde(flatten)]
    pub extent: RunExtent,
}

/// How much is run, and what is kept of it.
#[derive(Debug, Clone, Serialize)]
pub struct RunExtent {
    /// Where the raw outputs go.
    pub out_dir: Utf8PathBuf,
    /// Camera resolutions.
    pub cameras: Vec<Camera>,
    /// Steps per camera.
    pub steps: u32,
    /// Seed of the frames.
    pub seed: u32,
    /// What the frames show.
    pub frames: String,
    /// Whether to show as well what the outputs depend on, and each warp alone.
    pub probes: bool,
    /// In how many of the first steps to record what the model is given.
    pub record: u32,
    /// How long to go on at the camera's rate after the steps, in seconds.
    pub soak_seconds: f64,
}

impl DmRunRequest {
    /// The request for a set of files.
    pub fn new(files: DmOutputs, metadata: WireMetadata, target: Target, extent: RunExtent) -> Self {
        let DmOutputs { model, warps } = files;
        Self { protocol: PROTOCOL, op: "dm_run", model, warps, metadata, target, extent }
    }
}

/// Result of `run` and of `dm_run`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunResult {
    /// The raw arrays.
    pub outputs: Vec<RunOutput>,
    /// Per camera (`WxH`): seconds of each step.
    #[serde(default)]
    pub step_seconds: BTreeMap<String, Vec<f64>>,
    /// Seconds that loading took.
    #[serde(default)]
    pub load_seconds: f64,
    /// The artifact's type; driver monitoring has none.
    #[serde(default)]
    pub model_type: Option<ModelType>,
    /// The artifact's policy order; empty for a supercombo.
    #[serde(default)]
    pub policy_order: Vec<PolicyKey>,
    /// The artifact's metadata.
    pub metadata: BTreeMap<PolicyKey, WireMetadata>,
    /// Small inputs of the policy, with their shapes.
    #[serde(default)]
    pub parsed_inputs: serde_json::Value,
    /// What a newer driver adds.
    #[serde(flatten)]
    pub more: BTreeMap<String, serde_json::Value>,
}

/// One raw array: little-endian float32, steps concatenated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunOutput {
    /// `vision`, a policy, or `model`.
    pub key: PolicyKey,
    /// The camera.
    pub camera: Camera,
    /// The file, relative to the output directory.
    pub file: Utf8PathBuf,
    /// Steps first.
    pub shape: Vec<u64>,
}

/// `probe`: what the interpreter would compile with.
#[derive(Debug, Clone, Serialize)]
pub struct ProbeRequest {
    protocol: u32,
    op: &'static str,
}

impl Default for ProbeRequest {
    fn default() -> Self {
        Self { protocol: PROTOCOL, op: "probe" }
    }
}

/// `abi`: what the interpreter's tinygrad offers to a pickled jit.
#[derive(Debug, Clone, Serialize)]
pub struct AbiRequest {
    protocol: u32,
    op: &'static str,
}

impl Default for AbiRequest {
    fn default() -> Self {
        Self { protocol: PROTOCOL, op: "abi" }
    }
}

/// Result of `abi`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AbiResult(#[serde(deserialize_with = "checked")] pub AbiDescription);

/// A description whose digest is that of its content: both programs must take the same digest of the same thing.
fn checked<'de, D: Deserializer<'de>>(deserializer: D) -> Result<AbiDescription, D::Error> {
    AbiDescription::deserialize(deserializer)?.checked().map_err(D::Error::custom)
}

/// Result of `probe`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeResult {
    /// tinygrad's version.
    pub tinygrad: String,
    /// Its commit, where the tree names it.
    pub tinygrad_commit: Option<String>,
    /// Where it was found.
    pub tinygrad_path: Utf8PathBuf,
    /// Python's version.
    pub python: String,
    /// numpy's version.
    pub numpy: String,
    /// tinygrad's default device.
    pub default_device: String,
    /// The C compiler of the CPU backend.
    pub clang: Option<String>,
}
