//! The runner: what `models job DIR` does.

use std::{
    collections::BTreeMap,
    fs::{File, OpenOptions},
    io::Write,
    sync::atomic::AtomicBool,
    time::Duration,
};

use camino::{Utf8Path, Utf8PathBuf};
use durable_fs::{Expected, FileLock, FsError, write_json};
use model_catalog::{InputFormat, ModelType, RelPath, Sha256Digest, Target};
use serde::Serialize;

use super::{
    CompileJob, DmJob, DmRunJob, DriveJob, EVENTS_FILE, INPUT_DIR, JobError, JobEvent, JobKind, JobProcess,
    JobRequest, JobResult, JobStatus, LOCK_FILE, LOG_FILE, OUTPUT_DIR, PID_FILE, PROTOCOL, REQUEST_FILE,
    RESULT_FILE, RunJob, RuntimeHook, RuntimeJob, RuntimeSite,
};
use crate::{
    Cache, CompileError, CompileEvent, CompilePlan, DmPlan, Environment, FaultClass, PlanOptions, Workshop,
    check_target, compile_dm, compile_model,
    driver::{
        DEVICE_PYTHON, DriverError, DriverEvent, PythonChoices, QUIET_LIMIT, StageState,
        request::{DmOutputs, DmRunRequest, RunExtent, RunRequest, RunResult},
    },
    environment::QCOM_DEVICE,
    scratch::Scratch,
    staged::{SourceSet, StagedFile},
};

/// The driver's stage at whose end the artifact is in its file.
const WRITE_STAGE: &str = "write";
/// Kind of the error of a cancelled job.
const CANCELLED: &str = "cancelled";

/// What the runner's machine has; filled in by the binary.
#[derive(Debug, Clone)]
pub struct JobEnvironment {
    /// Where an interpreter may be, unless the request names one.
    pub python: PythonChoices,
    /// The tree whose vendored tinygrad is used, where there is one.
    pub root: Option<Utf8PathBuf>,
    /// The environment of this process.
    pub variables: BTreeMap<String, String>,
    /// What is kept between compiles.
    pub cache: Option<Cache>,
    /// The longest accepted silence of the driver.
    pub quiet_limit: Duration,
    /// The GPU device file of the `qcom` target.
    pub qcom_device: Utf8PathBuf,
    /// SHA-256 of the running program.
    pub program_sha256: Option<Sha256Digest>,
    /// What can do runtime jobs, where the binary brings it along.
    pub runtime: Option<RuntimeHook>,
}

impl Default for JobEnvironment {
    fn default() -> Self {
        Self {
            python: PythonChoices::default(),
            root: None,
            variables: BTreeMap::new(),
            cache: None,
            quiet_limit: QUIET_LIMIT,
            qcom_device: QCOM_DEVICE.into(),
            program_sha256: None,
            runtime: None,
        }
    }
}

/// Does the job in `dir` and leaves its result there. An earlier result of the directory is replaced.
///
/// # Errors
/// [`CompileError`] only where no result could be written: the directory is no job, another runner has it, or its disk is
/// full. Everything else is in the result.
pub fn run_job(
    dir: &Utf8Path,
    environment: &JobEnvironment,
    cancel: &AtomicBool,
) -> Result<JobResult, CompileError> {
    let dir = dir.canonicalize_utf8().map_err(FsError::io("open the job", dir))?;
    let _lock = FileLock::acquire(dir.join(LOCK_FILE), "models job")?;
    match std::fs::remove_file(dir.join(RESULT_FILE)) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        removed => removed.map_err(FsError::io("remove the earlier result", dir.join(RESULT_FILE)))?,
    }
    write_json(dir.join(PID_FILE), &JobProcess::this())?;
    let mut events = Events::open(dir.join(EVENTS_FILE))?;
    let (kind, outcome) = match read_request(&dir) {
        Ok(request) => {
            let runner = Runner { dir: &dir, environment, cancel };
            let outcome = match &request.kind {
                JobKind::Compile(job) => runner.compile(job, &mut events),
                JobKind::Dm(job) => runner.dm(job, &mut events),
                JobKind::Run(job) => runner.run(job, &mut events),
                JobKind::Runtime(job) => Ok(runner.runtime(job, &mut events)),
                JobKind::DmRun(job) => runner.dm_run(job, &mut events),
            };
            (request.kind.as_str(), outcome)
        }
        Err(error) => ("unknown", Err(error)),
    };
    let result = match outcome {
        Ok(result) => result,
        Err(error) => failed(kind, &error),
    };
    events.write(&serde_json::json!({"event": "result", "status": result.status}));
    write_json(dir.join(RESULT_FILE), &result)?;
    Ok(result)
}

