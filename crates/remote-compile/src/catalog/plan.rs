//! What will be done with each model, and why: decided from records and file stamps, before a device is asked.

use durable_fs::{Expected, Progress};
use model_catalog::RelPath;
use rebuild_workspace::{
    ArtifactRecord, ArtifactState, BuildReason, BuildRecord, FailureRecord, Fingerprint, SourceRecord,
    SourceState, Stage, Workspace, WorkspaceError, artifact_state, source_state,
};
use tinygrad_compile::{
    driver::embedded,
    job::{CompileJob, JobKind, JobRequest, JobSource},
};

use super::{Action, CatalogModel, CatalogOptions, PlannedModel, pool};
use crate::{
    adopt::recorded_abi,
    home::{HomeError, is_ready},
    supervise::{JobInput, PreparedJob},
};

/// Decides what will be done with each model, in the order given; several are looked at at a time.
pub fn plan_catalog(
    workspace: &Workspace,
    models: Vec<CatalogModel>,
    options: &CatalogOptions,
    progress: &dyn Progress,
) -> Vec<PlannedModel> {
    let plan = |model: CatalogModel| {
        let action = decide(workspace, &model, options, progress)
            .unwrap_or_else(|error| Action::Fail { kind: "workspace", why: error.to_string() });
        PlannedModel { model, action }
    };
    pool::map(options.jobs, models, plan)
}

fn decide(
    workspace: &Workspace,
    model: &CatalogModel,
    options: &CatalogOptions,
    progress: &dyn Progress,
) -> Result<Action, WorkspaceError> {
    let id = &model.id;
    let sources: Option<SourceRecord> = workspace.record(id)?;
    let Some(sources) = sources else { return not_extracted(workspace, model) };
    if let SourceState::Extract(why) = source_state(workspace, Some(&sources), &model.entry, None, progress)?
    {
        let why =
            format!("the sources of {id} are not those of the source map: {why}; run `rebuild extract`");
        return Ok(Action::Fail { kind: "stale_sources", why });
    }
    let wanted = fingerprint(&sources, model, options);
    let record = workspace.record::<ArtifactRecord>(id)?;
    let reasons = match artifact_state(workspace, id, record.as_ref(), &wanted, progress)? {
        _ if options.force => vec![BuildReason::Forced.to_string()],
        ArtifactState::Current { outdated, restamp } if outdated.is_empty() || !options.outdated => {
            let ready = match &record {
                Some(record) => is_ready(workspace, record, options.parts),
                None => Ok(false),
            };
            return match ready {
                Ok(ready) => Ok(Action::Keep { outdated, restage: !ready, restamp }),
                Err(HomeError::Workspace(error)) => Err(error),
                // A damaged set in the upload folder is put there again.
                Err(HomeError::Parts(_)) => Ok(Action::Keep { outdated, restage: true, restamp }),
            };
        }
        ArtifactState::Current { outdated, .. } => outdated.iter().map(ToString::to_string).collect(),
        ArtifactState::Unrecorded { path, .. } => {
            let build = workspace.record::<BuildRecord>(id).ok().flatten();
            let abi = recorded_abi(build.as_ref());
            match (options.judge)(&path, wanted.target, wanted.version, abi.as_ref()) {
                Ok(()) => return Ok(Action::Adopt { sources: Box::new(sources) }),
                Err(why) => {
                    vec![format!("{} was found and not adopted: {why}", path.file_name().unwrap_or_default())]
                }
            }
        }
        ArtifactState::Build(reasons) => reasons.iter().map(ToString::to_string).collect(),
    };
    let job = prepare(workspace, model, &sources, options);
    Ok(Action::Build { reasons, sources: Box::new(sources), job: Box::new(job) })
}

fn not_extracted(workspace: &Workspace, model: &CatalogModel) -> Result<Action, WorkspaceError> {
    let failure = workspace.record::<FailureRecord>(&model.id)?;
    if let Some(failure) = failure.filter(|failure| failure.stage == Some(Stage::Extract)) {
        let why = format!("the sources of {} could not be extracted: {}", model.id, failure.error);
        return Ok(Action::Fail { kind: "not_extracted", why });
    }
    if model.is_named {
        let why =
            format!("no sources of {} are extracted; run `rebuild extract --model {}`", model.id, model.id);
        return Ok(Action::Fail { kind: "not_extracted", why });
    }
    Ok(Action::Wait)
}

/// The fingerprint of what would be built now.
pub(super) fn fingerprint(
    sources: &SourceRecord,
    model: &CatalogModel,
    options: &CatalogOptions,
) -> Fingerprint {
    let target = options.target_of(&model.entry);
    let mut wanted = Fingerprint::of_sources(sources, model.version, options.image_history_pipeline, target);
    if options.toolchain.as_deref() != Some("tree") {
        wanted.driver = Some(embedded::digest().to_string());
    }
    wanted
}

fn prepare(
    workspace: &Workspace,
    model: &CatalogModel,
    sources: &SourceRecord,
    options: &CatalogOptions,
) -> PreparedJob {
    let mut inputs = Vec::new();
    let mut listed = Vec::new();
    for file in &sources.files {
        let name = sources.component_file(file).workspace_name(&model.id);
        let from = workspace.source_dir(&model.id).join(&name);
        let name = RelPath::new(name).unwrap_or_else(|_| unreachable!("component files have plain names"));
        inputs.push(JobInput {
            from,
            name: name.clone(),
            expected: Expected::exactly(file.size, file.sha256),
        });
        listed.push(JobSource {
            component: file.component,
            variant: sources.variant(),
            file: name,
            size: file.size,
            sha256: file.sha256,
        });
    }
    let job = CompileJob {
        id: model.id.clone(),
        input_format: sources.input_format,
        version: model.version,
        target: options.target_of(&model.entry),
        image_history_pipeline: options.image_history_pipeline,
        toolchain: options.toolchain.clone(),
        python: options.python.clone(),
        tolerance: None,
        sources: listed,
    };
    PreparedJob::new(&model.id, &JobRequest::new(JobKind::Compile(job)), inputs)
}
