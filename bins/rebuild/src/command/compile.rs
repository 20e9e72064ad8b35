//! `rebuild compile`.

use std::{num::NonZeroUsize, sync::atomic::Ordering};

use artifact_parts::PartLimit;
use camino::Utf8PathBuf;
use clap::Args;
use console_report::{Console, Exit, Failure, seconds_text, size_text};
use model_catalog::{ImageHistoryPipeline, Manifest, Target};
use rebuild_workspace::version_of;
use remote_compile::{
    adopt,
    catalog::{
        Action, CatalogEvent, CatalogModel, CatalogOptions, ModelOutcome, Outcome, PlannedModel, RunSummary,
        compile_catalog, needs_device, plan_catalog,
    },
    home::PartRule,
    supervise::REFUSED,
};
use serde_json::json;

use crate::{
    cli::{Cli, DeviceArgs, ModelArgs},
    device::{allowed, connect, may_hold_jobs},
    failure::{of_catalog, of_models, of_parts},
    selection::{Selected, select},
    session::Session,
    stages::Stages,
};

/// Compiles the models whose artifacts are not what would be built now, brings the artifacts home, and puts them into
/// ready-for-resources/, in parts where they are over the limit.
#[derive(Debug, Args)]
pub struct CompileArgs {
    /// What to work on.
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    /// Where to work.
    #[command(flatten)]
    device: DeviceArgs,
    /// What to compile for: qcom, external-gpu or cpu [default: `target` of rebuild.toml, else qcom].
    #[arg(long, value_name = "TARGET")]
    target: Option<Target>,
    /// Where artifacts keep the history of camera images: policy or warp.
    #[arg(long, value_name = "PIPELINE")]
    image_history_pipeline: Option<ImageHistoryPipeline>,
    /// Build again what only an older driver or tinygrad makes outdated.
    #[arg(long)]
    outdated: bool,
    /// Which compiler to use on the device: auto, tree or embedded.
    #[arg(long, value_name = "WHICH", value_parser = ["auto", "tree", "embedded"])]
    toolchain: Option<String>,
    /// The device's Python, with tinygrad and numpy [default: `python` of rebuild.toml, else the device's own].
    #[arg(long, value_name = "FILE")]
    python: Option<Utf8PathBuf>,
    /// Models at a time whose files are hashed, inspected and split here, beside what the device compiles.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=64))]
    jobs: u8,
}

pub fn run(args: &CompileArgs, cli: &Cli, console: &Console) -> Result<(), Failure> {
    let session = Session::for_run(cli, console, "rebuild compile", args.model.dry_run)?;
    let device = allowed(&session, &args.device)?;
    let options = options(&session, args)?;
    let map = session.source_map(&args.model.catalog)?;
    let base = session.base_manifest(&args.model.catalog)?;
    let models = select(&session.workspace, &map, &args.model.models)?;
    warn_of_versions(console, base.as_ref(), &models);
    let models = models.into_iter().map(|model| catalog_model(model, base.as_ref())).collect();
    let plan = plan_catalog(&session.workspace, models, &options, console);
    if args.model.dry_run {
        return show_plan(&plan, console);
    }
    let needed = needs_device(&plan) || may_hold_jobs(&session, &device);
    let device = if needed { Some(connect(&session, &device)?) } else { None };
    let mut stages = Stages::default();
    let summary = compile_catalog(
        &session.workspace,
        device.as_deref(),
        plan,
        &options,
        (console, &session.interrupt),
        &mut |event| show(console, &mut stages, &event),
    )
    .map_err(|error| of_catalog("the catalog was not compiled", error))?;
    finish(&session, &summary)
}

