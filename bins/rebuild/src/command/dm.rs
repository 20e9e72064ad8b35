//! `rebuild dm`.

use std::sync::atomic::Ordering;

use camino::Utf8PathBuf;
use clap::Args;
use console_report::{Console, Failure, seconds_text, size_text};
use model_catalog::{ModelId, Target};
use remote_compile::{
    monitoring::{MonitoringOptions, MonitoringPlan, compile_dm, plan_dm, recover_dm},
    supervise::Watch,
};
use serde_json::json;

use crate::{
    cli::{Cli, DeviceArgs},
    device::{allowed, connect},
    failure::of_monitoring,
    session::Session,
    stages::Stages,
};

const NOT_COMPILED: &str = "driver monitoring was not compiled";

/// Compiles driver monitoring on the device and puts its source, model, metadata and both camera warps into
/// driver-monitoring/: all of them together, or none.
#[derive(Debug, Args)]
pub struct DmArgs {
    /// The source [default: the one that is in driver-monitoring/].
    #[arg(long, value_name = "FILE")]
    onnx: Option<Utf8PathBuf>,
    /// Where to work.
    #[command(flatten)]
    device: DeviceArgs,
    /// What to compile for: qcom or cpu [default: `target` of rebuild.toml, else qcom].
    #[arg(long, value_name = "TARGET")]
    target: Option<Target>,
    /// Build it although it is current.
    #[arg(long)]
    force: bool,
    /// Build again what only an older driver makes outdated.
    #[arg(long)]
    outdated: bool,
    /// Say what would be done, and change nothing.
    #[arg(long)]
    dry_run: bool,
    /// Which compiler to use on the device: auto, tree or embedded.
    #[arg(long, value_name = "WHICH", value_parser = ["auto", "tree", "embedded"])]
    toolchain: Option<String>,
    /// The device's Python, with tinygrad and numpy [default: `python` of rebuild.toml, else the device's own].
    #[arg(long, value_name = "FILE")]
    python: Option<Utf8PathBuf>,
}

pub fn run(args: &DmArgs, cli: &Cli, console: &Console) -> Result<(), Failure> {
    let session = Session::for_run(cli, console, "rebuild dm", args.dry_run)?;
    let device = allowed(&session, &args.device)?;
    let failed = |error| of_monitoring(NOT_COMPILED, &error);
    if !args.dry_run {
        recover_dm(&session.workspace).map_err(failed)?;
    }
    let options = options(&session, args);
    let plan = plan_dm(&session.workspace, args.onnx.as_deref(), &options, console).map_err(failed)?;
    if args.dry_run || !plan.builds() {
        show_plan(&plan, console);
        return Ok(());
    }
    console.note(&format!("driver monitoring: building, {}", plan.reasons.join("; ")));
    let device = connect(&session, &device)?;
    let id = ModelId::new("dmonitoring_model")
        .map_err(|error| Failure::new(console_report::Exit::Failed, NOT_COMPILED).because(&error))?;
    let watch = Watch { cancel: &session.interrupt, progress: console };
    let mut stages = Stages::default();
    let built = compile_dm(&session.workspace, device.as_ref(), &plan, &options, &watch, &mut |event| {
        stages.show(console, &id, event);
    });
    stages.end(console);
    if session.interrupt.load(Ordering::Relaxed) && built.is_err() {
        return session.check_interrupt("the compilation");
    }
    let built = built.map_err(failed)?;
    if let Some(left) = &built.left_on_device {
        console.warn(left);
    }
    let size: u64 = built.files.iter().map(|file| file.size).sum();
    console.result(&json!({"id": id, "outcome": "built", "reasons": plan.reasons, "files": built.files, "moved_bytes": built.moved_bytes, "seconds": built.seconds}), || {
        format!("driver monitoring: built, {} files of {}, {}", built.files.len(), size_text(size), seconds_text(built.seconds))
    });
    Ok(())
}

fn options(session: &Session<'_>, args: &DmArgs) -> MonitoringOptions {
    let config = &session.config;
    MonitoringOptions {
        target: args.target.unwrap_or(config.target()),
        force: args.force,
        outdated: args.outdated,
        python: args.python.clone().or_else(|| config.python.as_ref().map(|path| session.configured(path))),
        toolchain: args.toolchain.clone(),
    }
}

/// What would be done, or that there is nothing to do.
fn show_plan(plan: &MonitoringPlan, console: &Console) {
    let (action, why) = match (plan.builds(), plan.outdated.is_empty()) {
        (true, _) => ("build", plan.reasons.join("; ")),
        (false, true) => ("current", String::new()),
        (false, false) => {
            ("current", format!("outdated: {}; rebuild with --outdated", plan.outdated.join("; ")))
        }
    };
    let object = json!({
        "id": "dmonitoring_model", "action": action, "why": why, "onnx": plan.onnx, "sha256": plan.sha256,
        "files": plan.files,
    });
    console.result(&object, || match why.as_str() {
        "" => format!("driver monitoring: {action}"),
        why => format!("driver monitoring: {action} ({why})"),
    });
}
