//! Runs of an artifact on a device: what is asked for.

use camino::{Utf8Path, Utf8PathBuf};
use durable_fs::Expected;
use model_catalog::{CAMERAS, Camera, ModelId, ModelType, RelPath, Sha256Digest, Target};
use remote_compile::{
    device::JobName,
    supervise::{JobInput, PreparedJob},
};
use tinygrad_compile::job::{INPUT_DIR, JobKind, JobRequest, RunJob};

/// Name of the artifact among a job's inputs.
const ARTIFACT: &str = "artifact.pkl";

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
    /// Whether to record as well what the outputs depend on, and each warp alone.
    pub probes: bool,
    /// The device's Python, where it is not the usual one.
    pub python: Option<Utf8PathBuf>,
}

impl RunPlan {
    /// Random frames on both cameras, long enough for a steady state, with probes.
    pub fn thorough(target: Target, model_type: Option<ModelType>) -> Self {
        Self {
            target,
            model_type,
            cameras: CAMERAS.to_vec(),
            steps: 40,
            seed: 42,
            frames: "random".to_owned(),
            probes: true,
            python: None,
        }
    }

    /// The first steps of the same run, for a second process.
    #[must_use]
    pub fn again(&self) -> Self {
        Self { steps: 6, probes: false, ..self.clone() }
    }

    /// A drawn road that moves, for pictures.
    #[must_use]
    pub fn drive(&self) -> Self {
        Self { steps: 12, probes: false, frames: "road".to_owned(), ..self.clone() }
    }
}

/// The job that runs the artifact at `file`, which must be `expected`.
pub fn run_request(
    id: &ModelId,
    file: &Utf8Path,
    expected: (u64, Sha256Digest),
    plan: &RunPlan,
) -> PreparedJob {
    let name = RelPath::new(ARTIFACT).unwrap_or_else(|_| unreachable!("the name is a plain one"));
    let request = request(plan, format!("{INPUT_DIR}/{ARTIFACT}").into());
    let input = JobInput { from: file.to_owned(), name, expected: Expected::exactly(expected.0, expected.1) };
    PreparedJob::new(id, &request, vec![input])
}

/// The job that runs the artifact that `first` has brought to the device; `first` must still be there.
pub fn run_again_request(first: &JobName, plan: &RunPlan) -> PreparedJob {
    let artifact = format!("../{first}/{INPUT_DIR}/{ARTIFACT}").into();
    PreparedJob::new(first.model(), &request(plan, artifact), Vec::new())
}

fn request(plan: &RunPlan, artifact: Utf8PathBuf) -> JobRequest {
    JobRequest::new(JobKind::Run(RunJob {
        artifact,
        target: plan.target,
        model_type: plan.model_type,
        cameras: plan.cameras.clone(),
        steps: plan.steps,
        seed: plan.seed,
        frames: plan.frames.clone(),
        probes: plan.probes,
        python: plan.python.clone(),
    }))
}
