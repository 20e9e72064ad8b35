//! One model: preflight, compile, proof in a fresh process, placement.
//!
//! The artifact is written into a private directory beside its destination, is loaded and replayed by a process that has
//! never seen the compiler's memory, and only then replaces what was there. A failure at any point leaves the earlier
//! artifact untouched and nothing half-written.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use camino::{Utf8Path, Utf8PathBuf};
use durable_fs::{Expected, NoProgress, Written, hash_file, place_file, write_json};
use model_catalog::{ArtifactName, ModelMetadata, Sha256Digest};
use onnx_source::OnnxModel;
use serde::Serialize;

use crate::{
    CompileError, CompilePlan,
    driver::{
        Driver, DriverError, DriverEvent, QUIET_LIMIT, StageState, embedded,
        request::{CompileRequest, CompileResult, ModelRequest, ProofFiles, ProveResult, SEEDS},
    },
    environment::{Environment, QCOM_DEVICE, check_target},
    provenance::{
        BUILD_RECORD_FORMAT, BuildRecord, FileRecord, ProofRecord, SourceRecord, TinygradRecord, ToolRecord,
        build_record_name, vendored_commit,
    },
    scratch::Scratch,
};

/// Where and with what models are compiled.
#[derive(Debug, Clone)]
pub struct Workshop {
    /// The interpreter.
    pub python: Utf8PathBuf,
    /// A StarPilot tree whose vendored tinygrad is used, where there is one.
    pub root: Option<Utf8PathBuf>,
    /// The environment that the driver would inherit.
    pub caller_environment: BTreeMap<String, String>,
    /// Where the artifact and its build record go.
    pub output_dir: Utf8PathBuf,
    /// Receives, appended, what the driver prints.
    pub log: Utf8PathBuf,
    /// Where tinygrad keeps compiled kernels; its own default where not given.
    pub kernel_cache: Option<Utf8PathBuf>,
    /// The longest accepted silence of the driver.
    pub quiet_limit: Duration,
    /// The GPU device file of the `qcom` target.
    pub qcom_device: Utf8PathBuf,
    /// What source files must be, where that is known.
    pub expected: BTreeMap<Utf8PathBuf, Expected>,
    /// SHA-256 of the running program, for the build record.
    pub program_sha256: Option<Sha256Digest>,
}

impl Workshop {
    /// A workshop with the defaults of a device.
    pub fn new(python: Utf8PathBuf, output_dir: Utf8PathBuf, log: Utf8PathBuf) -> Self {
        Self {
            python,
            root: None,
            caller_environment: BTreeMap::new(),
            output_dir,
            log,
            kernel_cache: None,
            quiet_limit: QUIET_LIMIT,
            qcom_device: QCOM_DEVICE.into(),
            expected: BTreeMap::new(),
            program_sha256: None,
        }
    }

    /// A driver in `scratch` with `environment`, completed by what the workshop knows.
    pub(crate) fn driver(
        &self,
        scratch: &Utf8Path,
        mut environment: Environment,
    ) -> Result<Driver, CompileError> {
        if let Some(vendored) =
            self.root.as_ref().map(|root| root.join("tinygrad_repo")).filter(|dir| dir.is_dir())
        {
            environment.python_path(&vendored, &self.caller_environment);
        }
        if let Some(cache) = &self.kernel_cache {
            environment.kernel_cache(cache);
        }
        Ok(Driver {
            python: self.python.clone(),
            entry: embedded::unpack(scratch)?,
            scratch: scratch.to_owned(),
            environment,
            log: self.log.clone(),
            quiet_limit: self.quiet_limit,
        })
    }
}

/// What is going on, for whoever watches.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CompileEvent {
    /// `preflight`, `compile`, `prove` or `place`.
    pub op: &'static str,
    /// The event.
    #[serde(flatten)]
    pub event: DriverEvent,
}

/// A compiled and proven model.
#[derive(Debug, Clone)]
pub struct Compiled {
    /// The artifact.
    pub artifact: Utf8PathBuf,
    /// Its size and digest.
    pub written: Written,
    /// Its build record, also beside it.
    pub build: BuildRecord,
}

/// A source that passed the preflight.
struct Source {
    record: SourceRecord,
    metadata: ModelMetadata,
}

struct Run<'r> {
    plan: &'r CompilePlan,
    workshop: &'r Workshop,
    cancel: &'r AtomicBool,
    on_event: &'r mut dyn FnMut(&CompileEvent),
    seconds: BTreeMap<String, f64>,
}

/// Compiles `plan`, proves the artifact and puts it and its build record into the workshop's output directory. Work stops
/// when `cancel` is set.
///
/// # Errors
/// [`CompileError`]; the earlier artifact, if any, is then as it was.
pub fn compile_model(
    plan: &CompilePlan,
    workshop: &Workshop,
    cancel: &AtomicBool,
    on_event: &mut dyn FnMut(&CompileEvent),
) -> Result<Compiled, CompileError> {
    check_target(plan.target, &workshop.qcom_device)?;
    let mut run = Run { plan, workshop, cancel, on_event, seconds: BTreeMap::new() };
    let sources = run.own_stage("preflight", |run| run.preflight())?;
    let scratch = Scratch::create(&workshop.output_dir)?;
    let environment = Environment::for_target(plan.target, plan.format(), &workshop.caller_environment);
    let driver = workshop.driver(scratch.path(), environment)?;
    let files = ProofFiles {
        artifact: scratch.path().join("artifact.pkl"),
        handover: scratch.path().join("handover"),
    };
    std::fs::create_dir(&files.handover)
        .map_err(durable_fs::FsError::io("make the directory", &files.handover))?;
    let request = CompileRequest::new(plan, run.models(&sources)?, &files);
    let compiled: CompileResult = run.operate(&driver, "compile", &request)?;
    let proof: ProveResult = run.operate(&driver, "prove", &request.prove())?;
    let name = ArtifactName::new(plan.id.clone()).to_string();
    let artifact = workshop.output_dir.join(&name);
    let written = run.own_stage("place", |_| {
        Ok(place_file(&files.artifact, &artifact, Expected::default(), &NoProgress)?)
    })?;
    let build = run.build_record(
        &driver,
        sources,
        compiled,
        proof,
        FileRecord { file: name, size: written.size, sha256: written.sha256 },
    );
    write_json(workshop.output_dir.join(build_record_name(&plan.id)), &build)?;
    Ok(Compiled { artifact, written, build })
}

