//! `rebuild extract`.

use std::{fs, time::Instant};

use camino::{Utf8Path, Utf8PathBuf};
use clap::Args;
use console_report::{Console, Exit, Failure, seconds_text, size_text};
use durable_fs::FsError;
use lfs_extract::{
    ByteSource, ExtractError, ExtractedFile, MissingObject, ModelPlan, Preview, Sources, Watch,
};
use model_catalog::{ComponentFile, Manifest, ModelId, SourceEntry, SourceMap};
use onnx_source::OnnxModel;
use rebuild_workspace::{FailureRecord, SourceFile, SourceRecord, SourceState, Stage, Stamp, source_state};
use serde::Serialize;
use serde_json::{Map, json};

use crate::{
    cli::{Cli, ModelArgs},
    failure::{exit_of_extract, exit_of_fs, of_models, of_workspace},
    network::{Wishes, sources_options},
    selection::{Selected, select},
    session::{Session, at_home},
};

/// Gets the sources of each model out of the clone; those that are complete and of the right ref are left alone.
#[derive(Debug, Args)]
pub struct ExtractArgs {
    /// What to work on.
    #[command(flatten)]
    model: ModelArgs,
    /// The openpilot clone [default: `openpilot` of rebuild.toml, else ~/openpilot].
    #[arg(long, value_name = "DIR")]
    openpilot: Option<Utf8PathBuf>,
    /// Downloads at a time.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=64))]
    jobs: u8,
    /// Ask no server: what is not on this machine fails.
    #[arg(long)]
    offline: bool,
}

/// Models whose objects are fetched together before they are extracted: much of what they share is fetched once, and a
/// stop loses little.
const GROUP: usize = 8;

pub fn run(args: &ExtractArgs, cli: &Cli, console: &Console) -> Result<(), Failure> {
    let session = Session::for_run(cli, console, "rebuild extract", args.model.dry_run)?;
    let map = session.source_map(&args.model.catalog)?;
    // Not needed for sources; a manifest that is not valid is better known before hours of work than after.
    if let Some(manifest) = session.base_manifest(&args.model.catalog)? {
        report_differences(console, &map, &manifest);
    }
    let models = select(&session.workspace, &map, &args.model.models)?;
    let path = clone_path(&session, args);
    let mut extraction = Extraction {
        path,
        sources: None,
        session,
        args,
        counts: [0; 2],
        failed: Vec::new(),
        environment: false,
    };
    let started = Instant::now();
    let outdated = extraction.outdated(&models)?;
    if args.model.dry_run {
        extraction.preview(outdated)?;
    } else {
        let planned = extraction.plan(outdated)?;
        extraction.extract_all(planned)?;
    }
    let [extracted, current] = extraction.counts;
    console.note(&format!(
        "{extracted} {}, {current} current, {} failed in {}",
        if args.model.dry_run { "to extract" } else { "extracted" },
        extraction.failed.len(),
        seconds_text(started.elapsed().as_secs_f64())
    ));
    let failed: Vec<&str> = extraction.failed.iter().map(ModelId::as_str).collect();
    of_models("extracted", &failed, models.len(), extraction.environment)
}

/// Models that only one of source map and manifest knows.
fn report_differences(console: &Console, map: &SourceMap, manifest: &Manifest) {
    let unlisted = map.entries.keys().filter(|id| manifest.get(id).is_none());
    let sourceless =
        manifest.models.iter().map(|entry| entry.id()).filter(|id| !map.entries.contains_key(*id));
    for (ids, what) in [
        (unlisted.collect::<Vec<_>>(), "in the source map and not in the base manifest"),
        (sourceless.collect(), "in the base manifest and not in the source map"),
    ] {
        if !ids.is_empty() {
            let names: Vec<&str> = ids.iter().map(|id| id.as_str()).collect();
            console.note(&format!("{what}: {}", names.join(", ")));
        }
    }
}

