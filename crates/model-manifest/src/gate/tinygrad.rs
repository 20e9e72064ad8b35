//! Whether one tinygrad loads everything that is released. A device has one: an artifact of another one does not load there, or
//! loads and computes something else.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use artifact_pickle::{AbiDescription, AbiRecord, Verdict};
use camino::{Utf8Path, Utf8PathBuf};
use model_catalog::ModelId;
use rebuild_workspace::{BuildRecord, Workspace};
use serde_json::{Map, Value};

use super::{DRIVER_MONITORING_RECORD, GateProblem, GateReport};

/// The revisions that load a file as it is meant: digest to name.
pub(super) type Revisions = BTreeMap<String, String>;

/// The revisions of a file's verdict; `None` where it holds no jit.
pub(super) fn revisions_of(verdict: &Verdict) -> Option<Revisions> {
    let abi = verdict.inspection.abi.as_ref()?;
    Some(abi.fitting().map(|fits| (fits.digest.clone(), fits.tinygrad.clone())).collect())
}

/// The tinygrads of the build records, each once: a device's may be one that nothing else knows. A record that lacks its
/// tinygrad or is damaged adds none: its artifact must then fit a known one.
pub(super) fn recorded<'i>(
    workspace: &Workspace,
    sources: impl Iterator<Item = &'i ModelId>,
) -> Vec<AbiDescription> {
    let of = |build: &Map<String, Value>| AbiRecord::of_build(build).ok()??.description();
    let models = sources.filter_map(|id| of(&workspace.record::<BuildRecord>(id).ok()??.provenance));
    let monitoring = fs::read_to_string(workspace.driver_monitoring_dir().join(DRIVER_MONITORING_RECORD));
    let monitoring = monitoring.ok().and_then(|text| of(&serde_json::from_str(&text).ok()?));
    let by_digest: BTreeMap<String, AbiDescription> =
        models.chain(monitoring).map(|abi| (abi.digest().to_string(), abi)).collect();
    by_digest.into_values().collect()
}

/// What loads which file. Files that no revision loads are problems of their own.
#[derive(Debug, Clone, Default)]
pub(super) struct Loads(Vec<(Utf8PathBuf, Revisions)>);

impl Loads {
    pub(super) fn add(&mut self, path: &Utf8Path, revisions: Option<Revisions>) {
        if let Some(revisions) = revisions.filter(|revisions| !revisions.is_empty()) {
            self.0.push((path.to_owned(), revisions));
        }
    }

    fn problem(&self) -> Option<GateProblem> {
        let digests = |revisions: &Revisions| revisions.keys().cloned().collect::<BTreeSet<_>>();
        let mut common = digests(&self.0.first()?.1);
        for (_, revisions) in &self.0 {
            common = common.intersection(&digests(revisions)).cloned().collect();
        }
        if !common.is_empty() {
            return None;
        }
        let mut by_revisions: BTreeMap<String, Vec<Utf8PathBuf>> = BTreeMap::new();
        for (path, revisions) in &self.0 {
            let names: Vec<&str> = revisions.values().map(String::as_str).collect();
            by_revisions.entry(format!("tinygrad {}", names.join(" or "))).or_default().push(path.clone());
        }
        Some(GateProblem::TinygradMixed { revisions: by_revisions })
    }
}

/// Adds the problem, where there is one.
pub(super) fn check(loads: &Loads, report: &mut GateReport) {
    report.problems.extend(loads.problem());
}