impl Run<'_> {
    fn emit(&mut self, op: &'static str, state: StageState, seconds: Option<f64>) {
        let event = DriverEvent::Stage { stage: op.to_owned(), state, seconds, detail: None };
        (self.on_event)(&CompileEvent { op, event });
    }

    /// A stage of our own, reported like those of the driver.
    fn own_stage<T>(
        &mut self,
        op: &'static str,
        work: impl FnOnce(&mut Self) -> Result<T, CompileError>,
    ) -> Result<T, CompileError> {
        self.emit(op, StageState::Start, None);
        let began = Instant::now();
        let result = work(self)?;
        let seconds = self.note_seconds(op, began);
        self.emit(op, StageState::End, Some(seconds));
        Ok(result)
    }

    fn note_seconds(&mut self, what: &str, began: Instant) -> f64 {
        let seconds = (began.elapsed().as_secs_f64() * 1e4).round() / 1e4;
        self.seconds.insert(what.to_owned(), seconds);
        seconds
    }

    /// Reads and hashes every source before anything is compiled.
    fn preflight(&mut self) -> Result<Vec<Source>, CompileError> {
        let mut sources = Vec::new();
        for model in &self.plan.models {
            if self.cancel.load(Ordering::Relaxed) {
                return Err(CompileError::Cancelled);
            }
            let path = &model.file.path;
            let metadata = OnnxModel::open(path)?.metadata()?;
            let (sha256, size) = hash_file(path, &NoProgress)?;
            if let Some(expected) = self.workshop.expected.get(path) {
                expected.check(path, size, sha256)?;
            }
            let record = SourceRecord {
                component: model.file.component,
                variant: model.file.variant,
                file: path.file_name().unwrap_or_default().to_owned(),
                size,
                sha256,
                model_checkpoint: metadata.model_checkpoint.clone(),
            };
            sources.push(Source { record, metadata });
        }
        let metadata: Vec<_> = sources.iter().map(|source| source.metadata.clone()).collect();
        self.plan.check(&metadata)?;
        Ok(sources)
    }

    fn models(&self, sources: &[Source]) -> Result<Vec<ModelRequest>, CompileError> {
        let models = self.plan.models.iter().zip(sources).map(|(model, source)| {
            let path = &model.file.path;
            // The driver's working directory is another.
            let onnx = path.canonicalize_utf8().map_err(durable_fs::FsError::io("find", path))?;
            Ok(ModelRequest {
                key: model.key,
                onnx,
                sha256: source.record.sha256,
                metadata: (&source.metadata).into(),
            })
        });
        models.collect()
    }

    fn operate<T: serde::de::DeserializeOwned>(
        &mut self,
        driver: &Driver,
        op: &'static str,
        request: &impl Serialize,
    ) -> Result<T, CompileError> {
        let began = Instant::now();
        let (on_event, seconds) = (&mut self.on_event, &mut self.seconds);
        let result = driver.run(op, request, self.cancel, &mut |event| {
            if let DriverEvent::Stage { stage, seconds: Some(took), .. } = event {
                *seconds.entry(format!("{op}.{stage}")).or_default() += took;
            }
            on_event(&CompileEvent { op, event: event.clone() });
        })?;
        self.note_seconds(op, began);
        Ok(serde_json::from_value(result).map_err(|source| DriverError::Result { op, source })?)
    }

    fn build_record(
        &self,
        driver: &Driver,
        sources: Vec<Source>,
        compiled: CompileResult,
        proof: ProveResult,
        artifact: FileRecord,
    ) -> BuildRecord {
        let plan = self.plan;
        BuildRecord {
            format: BUILD_RECORD_FORMAT,
            id: plan.id.clone(),
            target: plan.target,
            model_type: plan.model_type,
            behavior_version: plan.version,
            image_history_pipeline: plan.image_history_pipeline,
            frame_skip: plan.frame_skip,
            sources: sources.into_iter().map(|source| source.record).collect(),
            tool: ToolRecord {
                version: env!("CARGO_PKG_VERSION").to_owned(),
                toolchain: "embedded".to_owned(),
                driver_sha256: embedded::digest(),
                program_sha256: self.workshop.program_sha256,
            },
            tinygrad: TinygradRecord {
                version: compiled.tinygrad,
                commit: self.workshop.root.as_deref().and_then(vendored_commit),
                python: compiled.python,
                interpreter: driver.python.clone(),
            },
            devices: compiled.devices,
            kernels: compiled.kernels,
            environment: driver.recorded_environment(),
            seconds: self.seconds.clone(),
            proof: ProofRecord { seeds: SEEDS, tolerance: plan.tolerance, checks: proof.checks },
            artifact,
        }
    }
}