fn clone_path(session: &Session<'_>, args: &ExtractArgs) -> Utf8PathBuf {
    match (&args.openpilot, &session.config.openpilot) {
        (Some(path), _) => at_home(path),
        (None, Some(path)) => session.configured(path),
        (None, None) => at_home(Utf8Path::new("~/openpilot")),
    }
}

struct Extraction<'a> {
    session: Session<'a>,
    args: &'a ExtractArgs,
    path: Utf8PathBuf,
    // Opened when the first model needs them: a rerun with nothing to do needs no clone.
    sources: Option<Sources>,
    // Extracted (or to extract), and current.
    counts: [usize; 2],
    failed: Vec<ModelId>,
    environment: bool,
}

/// A model that is not current, and why.
struct Outdated<'m> {
    model: &'m Selected,
    reason: String,
}

/// What became of one model.
#[derive(Debug, Serialize)]
struct Extracted {
    id: model_catalog::ModelId,
    outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    commit: Option<String>,
    files: Vec<serde_json::Value>,
    size: u64,
    /// Bytes that a run would take from servers.
    #[serde(skip_serializing_if = "Option::is_none")]
    to_download: Option<u64>,
    /// Git objects that a run would fetch before it is known what else it takes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    git_objects: Vec<serde_json::Value>,
}

impl Extracted {
    fn line(&self) -> String {
        if !self.git_objects.is_empty() {
            return self.lacking_line();
        }
        let files = if self.files.len() == 1 { "file" } else { "files" };
        let mut line =
            format!("{}: {}, {} {files}, {}", self.id, self.outcome, self.files.len(), size_text(self.size));
        if let Some(commit) = &self.commit {
            line.push_str(&format!(", commit {}", &commit[..commit.len().min(12)]));
        }
        if let Some(bytes) = self.to_download.filter(|bytes| *bytes > 0) {
            line.push_str(&format!(", {} of it from servers", size_text(bytes)));
        }
        if let Some(reason) = self.reason.as_ref().filter(|_| self.outcome != "current") {
            line.push_str(&format!(" ({reason})"));
        }
        for file in self.to_download.iter().flat_map(|_| &self.files) {
            let text = |key: &str| file[key].as_str().unwrap_or_default().to_owned();
            let size = size_text(file["size"].as_u64().unwrap_or(0));
            line.push_str(&format!("\n  {}: {size}, {}", text("git_path"), text("source")));
        }
        line
    }

    fn lacking_line(&self) -> String {
        let reason = self.reason.as_deref().unwrap_or_default();
        let mut line = format!(
            "{}: {} after git objects that the clone lacks are fetched, which say what else it takes ({reason})",
            self.id, self.outcome
        );
        for object in &self.git_objects {
            let text = |key: &str| object[key].as_str().unwrap_or_default().to_owned();
            line.push_str(&format!("\n  git object {}: {}", text("id"), text("what")));
        }
        line
    }
}

/// Why one model was not extracted.
#[derive(Debug)]
enum Refused {
    Extract(ExtractError),
    Workspace(rebuild_workspace::WorkspaceError),
    Options(Failure),
}

impl From<ExtractError> for Refused {
    fn from(error: ExtractError) -> Self {
        Self::Extract(error)
    }
}

impl From<rebuild_workspace::WorkspaceError> for Refused {
    fn from(error: rebuild_workspace::WorkspaceError) -> Self {
        Self::Workspace(error)
    }
}

impl From<FsError> for Refused {
    fn from(error: FsError) -> Self {
        Self::Workspace(error.into())
    }
}

