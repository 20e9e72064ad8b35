//! `rebuild validate`.

use std::time::Instant;

use camino::Utf8PathBuf;
use clap::Args;
use console_report::{Console, Exit, Failure, seconds_text};
use device_validate::{Severity, ValidateError, ValidateOptions, Validated, Verdict, validate_model};
use model_catalog::Target;
use rebuild_workspace::{ArtifactRecord, version_of};
use remote_compile::{
    device::Device,
    supervise::{JobFailure, Watch},
};

use crate::{
    cli::{Cli, DeviceArgs, ModelArgs},
    device::{Allowed, allowed, connect},
    failure::{of_device, of_models, of_workspace},
    selection::{Selected, select},
    session::Session,
    stages::Stages,
};

/// Runs every artifact on the device in a fresh process, as the runtime would, and judges its outputs.
#[derive(Debug, Args)]
pub struct ValidateArgs {
    /// What to work on.
    #[command(flatten)]
    model: ModelArgs,
    /// Where to work.
    #[command(flatten)]
    device: DeviceArgs,
    /// The target of normal artifacts [default: `target` of rebuild.toml, else qcom].
    #[arg(long, value_name = "TARGET")]
    target: Option<Target>,
    /// The device's Python, with tinygrad and numpy [default: `python` of rebuild.toml, else the device's own].
    #[arg(long, value_name = "FILE")]
    python: Option<Utf8PathBuf>,
}

pub fn run(args: &ValidateArgs, cli: &Cli, console: &Console) -> Result<(), Failure> {
    let session = Session::for_run(cli, console, "rebuild validate", args.model.dry_run)?;
    let device = allowed(&session, &args.device)?;
    let map = session.source_map(&args.model.catalog)?;
    let base = session.base_manifest(&args.model.catalog)?;
    let models = compiled(&session, select(&session.workspace, &map, &args.model.models)?)?;
    if args.model.dry_run {
        for model in &models {
            console.result(&serde_json::json!({"id": model.id, "action": "validate"}), || {
                format!("{}: would be validated unless its record is of this artifact", model.id)
            });
        }
        return Ok(());
    }
    let python =
        args.python.clone().or_else(|| session.config.python.as_ref().map(|path| session.configured(path)));
    let options = ValidateOptions {
        target: args.target.unwrap_or(session.config.target()),
        force: args.model.force,
        python,
        budget: None,
    };
    let mut validation = Validation { session: &session, allowed: device, device: None, options };
    let started = Instant::now();
    let (mut failed, mut environment, mut passed) = (Vec::new(), false, 0);
    for model in &models {
        session.check_interrupt("the validation")?;
        match validation.model(model, version_of(base.as_ref(), &model.id, model.entry.input_format))? {
            Ok(validated) => {
                let good = validated.passed;
                show(console, model, &validated);
                if good { passed += 1 } else { failed.push(model.id.as_str()) }
            }
            Err(ValidateError::Job(JobFailure::Interrupted)) => {
                session.interrupt.store(true, std::sync::atomic::Ordering::Relaxed);
            }
            Err(error) => {
                environment |= error.is_environment();
                let exit = if error.is_environment() { Exit::Environment } else { Exit::Failed };
                let failure = Failure::new(exit, format!("{} was not validated", model.id)).because(&error);
                console.show(&failure.maybe_advice(error.hint().map(str::to_owned)));
                failed.push(model.id.as_str());
            }
        }
    }
    session.check_interrupt("the validation")?;
    let took = seconds_text(started.elapsed().as_secs_f64());
    console.note(&format!("{passed} passed, {} failed in {took}", failed.len()));
    of_models("validated", &failed, models.len(), environment)
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
        version: Option<model_catalog::BehaviorVersion>,
    ) -> Result<Result<Validated, ValidateError>, Failure> {
        let session = self.session;
        let device = match &mut self.device {
            Some(device) => device,
            none => none.insert(connect(session, &self.allowed)?),
        };
        let _reservation = device
            .reserve("rebuild validate")
            .map_err(|error| of_device("the device cannot be used", &error))?;
        let watch = Watch { cancel: &session.interrupt, progress: session.console };
        let mut stages = Stages::default();
        let validated = validate_model(
            &session.workspace,
            device.as_ref(),
            (&model.id, version),
            &self.options,
            &watch,
            &mut |event| stages.show(session.console, &model.id, event),
        );
        stages.end(session.console);
        Ok(validated)
    }
}

fn show(console: &Console, model: &Selected, validated: &Validated) {
    let verdicts = validated.record.extra.get("verdicts").cloned().unwrap_or_default();
    let verdicts: Vec<Verdict> = serde_json::from_value(verdicts).unwrap_or_default();
    for verdict in &verdicts {
        match verdict.severity {
            Severity::Warning => console.warn(&format!("{}: {verdict}", model.id)),
            Severity::Failure => {
                console.show(&Failure::new(Exit::Failed, format!("{}: {verdict}", model.id)))
            }
        }
    }
    console.result(&validated.record, || {
        let word = match (validated.passed, validated.was_current) {
            (true, true) => "passed before",
            (true, false) => "passed",
            (false, true) => "failed before",
            (false, false) => "failed",
        };
        let record = &validated.record;
        format!("{}: {word}, {}, {} outputs", model.id, record.model_type, record.output_sizes.len())
    });
}
