//! The checks of one manifest entry.

use artifact_parts::{KnownParts, PartSet, PartsError};
use artifact_pickle::{AbiDescription, Content, Expectations, InspectOptions};
use camino::Utf8Path;
use durable_fs::{Expected, hash_file};
use model_catalog::{ArtifactName, CAMERAS, ManifestEntry, ModelId, Sha256Digest};
use rebuild_workspace::{FailureRecord, ValidationRecord};
use serde_json::Value;

use super::{
    Gate, GateProblem, GateReport, Looked, ReleaseArtifact,
    tinygrad::{Loads, Revisions, revisions_of},
};
use crate::{Folder, ManifestWorkError};

impl Gate<'_> {
    pub(super) fn check_entry(
        &self,
        entry: &ManifestEntry,
        loads: &mut Loads,
        report: &mut GateReport,
    ) -> Result<(), ManifestWorkError> {
        let id = entry.id();
        let path = Folder::Compiled.file(ArtifactName::new(id.clone()).to_string());
        let file = self.workspace.root().join(&path);
        if !file.is_file() {
            report.problems.push(GateProblem::NoArtifact { id: id.clone(), path });
            return Ok(());
        }
        let (sha256, size) = hash_file(&file, self.progress)?;
        match self.record(id) {
            None => report.problems.push(GateProblem::NoRecord { id: id.clone(), path: path.clone() }),
            Some(record) if record.sha256 != sha256 => report.problems.push(GateProblem::Digest {
                id: id.clone(),
                path: path.clone(),
                expected: record.sha256,
                actual: sha256,
            }),
            Some(_) => {}
        }
        loads.add(&path, self.inspect(entry, &path, &file, report));
        self.validation(id, sha256, report);
        if let Some(artifact) = self.staged(id, Expected::exactly(size, sha256), report)? {
            report.artifacts.push(artifact);
        }
        Ok(())
    }

    /// Returns the tinygrads that load it.
    fn inspect(
        &self,
        entry: &ManifestEntry,
        path: &Utf8Path,
        file: &Utf8Path,
        report: &mut GateReport,
    ) -> Option<Revisions> {
        let target = self.expected_target(entry.uses_external_gpu().unwrap_or(false));
        let expected = Expectations::driving(Some(target), entry.version().ok().flatten());
        let looked = (self.inspect)(file, &expected, &self.recorded);
        let findings = looked.findings.into_iter();
        report
            .problems
            .extend(findings.map(|finding| GateProblem::Inspection { path: path.to_owned(), finding }));
        looked.revisions
    }

    fn validation(&self, id: &ModelId, sha256: Sha256Digest, report: &mut GateReport) {
        let source_id = self.source_of(id).clone();
        if let Ok(Some(failure)) = self.workspace.record::<FailureRecord>(&source_id) {
            report.problems.push(GateProblem::Failed { id: id.clone(), error: failure.error });
        }
        let record = match self.workspace.record::<ValidationRecord>(&source_id) {
            Ok(Some(record)) => record,
            _ => {
                report.problems.push(GateProblem::NotValidated { id: id.clone(), source_id });
                return;
            }
        };
        let validated = record.extra.get("artifact_sha256").and_then(Value::as_str).map(str::to_owned);
        if validated.as_deref() != Some(sha256.to_string().as_str()) {
            report.problems.push(GateProblem::ValidationOfOther { id: id.clone(), source_id, validated });
        } else if let Some(why) = failed_validation(&record) {
            report.problems.push(GateProblem::ValidationFailed { id: id.clone(), why });
        } else {
            self.soak(id, &record, report);
        }
    }

    /// The artifact as it lies in the upload folder.
    fn staged(
        &self,
        id: &ModelId,
        expected: Expected,
        report: &mut GateReport,
    ) -> Result<Option<ReleaseArtifact>, ManifestWorkError> {
        let (Some(size), Some(sha256)) = (expected.size, expected.sha256) else { return Ok(None) };
        let Some(set) = self.snapshot.set(Folder::Ready, id) else {
            report.problems.push(GateProblem::NotStaged { id: id.clone() });
            return Ok(None);
        };
        let filename = ArtifactName::new(id.clone()).to_string();
        let in_parts = !set.parts.is_empty() || set.checksum.is_some();
        let mut artifact = ReleaseArtifact { id: id.clone(), filename, size, sha256, parts: Vec::new() };
        if in_parts {
            if set.whole.is_some() {
                report.problems.push(GateProblem::TwoForms { id: id.clone() });
            }
            let Some(parts) = self.verified_parts(&artifact, expected, report)? else { return Ok(None) };
            self.check_multipart(id, &parts, report);
            artifact.parts = parts.parts;
        } else {
            let path = Folder::Ready.file(&artifact.filename);
            let (actual, _) = hash_file(&self.workspace.root().join(&path), self.progress)?;
            if actual != sha256 {
                report.problems.push(GateProblem::Digest { id: id.clone(), path, expected: sha256, actual });
                return Ok(None);
            }
        }
        Ok(Some(artifact))
    }

    fn verified_parts(
        &self,
        artifact: &ReleaseArtifact,
        whole: Expected,
        report: &mut GateReport,
    ) -> Result<Option<PartSet>, ManifestWorkError> {
        let known = KnownParts { whole, ..KnownParts::default() };
        match artifact_parts::verify(&self.dir(Folder::Ready), &artifact.filename, known, self.progress) {
            Ok(set) => Ok(Some(set)),
            Err(PartsError::Fs(error)) => Err(error.into()),
            Err(error) => {
                report.problems.push(GateProblem::Parts { id: artifact.id.clone(), why: error.to_string() });
                Ok(None)
            }
        }
    }

    fn check_multipart(&self, id: &ModelId, set: &PartSet, report: &mut GateReport) {
        let names: Vec<&str> = set.parts.iter().map(|part| part.name.as_str()).collect();
        let why = match self.snapshot.multipart.entries.iter().find(|entry| entry.filename == set.name) {
            None => "it is not there",
            Some(entry) if entry.id != *id => "another ID stands there",
            Some(entry) if entry.sha256 != set.sha256 || entry.size != set.size => "size or SHA-256 differ",
            Some(entry) if entry.parts != names => "the parts differ",
            Some(_) => return,
        };
        report.problems.push(GateProblem::Multipart { id: id.clone(), why: why.to_owned() });
    }
}

