//! The release gate: whether a workspace may be published, with every problem as data.
//!
//! Only a workspace without problems gives a [`VerifiedRelease`], and only that can be published.

mod artifact;
mod device;
mod driver_monitoring;
mod folder;
mod problem;
mod tinygrad;

use std::{collections::BTreeMap, fmt};

use artifact_parts::{Part, PartLimit};
use artifact_pickle::{AbiDescription, Expectations};
use camino::Utf8Path;
use durable_fs::Progress;
use model_catalog::{Manifest, ManifestVersion, ModelId, Sha256Digest, SourceMap, Target};
use rebuild_workspace::{ArtifactRecord, ReleaseProof, Workspace};
use serde::Serialize;

pub use driver_monitoring::DRIVER_MONITORING_RECORD;
pub use problem::GateProblem;

use tinygrad::Loads;

use crate::{Folder, IdMap, ManifestWorkError, Note, Snapshot, check, plan::JOURNAL_NAME, relabel::Draft};

/// What to check a workspace for.
#[derive(Debug, Clone, Copy)]
pub struct GateOptions {
    /// The namespace that is released.
    pub version: ManifestVersion,
    /// The size above which a file must be in parts, and which no published file may exceed.
    pub part_limit: PartLimit,
    /// Whether the driver-monitoring set must be there.
    pub driver_monitoring: bool,
    /// What a release for devices must have shown there.
    pub proof: ReleaseProof,
}

/// One artifact as it is published.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ReleaseArtifact {
    /// The model, by release ID.
    pub id: ModelId,
    /// The whole artifact's file name.
    pub filename: String,
    /// Its size in bytes.
    pub size: u64,
    /// Its SHA-256.
    pub sha256: Sha256Digest,
    /// Its parts; empty where it is published whole.
    pub parts: Vec<Part>,
}

/// What the gate found.
#[derive(Debug, Clone, Serialize)]
pub struct GateReport {
    /// The namespace.
    pub version: ManifestVersion,
    /// Everything that forbids publishing.
    pub problems: Vec<GateProblem>,
    /// What a person should know.
    pub notes: Vec<Note>,
    /// The artifacts of the manifest's entries that are complete, in the manifest's order.
    pub artifacts: Vec<ReleaseArtifact>,
    #[serde(skip)]
    manifest: Manifest,
}

impl GateReport {
    /// The release, where nothing forbids it.
    ///
    /// # Errors
    /// The report itself, where there are problems.
    pub fn into_release(self) -> Result<VerifiedRelease, Box<Self>> {
        if self.problems.is_empty() {
            Ok(VerifiedRelease { version: self.version, manifest: self.manifest, artifacts: self.artifacts })
        } else {
            Err(Box::new(self))
        }
    }
}

impl fmt::Display for GateReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.problems.iter().try_for_each(|problem| writeln!(f, "problem: {problem}"))?;
        self.notes.iter().try_for_each(|note| writeln!(f, "note: {note}"))?;
        let files: usize = self.artifacts.iter().map(|artifact| artifact.parts.len().max(1)).sum();
        write!(f, "{} artifacts in {files} files are whole", self.artifacts.len())
    }
}

/// A release whose every file was checked. It is made by the gate alone.
#[derive(Debug, Clone)]
pub struct VerifiedRelease {
    version: ManifestVersion,
    manifest: Manifest,
    artifacts: Vec<ReleaseArtifact>,
}

impl VerifiedRelease {
    /// The namespace.
    pub fn version(&self) -> ManifestVersion {
        self.version
    }

    /// The manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The artifacts, in the manifest's order.
    pub fn artifacts(&self) -> &[ReleaseArtifact] {
        &self.artifacts
    }
}

/// Checks a workspace as a whole. Every file that would be published is read and hashed; `progress` is advanced by the bytes.
///
/// # Errors
/// [`ManifestWorkError`] where the workspace cannot be read at all; everything else is a problem of the report.
pub fn verify_workspace(
    workspace: &Workspace,
    sources: SourceMap,
    options: &GateOptions,
    progress: &dyn Progress,
) -> Result<GateReport, ManifestWorkError> {
    verify_workspace_by(workspace, sources, options, &artifact::inspect, progress)
}

/// Looks at a file without loading it, for what is expected of it. Besides the known tinygrads those of the build records count.
pub type Inspect = dyn Fn(&Utf8Path, &Expectations, &[AbiDescription]) -> Looked;

/// What was seen in a file.
#[derive(Debug, Clone, Default)]
pub struct Looked {
    /// What is wrong with it.
    pub findings: Vec<String>,
    /// The tinygrads that load it: digest to name; `None` where that says nothing of the file.
    pub revisions: Option<BTreeMap<String, String>>,
}

