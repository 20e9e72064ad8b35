//! What a run did, for people and for tools.

use model_catalog::{ModelId, Sha256Digest, Target};
use rebuild_workspace::ArtifactRecord;
use serde::Serialize;

/// How a model ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It was compiled.
    Built,
    /// It was what would be built.
    Current,
    /// It was found complete and taken as it is.
    Adopted,
    /// Nothing is extracted for it yet.
    Waiting,
    /// It failed.
    Failed,
    /// The run ended before it.
    NotTried,
}

/// What became of one model.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ModelOutcome {
    /// The model, by source ID.
    pub id: ModelId,
    /// Its release ID, once namespaced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub release_id: Option<ModelId>,
    /// How it ended.
    pub outcome: Outcome,
    /// Why it was built.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<String>,
    /// What makes it outdated.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub outdated: Vec<String>,
    /// The artifact's type, where it was built here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_type: Option<String>,
    /// Size of the artifact in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// SHA-256 of the artifact.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sha256: Option<Sha256Digest>,
    /// Whether it is uploaded in parts.
    pub multipart: bool,
    /// File names of the parts that were made.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<String>,
    /// Wall-clock seconds.
    pub seconds: f64,
    /// Bytes of sources and artifact that went to and from the device.
    pub moved_bytes: u64,
    /// What of it could not be removed from the device, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_on_device: Option<String>,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// A stable word for the failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// What to do next.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Whether a machine is at fault.
    #[serde(skip)]
    pub environment: bool,
    /// Whether every further model would meet the same.
    #[serde(skip)]
    pub(super) stops_run: bool,
}

impl ModelOutcome {
    pub(super) fn new(id: ModelId, outcome: Outcome) -> Self {
        Self {
            id,
            release_id: None,
            outcome,
            reasons: Vec::new(),
            outdated: Vec::new(),
            model_type: None,
            size: None,
            sha256: None,
            multipart: false,
            parts: Vec::new(),
            seconds: 0.0,
            moved_bytes: 0,
            left_on_device: None,
            error: None,
            kind: None,
            hint: None,
            environment: false,
            stops_run: false,
        }
    }

    pub(super) fn of_record(record: &ArtifactRecord, outcome: Outcome) -> Self {
        let model_type = record.extra.get("model_type").and_then(|value| value.as_str());
        Self {
            release_id: record.release_id.clone(),
            model_type: model_type.map(str::to_owned),
            size: Some(record.size),
            sha256: Some(record.sha256),
            multipart: record.multipart,
            ..Self::new(record.id.clone(), outcome)
        }
    }

    pub(super) fn not_tried(id: ModelId, why: String) -> Self {
        Self { error: Some(why), ..Self::new(id, Outcome::NotTried) }
    }
}

/// A whole run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunSummary {
    /// The device; absent where none was needed.
    pub device: Option<String>,
    /// What normal artifacts were compiled for.
    pub target: Target,
    /// Whether it was interrupted.
    pub interrupted: bool,
    /// Wall-clock seconds.
    pub seconds: f64,
    /// Jobs of earlier runs that were removed from the device.
    pub swept: Vec<String>,
    /// Why the device could not be looked through for what earlier runs left there, where nothing else was to be done there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unswept: Option<String>,
    /// Every model, in order.
    pub models: Vec<ModelOutcome>,
}

impl RunSummary {
    /// How many models ended like this.
    pub fn count(&self, outcome: Outcome) -> usize {
        self.models.iter().filter(|model| model.outcome == outcome).count()
    }

    /// Bytes that went to and from the device.
    pub fn moved_bytes(&self) -> u64 {
        self.models.iter().map(|model| model.moved_bytes).sum()
    }

    /// The models that failed.
    pub fn failed(&self) -> impl Iterator<Item = &ModelOutcome> {
        self.models.iter().filter(|model| model.outcome == Outcome::Failed)
    }
}
