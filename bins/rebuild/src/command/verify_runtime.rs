//! `rebuild verify --runtime`: representative models drive on the device's own runtime.

use clap::Args;
use console_report::{Console, Exit, Failure};
use device_validate::{
    ValidateError,
    runtime::{Candidate, RuntimeModel, RuntimePlan, RuntimeRecord, representatives, verify_runtime},
};
use model_catalog::{Camera, Manifest};
use rebuild_workspace::{ArtifactRecord, version_of};
use remote_compile::{
    device::Device,
    supervise::{JobFailure, Watch},
};
use serde_json::json;
use tinygrad_compile::job::RuntimeResult;

use crate::{
    cli::{CatalogArgs, Cli, DeviceArgs},
    device::{Allowed, allowed, connect},
    failure::{of_device, of_models, of_workspace},
    selection::{Selected, select},
    session::Session,
    stages::Stages,
};

/// How the runtime is verified.
#[derive(Debug, Args)]
pub struct RuntimeArgs {
    /// With --runtime: a model, by source or release ID; may be given several times [default: one each of v8, v11, v12, v15
    /// and supercombo].
    #[arg(long = "model", value_name = "ID", requires = "runtime")]
    models: Vec<String>,
    /// With --runtime: how long the outputs of each model are looked at.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,
    /// With --runtime: how long a model may take to its first output.
    #[arg(long, value_name = "SECONDS", default_value_t = 120, value_parser = clap::value_parser!(u32).range(1..=3600))]
    startup_seconds: u32,
    /// With --runtime: fail unless each model was seen to drive on both camera resolutions, here or earlier.
    #[arg(long, requires = "runtime")]
    both_cameras: bool,
    /// With --runtime: say what would be done, and touch no device.
    #[arg(long, requires = "runtime")]
    dry_run: bool,
    /// Where the models drive.
    #[command(flatten)]
    device: DeviceArgs,
}

pub fn run(args: &RuntimeArgs, catalog: &CatalogArgs, cli: &Cli, console: &Console) -> Result<(), Failure> {
    let session = Session::for_run(cli, console, "rebuild verify --runtime", args.dry_run)?;
    let map = session.source_map(catalog)?;
    let base = session.base_manifest(catalog)?;
    let models = chosen(&session, select(&session.workspace, &map, &args.models)?, base.as_ref(), args)?;
    let device = allowed(&session, &args.device)?;
    if args.dry_run {
        for model in &models {
            console.result(&json!({"id": model.id, "action": "verify_runtime"}), || {
                format!("{}: would drive for {} s on the device's runtime", model.id, args.seconds)
            });
        }
        return Ok(());
    }
    let plan = RuntimePlan {
        seconds: args.seconds,
        startup_seconds: args.startup_seconds,
        target: session.config.target(),
        config: session.config.runtime.clone(),
    };
    verify_each(&session, &device, &models, &plan, args.both_cameras)
}

fn verify_each(
    session: &Session<'_>,
    allowed: &Allowed,
    models: &[RuntimeModel],
    plan: &RuntimePlan,
    both_cameras: bool,
) -> Result<(), Failure> {
    let console = session.console;
    let device = connect(session, allowed)?;
    let (mut failed, mut environment) = (Vec::new(), false);
    for model in models {
        session.check_interrupt("the verification")?;
        match one(session, device.as_ref(), model, plan)? {
            Ok(result) => {
                let unseen = unseen(session, model)?;
                show(console, model, &result, &unseen);
                if !result.findings.is_empty() || (both_cameras && !unseen.is_empty()) {
                    failed.push(model.id.as_str());
                }
            }
            Err(ValidateError::Job(JobFailure::Interrupted)) => {
                session.interrupt.store(true, std::sync::atomic::Ordering::Relaxed);
            }
            Err(error) => {
                let failure = of_runtime(model, &error);
                // What forbids one model forbids them all.
                if matches!(failure.exit(), Exit::Refused) {
                    return Err(failure);
                }
                environment |= error.is_environment();
                console.show(&failure);
                failed.push(model.id.as_str());
            }
        }
    }
    session.check_interrupt("the verification")?;
    of_models("verified on the runtime", &failed, models.len(), environment)
}