impl Extraction<'_> {
    /// Tells the models that are current from those that are not.
    fn outdated<'m>(&mut self, models: &'m [Selected]) -> Result<Vec<Outdated<'m>>, Failure> {
        let mut outdated = Vec::new();
        for model in models {
            self.session.check_interrupt("the extraction")?;
            match self.state(model) {
                Ok(Ok(done)) => {
                    self.counts[1] += 1;
                    self.session.console.result(&done, || done.line());
                }
                Ok(Err(reason)) => outdated.push(Outdated { model, reason }),
                Err(refused) => self.refuse(model, &refused)?,
            }
        }
        Ok(outdated)
    }

    /// What is recorded of a model that is current, or why it is not.
    fn state(&mut self, model: &Selected) -> Result<Result<Extracted, String>, Refused> {
        // A record that cannot be read is replaced by a new one.
        let record = self.session.workspace.record::<SourceRecord>(&model.id).ok().flatten();
        let commit = if is_full_commit(&model.entry.git_ref) {
            None
        } else {
            let git_ref = model.entry.git_ref.clone();
            Some(self.sources()?.clone_repository().resolve(&git_ref)?.to_string())
        };
        let workspace = &self.session.workspace;
        let state =
            source_state(workspace, record.as_ref(), &model.entry, commit.as_deref(), self.session.console)?;
        Ok(match (state, record) {
            (SourceState::Current, Some(record)) if !self.args.model.force => {
                if !self.args.model.dry_run {
                    workspace.clear_failure(&model.id, Stage::Extract)?;
                }
                Ok(described(&record, "current", None))
            }
            (SourceState::Extract(why), _) => Err(why),
            (SourceState::Current, _) => Err("asked for with --force".to_owned()),
        })
    }

    fn sources(&mut self) -> Result<&mut Sources, Refused> {
        if self.sources.is_none() {
            let wishes = Wishes { jobs: usize::from(self.args.jobs), offline: self.args.offline };
            let options = sources_options(&self.session, &self.path, wishes).map_err(Refused::Options)?;
            self.sources = Some(Sources::open(options)?);
        }
        Ok(self.sources.as_mut().unwrap_or_else(|| unreachable!("it was opened above")))
    }

    /// Finds out where every file of every model comes from; what the clone lacks of git's objects is fetched for that.
    fn plan<'m>(&mut self, outdated: Vec<Outdated<'m>>) -> Result<Vec<(Outdated<'m>, ModelPlan)>, Failure> {
        let (console, interrupt) = (self.session.console, self.session.interrupt.clone());
        self.with_sources(outdated, |sources, wanted| sources.plan(wanted, &Watch::new(console, &interrupt)))
    }

    /// What a dry run shows. It fetches nothing: git objects that are missing are named.
    fn preview(&mut self, outdated: Vec<Outdated<'_>>) -> Result<(), Failure> {
        for (one, preview) in self.with_sources(outdated, |sources, wanted| sources.preview(wanted))? {
            self.counts[0] += 1;
            let done = match preview {
                Preview::Planned(plan) => planned(&plan, one.reason),
                Preview::Fetch(missing) => lacking(&one.model.id, &missing, one.reason),
            };
            self.session.console.result(&done, || done.line());
        }
        Ok(())
    }

    /// Asks the sources about every model; notes those that cannot be extracted.
    fn with_sources<'m, T>(
        &mut self,
        outdated: Vec<Outdated<'m>>,
        ask: impl FnOnce(&mut Sources, &[(ModelId, SourceEntry)]) -> Vec<Result<T, ExtractError>>,
    ) -> Result<Vec<(Outdated<'m>, T)>, Failure> {
        let Some(first) = outdated.first() else { return Ok(Vec::new()) };
        let wanted: Vec<_> =
            outdated.iter().map(|one| (one.model.id.clone(), one.model.entry.clone())).collect();
        let answers = match self.sources() {
            Ok(sources) => ask(sources, &wanted),
            Err(refused) => {
                // Without sources no model can be extracted.
                let failure = self.failed(first.model, &refused)?;
                return Err(failure);
            }
        };
        let mut found = Vec::new();
        for (one, answer) in outdated.into_iter().zip(answers) {
            match answer {
                Ok(answer) => found.push((one, answer)),
                Err(error) => self.refuse(one.model, &error.into())?,
            }
        }
        Ok(found)
    }

    fn extract_all(&mut self, mut planned: Vec<(Outdated<'_>, ModelPlan)>) -> Result<(), Failure> {
        let (console, interrupt) = (self.session.console, self.session.interrupt.clone());
        while !planned.is_empty() {
            let rest = planned.split_off(planned.len().min(GROUP));
            let (group, plans): (Vec<_>, Vec<_>) = std::mem::replace(&mut planned, rest).into_iter().unzip();
            let fetched = match self.sources() {
                Ok(sources) => sources.fetch(plans, &Watch::new(console, &interrupt)),
                Err(_) => unreachable!("planning opened the sources"),
            };
            for (one, plan) in group.into_iter().zip(fetched) {
                self.session.check_interrupt("the extraction")?;
                let outcome = plan.map_err(Refused::from).and_then(|plan| self.extract(one.model, &plan));
                match outcome {
                    Ok(record) => {
                        self.counts[0] += 1;
                        let done = described(&record, "extracted", Some(one.reason));
                        console.result(&done, || done.line());
                    }
                    Err(refused) => self.refuse(one.model, &refused)?,
                }
            }
        }
        Ok(())
    }

    fn extract(&mut self, model: &Selected, plan: &ModelPlan) -> Result<SourceRecord, Refused> {
        let dir = self.session.workspace.source_dir(&model.id);
        fs::create_dir_all(&dir).map_err(FsError::io("create the folder", &dir))?;
        let (console, interrupt) = (self.session.console, self.session.interrupt.clone());
        let files = self.sources()?.extract(plan, &dir, &check_onnx, &Watch::new(console, &interrupt));
        if files.is_err() {
            // An empty folder would say that something was extracted.
            let _ = fs::remove_dir(&dir);
        }
        let files = files?;
        let record = SourceRecord {
            id: model.id.clone(),
            git_ref: plan.git_ref.clone(),
            input_format: plan.input_format,
            files: files.iter().map(|file| source_file(&dir, file)).collect::<Result<_, _>>()?,
            uses_external_gpu: model.entry.uses_external_gpu,
            commit: Some(plan.commit.to_string()),
            extra: Map::new(),
        };
        let workspace = &self.session.workspace;
        workspace.save(&record)?;
        workspace.clear_failure(&model.id, Stage::Extract)?;
        Ok(record)
    }

    /// Notes a model's failure, shows it, and goes on.
    fn refuse(&mut self, model: &Selected, refused: &Refused) -> Result<(), Failure> {
        let failure = self.failed(model, refused)?;
        self.environment |= failure.exit() == Exit::Environment;
        self.session.console.show(&failure);
        self.failed.push(model.id.clone());
        Ok(())
    }

    /// Records why a model was not extracted. A failure that is no model's own ends the command.
    fn failed(&self, model: &Selected, refused: &Refused) -> Result<Failure, Failure> {
        let what = format!("{} was not extracted", model.id);
        let (failure, class) = match refused {
            Refused::Options(failure) => return Err(failure.clone()),
            Refused::Extract(error) => {
                let exit = exit_of_extract(error);
                let failure = Failure::new(exit, &what).because(error);
                let is_clone = error.class() == lfs_extract::ErrorClass::Clone;
                if exit == Exit::Interrupted || is_clone {
                    let what =
                        if is_clone { "nothing was extracted" } else { "the extraction was interrupted" };
                    return Err(Failure::new(exit, what).because(error));
                }
                (failure, format!("{:?}", error.class()))
            }
            Refused::Workspace(error) => {
                let exit = match error {
                    rebuild_workspace::WorkspaceError::Fs(error) => exit_of_fs(error),
                    error if error.is_environment() => Exit::Environment,
                    _ => Exit::Failed,
                };
                (Failure::new(exit, &what).because(error), "Workspace".to_owned())
            }
        };
        if self.args.model.dry_run {
            return Ok(failure);
        }
        let text = match refused {
            Refused::Extract(error) => error.to_string(),
            Refused::Workspace(error) => error.to_string(),
            Refused::Options(failure) => failure.what().to_owned(),
        };
        let record = FailureRecord {
            kind: Some(snake_case(&class)),
            ..FailureRecord::new(model.id.clone(), Stage::Extract, text)
        };
        if let Err(error) = self.session.workspace.save(&record) {
            self.session.console.show(&failure);
            return Err(of_workspace(format!("the failure of {} could not be recorded", model.id))(error));
        }
        Ok(failure)
    }
}

