//! One model: preflight, compile, proof in a fresh process, checks of the file, placement.
//!
//! The artifact is written into a private directory beside its destination, is loaded and replayed by a process that has
//! never seen the compiler's memory, is read as data and compared with what was asked for, and only then replaces what was
//! there. A failure at any point leaves the earlier artifact untouched and nothing half-written.

mod batch;
mod embedded;
mod finish;
mod preflight;
mod replay;
mod tree;

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, Ordering},
    time::Instant,
};

use artifact_pickle::AbiDescription;
use camino::Utf8PathBuf;
use durable_fs::Written;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{
    CompileError, CompilePlan, Workshop,
    driver::{Driver, DriverError, DriverEvent, StageState, request::ProofCheck},
    environment::{Environment, check_target},
    kernel_log::LogPosition,
    provenance::{BuildRecord, ToolRecord},
    scratch::Scratch,
    toolchain::{self, COMPILE_MODELD},
};

pub use batch::{OnModel, compile_batch};
pub(crate) use embedded::tool_record;
pub(crate) use finish::check_artifact;
pub(crate) use preflight::Source;

/// What is going on, for whoever watches.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CompileEvent {
    /// `preflight`, `compile`, `batch`, `dm`, `replay` or `place`.
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

/// An artifact that no check has seen yet, and how it was made.
pub(crate) struct Made {
    pub(crate) file: Utf8PathBuf,
    pub(crate) tool: ToolRecord,
    pub(crate) tinygrad: String,
    pub(crate) commit: Option<String>,
    pub(crate) python: String,
    pub(crate) abi: AbiDescription,
    pub(crate) devices: BTreeMap<String, Vec<String>>,
    pub(crate) kernels: BTreeMap<String, u64>,
    pub(crate) checks: Vec<ProofCheck>,
    pub(crate) environment: BTreeMap<String, String>,
}

/// What a run of this crate shares with all that it calls.
pub(crate) struct Session<'s> {
    pub(crate) workshop: &'s Workshop,
    pub(crate) cancel: &'s AtomicBool,
    pub(crate) on_event: &'s mut dyn FnMut(&CompileEvent),
    pub(crate) seconds: BTreeMap<String, f64>,
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
    let mut session = Session::new(workshop, cancel, on_event);
    session.check_machine(plan.target)?;
    let sources = session.own_stage("preflight", |session| session.preflight(plan))?;
    let tree = toolchain::choose(workshop.toolchain, workshop.root.as_deref(), &[COMPILE_MODELD])?;
    let scratch = Scratch::create(&workshop.output_dir)?;
    let environment = Environment::for_target(plan.target, plan.format(), &workshop.caller_environment);
    let log_position = session.kernel_log_position(plan.target);
    let made = match tree {
        None => session.make_embedded(plan, &sources, &scratch, environment)?,
        Some(tree) => session.make_with_tree(plan, &tree, &scratch, environment)?,
    };
    session.check_kernel_log(log_position)?;
    session.finish(plan, sources, made)
}

impl<'s> Session<'s> {
    /// A session that has done nothing yet.
    pub(crate) fn new(
        workshop: &'s Workshop,
        cancel: &'s AtomicBool,
        on_event: &'s mut dyn FnMut(&CompileEvent),
    ) -> Self {
        Self { workshop, cancel, on_event, seconds: BTreeMap::new() }
    }
}

impl Session<'_> {
    /// Checks that the target can be compiled for here.
    pub(crate) fn check_machine(&mut self, target: model_catalog::Target) -> Result<(), CompileError> {
        check_target(target, &self.workshop.qcom_device)?;
        if target == model_catalog::Target::ExternalGpu {
            self.workshop.usb.ready_bridge()?;
        }
        Ok(())
    }

    /// Where the kernel's log stands, for targets whose GPU can fault.
    pub(crate) fn kernel_log_position(&self, target: model_catalog::Target) -> Option<LogPosition> {
        if target == model_catalog::Target::Cpu { None } else { self.workshop.kernel_log.position() }
    }

    /// Fails where the GPU faulted since `position`.
    pub(crate) fn check_kernel_log(&self, position: Option<LogPosition>) -> Result<(), CompileError> {
        let Some(position) = position else { return Ok(()) };
        let log = &self.workshop.kernel_log;
        let faults =
            log.faults_since(position).map_err(durable_fs::FsError::io("read the kernel log", &log.path))?;
        if faults.is_empty() { Ok(()) } else { Err(CompileError::GpuFault { records: faults }) }
    }

    pub(crate) fn check_cancelled(&self) -> Result<(), CompileError> {
        if self.cancel.load(Ordering::Relaxed) { Err(CompileError::Cancelled) } else { Ok(()) }
    }

    pub(crate) fn emit(&mut self, op: &'static str, state: StageState, seconds: Option<f64>) {
        let event = DriverEvent::Stage { stage: op.to_owned(), state, seconds, detail: None, model: None };
        (self.on_event)(&CompileEvent { op, event });
    }

    /// A stage of our own, reported like those of the driver.
    pub(crate) fn own_stage<T>(
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

    /// Runs one operation of the driver; its stages are passed on and their seconds noted.
    pub(crate) fn operate<T: DeserializeOwned>(
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
}
