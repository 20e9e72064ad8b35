//! `rebuild extract`.

use std::{fs, time::Instant};

use camino::{Utf8Path, Utf8PathBuf};
use clap::Args;
use console_report::{Console, Exit, Failure, seconds_text, size_text};
use durable_fs::FsError;
use lfs_extract::{ExtractError, ExtractedFile, ModelPlan, SourceClone, Watch};
use model_catalog::ComponentFile;
use onnx_source::OnnxModel;
use rebuild_workspace::{FailureRecord, SourceFile, SourceRecord, SourceState, Stage, Stamp, source_state};
use serde::Serialize;
use serde_json::{Map, json};

use crate::{
    cli::{Cli, ModelArgs},
    failure::{exit_of_extract, exit_of_fs, of_models, of_workspace},
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
}

pub fn run(args: &ExtractArgs, cli: &Cli, console: &Console) -> Result<(), Failure> {
    let session = Session::for_run(cli, console, "rebuild extract", args.model.dry_run)?;
    let map = session.source_map(&args.model.catalog)?;
    // Not needed for sources; a manifest that is not valid is better known before hours of work than after.
    session.base_manifest(&args.model.catalog)?;
    let models = select(&session.workspace, &map, &args.model.models)?;
    let mut extraction = Extraction { path: clone_path(&session, args), clone: None, session, args };
    let started = Instant::now();
    let (mut failed, mut environment) = (Vec::new(), false);
    let mut counts = [0usize; 2];
    for model in &models {
        extraction.session.check_interrupt("the extraction")?;
        match extraction.model(model) {
            Ok(done) => {
                counts[usize::from(done.outcome == "current")] += 1;
                console.result(&done, || done.line());
            }
            Err(refused) => {
                let failure = extraction.failed(model, &refused)?;
                environment |= failure.exit() == Exit::Environment;
                console.show(&failure);
                failed.push(model.id.as_str());
            }
        }
    }
    let [extracted, current] = counts;
    console.note(&format!(
        "{extracted} {}, {current} current, {} failed in {}",
        if args.model.dry_run { "to extract" } else { "extracted" },
        failed.len(),
        seconds_text(started.elapsed().as_secs_f64())
    ));
    of_models("extracted", &failed, models.len(), environment)
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
    // Opened when the first model needs it: a rerun with nothing to do needs no clone.
    clone: Option<SourceClone>,
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
}

impl Extracted {
    fn line(&self) -> String {
        let files = if self.files.len() == 1 { "file" } else { "files" };
        let mut line =
            format!("{}: {}, {} {files}, {}", self.id, self.outcome, self.files.len(), size_text(self.size));
        if let Some(commit) = &self.commit {
            line.push_str(&format!(", commit {}", &commit[..commit.len().min(12)]));
        }
        if let Some(reason) = self.reason.as_ref().filter(|_| self.outcome != "current") {
            line.push_str(&format!(" ({reason})"));
        }
        line
    }
}

/// Why one model was not extracted.
#[derive(Debug)]
enum Refused {
    Extract(ExtractError),
    Workspace(rebuild_workspace::WorkspaceError),
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
    fn model(&mut self, model: &Selected) -> Result<Extracted, Refused> {
        let workspace = &self.session.workspace;
        // A record that cannot be read is replaced by a new one.
        let record = workspace.record::<SourceRecord>(&model.id).ok().flatten();
        let commit = if is_full_commit(&model.entry.git_ref) {
            None
        } else {
            let git_ref = model.entry.git_ref.clone();
            Some(self.clone()?.resolve(&git_ref)?.to_string())
        };
        let workspace = &self.session.workspace;
        let state =
            source_state(workspace, record.as_ref(), &model.entry, commit.as_deref(), self.session.console)?;
        let reason = match (state, record) {
            (SourceState::Current, Some(record)) if !self.args.model.force => {
                if !self.args.model.dry_run {
                    workspace.clear_failure(&model.id, Stage::Extract)?;
                }
                return Ok(described(&record, "current", None));
            }
            (SourceState::Extract(why), _) => why,
            (SourceState::Current, _) => "asked for with --force".to_owned(),
        };
        let plan = self.clone()?.plan_model(&model.id, &model.entry)?;
        if self.args.model.dry_run {
            return Ok(planned(&plan, reason));
        }
        let record = self.extract(model, &plan)?;
        Ok(described(&record, "extracted", Some(reason)))
    }

    fn clone(&mut self) -> Result<&SourceClone, Refused> {
        match &mut self.clone {
            Some(clone) => Ok(clone),
            none => Ok(none.insert(SourceClone::open(self.path.clone())?)),
        }
    }

    fn extract(&mut self, model: &Selected, plan: &ModelPlan) -> Result<SourceRecord, Refused> {
        let dir = self.session.workspace.source_dir(&model.id);
        fs::create_dir_all(&dir).map_err(FsError::io("create the folder", &dir))?;
        let (console, interrupt) = (self.session.console, self.session.interrupt.clone());
        let files = self.clone()?.extract_model(plan, &dir, &check_onnx, &Watch::new(console, &interrupt));
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

    /// Records why a model was not extracted. A failure that is no model's own ends the command.
    fn failed(&self, model: &Selected, refused: &Refused) -> Result<Failure, Failure> {
        let what = format!("{} was not extracted", model.id);
        let (failure, class) = match refused {
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
    }
}
