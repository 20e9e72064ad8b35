//! `models --dm`: driver monitoring's four files.

use console_report::{Console, Failure, size_text};
use serde_json::json;
use tinygrad_compile::{CompileError, DmPlan, compile_dm, find_dm_source};

use super::{setting::Setting, stages::Stages};
use crate::{arguments::CompileArgs, failure::of_compile};

const WHAT: &str = "driver monitoring was not compiled";

/// Compiles all four files, or none.
pub fn run(args: &CompileArgs, console: &Console) -> Result<(), Failure> {
    let target = args.target()?;
    let failed = |error: CompileError| of_compile(WHAT, &error);
    let source = find_dm_source(&args.input_dir()).map_err(|error| failed(error.into()))?;
    let plan = DmPlan { source, target, tolerance: args.tolerance };
    let setting = Setting::prepare(args, console, "dmonitoring_model", WHAT)?;
    let mut stages = Stages::new(console);
    let compiled = compile_dm(&plan, &setting.workshop, &setting.cancel, &mut |event| stages.show(event));
    drop(stages);
    let compiled = compiled.map_err(failed)?;
    let dir = args.output_dir();
    let result = json!({"id": "dm", "status": "compiled", "dir": dir, "files": compiled.files, "build": compiled.build});
    console.result(&result, || {
        let files = compiled.files.iter().map(|file| format!("  {}  {}", file.file, size_text(file.size)));
        let head = format!("driver monitoring compiled ({target}) in {dir}");
        std::iter::once(head).chain(files).collect::<Vec<_>>().join("\n")
    });
    Ok(())
}
