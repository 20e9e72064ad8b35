//! The order of a run: while one model compiles, the one before comes home and the next one goes there.
//!
//! The device compiles one model at a time and holds the files of two at most: the compiling one's, and those of the one
//! before until they are home, or of the next one from then on. Both happen on one thread beside the one that watches the
//! compile, in this order; where they take longer than the compile, it is waited for them.

use std::{
    thread::{Scope, ScopedJoinHandle},
    time::Instant,
};

use durable_fs::NoProgress;
use rebuild_workspace::Workspace;
use tinygrad_compile::job::JobResult;

use super::{Action, CatalogEvent, CatalogOptions, ModelOutcome, PlannedModel, build};
use crate::{
    device::Device,
    supervise::{JobFailure, Prepared, PreparedJob, Watch, supervise},
};

/// What a run works with.
pub(super) struct Pipeline<'p> {
    pub(super) workspace: &'p Workspace,
    pub(super) device: Option<&'p dyn Device>,
    pub(super) options: &'p CatalogOptions,
    pub(super) watch: Watch<'p>,
}

/// A model whose job has ended and whose files are still on the device.
struct Ended<'p> {
    index: usize,
    planned: &'p PlannedModel,
    result: Result<JobResult, JobFailure>,
    began: Instant,
}

/// How a job went to the device.
type There = Result<Prepared, JobFailure>;

/// What happened beside a compile.
#[derive(Default)]
struct Beside {
    home: Option<(usize, ModelOutcome)>,
    /// How the next model went there.
    there: Option<(usize, There)>,
}

/// The state of a run.
struct Run<'p, 'e> {
    plan: &'p [PlannedModel],
    outcomes: Vec<Option<ModelOutcome>>,
    ended: Option<Ended<'p>>,
    there: Option<(usize, There)>,
    /// Why no further model is begun.
    stop: Option<String>,
    on_event: &'e mut dyn FnMut(CatalogEvent<'_>),
}

impl Run<'_, '_> {
    fn conclude(&mut self, index: usize, outcome: ModelOutcome) {
        if outcome.stops_run {
            self.stop.clone_from(&outcome.error);
        }
        (self.on_event)(CatalogEvent::End(&outcome));
        self.outcomes[index] = Some(outcome);
    }

    fn begin(&mut self, index: usize) {
        let planned = &self.plan[index];
        (self.on_event)(CatalogEvent::Begin {
            id: &planned.model.id,
            number: index + 1,
            total: self.plan.len(),
            action: &planned.action,
        });
    }

    fn take_in(&mut self, beside: Beside) {
        if let Some((index, outcome)) = beside.home {
            self.conclude(index, outcome);
        }
        self.there = beside.there;
    }
}

fn job_of(planned: &PlannedModel) -> Option<&PreparedJob> {
    match &planned.action {
        Action::Build { job, .. } => Some(job),
        _ => None,
    }
}