fn failed(kind: &str, error: &CompileError) -> JobResult {
    let status =
        if error.class() == FaultClass::Cancelled { JobStatus::Cancelled } else { JobStatus::Failed };
    JobResult { error: Some(JobError::from(error)), ..JobResult::new(kind, status) }
}

fn read_request(dir: &Utf8Path) -> Result<JobRequest, CompileError> {
    let path = dir.join(REQUEST_FILE);
    let text = std::fs::read(&path).map_err(FsError::io("read the request", &path))?;
    let json = |source| FsError::Json { path: path.clone(), source };
    let value: serde_json::Value = serde_json::from_slice(&text).map_err(json)?;
    // The version is looked at first: a request of another version may have any form.
    if value["protocol"] != PROTOCOL {
        return Err(CompileError::JobProtocol { path, found: value["protocol"].to_string() });
    }
    Ok(serde_json::from_value(value).map_err(json)?)
}

/// The event file. An event that cannot be written is dropped: the result is what counts.
struct Events(File);

impl Events {
    fn open(path: Utf8PathBuf) -> Result<Self, FsError> {
        let open = OpenOptions::new().create(true).append(true).open(&path);
        open.map(Self).map_err(FsError::io("open the event file", path))
    }

    fn write(&mut self, event: &impl Serialize) {
        if let Ok(mut line) = serde_json::to_vec(event) {
            line.push(b'\n');
            // One write, so that a reader never sees two events in one line.
            let _ = self.0.write_all(&line);
        }
    }
}

struct Runner<'r> {
    dir: &'r Utf8Path,
    environment: &'r JobEnvironment,
    cancel: &'r AtomicBool,
}

