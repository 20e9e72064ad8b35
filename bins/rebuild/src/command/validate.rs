//! `rebuild validate`.

use std::{sync::atomic::Ordering, time::Instant};

use camino::Utf8PathBuf;
use clap::Args;
use console_report::{Console, Exit, Failure, seconds_text};
use device_validate::{
    DmValidated, Severity, ValidateError, ValidateOptions, Validated, Verdict, validate_dm, validate_model,
};
use model_catalog::{BehaviorVersion, ModelId, Target};
use rebuild_workspace::{ArtifactRecord, BudgetConfig, MAX_SOAK_MINUTES, version_of};
use remote_compile::{
    device::Device,
    supervise::{JobFailure, Watch},
};
use serde_json::{Map, Value};

use crate::{
    cli::{Cli, DeviceArgs, ModelArgs},
    device::{Allowed, allowed, connect, named},
    failure::{of_device, of_models, of_workspace},
    selection::{Selected, select},
    session::{Session, at_home},
    stages::Stages,
};

/// Runs every artifact on the device in a fresh process, as the runtime would, and judges its outputs, times and memory.
#[derive(Debug, Args)]
pub struct ValidateArgs {
    /// What to work on.
    #[command(flatten)]
    model: ModelArgs,
    /// Where to work.
    #[command(flatten)]
    device: DeviceArgs,
    /// Validate the driver-monitoring set instead of driving models.
    #[arg(long, conflicts_with_all = ["models", "source_map", "base_manifest"])]
    dm: bool,
    /// Compare every output slice with ONNX Runtime on the same inputs, on this machine.
    #[arg(long)]
    reference: bool,
    /// The Python of this machine with onnxruntime [default: `reference_python` of rebuild.toml, else python3].
    #[arg(long, value_name = "FILE", requires = "reference")]
    reference_python: Option<Utf8PathBuf>,
    /// Go on for so many minutes at the camera's rate, and judge how step times and memory develop.
    #[arg(long, value_name = "MINUTES", default_value_t = 0.0, value_parser = minutes)]
    soak: f64,
    /// What the device allows.
    #[command(flatten)]
    budget: BudgetArgs,
    /// The target of normal artifacts [default: `target` of rebuild.toml, else qcom].
    #[arg(long, value_name = "TARGET")]
    target: Option<Target>,
    /// The device's Python, with tinygrad and numpy [default: `python` of rebuild.toml, else the device's own].
    #[arg(long, value_name = "FILE")]
    python: Option<Utf8PathBuf>,
}

/// What an artifact may take, where it is not what `budgets` of rebuild.toml or the target allows; `inf` is no bound.
#[derive(Debug, Args)]
struct BudgetArgs {
    /// Most milliseconds of a median step.
    #[arg(long, value_name = "MS", value_parser = bound)]
    step_p50_ms: Option<f64>,
    /// Most milliseconds of 99 steps in 100.
    #[arg(long, value_name = "MS", value_parser = bound)]
    step_p99_ms: Option<f64>,
    /// Most seconds of loading.
    #[arg(long, value_name = "SECONDS", value_parser = bound)]
    load_seconds: Option<f64>,
    /// Most memory of the process in MiB.
    #[arg(long, value_name = "MIB", value_parser = bound)]
    peak_mib: Option<f64>,
    /// Most growth of memory in a minute of a soak in MiB.
    #[arg(long, value_name = "MIB", value_parser = bound)]
    growth_mib: Option<f64>,
}

impl BudgetArgs {
    fn config(&self) -> BudgetConfig {
        let Self { step_p50_ms, step_p99_ms, load_seconds, peak_mib, growth_mib } = *self;
        BudgetConfig { step_p50_ms, step_p99_ms, load_seconds, peak_mib, growth_mib }
    }
}

fn bound(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| "a number is needed, or inf".to_owned())?;
    if value > 0.0 { Ok(value) } else { Err("it must be above 0".to_owned()) }
}

fn minutes(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| "a number of minutes is needed".to_owned())?;
    if (0.0..=MAX_SOAK_MINUTES).contains(&value) {
        Ok(value)
    } else {
        Err(format!("0 to {MAX_SOAK_MINUTES} minutes are possible"))
    }
}

