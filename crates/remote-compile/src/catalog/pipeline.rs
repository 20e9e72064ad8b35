//! The order of a run: while one model compiles, the one before comes home and the next one goes there.
//!
//! An artifact is on its way home from when it is written, while its proof still runs. Once it is proven, what is left of it
//! follows, beside the next compile.
//!
//! The device compiles one model at a time and holds the files of two at most: the compiling one's, and those of the one
//! before until they are home, or of the next one from then on. Both happen on one thread beside the one that watches the
//! compile, in this order; where they take longer than the compile, it is waited for them.
//!
//! What needs the workspace alone (an artifact that is home goes into the upload folder, one that was found is hashed and
//! taken) is done by a [pool](super::pool) beside both, for several models at a time: the link and the device do not wait for
//! it. An interruption lets it end what it has begun, and an artifact that is home and recorded gets ready for upload all the
//! same; what was only found is left for the next run.

use std::{
    num::NonZeroUsize,
    sync::mpsc::{Receiver, Sender, channel},
    thread::{Scope, ScopedJoinHandle},
    time::Instant,
};

use rebuild_workspace::Workspace;
use tinygrad_compile::job::JobResult;

use super::{
    Action, CatalogEvent, CatalogOptions, ModelOutcome, PlannedModel, build,
    pool::{Pool, Tasks},
};
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
    early: Option<Early>,
}

/// An artifact that is on its way home before its job has ended.
struct Early(Receiver<()>);

impl Early {
    /// Waits until nothing of it moves any more.
    fn wait(self) {
        // Whoever moves it drops the other end, with or without a word.
        let _ = self.0.recv();
    }
}

/// An artifact to be brought home before its job has ended.
struct EarlyTask<'p> {
    planned: &'p PlannedModel,
    artifact: build::Unproven,
    /// Dropped when it has been tried.
    _done: Sender<()>,
}

/// Work on a model that needs the workspace alone.
struct LocalTask<'p> {
    index: usize,
    planned: &'p PlannedModel,
    began: Instant,
    work: LocalWork,
}

enum LocalWork {
    /// What was planned for a model that is not built.
    Process,
    /// An artifact that is home gets ready for upload.
    MakeReady(Box<build::AtHome>),
}

/// A model, by its place in the plan, and how it ended.
type Concluded = (usize, ModelOutcome);

/// How a job went to the device.
type There = Result<Prepared, JobFailure>;

/// What happened beside a compile.
#[derive(Default)]
struct Beside {
    /// The model before, where nothing is left to be done for it.
    home: Option<Concluded>,
    /// How the next model went there.
    there: Option<(usize, There)>,
}