impl Runner<'_> {
    fn workshop(&self, python: Option<&Utf8PathBuf>) -> Workshop {
        let environment = self.environment;
        let mut choices = environment.python.clone();
        choices.explicit = python.cloned().or(choices.explicit);
        Workshop {
            root: environment.root.clone(),
            caller_environment: environment.variables.clone(),
            cache: environment.cache.clone(),
            quiet_limit: environment.quiet_limit,
            qcom_device: environment.qcom_device.clone(),
            program_sha256: environment.program_sha256,
            ..Workshop::new(
                choices.resolve(Utf8Path::new(DEVICE_PYTHON)),
                self.dir.join(OUTPUT_DIR),
                self.dir.join(LOG_FILE),
            )
        }
    }

    fn compile(&self, job: &CompileJob, events: &mut Events) -> Result<JobResult, CompileError> {
        let mut workshop = self.workshop(job.python.as_ref());
        workshop.toolchain = job.toolchain.as_deref().unwrap_or("auto").parse()?;
        let input = self.dir.join(INPUT_DIR);
        let mut files = Vec::new();
        for source in &job.sources {
            let path = input.join(source.file.as_str());
            workshop.expected.insert(path.clone(), Expected::exactly(source.size, source.sha256));
            files.push(StagedFile { component: source.component, variant: source.variant, path });
        }
        let sources = SourceSet::complete(job.id.clone(), job.input_format, files, &input)?;
        let options = PlanOptions {
            version: job.version,
            image_history_pipeline: job.image_history_pipeline,
            target: job.target,
            tolerance: job.tolerance.unwrap_or(0.0),
        };
        let plan = CompilePlan::new(&sources, options);
        let compiled = compile_model(&plan, &workshop, self.cancel, &mut |event| {
            events.write(event);
            if let Some(written) = self.written(&event.event) {
                events.write(&written);
            }
        })?;
        Ok(JobResult {
            artifact: Some(compiled.build.artifact.clone()),
            build: Some(compiled.build),
            ..JobResult::new("compile", JobStatus::Ok)
        })
    }

    /// Tells of an artifact that is written and not proven yet, so that it can be fetched while its proof runs. It is news and
    /// no result: where it cannot be read, the artifact is fetched when the job has ended.
    fn written(&self, event: &DriverEvent) -> Option<JobEvent> {
        let DriverEvent::Stage { stage, state: StageState::End, detail: Some(detail), .. } = event else {
            return None;
        };
        let file = Utf8Path::new(detail.get("file").filter(|_| stage == WRITE_STAGE)?.as_str()?);
        let (sha256, size) = durable_fs::hash_file(file, &durable_fs::NoProgress).ok()?;
        let file = RelPath::new(file.strip_prefix(self.dir).ok()?.as_str()).ok()?;
        Some(JobEvent::Written { file, size, sha256 })
    }

    fn dm(&self, job: &DmJob, events: &mut Events) -> Result<JobResult, CompileError> {
        let mut workshop = self.workshop(job.python.as_ref());
        workshop.toolchain = job.toolchain.as_deref().unwrap_or("auto").parse()?;
        let source = self.dir.join(INPUT_DIR).join(job.file.as_str());
        workshop.expected.insert(source.clone(), Expected::exactly(job.size, job.sha256));
        let plan = DmPlan { source, target: job.target, tolerance: job.tolerance.unwrap_or(0.0) };
        let compiled = compile_dm(&plan, &workshop, self.cancel, &mut |event| events.write(event))?;
        Ok(JobResult {
            files: compiled.files,
            dm_build: Some(compiled.build),
            ..JobResult::new("dm", JobStatus::Ok)
        })
    }

    fn run(&self, job: &RunJob, events: &mut Events) -> Result<JobResult, CompileError> {
        let workshop = self.workshop(job.python.as_ref());
        let supercombo = job.model_type == Some(ModelType::Supercombo);
        let format = if supercombo { InputFormat::Supercombo } else { InputFormat::Split };
        let (drive, artifact) = (&job.drive, self.dir.join(&job.artifact));
        let mut request = RunRequest::new(
            artifact,
            workshop.output_dir.clone(),
            drive.cameras.clone(),
            drive.steps,
            drive.seed,
        )
        .out_of_band(job.target.is_out_of_band());
        request.frames.clone_from(&drive.frames);
        (request.probes, request.record, request.soak_seconds) =
            (drive.probes, drive.record, drive.soak_seconds);
        let run = self.drive("run", (job.target, format), &request, &workshop, events)?;
        Ok(JobResult { run: Some(run), ..JobResult::new("run", JobStatus::Ok) })
    }

    fn runtime(&self, job: &RuntimeJob, events: &mut Events) -> JobResult {
        let environment = self.environment;
        let done = match &environment.runtime {
            Some(hook) => {
                let mut choices = environment.python.clone();
                choices.explicit = job.python.clone().or(choices.explicit);
                let site = RuntimeSite {
                    dir: self.dir,
                    log: self.dir.join(LOG_FILE),
                    python: choices.resolve(Utf8Path::new(DEVICE_PYTHON)),
                    variables: &environment.variables,
                    program: &hook.program,
                };
                (hook.run)(job, &site, self.cancel, &mut |event| events.write(event))
            }
            None => Err(JobError {
                kind: "unsupported".to_owned(),
                message: "this program does not do runtime jobs".to_owned(),
                hint: Some("bring the device's `models` up to date".to_owned()),
                environment: true,
            }),
        };
        match done {
            Ok(result) => JobResult { runtime: Some(result), ..JobResult::new("runtime", JobStatus::Ok) },
            Err(error) => {
                let cancelled = error.kind == CANCELLED;
                let status = if cancelled { JobStatus::Cancelled } else { JobStatus::Failed };
                JobResult { error: Some(error), ..JobResult::new("runtime", status) }
            }
        }
    }

    fn dm_run(&self, job: &DmRunJob, events: &mut Events) -> Result<JobResult, CompileError> {
        let workshop = self.workshop(job.python.as_ref());
        let DriveJob { cameras, steps, seed, frames, probes, record, soak_seconds } = job.drive.clone();
        let out_dir = workshop.output_dir.clone();
        let extent = RunExtent { out_dir, cameras, steps, seed, frames, probes, record, soak_seconds };
        let warps = job.warps.iter().map(|(camera, warp)| (camera.clone(), self.dir.join(warp)));
        let files = DmOutputs { model: self.dir.join(&job.model), warps: warps.collect() };
        let request = DmRunRequest::new(files, job.metadata.clone(), job.target, extent);
        let run = self.drive("dm_run", (job.target, InputFormat::Split), &request, &workshop, events)?;
        Ok(JobResult { run: Some(run), ..JobResult::new("dmrun", JobStatus::Ok) })
    }

    fn drive(
        &self,
        op: &'static str,
        (target, format): (Target, InputFormat),
        request: &impl Serialize,
        workshop: &Workshop,
        events: &mut Events,
    ) -> Result<RunResult, CompileError> {
        check_target(target, &workshop.qcom_device)?;
        let scratch = Scratch::create(&workshop.output_dir)?;
        let environment = Environment::for_target(target, format, &workshop.caller_environment);
        let driver = workshop.driver(scratch.path(), target, environment)?;
        let result = driver.run(op, request, self.cancel, &mut |event| {
            events.write(&CompileEvent { op, event: event.clone() });
        })?;
        Ok(serde_json::from_value(result).map_err(|source| DriverError::Result { op, source })?)
    }
}