fn one(
    session: &Session<'_>,
    device: &dyn Device,
    model: &RuntimeModel,
    plan: &RuntimePlan,
) -> Result<Result<RuntimeResult, ValidateError>, Failure> {
    let _reservation = device
        .reserve("rebuild verify --runtime")
        .map_err(|error| of_device("the device cannot be used", &error))?;
    let watch = Watch { cancel: &session.interrupt, progress: session.console };
    let mut stages = Stages::default();
    let verified = verify_runtime(&session.workspace, device, model, plan, &watch, &mut |event| {
        stages.show(session.console, &model.id, event);
    });
    stages.end(session.console);
    Ok(verified)
}

fn of_runtime(model: &RuntimeModel, error: &ValidateError) -> Failure {
    let exit = match error {
        ValidateError::Job(JobFailure::Failed(error)) if error.kind == "on_road" => Exit::Refused,
        error if error.is_environment() => Exit::Environment,
        _ => Exit::Failed,
    };
    Failure::new(exit, format!("{} was not verified on the runtime", model.id))
        .because(error)
        .maybe_advice(error.hint().map(str::to_owned))
}

/// The camera resolutions on which the model was not seen to drive.
fn unseen(session: &Session<'_>, model: &RuntimeModel) -> Result<Vec<Camera>, Failure> {
    let record = session.workspace.record::<RuntimeRecord>(&model.id);
    let record = record.map_err(of_workspace("the record of the runtime cannot be read"))?;
    Ok(record.map(|record| record.cameras_missing()).unwrap_or_default())
}

fn show(console: &Console, model: &RuntimeModel, result: &RuntimeResult, unseen: &[Camera]) {
    for finding in &result.findings {
        let what = format!("{}: {}: {}", model.id, finding.check, finding.text);
        console.show(&Failure::new(Exit::Failed, what));
    }
    let value = json!({"id": model.id, "passed": result.findings.is_empty(), "cameras_unseen": unseen, "run": result});
    console.result(&value, || {
        let word = if result.findings.is_empty() { "drives" } else { "does not drive" };
        let camera =
            result.camera.map_or_else(|| "an unknown camera".to_owned(), |camera| camera.to_string());
        let unseen: Vec<String> = unseen.iter().map(Camera::to_string).collect();
        let rest = if unseen.is_empty() {
            String::new()
        } else {
            format!("; not yet seen on {}", unseen.join(", "))
        };
        format!("{}: {word} on {camera}, {:.0} s{rest}", model.id, result.seconds)
    });
}

/// The models that were asked for, or those that stand for the catalog.
fn chosen(
    session: &Session<'_>,
    selected: Vec<Selected>,
    base: Option<&Manifest>,
    args: &RuntimeArgs,
) -> Result<Vec<RuntimeModel>, Failure> {
    let artifacts =
        session.workspace.recorded::<ArtifactRecord>().map_err(of_workspace("the records cannot be read"))?;
    let mut models: Vec<(Candidate, RuntimeModel)> = Vec::new();
    for model in selected.into_iter().filter(|model| model.is_named || artifacts.contains(&model.id)) {
        let version = version_of(base, &model.id, model.entry.input_format);
        let name =
            base.and_then(|manifest| manifest.get(&model.id)).map(|entry| entry.display_name().to_owned());
        let candidate = Candidate {
            id: model.id.clone(),
            version,
            input_format: model.entry.input_format,
            uses_external_gpu: model.entry.uses_external_gpu,
        };
        let name = name.unwrap_or_else(|| model.id.to_string());
        models.push((candidate, RuntimeModel { id: model.id, name, version }));
    }
    if !args.models.is_empty() {
        return Ok(models.into_iter().map(|(_, model)| model).collect());
    }
    let candidates: Vec<Candidate> = models.iter().map(|(candidate, _)| candidate.clone()).collect();
    let (found, missing) = representatives(&candidates);
    if found.is_empty() {
        return Err(Failure::new(Exit::Failed, "there is no model to verify")
            .why("no artifact of the workspace is of v8, v11, v12, v15 or a supercombo")
            .advice("compile first, or name a model with --model"));
    }
    for role in missing {
        session.console.warn(&format!("no artifact stands for {role}"));
    }
    Ok(found
        .into_iter()
        .filter_map(|(_, id)| models.iter().find(|(c, _)| c.id == id))
        .map(|(_, m)| m.clone())
        .collect())
}
