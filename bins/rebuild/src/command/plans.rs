//! What the commands have in common that change names and manifests: a snapshot, a plan, and its application.

use camino::{Utf8Path, Utf8PathBuf};
use clap::Args;
use console_report::{Console, Exit, Failure};
use durable_fs::Progress;
use model_catalog::{ManifestVersion, ReleaseMap};
use model_manifest::{Additions, ManifestWorkError, Plan, Snapshot};
use rebuild_workspace::EMBEDDED_RELEASE_MAP;

use crate::{cli::CatalogArgs, failure::of_manifest_work, session::Session};

/// The namespace whose release map is built in.
const EMBEDDED_VERSION: ManifestVersion = ManifestVersion::from_number(23);

/// What a namespace has beside its suffix.
#[derive(Debug, Args)]
pub struct MapArgs {
    /// Release IDs that do not follow from the suffix, by source ID [default: source-maps/model_release_map_vN.json, else the
    /// built-in map of v23].
    #[arg(long, value_name = "FILE")]
    release_map: Option<Utf8PathBuf>,
    #[command(flatten)]
    additions: AdditionsArgs,
}

/// What manifests gain.
#[derive(Debug, Args)]
pub struct AdditionsArgs {
    /// Models that manifests gain, by version [default: the built-in ones].
    #[arg(long, value_name = "FILE")]
    additions: Option<Utf8PathBuf>,
}

impl MapArgs {
    /// The release IDs of recovered sources. Those of one namespace mean nothing in another.
    pub fn releases(&self, session: &Session<'_>, version: ManifestVersion) -> Result<ReleaseMap, Failure> {
        let own = session.workspace.source_maps_dir().join(format!("model_release_map_{version}.json"));
        let (text, place) = match &self.release_map {
            Some(path) => (read(path)?, path.to_string()),
            None if own.exists() => (read(&own)?, own.to_string()),
            None if version == EMBEDDED_VERSION => {
                (EMBEDDED_RELEASE_MAP.to_owned(), "the built-in map".to_owned())
            }
            None => {
                session.console.note(&format!(
                    "there is no release map of {version} (--release-map, {own}): every model gets its ID by the suffix"
                ));
                return Ok(ReleaseMap::default());
            }
        };
        ReleaseMap::from_json(&text)
            .map_err(|error| Failure::new(Exit::Usage, format!("{place} is no release map")).because(&error))
    }

    /// The models that manifests gain.
    pub fn additions(&self) -> Result<Additions, Failure> {
        self.additions.load()
    }
}

impl AdditionsArgs {
    /// The models that manifests gain.
    pub fn load(&self) -> Result<Additions, Failure> {
        let Some(path) = &self.additions else {
            return Additions::embedded()
                .map_err(|error| of_manifest_work("the built-in additions are not valid", &error));
        };
        Additions::from_json(&read(path)?)
            .map_err(|error| Failure::new(Exit::Usage, format!("{path} has no additions")).because(&error))
    }
}

fn read(path: &Utf8Path) -> Result<String, Failure> {
    std::fs::read_to_string(path)
        .map_err(|error| Failure::new(Exit::Usage, format!("{path} cannot be read")).because(&error))
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
