//! The driver-monitoring set: four files of one build. It is checked here and goes into the device tree, not into the
//! resource repository.

use std::collections::BTreeSet;

use artifact_pickle::{Expectations, FileKind, InspectOptions};

use super::{Gate, GateProblem, GateReport};
use crate::ManifestWorkError;

/// The four files and what each of them is.
const FILES: [(&str, FileKind); 4] = [
    ("dmonitoring_model_tinygrad.pkl", FileKind::Jit),
    ("dmonitoring_model_metadata.pkl", FileKind::Metadata),
    ("dm_warp_1928x1208_tinygrad.pkl", FileKind::Jit),
    ("dm_warp_1344x760_tinygrad.pkl", FileKind::Jit),
];

impl Gate<'_> {
    pub(super) fn check_driver_monitoring(&self, report: &mut GateReport) -> Result<(), ManifestWorkError> {
        let dir = self.workspace.driver_monitoring_dir();
        let missing: Vec<String> = FILES
            .iter()
            .filter(|(name, _)| !dir.join(name).is_file())
            .map(|(name, _)| (*name).to_owned())
            .collect();
        if !missing.is_empty() {
            report.problems.push(GateProblem::DriverMonitoringIncomplete { missing });
        }
        // The tinygrad revisions that would load each jit as it is meant: jits of one build share one.
        let mut revisions: Option<BTreeSet<String>> = None;
        for (name, kind) in FILES {
            let file = dir.join(name);
            if !file.is_file() {
                continue;
            }
            let path = camino::Utf8Path::new("driver-monitoring").join(name);
            let target = (kind == FileKind::Jit).then_some(self.snapshot.target);
            let expected = Expectations { target, behavior_version: None, kind: Some(kind) };
            match artifact_pickle::verify(&file, &InspectOptions::default(), &expected) {
                Err(error) => {
                    report.problems.push(GateProblem::Inspection { path, finding: error.to_string() })
                }
                Ok(verdict) => {
                    let finding = |error: &artifact_pickle::Finding| GateProblem::Inspection {
                        path: path.clone(),
                        finding: error.to_string(),
                    };
                    report.problems.extend(verdict.errors().map(finding));
                    if let Some(abi) = &verdict.inspection.abi {
                        let fitting: BTreeSet<String> =
                            abi.fitting().map(|fits| fits.tinygrad.clone()).collect();
                        revisions = Some(match revisions {
                            None => fitting,
                            Some(before) => before.intersection(&fitting).cloned().collect(),
                        });
                    }
                }
            }
        }
        if revisions.is_some_and(|revisions| revisions.is_empty()) {
            let why = "no known tinygrad revision loads all of them".to_owned();
            report.problems.push(GateProblem::DriverMonitoringMixed { why });
        }
        Ok(())
    }
}
