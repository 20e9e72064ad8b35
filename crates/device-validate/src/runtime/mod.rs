//! Verification on the device's own runtime: the host's side.
//!
//! One job a model, so that each ends with the selection as it was; the device's side is `model_store::runtime`. What can go
//! wrong between the two is what jobs are made for: a lost connection is taken up again, Ctrl-C cancels the job, which puts
//! the selection back before it ends, and a host that dies leaves a job that ends on its own.

mod record;
mod representatives;

use std::sync::atomic::Ordering;

use camino::Utf8PathBuf;
use model_catalog::{BehaviorVersion, ModelId, Target};
use rebuild_workspace::{ArtifactRecord, BuildRecord, RuntimeConfig, Workspace};
use remote_compile::{
    adopt::recorded_abi,
    device::Device,
    supervise::{JobFailure, PreparedJob, Watch, begin, supervise},
};
use serde_json::Value;
use tinygrad_compile::job::{JobKind, JobRequest, RuntimeJob, RuntimeProcess, RuntimeResult};

pub use record::{RuntimeRecord, RuntimeRun};
pub use representatives::{Candidate, Role, representatives};

use crate::{ValidateError, runs::clear};

/// What a device has, unless the configuration says otherwise.
const ROOT: &str = "/data/openpilot";
const STORE: &str = "/data/models";
const PARAMS: &str = "/data/params/d";
const VOLATILE_PARAMS: &str = "/dev/shm/params/d";
/// Programs of the runtime, started by hand on a parked device: the system starts them on the road only.
const PROGRAMS: [(&str, &[&str]); 3] = [
    ("camerad", &["system/camerad/camerad"]),
    ("modeld", &["{python}", "-m", "selfdrive.modeld.modeld", "--demo"]),
    ("dmonitoringmodeld", &["{python}", "-m", "selfdrive.modeld.dmonitoringmodeld"]),
];

/// What is verified, and how.
#[derive(Debug, Clone, PartialEq)]
pub struct RuntimePlan {
    /// Seconds for which outputs are looked at.
    pub seconds: u32,
    /// Seconds that the first output may take.
    pub startup_seconds: u32,
    /// The target of normal artifacts.
    pub target: Target,
    /// Where things are on the device.
    pub config: RuntimeConfig,
}

/// One model to verify.
#[derive(Debug, Clone, PartialEq)]
pub struct RuntimeModel {
    /// Its source ID.
    pub id: ModelId,
    /// Its display name.
    pub name: String,
    /// Its behaviour version, where known.
    pub version: Option<BehaviorVersion>,
}

/// The job that verifies `model`.
///
/// # Errors
/// [`ValidateError::NoArtifact`], or [`ValidateError::Workspace`] where its record cannot be read.
pub fn runtime_job(
    workspace: &Workspace,
    model: &RuntimeModel,
    plan: &RuntimePlan,
) -> Result<(PreparedJob, ArtifactRecord), ValidateError> {
    let artifact = workspace.record::<ArtifactRecord>(&model.id)?;
    let artifact = artifact.ok_or_else(|| ValidateError::NoArtifact { id: model.id.clone() })?;
    let config = &plan.config;
    let place = |configured: &Option<Utf8PathBuf>, usual: &str| {
        configured.clone().unwrap_or_else(|| Utf8PathBuf::from(usual))
    };
    let job = RuntimeJob {
        id: artifact.artifact_id().clone(),
        name: model.name.clone(),
        version: model.version,
        target: artifact.target.unwrap_or(plan.target),
        abi: recorded_abi(workspace.record::<BuildRecord>(&model.id).ok().flatten().as_ref()),
        size: artifact.size,
        sha256: artifact.sha256,
        seconds: plan.seconds,
        startup_seconds: plan.startup_seconds,
        params_dir: place(&config.params, PARAMS),
        volatile_dir: place(&config.volatile_params, VOLATILE_PARAMS),
        store_dir: place(&config.store, STORE),
        root: place(&config.root, ROOT),
        python: config.python.clone(),
        processes: processes(config),
    };
    let request = JobRequest::new(JobKind::Runtime(job));
    Ok((PreparedJob::new(&model.id, &request, Vec::new()), artifact))
}

fn processes(config: &RuntimeConfig) -> Vec<RuntimeProcess> {
    if config.programs.is_empty() {
        let usual = |(name, command): (&str, &[&str])| RuntimeProcess {
            name: name.to_owned(),
            command: command.iter().map(|&word| word.to_owned()).collect(),
        };
        return PROGRAMS.into_iter().map(usual).collect();
    }
    let configured = config.programs.iter();
    configured.map(|p| RuntimeProcess { name: p.name.clone(), command: p.command.clone() }).collect()
}

/// Verifies one model on the device and records what was found. A job that an earlier command left is taken up.
///
/// # Errors
/// [`ValidateError`] where it could not be verified; nothing is recorded then. A model that does not drive is in the record.
pub fn verify_runtime(
    workspace: &Workspace,
    device: &dyn Device,
    model: &RuntimeModel,
    plan: &RuntimePlan,
    watch: &Watch<'_>,
    on_event: &mut dyn FnMut(&Value),
) -> Result<RuntimeResult, ValidateError> {
    let (job, artifact) = runtime_job(workspace, model, plan)?;
    let mut attempt =
        || begin(device, &job, watch).and_then(|()| supervise(device, &job.name, watch, on_event));
    let mut outcome = attempt();
    if matches!(outcome, Err(JobFailure::Interrupted)) && !watch.cancel.load(Ordering::Relaxed) {
        // What was taken up had been cancelled before, when its host was gone.
        device.remove(&job.name)?;
        outcome = attempt();
    }
    let lost = matches!(&outcome, Err(JobFailure::Device(error)) if error.is_retryable());
    if !lost {
        clear(device, [&job.name], on_event);
    }
    let result = outcome?.runtime.ok_or_else(|| ValidateError::Outputs {
        id: model.id.clone(),
        why: "the result says nothing of the runtime".to_owned(),
    })?;
    record::add(workspace, &model.id, &artifact, device.name(), &result)?;
    Ok(result)
}
