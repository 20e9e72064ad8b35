//! Runtime jobs: the device drives with a selected model for a while, and the selection is put back.
//!
//! The work itself needs the device's model store, which lies above this crate; the binary brings it along as
//! [`RuntimeHook`].

use std::{collections::BTreeMap, sync::atomic::AtomicBool};

use artifact_pickle::AbiDescription;
use camino::{Utf8Path, Utf8PathBuf};
use model_catalog::{BehaviorVersion, Camera, ModelId, Sha256Digest, Target};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::JobError;

/// A program of the runtime.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuntimeProcess {
    /// Its name in messages.
    pub name: String,
    /// Program and arguments, run in the tree; `{python}` is the interpreter.
    pub command: Vec<String>,
}

/// Lets the runtime drive with one installed model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RuntimeJob {
    /// The model, by the ID that it has in the store.
    pub id: ModelId,
    /// Its display name.
    pub name: String,
    /// Its behaviour version, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<BehaviorVersion>,
    /// What the artifact was compiled for.
    pub target: Target,
    /// The tinygrad that compiled it, as its build record describes it: the device may know another one only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub abi: Option<AbiDescription>,
    /// Size of the artifact that must be installed.
    pub size: u64,
    /// Its SHA-256.
    pub sha256: Sha256Digest,
    /// How long outputs are looked at, in seconds from the first one on.
    pub seconds: u32,
    /// How long the first output may take, in seconds.
    pub startup_seconds: u32,
    /// Directory of the parameters.
    pub params_dir: Utf8PathBuf,
    /// Directory of the volatile parameters.
    pub volatile_dir: Utf8PathBuf,
    /// The model store.
    pub store_dir: Utf8PathBuf,
    /// The StarPilot tree.
    pub root: Utf8PathBuf,
    /// The interpreter, where the asker chooses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub python: Option<Utf8PathBuf>,
    /// The programs that are started, in this order.
    pub processes: Vec<RuntimeProcess>,
}

/// What one service published.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ServiceFacts {
    /// Messages.
    pub messages: u64,
    /// Messages a second, from the first to the last.
    pub hertz: f64,
    /// The longest silence between two, in seconds.
    pub longest_gap: f64,
}

/// What does not hold.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RuntimeFinding {
    /// A stable word for what was checked.
    pub check: String,
    /// The service, where it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
    /// The quantity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// The index in the quantity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<usize>,
    /// What was found, in one sentence.
    pub text: String,
}

/// What a runtime job found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RuntimeResult {
    /// The model that was selected.
    pub id: ModelId,
    /// Seconds for which outputs were looked at.
    pub seconds: f64,
    /// Seconds until the first output.
    pub startup_seconds: Option<f64>,
    /// The cameras of the device.
    pub camera: Option<Camera>,
    /// What each service published.
    pub services: BTreeMap<String, ServiceFacts>,
    /// What does not hold; empty where the model drives.
    pub findings: Vec<RuntimeFinding>,
    /// The ID that was selected before, and is again.
    pub restored: Option<String>,
}

/// Where a runtime job works.
#[derive(Debug, Clone)]
pub struct RuntimeSite<'s> {
    /// The job's directory.
    pub dir: &'s Utf8Path,
    /// Receives what the programs print.
    pub log: Utf8PathBuf,
    /// The interpreter.
    pub python: Utf8PathBuf,
    /// The variables of the caller.
    pub variables: &'s BTreeMap<String, String>,
    /// This program: it is started once more, to put the selection back where the job is killed.
    pub program: &'s Utf8Path,
}

/// The code of a runtime job. An error of kind `cancelled` is a cancellation.
pub type RuntimeRunner =
    fn(&RuntimeJob, &RuntimeSite<'_>, &AtomicBool, &mut dyn FnMut(&Value)) -> Result<RuntimeResult, JobError>;

/// What a binary that can do runtime jobs brings along.
#[derive(Debug, Clone)]
pub struct RuntimeHook {
    /// The code.
    pub run: RuntimeRunner,
    /// This program.
    pub program: Utf8PathBuf,
}