/// The state of a run.
struct Run<'p, 'e> {
    plan: &'p [PlannedModel],
    pool: Pool<LocalTask<'p>, Concluded>,
    fetches: Pool<EarlyTask<'p>, ()>,
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
        self.conclude_ready();
    }

    /// Takes in what the pool has done so far.
    fn conclude_ready(&mut self) {
        while let Some((index, outcome)) = self.pool.ready() {
            self.conclude(index, outcome);
        }
    }

    /// Waits for all that the pool still does.
    fn conclude_rest(&mut self) {
        while let Some((index, outcome)) = self.pool.wait() {
            self.conclude(index, outcome);
        }
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
        std::thread::scope(|scope| {
            let pool = Pool::start(scope, self.options.jobs, move |task| self.do_here(task));
            let fetches = Pool::start(scope, NonZeroUsize::MIN, move |task| self.fetch_early(task));
            let outcomes = plan.iter().map(|_| None).collect();
            let (ended, there, stop) = (None, None, None);
            self.go_through(Run { plan, pool, fetches, outcomes, ended, there, stop, on_event })
        })
    }

    fn go_through(&self, mut run: Run<'p, '_>) -> Vec<ModelOutcome> {
        let plan = run.plan;
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
            run.conclude_ready();
        }
        if let (Some(device), Some(ended)) = (self.device, run.ended.take()) {
            self.end_now(device, ended, &mut run);
        }
        self.take_back(&mut run);
        run.conclude_rest();
        let why = run.stop.unwrap_or_default();
        let not_tried = |index: usize| ModelOutcome::not_tried(plan[index].model.id.clone(), why.clone());
        run.outcomes
            .into_iter()
            .enumerate()
            .map(|(index, outcome)| outcome.unwrap_or_else(|| not_tried(index)))
            .collect()
    }

    /// A model that is not built; what takes its time is done beside what follows.
    fn process(&self, index: usize, run: &mut Run<'p, '_>) {
        let planned = &run.plan[index];
        let task = LocalTask { index, planned, began: Instant::now(), work: LocalWork::Process };
        if build::takes_time(&planned.action) {
            run.pool.tasks().hand_over(task);
        } else {
            let (index, outcome) = self.do_here(task);
            run.conclude(index, outcome);
        }
    }

    /// Does a task of the pool.
    fn do_here(&self, task: LocalTask<'p>) -> Concluded {
        let LocalTask { index, planned, began, work } = task;
        let result = match work {
            // What was found stays where it is until the next run.
            LocalWork::Process if self.watch.is_cancelled() => Err(JobFailure::Interrupted.into()),
            LocalWork::Process => build::process(self.workspace, planned, self.options, &self.watch),
            LocalWork::MakeReady(home) => {
                build::make_ready_at_home(self.workspace, *home, self.options, &self.watch)
            }
        };
        (index, self.concluded(planned, result, began))
    }

    fn fetch_early(&self, EarlyTask { planned, artifact, _done }: EarlyTask<'p>) {
        if let (Some(device), false) = (self.device, self.watch.is_cancelled()) {
            artifact.fetch(self.workspace, device, planned, &self.watch);
        }
    }

    fn concluded(
        &self,
        planned: &PlannedModel,
        result: Result<ModelOutcome, build::ModelError>,
        began: Instant,
    ) -> ModelOutcome {
        let mut outcome = build::concluded(self.workspace, planned, result);
        outcome.seconds = began.elapsed().as_secs_f64();
        outcome
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
            let outcome = self.concluded(&run.plan[index], Err(failure.into()), began);
            return run.conclude(index, outcome);
        }
        let next = (index + 1..run.plan.len()).find_map(|next| Some((next, job_of(&run.plan[next])?)));
        let before = run.ended.take();
        let (planned, mut early) = (&run.plan[index], None);
        let (result, beside) = std::thread::scope(|scope| {
            let lane = self.beside(scope, device, before, next, run.pool.tasks().clone());
            let id = &planned.model.id;
            let result = supervise(device, &job.name, &self.watch, &mut |event| {
                if let Some(artifact) = build::Unproven::told_by(event) {
                    let (done, end) = channel();
                    run.fetches.tasks().hand_over(EarlyTask { planned, artifact, _done: done });
                    // A job that was started anew tells of it again: the earlier transfer comes first.
                    early = Some(Early(end));
                }
                (run.on_event)(CatalogEvent::Job { id, event });
                run.conclude_ready();
            });
            (result, lane.join())
        });
        run.take_in(beside.unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        run.ended = Some(Ended { index, planned, result, began, early });
        // What failed is known at once, and decides whether the next one is tried.
        if run.ended.as_ref().is_some_and(|ended| ended.result.is_err())
            && let Some(ended) = run.ended.take()
        {
            self.end_now(device, ended, run);
        }
    }

    fn end_now(&self, device: &dyn Device, ended: Ended<'p>, run: &mut Run<'p, '_>) {
        if let Some((index, outcome)) = self.end(device, ended, run.pool.tasks()) {
            run.conclude(index, outcome);
        }
    }

    fn beside<'s>(
        &'s self,
        scope: &'s Scope<'s, '_>,
        device: &'s dyn Device,
        before: Option<Ended<'p>>,
        next: Option<(usize, &'s PreparedJob)>,
        local: Tasks<LocalTask<'p>>,
    ) -> ScopedJoinHandle<'s, Beside>
    where
        'p: 's,
    {
        scope.spawn(move || {
            let home = before.and_then(|ended| self.end(device, ended, &local));
            let stops = home.as_ref().is_some_and(|(_, outcome)| outcome.stops_run);
            let next = next.filter(|_| !stops && !self.watch.is_cancelled());
            let there =
                next.map(|(index, job)| (index, build::put_there(device, job, self.options, &self.watch)));
            Beside { home, there }
        })
    }

    /// Brings a model home; the pool gets it ready for upload. Returns how it ended where it did not come home.
    fn end(&self, device: &dyn Device, ended: Ended<'p>, local: &Tasks<LocalTask<'p>>) -> Option<Concluded> {
        let Ended { index, planned, result, began, early } = ended;
        if let Some(early) = early {
            early.wait();
        }
        match build::end(self.workspace, device, planned, result, self.options, &self.watch) {
            Ok(home) => {
                local.hand_over(LocalTask { index, planned, began, work: LocalWork::MakeReady(home.into()) });
                None
            }
            Err(error) => Some((index, self.concluded(planned, Err(error), began))),
        }
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
