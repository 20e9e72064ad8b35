//! What the commands have in common that change names and manifests: a snapshot, a plan, and its application.

use console_report::{Console, Exit, Failure};
use durable_fs::Progress;
use model_catalog::{ManifestVersion, ReleaseMap};
use model_manifest::{Additions, ManifestWorkError, Plan, Snapshot};
use rebuild_workspace::EMBEDDED_RELEASE_MAP;

use crate::{cli::CatalogArgs, failure::of_manifest_work, session::Session};

/// The release map of recovered sources.
pub fn releases() -> Result<ReleaseMap, Failure> {
    ReleaseMap::from_json(EMBEDDED_RELEASE_MAP)
        .map_err(|error| Failure::new(Exit::Failed, "the built-in release map is not valid").because(&error))
}

/// The models that manifests gain.
pub fn additions() -> Result<Additions, Failure> {
    Additions::embedded().map_err(|error| of_manifest_work("the built-in additions are not valid", &error))
}

/// Everything that a plan is computed from.
pub fn snapshot(
    session: &Session<'_>,
    version: ManifestVersion,
    catalog: &CatalogArgs,
) -> Result<Snapshot, Failure> {
    let sources = session.source_map(catalog)?;
    session.console.begin("looking at the artifacts", None);
    let snapshot = Snapshot::take(&session.workspace, version, sources, session.console);
    session.console.end();
    snapshot.map_err(|error| of_manifest_work("the workspace cannot be read", &error))
}

/// Shows a plan and, unless it is a dry run, applies it.
pub fn carry_out(
    session: &Session<'_>,
    plan: Result<Plan, ManifestWorkError>,
    dry_run: bool,
) -> Result<(), Failure> {
    let plan = plan.map_err(|error| of_manifest_work("nothing was changed", &error))?;
    show(session.console, &plan);
    if !plan.problems.is_empty() {
        let many = plan.problems.len();
        let what = format!(
            "{}: {many} {} in the way; nothing was changed",
            plan.title,
            if many == 1 { "problem stands" } else { "problems stand" }
        );
        return Err(
            Failure::new(Exit::Failed, what).advice("put right what stands above and run the command again")
        );
    }
    if dry_run {
        return Ok(());
    }
    plan.apply(&session.workspace).map_err(|error| of_manifest_work("the plan was not carried out", &error))
}

fn show(console: &Console, plan: &Plan) {
    console.result(plan, || plan.to_string().trim_end().to_owned());
}