pub fn run(args: &ValidateArgs, cli: &Cli, console: &Console) -> Result<(), Failure> {
    let session = Session::for_run(cli, console, "rebuild validate", args.model.dry_run)?;
    let device = allowed(&session, &args.device)?;
    let mut validation =
        Validation { session: &session, allowed: device, device: None, options: options(args, &session) };
    if args.dm { driver_monitoring(args, &mut validation) } else { models(args, &mut validation) }
}

fn options(args: &ValidateArgs, session: &Session<'_>) -> ValidateOptions {
    let config = &session.config;
    let configured = |path: &Option<Utf8PathBuf>| path.as_ref().map(|path| session.configured(path));
    let by_device = config.budgets.get(named(session, &args.device)).copied().unwrap_or_default();
    let reference = args
        .reference_python
        .as_ref()
        .map(|path| at_home(path))
        .or_else(|| configured(&config.reference_python));
    ValidateOptions {
        target: args.target.unwrap_or(config.target()),
        force: args.model.force,
        python: args.python.clone().or_else(|| configured(&config.python)),
        budget: args.budget.config().or(by_device),
        reference: args.reference.then(|| reference.unwrap_or_else(|| "python3".into())),
        soak_minutes: args.soak,
        driver_sha256: String::new(),
    }
}

fn models(args: &ValidateArgs, validation: &mut Validation<'_>) -> Result<(), Failure> {
    let session = validation.session;
    let console = session.console;
    let map = session.source_map(&args.model.catalog)?;
    let base = session.base_manifest(&args.model.catalog)?;
    let models = compiled(session, select(&session.workspace, &map, &args.model.models)?)?;
    if args.model.dry_run {
        for model in &models {
            console.result(&serde_json::json!({"id": model.id, "action": "validate"}), || {
                format!("{}: would be validated unless its record is of this artifact", model.id)
            });
        }
        return Ok(());
    }
    let started = Instant::now();
    let mut tally = Tally::default();
    for model in &models {
        session.check_interrupt("the validation")?;
        let outcome =
            validation.model(model, version_of(base.as_ref(), &model.id, model.entry.input_format))?;
        if let Some(validated) =
            tally.note(session, &model.id, outcome, |validated: &Validated| validated.passed)
        {
            show(console, model, &validated);
        }
    }
    session.check_interrupt("the validation")?;
    let took = seconds_text(started.elapsed().as_secs_f64());
    console.note(&format!("{} passed, {} failed in {took}", tally.passed, tally.failed.len()));
    let failed: Vec<&str> = tally.failed.iter().map(ModelId::as_str).collect();
    of_models("validated", &failed, models.len(), tally.environment)
}

fn driver_monitoring(args: &ValidateArgs, validation: &mut Validation<'_>) -> Result<(), Failure> {
    let session = validation.session;
    let id = device_validate::dm_id();
    if args.model.dry_run {
        session.console.result(&serde_json::json!({"id": id, "action": "validate"}), || {
            "driver monitoring: would be validated unless its record is of these files".to_owned()
        });
        return Ok(());
    }
    let mut tally = Tally::default();
    let outcome = validation.driver_monitoring(&id)?;
    if let Some(validated) =
        tally.note(session, &id, outcome, |validated: &DmValidated| validated.record.passed())
    {
        show_verdicts(session.console, &id, &validated.record.extra);
        session.console.result(&validated.record, || {
            let word = word(validated.record.passed(), validated.was_current);
            format!("driver monitoring: {word}, {} outputs", validated.record.output_sizes.len())
        });
    }
    session.check_interrupt("the validation")?;
    let failed: Vec<&str> = tally.failed.iter().map(ModelId::as_str).collect();
    of_models("validated", &failed, 1, tally.environment)
}

/// What became of what was validated.
#[derive(Default)]
struct Tally {
    passed: usize,
    failed: Vec<ModelId>,
    environment: bool,
}