fn is_full_commit(git_ref: &str) -> bool {
    git_ref.len() == 40 && git_ref.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// `MissingComponents` as `missing_components`.
fn snake_case(word: &str) -> String {
    let mut snake = String::new();
    for (at, letter) in word.chars().enumerate() {
        if letter.is_ascii_uppercase() && at > 0 {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
    }
    snake
}

/// The preflight of a staged file: whole, a model, and with the metadata that an artifact needs.
fn check_onnx(_file: ComponentFile, path: &Utf8Path) -> Result<(), String> {
    let model = OnnxModel::open(path).map_err(|error| error.fault.to_string())?;
    model.metadata().map(drop).map_err(|error| error.fault.to_string())
}

fn source_file(dir: &Utf8Path, file: &ExtractedFile) -> Result<SourceFile, FsError> {
    let path = dir.join(&file.file_name);
    let mut extra = Map::new();
    extra.insert("blob".to_owned(), file.blob.to_string().into());
    extra.insert("source".to_owned(), origin(&file.source));
    Ok(SourceFile {
        component: file.file.component,
        git_path: file.git_path.clone(),
        size: file.size,
        sha256: file.sha256,
        modified_ns: Stamp::of(&path)?.map(|stamp| stamp.modified_ns),
        path,
        extra,
    })
}

/// Where a file's bytes came from.
fn origin(source: &ByteSource) -> serde_json::Value {
    let (kind, from) = match source {
        ByteSource::GitBlob { path, .. } => ("git", path.to_string()),
        ByteSource::LfsCache { path } => ("lfs_cache", path.to_string()),
        ByteSource::LfsFetched { url, .. } => ("lfs_server", url.clone()),
        other => ("other", other.to_string()),
    };
    json!({"kind": kind, "from": from})
}

fn described(record: &SourceRecord, outcome: &'static str, reason: Option<String>) -> Extracted {
    let file = |file: &SourceFile| {
        json!({"component": file.component, "git_path": file.git_path, "path": file.path, "size": file.size,
            "sha256": file.sha256})
    };
    Extracted {
        id: record.id.clone(),
        outcome,
        reason,
        commit: record.commit.clone(),
        files: record.files.iter().map(file).collect(),
        size: record.files.iter().map(|file| file.size).sum(),
        to_download: None,
        git_objects: Vec::new(),
    }
}

fn planned(plan: &ModelPlan, reason: String) -> Extracted {
    let file = |file: &lfs_extract::PlannedFile| {
        json!({"component": file.file.component, "git_path": file.git_path, "size": file.size,
            "sha256": file.sha256, "source": file.source.to_string()})
    };
    Extracted {
        id: plan.id.clone(),
        outcome: "would be extracted",
        reason: Some(reason),
        commit: Some(plan.commit.to_string()),
        files: plan.files.iter().map(file).collect(),
        size: plan.total_size(),
        to_download: Some(plan.remote_size()),
        git_objects: Vec::new(),
    }
}

fn lacking(id: &ModelId, missing: &[MissingObject], reason: String) -> Extracted {
    let object = |object: &MissingObject| json!({"id": object.id.to_string(), "what": object.what});
    Extracted {
        id: id.clone(),
        outcome: "would be extracted",
        reason: Some(reason),
        commit: None,
        files: Vec::new(),
        size: 0,
        to_download: None,
        git_objects: missing.iter().map(object).collect(),
    }
}
