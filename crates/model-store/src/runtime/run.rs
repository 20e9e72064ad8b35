//! The job.

use std::{
    process::Command,
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc::RecvTimeoutError,
    },
    time::{Duration, Instant},
};

use durable_fs::{Expected, NoProgress, hash_file};
use model_catalog::ArtifactName;
use serde_json::{Value, json};
use tinygrad_compile::{
    external_gpu::UsbTree,
    job::{JobError, RuntimeFinding, RuntimeJob, RuntimeResult, RuntimeSite},
};

use super::{
    keeper::{KeepError, Keeper},
    programs::{self, Running, Sampler},
    watch::{Line, Watched},
};
use crate::{Decision, ParamStore, Selection, Situation, StoreCatalog, StoreError, decide, installed};

/// How often cancellation, the road and the programs are looked at.
const TICK: Duration = Duration::from_millis(100);

/// Selects the model, lets the runtime drive, judges, and puts the selection back.
///
/// # Errors
/// [`JobError`] where the verification could not be made: its kinds are `on_road`, `busy`, `not_installed`,
/// `would_fall_back`, `start`, `cancelled`, `store`, `not_restored`. That a model does not drive is a finding.
pub fn run(
    job: &RuntimeJob,
    site: &RuntimeSite<'_>,
    cancel: &AtomicBool,
    on_event: &mut dyn FnMut(&Value),
) -> Result<RuntimeResult, JobError> {
    let params = ParamStore::new(&job.params_dir, &job.volatile_dir);
    params.check().map_err(|error| of_store(&error))?;
    refuse_on_road(&params)?;
    let mut keeper =
        Keeper::begin(&params, Some(guard_command(job, site))).map_err(|error| of_keep(&error))?;
    let before = keeper.snapshot().id();
    check_artifact(job, &params)?;
    let selection = Selection { id: job.id.clone(), version: job.version, name: job.name.clone() };
    let mut stage = |stage: &str, state: &str| {
        on_event(&json!({"event": "stage", "op": "runtime", "stage": stage, "state": state}))
    };
    stage("select", "start");
    params.select(&selection).map_err(|error| of_store(&error))?;
    stage("select", "end");
    let watched = drive(job, site, (&params, &mut keeper), cancel, &mut stage);
    let changed = selection_change(&params, job);
    stage("restore", "start");
    keeper.restore().map_err(|error| JobError {
        hint: Some("start `models` on the device once more: it puts the selection back".to_owned()),
        ..failure("not_restored", format!("the selection {before:?} was not put back: {error}"))
    })?;
    stage("restore", "end");
    let (watched, mut findings) = watched?;
    findings.extend(changed);
    Ok(RuntimeResult {
        id: job.id.clone(),
        seconds: watched.watched.seconds(),
        startup_seconds: watched.startup,
        camera: watched.watched.camera(),
        services: watched.watched.facts(),
        findings,
        restored: before,
    })
}

fn failure(kind: &str, message: impl Into<String>) -> JobError {
    JobError { kind: kind.to_owned(), message: message.into(), hint: None, environment: true }
}

fn of_store(error: &StoreError) -> JobError {
    failure("store", error.to_string())
}

fn of_keep(error: &KeepError) -> JobError {
    let kind = if matches!(error, KeepError::Busy(_)) { "busy" } else { "store" };
    failure(kind, error.to_string())
}

fn refuse_on_road(params: &ParamStore) -> Result<(), JobError> {
    if params.is_on_road() {
        Err(JobError {
            hint: Some("park, switch the ignition off, and run the same command again".to_owned()),
            ..failure("on_road", "the device is on the road: its model is not changed")
        })
    } else {
        Ok(())
    }
}

fn guard_command(job: &RuntimeJob, site: &RuntimeSite<'_>) -> Command {
    let mut command = Command::new(site.program);
    command.arg("restore-selection").arg("--when-input-ends");
    command.args(["--params-dir", job.params_dir.as_str(), "--volatile-dir", job.volatile_dir.as_str()]);
    command
}

/// Whether what is installed is what is to be verified, and would run: else the built-in model would be judged in its place.
fn check_artifact(job: &RuntimeJob, params: &ParamStore) -> Result<(), JobError> {
    let path = job.store_dir.join(ArtifactName::new(job.id.clone()).to_string());
    let expected = Expected::exactly(job.size, job.sha256);
    let is_same =
        hash_file(&path, &NoProgress).and_then(|(sha256, size)| expected.check(&path, size, sha256));
    is_same.map_err(|error| JobError {
        hint: Some(format!("install it on the device first: models fetch {} --to {}", job.id, job.store_dir)),
        environment: false,
        ..failure("not_installed", format!("{} is not installed as it was compiled: {error}", job.id))
    })?;
    let catalog = StoreCatalog::of_device(params, &job.store_dir).map_err(|error| of_store(&error))?;
    let files = installed(&job.store_dir, &catalog, job.target, job.abi.as_ref())
        .map_err(|error| of_store(&error))?;
    let usb = UsbTree { patience: Duration::ZERO, ..UsbTree::default() };
    let situation = Situation {
        selected: Some(job.id.as_str()),
        catalog: &catalog,
        installed: &files,
        has_external_gpu: usb.ready_bridge().is_ok(),
    };
    match decide(&situation) {
        Decision::Artifact { id, .. } if id == job.id => Ok(()),
        Decision::Artifact { id, .. } => {
            Err(failure("would_fall_back", format!("the device takes {} for {id}", job.id)))
        }
        Decision::BuiltIn { because } => Err(JobError {
            environment: false,
            ..failure("would_fall_back", format!("the device would run its built-in model: {because}"))
        }),
    }
}

