//! Runs of an artifact on a device: what is asked for.

use camino::{Utf8Path, Utf8PathBuf};
use durable_fs::Expected;
use model_catalog::{
    CAMERAS, Camera, DM_MODEL, ModelId, ModelType, RelPath, Sha256Digest, Target, dm_warp_name,
};
use remote_compile::{
    device::JobName,
    supervise::{JobInput, PreparedJob},
};
use tinygrad_compile::{
    driver::request::WireMetadata,
    job::{DmRunJob, DriveJob, INPUT_DIR, JobKind, JobRequest, RunJob},
};

/// Steps whose inputs a comparison with a reference needs: twice the distance of two images, so that histories are seen.
pub(crate) const COMPARED_STEPS: u32 = 10;
/// Steps of gradients and checkerboards before the drawn road begins.
pub(crate) const STEPS_BEFORE_ROAD: usize = 8;
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
    /// In how many of the first steps to record what the models are given.
    pub record: u32,
    /// How long to go on at the camera's rate after the steps, in seconds.
    pub soak_seconds: f64,
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
            record: 0,
            soak_seconds: 0.0,
            python: None,
        }
    }

    /// The first steps of the same run, for a second process.
    #[must_use]
    pub fn again(&self) -> Self {
        Self { steps: 6, ..self.plain() }
    }

    /// Gradients, checkerboards, and a drawn road that moves.
    #[must_use]
    pub fn drive(&self) -> Self {
        Self { steps: STEPS_BEFORE_ROAD as u32 + 12, frames: "structured".to_owned(), ..self.plain() }
    }

    fn plain(&self) -> Self {
        Self { probes: false, record: 0, soak_seconds: 0.0, ..self.clone() }
    }

    fn extent(&self) -> DriveJob {
        DriveJob {
            cameras: self.cameras.clone(),
            steps: self.steps,
            seed: self.seed,
            frames: self.frames.clone(),
            probes: self.probes,
            record: self.record,
            soak_seconds: self.soak_seconds,
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
    let request = request(plan, format!("{INPUT_DIR}/{ARTIFACT}").into(), expected.1);
    PreparedJob::new(id, &request, vec![input(file, ARTIFACT, Expected::exactly(expected.0, expected.1))])
}

fn input(from: &Utf8Path, name: &str, expected: Expected) -> JobInput {
    let name = RelPath::new(name).unwrap_or_else(|_| unreachable!("the name is a plain one"));
    JobInput { from: from.to_owned(), name, expected }
}

/// The job that runs the artifact that `first` has brought to the device; `first` must still be there.
pub fn run_again_request(first: &JobName, sha256: Sha256Digest, plan: &RunPlan) -> PreparedJob {
    let artifact = format!("../{first}/{INPUT_DIR}/{ARTIFACT}").into();
    PreparedJob::new(first.model(), &request(plan, artifact, sha256), Vec::new())
}

fn request(plan: &RunPlan, artifact: Utf8PathBuf, sha256: Sha256Digest) -> JobRequest {
    JobRequest::new(JobKind::Run(RunJob {
        artifact,
        sha256: Some(sha256),
        target: plan.target,
        model_type: plan.model_type,
        drive: plan.extent(),
        python: plan.python.clone(),
    }))
}

/// The driver-monitoring set: its files, each with what it must be, and what its metadata says.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct DmSet {
    pub(crate) files: Vec<(Utf8PathBuf, u64, Sha256Digest)>,
    pub(crate) metadata: WireMetadata,
}

impl DmSet {
    /// The job that runs the set.
    pub(crate) fn run_request(&self, id: &ModelId, plan: &RunPlan) -> PreparedJob {
        let staged = |(file, size, sha256): &(Utf8PathBuf, u64, Sha256Digest)| {
            input(file, file.file_name().unwrap_or_default(), Expected::exactly(*size, *sha256))
        };
        PreparedJob::new(id, &self.request(plan, INPUT_DIR), self.files.iter().map(staged).collect())
    }

    /// The job that runs the set that `first` has brought to the device; `first` must still be there.
    pub(crate) fn run_again_request(&self, first: &JobName, plan: &RunPlan) -> PreparedJob {
        let request = self.request(plan, &format!("../{first}/{INPUT_DIR}"));
        PreparedJob::new(first.model(), &request, Vec::new())
    }

    fn request(&self, plan: &RunPlan, dir: &str) -> JobRequest {
        let warp = |camera: &Camera| {
            let camera = camera.to_string();
            let file = format!("{dir}/{}", dm_warp_name(&camera)).into();
            (camera, file)
        };
        JobRequest::new(JobKind::DmRun(DmRunJob {
            model: format!("{dir}/{DM_MODEL}").into(),
            warps: plan.cameras.iter().map(warp).collect(),
            sha256: self.files.iter().map(|(_, _, sha256)| *sha256).collect(),
            metadata: self.metadata.clone(),
            target: plan.target,
            drive: plan.extent(),
            python: plan.python.clone(),
        }))
    }
}