/// Looks at an artifact without loading it.
pub(super) fn inspect(file: &Utf8Path, expected: &Expectations, recorded: &[AbiDescription]) -> Looked {
    let options = InspectOptions { also: recorded.to_vec(), ..InspectOptions::default() };
    let verdict = match artifact_pickle::verify(file, &options, expected) {
        Err(error) => return Looked { findings: vec![error.to_string()], revisions: None },
        Ok(verdict) => verdict,
    };
    let mut findings: Vec<String> = verdict.errors().map(ToString::to_string).collect();
    if let Content::Driving(view) = &verdict.inspection.content {
        let present = view.cameras();
        let missing = CAMERAS.into_iter().filter(|camera| !present.contains(camera));
        findings.extend(missing.map(|camera| format!("it has no warp for the camera {camera}")));
    }
    Looked { findings, revisions: revisions_of(&verdict) }
}

/// Why a validation is not a pass. Records of other tools have no verdict; their lists say the same.
fn failed_validation(record: &ValidationRecord) -> Option<String> {
    if !record.missing.is_empty() {
        return Some(format!("outputs are missing: {}", record.missing.join(", ")));
    }
    if !record.non_finite.is_empty() {
        return Some(format!("outputs are not finite: {}", record.non_finite.join(", ")));
    }
    if !record.has_control_output {
        return Some("it has no output that controls the car".to_owned());
    }
    match record.extra.get("passed") {
        Some(Value::Bool(false)) => Some("see the verdicts of its record".to_owned()),
        _ => None,
    }
}
