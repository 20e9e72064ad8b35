//! The driver-monitoring set: four files of one build. It is checked here and goes into the device tree, not into the
//! resource repository.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use artifact_pickle::{Expectations, InspectOptions, Verdict};
use camino::{Utf8Path, Utf8PathBuf};
use durable_fs::hash_file;
use model_catalog::{DmFile, Sha256Digest, Target};
use serde::Deserialize;

use super::{
    Gate, GateProblem, GateReport,
    tinygrad::{Loads, revisions_of},
};
use crate::ManifestWorkError;

/// The build record that the compiler writes beside the files, in the same step.
pub const DRIVER_MONITORING_RECORD: &str = "dmonitoring_model_build.json";

/// What of the build record says whether the files are of one build.
#[derive(Debug, Deserialize)]
struct BuildRecord {
    target: Target,
    files: Vec<BuiltFile>,
}

#[derive(Debug, Deserialize)]
struct BuiltFile {
    file: String,
    sha256: Sha256Digest,
}

impl Gate<'_> {
    pub(super) fn check_driver_monitoring(
        &self,
        loads: &mut Loads,
        report: &mut GateReport,
    ) -> Result<(), ManifestWorkError> {
        let dir = self.workspace.driver_monitoring_dir();
        let (present, missing): (Vec<String>, Vec<String>) =
            DmFile::ALL.iter().map(ToString::to_string).partition(|name| dir.join(name).is_file());
        if !missing.is_empty() {
            report.problems.push(GateProblem::DriverMonitoringIncomplete { missing });
        }
        let mut digests = BTreeMap::new();
        for name in &present {
            digests.insert(name.clone(), hash_file(&dir.join(name), self.progress)?.0);
        }
        self.check_dm_build(&dir, &digests, report);
        self.dm_validation(&digests, report);
        self.inspect_dm(&dir, &present, loads, report);
        Ok(())
    }

    /// Whether the files are those of the build record: that they are of one build.
    fn check_dm_build(
        &self,
        dir: &Utf8Path,
        present: &BTreeMap<String, Sha256Digest>,
        report: &mut GateReport,
    ) {
        if present.is_empty() {
            return;
        }
        let record = match read_record(&dir.join(DRIVER_MONITORING_RECORD)) {
            Ok(record) => record,
            Err(why) => {
                let path = relative(DRIVER_MONITORING_RECORD);
                report.problems.push(GateProblem::DriverMonitoringRecord { path, why });
                return;
            }
        };
        if record.target != self.snapshot.target {
            let why = format!(
                "it is of a build for {}; the workspace's target is {}",
                record.target, self.snapshot.target
            );
            let path = relative(DRIVER_MONITORING_RECORD);
            report.problems.push(GateProblem::DriverMonitoringRecord { path, why });
        }
        for (name, actual) in present {
            let recorded = record.files.iter().find(|built| built.file == *name).map(|built| built.sha256);
            let why = match recorded {
                Some(recorded) if recorded == *actual => continue,
                Some(recorded) => format!("{name} has SHA-256 {actual}; the build made {recorded}"),
                None => format!("{name} is not in the build record"),
            };
            report.problems.push(GateProblem::DriverMonitoringMixed { why });
        }
    }

    fn inspect_dm(&self, dir: &Utf8Path, present: &[String], loads: &mut Loads, report: &mut GateReport) {
        let options = InspectOptions { also: self.recorded.clone(), ..InspectOptions::default() };
        // The tinygrad revisions that would load each jit as it is meant: jits of one build share one.
        let mut revisions: Option<BTreeSet<String>> = None;
        for name in present {
            let path = relative(name);
            let expected = Expectations::of_file_name(name, Some(self.snapshot.target));
            match artifact_pickle::verify(&dir.join(name), &options, &expected) {
                Err(error) => {
                    report.problems.push(GateProblem::Inspection { path, finding: error.to_string() })
                }
                Ok(verdict) => {
                    report.problems.extend(verdict.errors().map(|error| GateProblem::Inspection {
                        path: path.clone(),
                        finding: error.to_string(),
                    }));
                    narrow(&mut revisions, &verdict);
                    loads.add(&path, revisions_of(&verdict));
                }
            }
        }
        if revisions.is_some_and(|revisions| revisions.is_empty()) {
            let why = "no known or recorded tinygrad loads all of them".to_owned();
            report.problems.push(GateProblem::DriverMonitoringMixed { why });
        }
    }
}

/// Leaves the revisions that load this jit too.
fn narrow(revisions: &mut Option<BTreeSet<String>>, verdict: &Verdict) {
    let Some(abi) = &verdict.inspection.abi else { return };
    let fitting: BTreeSet<String> = abi.fitting().map(|fits| fits.tinygrad.clone()).collect();
    *revisions = Some(match revisions.take() {
        None => fitting,
        Some(before) => before.intersection(&fitting).cloned().collect(),
    });
}

fn relative(name: &str) -> Utf8PathBuf {
    Utf8Path::new("driver-monitoring").join(name)
}

fn read_record(path: &Utf8Path) -> Result<BuildRecord, String> {
    let text = fs::read_to_string(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => {
            "it does not exist, so nothing says that the files are of one build".to_owned()
        }
        _ => error.to_string(),
    })?;
    serde_json::from_str(&text).map_err(|error| format!("it is no build record: {error}"))
}