/// A runtime that gives a model up selects another one.
fn selection_change(params: &ParamStore, job: &RuntimeJob) -> Option<RuntimeFinding> {
    let now = params.selected().unwrap_or_else(|error| Some(error.to_string())).unwrap_or_default();
    (now != job.id.as_str())
        .then(|| finding("fell_back", format!("the runtime selected {now:?} in place of {}", job.id)))
}

fn finding(check: &str, text: String) -> RuntimeFinding {
    RuntimeFinding { check: check.to_owned(), service: None, field: None, index: None, text }
}

struct Drive {
    watched: Watched,
    startup: Option<f64>,
}

fn drive(
    job: &RuntimeJob,
    site: &RuntimeSite<'_>,
    (params, keeper): (&ParamStore, &mut Keeper),
    cancel: &AtomicBool,
    stage: &mut dyn FnMut(&str, &str),
) -> Result<(Drive, Vec<RuntimeFinding>), JobError> {
    let of_start = |name: &str, error: std::io::Error| {
        failure("start", format!("{name} cannot be started in {}: {error}", job.root))
    };
    stage("start", "start");
    // The sampler listens first, so that it misses nothing.
    let sampler = programs::start_sampler(job, site).map_err(|error| of_start("the sampler", error))?;
    keeper.note_process(sampler.running.group.id()).map_err(|error| of_keep(&error))?;
    let mut running = Vec::new();
    for (index, process) in job.processes.iter().enumerate() {
        let program = programs::start(job, site, index).map_err(|error| of_start(&process.name, error))?;
        keeper.note_process(program.group.id()).map_err(|error| of_keep(&error))?;
        running.push(program);
    }
    stage("start", "end");
    stage("drive", "start");
    let outcome = watch(job, site, params, (&sampler, &running), cancel);
    stage("drive", "end");
    // The programs end before the selection changes: none of them may see another model.
    for program in running.iter_mut().rev() {
        let _ = program.group.end();
    }
    outcome
}

fn watch(
    job: &RuntimeJob,
    site: &RuntimeSite<'_>,
    params: &ParamStore,
    (sampler, running): (&Sampler, &[Running]),
    cancel: &AtomicBool,
) -> Result<(Drive, Vec<RuntimeFinding>), JobError> {
    let started = Instant::now();
    let startup = Duration::from_secs(job.startup_seconds.into());
    let (mut watched, mut first, mut looked) = (Watched::default(), None, Instant::now());
    let mut findings = Vec::new();
    loop {
        match sampler.lines.recv_timeout(TICK) {
            Ok(Line::Message(message)) => watched.take(message),
            Ok(Line::Ready) | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                let why = programs::tail(&site.log);
                return Err(failure("sampler", format!("the sampler ended: {why}")));
            }
        }
        if first.is_none() && watched.began().is_some() {
            first = Some(Instant::now());
        }
        if first.is_some_and(|first| first.elapsed() >= Duration::from_secs(job.seconds.into())) {
            break;
        }
        if first.is_none() && started.elapsed() >= startup {
            let text = format!(
                "nothing was published within {} s: {}",
                startup.as_secs(),
                programs::tail(&site.log)
            );
            findings.push(finding("startup", text));
            break;
        }
        // Messages come faster than these things change.
        if looked.elapsed() < TICK {
            continue;
        }
        looked = Instant::now();
        if cancel.load(Ordering::Relaxed) {
            return Err(failure("cancelled", "the verification was cancelled"));
        }
        refuse_on_road(params)?;
        if let Some(dead) = running.iter().find(|program| program.has_ended()) {
            let text = format!("{} did not stay up: {}", dead.name, programs::tail(&site.log));
            findings.push(finding("died", text));
            break;
        }
    }
    let seconds = first.map(|first| first.elapsed().as_secs_f64());
    let end = watched.began().zip(seconds).map_or(0.0, |(began, seconds)| began + seconds);
    findings.extend(watched.findings(end));
    let startup = first.map(|first| first.duration_since(started).as_secs_f64());
    Ok((Drive { watched, startup }, findings))
}