fn options(session: &Session<'_>, args: &CompileArgs) -> Result<CatalogOptions, Failure> {
    let config = &session.config;
    let limit = PartLimit::from_bytes(config.part_limit())
        .map_err(|error| of_parts("the part limit of rebuild.toml is not possible", &error))?;
    let python = args.python.clone().or_else(|| config.python.as_ref().map(|path| session.configured(path)));
    Ok(CatalogOptions {
        target: args.target.unwrap_or(config.target()),
        image_history_pipeline: args.image_history_pipeline.unwrap_or(config.image_history_pipeline()),
        force: args.model.force,
        outdated: args.outdated,
        parts: PartRule::new(limit),
        python,
        toolchain: args.toolchain.clone(),
        jobs: NonZeroUsize::new(usize::from(args.jobs)).unwrap_or(NonZeroUsize::MIN),
        judge: adopt::inspect,
    })
}

fn catalog_model(model: Selected, base: Option<&Manifest>) -> CatalogModel {
    let version = version_of(base, &model.id, model.entry.input_format);
    CatalogModel { id: model.id, entry: model.entry, version, is_named: model.is_named }
}

/// A wrong behaviour version makes a model drive on the wrong contract, so that an unknown one is said.
fn warn_of_versions(console: &Console, base: Option<&Manifest>, models: &[Selected]) {
    let unknown: Vec<&str> = models
        .iter()
        .filter(|model| version_of(base, &model.id, model.entry.input_format).is_none())
        .map(|model| model.id.as_str())
        .collect();
    match (base, unknown.len()) {
        (_, 0) => {}
        (None, _) => console.warn(
            "no base manifest is given, so behaviour versions are not known; name one with --base-manifest or in rebuild.toml",
        ),
        (Some(_), few) if few <= 6 => {
            console.note(&format!("the base manifest has no version of {}", unknown.join(", ")));
        }
        (Some(_), many) => console.note(&format!("the base manifest has no version of {many} models")),
    }
}

fn action_text(action: &Action) -> (&'static str, String) {
    match action {
        Action::Wait => ("waiting", "nothing is extracted yet".to_owned()),
        Action::Keep { outdated, .. } if outdated.is_empty() => ("current", String::new()),
        Action::Keep { outdated, .. } => {
            let why: Vec<String> = outdated.iter().map(ToString::to_string).collect();
            ("current", format!("outdated: {}", why.join("; ")))
        }
        Action::Adopt { .. } => ("adopt", "found complete, without a record".to_owned()),
        Action::Build { reasons, .. } => ("build", reasons.join("; ")),
        Action::Fail { why, .. } => ("failed", why.clone()),
    }
}

fn show_plan(plan: &[PlannedModel], console: &Console) -> Result<(), Failure> {
    let mut failed = Vec::new();
    for planned in plan {
        let id = &planned.model.id;
        let (action, why) = action_text(&planned.action);
        if action == "failed" {
            failed.push(id.as_str());
        }
        console.result(&json!({"id": id, "action": action, "why": why}), || match why.as_str() {
            "" => format!("{id}: {action}"),
            why => format!("{id}: {action} ({why})"),
        });
    }
    of_models("compiled", &failed, plan.len(), false)
}

fn show(console: &Console, stages: &mut Stages, event: &CatalogEvent<'_>) {
    match event {
        CatalogEvent::Begin { id, number, total, action } => match action {
            Action::Build { reasons, .. } => {
                console.note(&format!("[{number}/{total}] {id}: building, {}", reasons.join("; ")));
            }
            Action::Adopt { .. } => {
                console.note(&format!("[{number}/{total}] {id}: adopting what was found"))
            }
            Action::Wait | Action::Keep { .. } | Action::Fail { .. } => {}
        },
        CatalogEvent::Job { id, event } => stages.show(console, id, event),
        CatalogEvent::End(outcome) => {
            stages.end_of(console, &outcome.id);
            show_outcome(console, outcome);
        }
    }
}