impl Tally {
    /// Counts an outcome; one that was judged is given back to be shown.
    fn note<T>(
        &mut self,
        session: &Session<'_>,
        id: &ModelId,
        outcome: Result<T, ValidateError>,
        passed: impl Fn(&T) -> bool,
    ) -> Option<T> {
        match outcome {
            Ok(validated) => {
                if passed(&validated) {
                    self.passed += 1
                } else {
                    self.failed.push(id.clone())
                }
                return Some(validated);
            }
            Err(ValidateError::Job(JobFailure::Interrupted)) => {
                session.interrupt.store(true, Ordering::Relaxed)
            }
            Err(error) => {
                self.environment |= error.is_environment();
                let exit = if error.is_environment() { Exit::Environment } else { Exit::Failed };
                let failure = Failure::new(exit, format!("{id} was not validated")).because(&error);
                session.console.show(&failure.maybe_advice(error.hint().map(str::to_owned)));
                self.failed.push(id.clone());
            }
        }
        None
    }
}

/// The models that have an artifact; one that was asked for by name is kept, so that its absence is an error.
fn compiled(session: &Session<'_>, models: Vec<Selected>) -> Result<Vec<Selected>, Failure> {
    let recorded =
        session.workspace.recorded::<ArtifactRecord>().map_err(of_workspace("the records cannot be read"))?;
    let (kept, left): (Vec<_>, Vec<_>) =
        models.into_iter().partition(|model| model.is_named || recorded.contains(&model.id));
    if !left.is_empty() {
        session.console.note(&format!("{} models have no artifact yet and are left out", left.len()));
    }
    Ok(kept)
}

struct Validation<'a> {
    session: &'a Session<'a>,
    allowed: Allowed,
    // Connected to when the first model needs it.
    device: Option<Box<dyn Device>>,
    options: ValidateOptions,
}

impl Validation<'_> {
    fn model(
        &mut self,
        model: &Selected,
        version: Option<BehaviorVersion>,
    ) -> Result<Result<Validated, ValidateError>, Failure> {
        self.on_device(&model.id, |session, device, options, watch, on_event| {
            validate_model(&session.workspace, device, (&model.id, version), options, watch, on_event)
        })
    }

    fn driver_monitoring(&mut self, id: &ModelId) -> Result<Result<DmValidated, ValidateError>, Failure> {
        self.on_device(id, |session, device, options, watch, on_event| {
            validate_dm(&session.workspace, device, options, watch, on_event)
        })
    }

    /// Does `work` with the device reserved and connected.
    fn on_device<T>(
        &mut self,
        id: &ModelId,
        work: impl FnOnce(
            &Session<'_>,
            &dyn Device,
            &ValidateOptions,
            &Watch<'_>,
            &mut dyn FnMut(&Value),
        ) -> Result<T, ValidateError>,
    ) -> Result<Result<T, ValidateError>, Failure> {
        let session = self.session;
        let device = match &mut self.device {
            Some(device) => device,
            none => {
                let device = none.insert(connect(session, &self.allowed)?);
                let unusable = |error| of_device("the device cannot be used", &error);
                self.options.driver_sha256 = device.probe().map_err(unusable)?.driver_sha256;
                device
            }
        };
        let _reservation = device
            .reserve("rebuild validate")
            .map_err(|error| of_device("the device cannot be used", &error))?;
        let watch = Watch { cancel: &session.interrupt, progress: session.console };
        let mut stages = Stages::default();
        let done = work(session, device.as_ref(), &self.options, &watch, &mut |event| {
            stages.show(session.console, id, event);
        });
        stages.end(session.console);
        Ok(done)
    }
}

fn show_verdicts(console: &Console, id: &ModelId, fields: &Map<String, Value>) {
    let verdicts = fields.get("verdicts").cloned().unwrap_or_default();
    let verdicts: Vec<Verdict> = serde_json::from_value(verdicts).unwrap_or_default();
    for verdict in &verdicts {
        match verdict.severity {
            Severity::Warning => console.warn(&format!("{id}: {verdict}")),
            Severity::Failure => console.show(&Failure::new(Exit::Failed, format!("{id}: {verdict}"))),
        }
    }
}

const fn word(passed: bool, was_current: bool) -> &'static str {
    match (passed, was_current) {
        (true, true) => "passed before",
        (true, false) => "passed",
        (false, true) => "failed before",
        (false, false) => "failed",
    }
}

fn show(console: &Console, model: &Selected, validated: &Validated) {
    let record = &validated.record;
    show_verdicts(console, &model.id, &record.extra);
    console.result(record, || {
        let word = word(validated.passed, validated.was_current);
        format!("{}: {word}, {}, {} outputs", model.id, record.model_type, record.output_sizes.len())
    });
}
