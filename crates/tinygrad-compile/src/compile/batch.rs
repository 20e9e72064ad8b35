//! Many models in one warm process, the failure of one isolated from the others.
//!
//! Models of one format share a driver run: a supercombo has another `IMAGE` flag, which is of the process. Each artifact is
//! checked and placed as soon as the driver reports it. Where the process itself dies, the models that it had not reported
//! are compiled one by one, each on its own.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, Ordering},
};

use model_catalog::{InputFormat, ModelId};

use super::{
    CompileEvent, Compiled, Session, Source, compile_model,
    embedded::{compile_request, is_cache_suspect, made_by_driver},
};
use crate::{
    CompileError, CompilePlan, Workshop,
    driver::{
        DriverError, DriverEvent, ModelOutcome, RunContext,
        request::{BatchRequest, CompileRequest, CompileResult},
    },
    environment::Environment,
    scratch::Scratch,
    toolchain::{self, COMPILE_MODELD},
};

/// Receives what became of each model, as soon as it is known.
pub type OnModel<'m> = dyn FnMut(&ModelId, Result<Compiled, CompileError>) + 'm;

/// Compiles `plans`, all of one target, and reports each model to `on_model` exactly once.
///
/// # Errors
/// [`CompileError`] where nothing can be compiled at all (the target or tinygrad is not here, the output directory cannot be
/// written); models that were not reported are then not compiled.
pub fn compile_batch(
    plans: &[CompilePlan],
    workshop: &Workshop,
    cancel: &AtomicBool,
    on_event: &mut dyn FnMut(&CompileEvent),
    on_model: &mut OnModel<'_>,
) -> Result<(), CompileError> {
    let Some(first) = plans.first() else { return Ok(()) };
    let mut session = Session::new(workshop, cancel, on_event);
    session.check_machine(first.target)?;
    let tree = toolchain::choose(workshop.toolchain, workshop.root.as_deref(), &[COMPILE_MODELD])?;
    for format in [InputFormat::Split, InputFormat::Supercombo] {
        let group: Vec<&CompilePlan> = plans.iter().filter(|plan| plan.format() == format).collect();
        // A tree's compiler knows no batches.
        let left = if tree.is_some() { group } else { session.compile_group(&group, format, on_model)? };
        for plan in left {
            on_model(&plan.id, compile_model(plan, workshop, cancel, session.on_event));
        }
    }
    Ok(())
}

/// A model that is in the driver's hands.
struct Pending<'p> {
    plan: &'p CompilePlan,
    sources: Vec<Source>,
    request: CompileRequest,
}

impl Session<'_> {
    /// Compiles a group in one driver run; returns the plans that the run did not report because it died.
    fn compile_group<'p>(
        &mut self,
        plans: &[&'p CompilePlan],
        format: InputFormat,
        on_model: &mut OnModel<'_>,
    ) -> Result<Vec<&'p CompilePlan>, CompileError> {
        let Some(first) = plans.first() else { return Ok(Vec::new()) };
        let scratch = Scratch::create(&self.workshop.output_dir)?;
        let environment = Environment::for_target(first.target, format, &self.workshop.caller_environment);
        let driver = self.workshop.driver(scratch.path(), first.target, environment)?;
        let mut pending = BTreeMap::new();
        for plan in plans {
            match self.prepare(plan, &scratch) {
                Ok(ready) => drop(pending.insert(plan.id.to_string(), ready)),
                Err(error) => on_model(&plan.id, Err(error)),
            }
        }
        let requests: Vec<_> = pending.values().map(|model| model.request.clone()).collect();
        if requests.is_empty() {
            return Ok(Vec::new());
        }
        let batch = BatchRequest::new(requests, self.workshop.cache.as_ref());
        let position = self.kernel_log_position(first.target);
        let recorded = driver.environment.recorded();
        let cancel = self.cancel;
        // Their proof was refused, perhaps by the fault of a kept warp: they are compiled once more, alone and without any.
        let mut suspects = Vec::new();
        let ended = driver.run("batch", &batch, cancel, &mut |event| {
            (self.on_event)(&CompileEvent { op: "batch", event: event.clone() });
            let DriverEvent::Model { model, outcome } = event else { return };
            let Some(ready) = model.as_str().and_then(|label| pending.remove(label)) else { return };
            let log = driver.log.clone();
            match self.take(&ready, outcome, &recorded, position, log) {
                Err(error) if is_cache_suspect(&error, self.workshop) => suspects.push(ready.plan),
                compiled => on_model(&ready.plan.id, compiled),
            }
        });
        if let (false, Some(cache)) = (suspects.is_empty(), &self.workshop.cache) {
            cache.forget_warps()?;
        }
        let left = pending.into_values().map(|model| model.plan).chain(suspects);
        if cancel.load(Ordering::Relaxed) {
            left.for_each(|plan| on_model(&plan.id, Err(CompileError::Cancelled)));
            return Ok(Vec::new());
        }
        match ended {
            // One model may have taken the others with it: each gets a process of its own.
            Ok(_) | Err(DriverError::Died { .. } | DriverError::Stalled { .. }) => Ok(left.collect()),
            Err(error) => Err(error.into()),
        }
    }

    fn prepare<'p>(&mut self, plan: &'p CompilePlan, scratch: &Scratch) -> Result<Pending<'p>, CompileError> {
        let sources = self.preflight(plan)?;
        let dir = scratch.path().join(plan.id.as_str());
        let mut request = compile_request(plan, &sources, &dir, self.workshop)?;
        request.label = Some(plan.id.to_string());
        Ok(Pending { plan, sources, request })
    }

    fn take(
        &mut self,
        ready: &Pending<'_>,
        outcome: &ModelOutcome,
        environment: &BTreeMap<String, String>,
        position: Option<crate::kernel_log::LogPosition>,
        log: camino::Utf8PathBuf,
    ) -> Result<Compiled, CompileError> {
        match outcome {
            ModelOutcome::Failed { error } => {
                let context =
                    RunContext { op: "batch", stage: ready.plan.id.to_string(), log, tail: String::new() };
                Err(CompileError::Driver(DriverError::Failed {
                    kind: error.kind,
                    message: error.message.clone(),
                    detail: Box::new(error.detail.clone()),
                    context: Box::new(context),
                }))
            }
            ModelOutcome::Done { result } => {
                let result: CompileResult = serde_json::from_value(result.clone())
                    .map_err(|source| DriverError::Result { op: "batch", source })?;
                self.note_batch_seconds(&result);
                self.check_kernel_log(position)?;
                let made = made_by_driver(&ready.request, result, self.workshop, environment.clone())?;
                self.finish(ready.plan, ready.sources.clone(), made)
            }
        }
    }

    /// The seconds of this model's stages, under the names that a compile of its own would give them. Warps that several models
    /// share count for the one that waited for them.
    fn note_batch_seconds(&mut self, result: &CompileResult) {
        self.seconds =
            result.seconds.iter().map(|(stage, took)| (format!("compile.{stage}"), *took)).collect();
        self.seconds.insert("compile".to_owned(), result.seconds.values().sum());
    }
}
