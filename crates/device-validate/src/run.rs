//! A run of an artifact on a device: the request, and its outputs brought home.

use std::{collections::BTreeMap, fs};

use camino::{Utf8Path, Utf8PathBuf};
use durable_fs::{Expected, FsError, NoProgress};
use model_catalog::{BehaviorVersion, CAMERAS, Camera, ModelId, ModelType, RelPath, Sha256Digest, Target};
use remote_compile::{
    device::{Device, JobName},
    supervise::{JobInput, PreparedJob},
};
use serde_json::Value;
use tinygrad_compile::{
    driver::request::{RunOutput, RunResult},
    job::{INPUT_DIR, JobKind, JobRequest, OUTPUT_DIR, RunJob},
};

use crate::{CameraRun, Recording, Series, ValidateError};

/// One output of one camera is some kilobytes a step; more than this is damaged.
const MAX_OUTPUT: u64 = 256 << 20;

/// What a run does.
#[derive(Debug, Clone, PartialEq)]
pub struct RunPlan {
    /// What the artifact was compiled for.
    pub target: Target,
    /// Its type, where known.
    pub model_type: Option<ModelType>,
    /// Cameras to run.
    pub cameras: Vec<Camera>,
    /// Steps a camera.
    pub steps: u32,
    /// Seed of the frames.
    pub seed: u32,
    /// What the frames show.
    pub frames: String,
    /// The device's Python, where it is not the usual one.
    pub python: Option<Utf8PathBuf>,
}

impl RunPlan {
    /// Random frames on both cameras.
    pub fn random(target: Target, model_type: Option<ModelType>) -> Self {
        Self {
            target,
            model_type,
            cameras: CAMERAS.to_vec(),
            steps: 8,
            seed: 42,
            frames: "random".to_owned(),
            python: None,
        }
    }
}

/// The job that runs the artifact at `file`, which must be `expected`.
pub fn run_request(
    id: &ModelId,
    file: &Utf8Path,
    expected: (u64, Sha256Digest),
    plan: &RunPlan,
) -> PreparedJob {
    let name = RelPath::new("artifact.pkl").unwrap_or_else(|_| unreachable!("the name is a plain one"));
    let job = RunJob {
        artifact: Utf8PathBuf::from(format!("{INPUT_DIR}/{name}")),
        target: plan.target,
        model_type: plan.model_type,
        cameras: plan.cameras.clone(),
        steps: plan.steps,
        seed: plan.seed,
        frames: plan.frames.clone(),
        python: plan.python.clone(),
    };
    let input = JobInput { from: file.to_owned(), name, expected: Expected::exactly(expected.0, expected.1) };
    PreparedJob::new(id, &JobRequest::new(JobKind::Run(job)), vec![input])
}

/// Brings the raw outputs of a finished run home (through `scratch`, a directory of ours) and reads them.
///
/// # Errors
/// [`ValidateError::Outputs`] where they are not what the result says, [`ValidateError::Job`] where they cannot be fetched.
pub fn fetch_recording(
    device: &dyn Device,
    job: &JobName,
    result: RunResult,
    scratch: &Utf8Path,
) -> Result<Recording, ValidateError> {
    let refused = |why: String| ValidateError::Outputs { id: job.model().clone(), why };
    let mut cameras: BTreeMap<Camera, CameraRun> = BTreeMap::new();
    for (at, output) in result.outputs.iter().enumerate() {
        let series = fetch_series(device, job, output, &scratch.join(format!("output-{at}.f32")), &refused)?;
        let step_seconds = result.step_seconds.get(&output.camera.to_string()).cloned().unwrap_or_default();
        let run = cameras.entry(output.camera).or_insert_with(|| CameraRun {
            camera: output.camera,
            outputs: BTreeMap::new(),
            step_seconds,
        });
        if run.outputs.insert(output.key, series).is_some() {
            return Err(refused(format!("it names output {} of {} twice", output.key, output.camera)));
        }
    }
    let mut order = result.outputs.iter().map(|output| output.camera).collect::<Vec<_>>();
    order.dedup();
    let behavior_version = result.more.get("behavior_version").and_then(Value::as_str);
    let behavior_version = behavior_version
        .map(str::parse::<BehaviorVersion>)
        .transpose()
        .map_err(|error| refused(error.to_string()))?;
    Ok(Recording {
        model_type: result.model_type,
        policy_order: result.policy_order,
        behavior_version,
        metadata: result.metadata.into_iter().map(|(key, metadata)| (key, metadata.into())).collect(),
        parsed_inputs: names_of(&result.parsed_inputs),
        load_seconds: result.load_seconds,
        peak_bytes: result.more.get("peak_bytes").and_then(Value::as_u64),
        cameras: order.iter().filter_map(|camera| cameras.remove(camera)).collect(),
    })
}

fn names_of(inputs: &Value) -> Vec<String> {
    match inputs {
        Value::Object(inputs) => inputs.keys().cloned().collect(),
        Value::Array(inputs) => inputs.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        _ => Vec::new(),
    }
}

fn fetch_series(
    device: &dyn Device,
    job: &JobName,
    output: &RunOutput,
    to: &Utf8Path,
    refused: &dyn Fn(String) -> ValidateError,
) -> Result<Series, ValidateError> {
    let size = output.shape.iter().try_fold(4u64, |size, &axis| size.checked_mul(axis));
    let size = size.filter(|&size| size > 0 && size <= MAX_OUTPUT);
    let size = size.ok_or_else(|| refused(format!("{} has the shape {:?}", output.file, output.shape)))?;
    let from =
        RelPath::new(format!("{OUTPUT_DIR}/{}", output.file)).map_err(|error| refused(error.to_string()))?;
    let expected = Expected { size: Some(size), sha256: None };
    device.get(job, &from, to, expected, &NoProgress)?;
    let bytes = fs::read(to).map_err(FsError::io("read", to))?;
    fs::remove_file(to).map_err(FsError::io("remove", to))?;
    let steps = output.shape.first().copied().unwrap_or(1);
    let width = usize::try_from(size / 4 / steps).unwrap_or_default();
    Series::from_bytes(width, &bytes).ok_or_else(|| refused(format!("{} is not whole rows", output.file)))
}
