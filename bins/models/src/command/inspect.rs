//! `models inspect FILE...`: what is in artifacts, metadata files and ONNX models, without loading any.

use artifact_pickle::{InspectOptions, Inspection, inspect};
use camino::{Utf8Path, Utf8PathBuf};
use clap::Args;
use console_report::{Console, Exit, Failure, table};
use onnx_source::OnnxModel;

use super::judged::{AbiChoice, of_inspect};

/// `models inspect`.
#[derive(Debug, Args)]
pub struct InspectArgs {
    /// Artifacts (.pkl), metadata pickles or ONNX models
    #[arg(required = true)]
    pub files: Vec<Utf8PathBuf>,
    /// List every compiled kernel
    #[arg(long)]
    pub kernels: bool,
    /// Read all contents and give the digests of the file and of each buffer
    #[arg(long)]
    pub deep: bool,
    /// The tinygrad to compare with: a version that is built in, or a file that the driver printed [default: all built-in ones]
    #[arg(long, value_name = "VERSION|FILE")]
    pub abi: Option<AbiChoice>,
}

/// Inspects each file; one that cannot be read or must not be loaded fails the command after the others were shown.
pub fn run(args: &InspectArgs, console: &Console) -> Result<(), Failure> {
    let abi = args.abi.as_ref().map(AbiChoice::load).transpose()?;
    let options = InspectOptions { deep: args.deep, abi, ..InspectOptions::default() };
    let (mut first, mut failed) = (None, 0);
    for path in &args.files {
        if let Err(failure) = one(path, args, &options, console) {
            failed += 1;
            if let Some(previous) = first.replace(failure) {
                console.show(&previous);
            }
        }
    }
    match first {
        None => Ok(()),
        Some(last) if failed == 1 => Err(last),
        Some(last) => {
            console.show(&last);
            Err(Failure::new(Exit::Failed, format!("{failed} of {} files are not good", args.files.len())))
        }
    }
}

fn one(
    path: &Utf8Path,
    args: &InspectArgs,
    options: &InspectOptions,
    console: &Console,
) -> Result<(), Failure> {
    if path.extension() == Some("onnx") {
        return onnx(path, console);
    }
    let inspection = inspect(path, options).map_err(|error| of_inspect(path, &error))?;
    console.result(&inspection, || text(&inspection, args.kernels));
    match inspection.refusals.first() {
        Some(refusal) => Err(Failure::new(Exit::Failed, format!("{path} must not be loaded"))
            .why(refusal.to_string())
            .advice("do not load it; compile it again from its sources")),
        None => Ok(()),
    }
}

fn onnx(path: &Utf8Path, console: &Console) -> Result<(), Failure> {
    let refused = |error| Failure::new(Exit::Failed, format!("{path} is not a usable model")).because(&error);
    let model = OnnxModel::open(path).map_err(refused)?;
    console.result(&model, || model.to_string().trim_end().to_owned());
    model.metadata().map(drop).map_err(refused)
}

fn text(inspection: &Inspection, kernels: bool) -> String {
    let mut text = inspection.to_string().trim_end().to_owned();
    if let Some(digests) = &inspection.digests {
        let rows =
            digests.contents.iter().map(|c| [c.offset.to_string(), c.len.to_string(), c.sha256.to_string()]);
        text = format!("{text}\n{}", table(&["#OFFSET", "#BYTES", "SHA-256"], rows));
    }
    if kernels {
        let jits = inspection.content.jits();
        let rows = jits.iter().flat_map(|(jit, view)| {
            view.kernels.iter().map(|kernel| {
                let sizes = [kernel.source_bytes.to_string(), kernel.binary_bytes.to_string()];
                let [source, binary] = sizes;
                [(*jit).to_owned(), kernel.name.clone(), kernel.language.to_string(), source, binary]
            })
        });
        text = format!("{text}\n{}", table(&["JIT", "KERNEL", "LANGUAGE", "#SOURCE", "#CODE"], rows));
    }
    text
}