impl<'p> Pipeline<'p> {
    /// Carries out the plan; an outcome for each model, in the plan's order.
    pub(super) fn run(
        &self,
        plan: &'p [PlannedModel],
        on_event: &mut dyn FnMut(CatalogEvent<'_>),
    ) -> Vec<ModelOutcome> {
        let outcomes = plan.iter().map(|_| None).collect();
        let mut run = Run { plan, outcomes, ended: None, there: None, stop: None, on_event };
        for (index, planned) in plan.iter().enumerate() {
            if self.watch.is_cancelled() {
                run.stop.get_or_insert_with(|| "interrupted".to_owned());
            }
            if run.stop.is_some() {
                break;
            }
            run.begin(index);
            match (job_of(planned), self.device) {
                (Some(job), Some(device)) => self.build(device, job, index, &mut run),
                _ => self.process(index, &mut run),
            }
        }
        if let (Some(device), Some(ended)) = (self.device, run.ended.take()) {
            let (index, outcome) = self.end(device, ended, &self.watch);
            run.conclude(index, outcome);
        }
        self.take_back(&mut run);
        let why = run.stop.unwrap_or_default();
        let not_tried = |index: usize| ModelOutcome::not_tried(plan[index].model.id.clone(), why.clone());
        run.outcomes
            .into_iter()
            .enumerate()
            .map(|(index, outcome)| outcome.unwrap_or_else(|| not_tried(index)))
            .collect()
    }

    fn process(&self, index: usize, run: &mut Run<'_, '_>) {
        let (planned, began) = (&run.plan[index], Instant::now());
        let result = build::process(self.workspace, planned, self.options, &self.watch);
        let mut outcome = build::concluded(self.workspace, planned, result);
        outcome.seconds = began.elapsed().as_secs_f64();
        run.conclude(index, outcome);
    }

    /// Compiles a model while the one before comes home and the next one goes there.
    fn build(&self, device: &'p dyn Device, job: &PreparedJob, index: usize, run: &mut Run<'p, '_>) {
        let began = Instant::now();
        let there = match run.there.take() {
            Some((prepared, there)) if prepared == index => there,
            _ => build::put_there(device, job, self.options, &self.watch),
        };
        let started = there.and_then(|prepared| match prepared {
            Prepared::Ready => Ok(device.start(&job.name)?),
            Prepared::Begun => Ok(()),
        });
        if let Err(failure) = started {
            let mut outcome = build::concluded(self.workspace, &run.plan[index], Err(failure.into()));
            outcome.seconds = began.elapsed().as_secs_f64();
            return run.conclude(index, outcome);
        }
        let next = (index + 1..run.plan.len()).find_map(|next| Some((next, job_of(&run.plan[next])?)));
        let before = run.ended.take();
        let (result, beside) = std::thread::scope(|scope| {
            let lane = self.beside(scope, device, before, next);
            let id = &run.plan[index].model.id;
            let result = supervise(device, &job.name, &self.watch, &mut |event| {
                (run.on_event)(CatalogEvent::Job { id, event });
            });
            (result, lane.join())
        });
        run.take_in(beside.unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        run.ended = Some(Ended { index, planned: &run.plan[index], result, began });
        // What failed is known at once, and decides whether the next one is tried.
        if run.ended.as_ref().is_some_and(|ended| ended.result.is_err())
            && let Some(ended) = run.ended.take()
        {
            let (index, outcome) = self.end(device, ended, &self.watch);
            run.conclude(index, outcome);
        }
    }

    fn beside<'s>(
        &'s self,
        scope: &'s Scope<'s, '_>,
        device: &'s dyn Device,
        before: Option<Ended<'s>>,
        next: Option<(usize, &'s PreparedJob)>,
    ) -> ScopedJoinHandle<'s, Beside> {
        scope.spawn(move || {
            let quiet = Watch { cancel: self.watch.cancel, progress: &NoProgress };
            let home = before.map(|ended| self.end(device, ended, &quiet));
            let stops = home.as_ref().is_some_and(|(_, outcome)| outcome.stops_run);
            let next = next.filter(|_| !stops && !self.watch.is_cancelled());
            let there = next.map(|(index, job)| (index, build::put_there(device, job, self.options, &quiet)));
            Beside { home, there }
        })
    }

    fn end(&self, device: &dyn Device, ended: Ended<'_>, watch: &Watch<'_>) -> (usize, ModelOutcome) {
        let Ended { index, planned, result, began } = ended;
        let ended = build::end(self.workspace, device, planned, result, self.options, watch);
        let mut outcome = build::concluded(self.workspace, planned, ended);
        outcome.seconds = began.elapsed().as_secs_f64();
        (index, outcome)
    }

    /// Removes what went to the device for a model that is not begun after all.
    fn take_back(&self, run: &mut Run<'_, '_>) {
        if let (Some(device), Some((index, _))) = (self.device, run.there.take())
            && let Some(job) = job_of(&run.plan[index])
        {
            // Where it cannot be removed now, the next run uses or sweeps it.
            let _ = device.remove(&job.name);
        }
    }
}