fn show_outcome(console: &Console, outcome: &ModelOutcome) {
    if outcome.outcome == Outcome::Failed {
        let exit = if outcome.environment { Exit::Environment } else { Exit::Failed };
        let failure = Failure::new(exit, format!("{} was not compiled", outcome.id))
            .why(outcome.error.clone().unwrap_or_default())
            .maybe_advice(outcome.hint.clone());
        console.show(&failure);
    }
    if let Some(left) = &outcome.left_on_device {
        console.warn(left);
    }
    // A model that waits says nothing: the summary counts it.
    if console.is_json() || !matches!(outcome.outcome, Outcome::Failed | Outcome::Waiting | Outcome::NotTried)
    {
        console.result(outcome, || line(outcome));
    }
}

fn line(outcome: &ModelOutcome) -> String {
    let word = match outcome.outcome {
        Outcome::Built => "built",
        Outcome::Current if !outcome.outdated.is_empty() => "outdated",
        Outcome::Current => "current",
        Outcome::Adopted => "adopted",
        Outcome::Waiting => "waiting",
        Outcome::Failed => "failed",
        Outcome::NotTried => "not tried",
    };
    let mut text = format!("{}: {word}", outcome.id);
    if let Some(release) = &outcome.release_id {
        text.push_str(&format!(" as {release}"));
    }
    if let Some(size) = outcome.size {
        text.push_str(&format!(", {}", size_text(size)));
    }
    if !outcome.parts.is_empty() {
        text.push_str(&format!(" in {} parts", outcome.parts.len()));
    }
    if let Some(sha256) = outcome.sha256.filter(|_| outcome.outcome == Outcome::Built) {
        text.push_str(&format!(", SHA-256 {}, {}", &sha256.to_string()[..16], seconds_text(outcome.seconds)));
    }
    if !outcome.outdated.is_empty() {
        text.push_str(&format!(" ({}; rebuild with --outdated)", outcome.outdated.join("; ")));
    }
    text
}

/// Leaves the run's record where anything was done, and says how it went.
fn finish(session: &Session<'_>, summary: &RunSummary) -> Result<(), Failure> {
    let count = |outcome| summary.count(outcome);
    let did = count(Outcome::Built) + count(Outcome::Adopted) + count(Outcome::Failed);
    if did > 0 {
        let at = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ");
        let path = session.workspace.logs_dir().join(format!("compile-{at}.json"));
        if let Err(error) = durable_fs::write_json(&path, summary) {
            session.console.warn(&format!("the record of this run could not be written: {error}"));
        }
    }
    let mut text = format!(
        "{} built, {} current, {} adopted, {} failed",
        count(Outcome::Built),
        count(Outcome::Current),
        count(Outcome::Adopted),
        count(Outcome::Failed)
    );
    for (outcome, word) in [(Outcome::Waiting, "not extracted yet"), (Outcome::NotTried, "not tried")] {
        if count(outcome) > 0 {
            text.push_str(&format!(", {} {word}", count(outcome)));
        }
    }
    if !summary.swept.is_empty() {
        session
            .console
            .note(&format!("removed from the device, of earlier runs: {}", summary.swept.join(", ")));
    }
    if let Some(why) = &summary.unswept {
        session.console.warn(&format!("an earlier run may have left jobs on the device: {why}"));
    }
    text.push_str(&format!(
        " in {}, {} moved",
        seconds_text(summary.seconds),
        size_text(summary.moved_bytes())
    ));
    session.console.note(&text);
    if summary.interrupted || session.interrupt.load(Ordering::Relaxed) {
        return session.check_interrupt("the compilation");
    }
    if let Some(refused) = summary.failed().find(|model| model.kind.as_deref() == Some(REFUSED)) {
        return Err(Failure::new(Exit::Refused, "the rest of the catalog was not compiled")
            .why(refused.error.clone().unwrap_or_default())
            .advice("run the same command again when the device may be used; what was built is kept"));
    }
    let failed: Vec<&str> = summary.failed().map(|model| model.id.as_str()).collect();
    of_models("compiled", &failed, summary.models.len(), summary.failed().any(|model| model.environment))
}
