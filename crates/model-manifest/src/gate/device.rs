//! What only a device can say of a release: soaks, the driver-monitoring set's runs, the runtime, the checks of a person.

use std::collections::BTreeMap;

use camino::Utf8PathBuf;
use device_validate::{
    DmValidationRecord,
    checklist::ChecklistRecord,
    dm_id,
    runtime::{Candidate, Role, RuntimeRecord},
};
use model_catalog::{CAMERAS, Camera, InputFormat, ManifestEntry, ModelId, Sha256Digest, Target};
use rebuild_workspace::ValidationRecord;
use serde_json::{Map, Value};

use super::{Gate, GateProblem, GateReport};
use crate::Note;

const SECONDS_PER_MINUTE: f64 = 60.0;

impl Gate<'_> {
    /// Whether this release goes to devices: one for this machine's own CPU is for trying things out.
    fn is_for_devices(&self) -> bool {
        self.snapshot.target != Target::Cpu
    }

    /// The soak that every validation needs, in seconds; none where 0.
    fn wanted_soak(&self) -> f64 {
        if self.is_for_devices() { self.options.proof.soak_minutes * SECONDS_PER_MINUTE } else { 0.0 }
    }

    /// Says what is not asked for, so that nobody takes a pass for more than it is.
    pub(super) fn note_unasked(&self, report: &mut GateReport) {
        let proof = &self.options.proof;
        let mut unasked = Vec::new();
        let mut note = |asked: bool, what: &str| {
            if !(asked && self.is_for_devices()) {
                unasked.push(what.to_owned());
            }
        };
        note(proof.soak_minutes > 0.0, "a soak of every artifact");
        note(self.options.driver_monitoring, "the driver-monitoring set's validation");
        note(proof.runtime, "a drive of representative models on the device's runtime");
        note(proof.checklist, "the checks of a person");
        if !unasked.is_empty() {
            let why = if self.is_for_devices() {
                "by the command or by [release] of rebuild.toml".to_owned()
            } else {
                format!("the target is {}", self.snapshot.target)
            };
            report.notes.push(Note::Unasked { what: unasked, why });
        }
    }

    /// Whether a validation that passed went on for long enough.
    pub(super) fn soak(&self, id: &ModelId, record: &ValidationRecord, report: &mut GateReport) {
        let (soaked, wanted) = (soaked_seconds(&record.extra), self.wanted_soak());
        if soaked < wanted {
            report.problems.push(GateProblem::NotSoaked {
                id: id.clone(),
                source_id: record.id.clone(),
                soaked_seconds: soaked as u64,
                wanted_seconds: wanted.ceil() as u64,
            });
        }
    }

    /// Whether the driver-monitoring set that is there is the one that ran and passed.
    pub(super) fn dm_validation(&self, files: &BTreeMap<String, Sha256Digest>, report: &mut GateReport) {
        if !self.is_for_devices() || files.is_empty() {
            return;
        }
        let wanted = self.wanted_soak();
        let why = match self.workspace.record::<DmValidationRecord>(&dm_id()) {
            Err(error) => error.to_string(),
            Ok(None) => "there is no record of one".to_owned(),
            Ok(Some(record)) if record.files != *files => {
                let others: Vec<&str> = files
                    .iter()
                    .filter(|(name, sha256)| record.files.get(*name) != Some(*sha256))
                    .map(|(name, _)| name.as_str())
                    .collect();
                format!("the one recorded is of another {}", others.join(", "))
            }
            Ok(Some(record)) if !record.passed() => {
                "it did not pass; see the verdicts of its record".to_owned()
            }
            Ok(Some(record)) if soaked_seconds(&record.extra) < wanted => {
                format!("it soaked for {:.0} s; {wanted:.0} s are asked for", soaked_seconds(&record.extra))
            }
            Ok(Some(_)) => return,
        };
        let soak =
            if wanted > 0.0 { format!(" --soak {}", self.options.proof.soak_minutes) } else { String::new() };
        report.problems.push(GateProblem::DriverMonitoringNotValidated { why, soak });
    }

    /// Whether the models that stand for the release were seen to drive.
    pub(super) fn runtime(&self, report: &mut GateReport) {
        if !(self.is_for_devices() && self.options.proof.runtime) {
            return;
        }
        let candidates: Vec<Candidate> =
            report.manifest.models.iter().map(|entry| self.candidate(entry)).collect();
        for role in Role::ALL {
            let mut first_problem = None;
            let mut fitting = candidates.iter().filter(|candidate| role.fits(candidate));
            let driven = fitting.find_map(|candidate| match self.drive(&candidate.id) {
                Ok(unseen) => Some((candidate.id.clone(), unseen)),
                Err(why) => {
                    first_problem.get_or_insert((candidate.id.clone(), why));
                    None
                }
            });
            match (driven, first_problem) {
                // A device has one resolution: what no device of this workspace has is for a person to know.
                (Some((id, cameras)), _) if !cameras.is_empty() => {
                    report.notes.push(Note::CamerasUnseen { id, cameras });
                }
                (None, Some((source_id, why))) => {
                    let role = role.to_string();
                    report.problems.push(GateProblem::NotDriven { source_id, role, why });
                }
                _ => {}
            }
        }
    }

    /// The cameras with which a model was not seen to drive; an error says why no drive of it counts.
    fn drive(&self, source_id: &ModelId) -> Result<Vec<Camera>, String> {
        let record = self.workspace.record::<RuntimeRecord>(source_id).map_err(|error| error.to_string())?;
        let record = record.ok_or("there is no record of a drive")?;
        let artifact = self.snapshot.records.get(source_id);
        if artifact.is_none_or(|known| known.sha256 != record.artifact_sha256) {
            return Err("another artifact of it drove".to_owned());
        }
        let failed: Vec<&str> =
            record.runs.iter().filter(|(_, run)| !run.passed).map(|(camera, _)| camera.as_str()).collect();
        if !failed.is_empty() {
            return Err(format!("it did not drive with the camera {}", failed.join(", ")));
        }
        let unseen = record.cameras_missing();
        if unseen.len() == CAMERAS.len() {
            return Err("the camera that it drove with is not known".to_owned());
        }
        Ok(unseen)
    }

    fn candidate(&self, entry: &ManifestEntry) -> Candidate {
        let id = self.source_of(entry.id()).clone();
        let source = self.snapshot.sources.entries.get(&id);
        Candidate {
            version: entry.version().ok().flatten(),
            input_format: source.map_or(InputFormat::Split, |source| source.input_format),
            uses_external_gpu: entry.uses_external_gpu().unwrap_or(false),
            id,
        }
    }

    /// Whether a person has seen everything that no program can see.
    pub(super) fn checklist(&self, report: &mut GateReport) {
        if !(self.is_for_devices() && self.options.proof.checklist) {
            return;
        }
        let path = ChecklistRecord::file(self.workspace, self.options.version);
        let path: Utf8PathBuf =
            path.strip_prefix(self.workspace.root()).map_or_else(|_| path.clone(), ToOwned::to_owned);
        let why = match ChecklistRecord::load(self.workspace, self.options.version) {
            Err(error) => error.to_string(),
            Ok((_, true)) => "its answers are about another manifest".to_owned(),
            Ok((record, false)) => {
                let state = record.state();
                match (state.failed.as_slice(), state.open.len()) {
                    ([], 0) => return,
                    ([], open) => format!("{open} checks are open"),
                    (failed, _) => format!("{} failed", failed.join(", ")),
                }
            }
        };
        report.problems.push(GateProblem::Checklist { path, why });
    }
}

/// How long a validation soaked; its record has nothing where it did not.
fn soaked_seconds(fields: &Map<String, Value>) -> f64 {
    fields.get("soak_minutes").and_then(Value::as_f64).unwrap_or_default() * SECONDS_PER_MINUTE
}