/// As [`verify_workspace`], with another way of looking at artifacts: tests of everything else use files that are none.
///
/// # Errors
/// As [`verify_workspace`].
#[doc(hidden)]
pub fn verify_workspace_by(
    workspace: &Workspace,
    sources: SourceMap,
    options: &GateOptions,
    inspect: &Inspect,
    progress: &dyn Progress,
) -> Result<GateReport, ManifestWorkError> {
    let snapshot = Snapshot::take(workspace, options.version, sources, progress)?;
    let mut report = GateReport {
        version: options.version,
        problems: Vec::new(),
        notes: Vec::new(),
        artifacts: Vec::new(),
        manifest: Manifest::default(),
    };
    if workspace.root().join(JOURNAL_NAME).exists() {
        report.problems.push(GateProblem::Unfinished { path: JOURNAL_NAME.into() });
    }
    let path = format!("manifests/model_names_{}.json", options.version);
    match snapshot.manifest.as_deref().map(Manifest::from_json) {
        None => report.problems.push(GateProblem::NoManifest { path: path.into() }),
        Some(Err(error)) => {
            report.problems.push(GateProblem::InvalidManifest { path: path.into(), why: error.to_string() });
        }
        Some(Ok(manifest)) => report.manifest = manifest,
    }
    let sources = source_ids(&snapshot);
    let released = report.manifest.models.iter().map(|entry| sources.get(entry.id()).unwrap_or(entry.id()));
    let recorded = tinygrad::recorded(workspace, released);
    let gate = Gate { workspace, snapshot: &snapshot, options, progress, inspect, sources, recorded };
    gate.agreement(&mut report);
    let mut loads = Loads::default();
    for entry in &report.manifest.models.clone() {
        gate.check_entry(entry, &mut loads, &mut report)?;
    }
    gate.check_folders(&mut report)?;
    if options.driver_monitoring {
        gate.check_driver_monitoring(&mut loads, &mut report)?;
    }
    tinygrad::check(&loads, &mut report);
    gate.runtime(&mut report);
    gate.checklist(&mut report);
    gate.note_unasked(&mut report);
    Ok(report)
}

/// What the checks share.
pub(crate) struct Gate<'a> {
    workspace: &'a Workspace,
    snapshot: &'a Snapshot,
    options: &'a GateOptions,
    progress: &'a dyn Progress,
    inspect: &'a Inspect,
    /// Release ID to source ID.
    sources: BTreeMap<ModelId, ModelId>,
    /// The tinygrads of the build records.
    recorded: Vec<AbiDescription>,
}

impl Gate<'_> {
    /// The checks that every plan makes, on the workspace as it stands.
    fn agreement(&self, report: &mut GateReport) {
        let pairs: IdMap = self.sources.iter().map(|(release, source)| (source, release)).collect();
        let mut draft = Draft::new(self.snapshot, self.options.version);
        check::release(&mut draft, self.snapshot, &report.manifest, &pairs);
        report
            .problems
            .extend(draft.problems.into_iter().map(|problem| GateProblem::Release { disagreement: problem }));
        // A missing artifact is named below, with what is missing of it.
        report.notes.extend(draft.notes.into_iter().filter(|note| !matches!(note, Note::Missing { .. })));
    }

    /// The record of the artifact with this release ID.
    fn record(&self, id: &ModelId) -> Option<&ArtifactRecord> {
        self.snapshot.record_of_file(id)
    }

    fn source_of<'b>(&'b self, id: &'b ModelId) -> &'b ModelId {
        self.record(id).map(|record| &record.id).or_else(|| self.sources.get(id)).unwrap_or(id)
    }

    fn expected_target(&self, uses_external_gpu: bool) -> Target {
        if uses_external_gpu { Target::ExternalGpu } else { self.snapshot.target }
    }

    fn dir(&self, folder: Folder) -> camino::Utf8PathBuf {
        self.workspace.root().join(folder.as_str())
    }
}

/// Release ID to source ID, by the records, the recorded identities and the ID map.
fn source_ids(snapshot: &Snapshot) -> BTreeMap<ModelId, ModelId> {
    let map = snapshot.id_map.as_deref().and_then(|text| IdMap::from_json(text).ok()).unwrap_or_default();
    let mut sources: BTreeMap<ModelId, ModelId> =
        map.iter().map(|(old, new)| (new.clone(), old.clone())).collect();
    // A model has one release ID: what reconciling gave it takes the place of what the namespace did.
    let mut give = |release: &ModelId, source: &ModelId| {
        sources.retain(|_, known| known != source);
        sources.insert(release.clone(), source.clone());
    };
    for identity in snapshot.identities.entries() {
        give(&identity.release, &identity.source);
    }
    for record in snapshot.records.values() {
        if let Some(release) = &record.release_id {
            give(release, &record.id);
        }
    }
    sources
}
