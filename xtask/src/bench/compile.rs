//! Compiles: a model cold, warm, six in a batch, and driver monitoring, against a plain driver run without any reuse.

use std::process::Command;

use anyhow::{Context, Result};
use camino::{Utf8Path, Utf8PathBuf};
use e2e::{OnnxKind, OnnxRequest, PythonEnvironment, onnx_fixture};

use super::{Arguments, comparison::Comparison, part_directory, release_binary};
use crate::process::run as run_command;

/// Models of the batch.
const BATCH: usize = 6;

struct Bench {
    models: Utf8PathBuf,
    python: Utf8PathBuf,
    dir: Utf8PathBuf,
}

impl Bench {
    fn stage(&self, python: &PythonEnvironment) -> Result<()> {
        let input = self.dir.join("in");
        std::fs::create_dir_all(&input).with_context(|| format!("make {input}"))?;
        for seed in 1..=BATCH as u64 {
            let request = OnnxRequest::small(OnnxKind::Supercombo, seed);
            link(&onnx_fixture(python, &request)?, &input.join(format!("m{seed}_driving_supercombo.onnx")))?;
        }
        link(
            &onnx_fixture(python, &OnnxRequest::small(OnnxKind::DriverMonitoring, 1))?,
            &input.join("dmonitoring_model.onnx"),
        )
    }

    fn compile(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.models);
        command.args(words).args(["--target", "cpu", "--toolchain", "embedded"]);
        for (flag, place) in [("--input-dir", "in"), ("--output-dir", "out"), ("--cache-dir", "cache")] {
            command.arg(flag).arg(self.dir.join(place));
        }
        command.arg("--python").arg(&self.python);
        command
    }

    /// The plain way: a tree's own compiler in one process, kernels one after another, nothing reused.
    fn plain(&self, tree: &Utf8Path) -> Command {
        let mut command = Command::new(&self.python);
        let onnx = self.dir.join("in/m1_driving_supercombo.onnx");
        command.arg(tree.join("selfdrive/modeld/compile_modeld.py")).current_dir(tree);
        command.args(["--model-type", "supercombo", "--model-size", "512x256", "--frame-skip", "4"]);
        command.args(["--camera-resolutions", "1928x1208", "1344x760", "--image-history-pipeline", "policy"]);
        command.args(["--supercombo-onnx", onnx.as_str(), "--output", self.dir.join("plain.pkl").as_str()]);
        let packages = self.dir.join("packages");
        command.env("PYTHONPATH", format!("{packages}:{tree}")).env("CACHEDB", self.dir.join("plain.db"));
        for (name, value) in [
            ("DEV", "CPU"),
            ("FLOAT16", "1"),
            ("JIT_BATCH_SIZE", "0"),
            ("NOLOCALS", "1"),
            ("OPENPILOT_HACKS", "1"),
            ("IMAGE", "1"),
        ] {
            command.env(name, value);
        }
        command
    }
}

fn link(from: &Utf8Path, to: &Utf8Path) -> Result<()> {
    let _ = std::fs::remove_file(to);
    std::os::unix::fs::symlink(from, to).with_context(|| format!("link {to}"))
}

/// Runs the comparison.
pub fn run(arguments: &Arguments) -> Result<()> {
    let python = PythonEnvironment::find().map_err(anyhow::Error::msg)?;
    let bench = Bench {
        models: release_binary("models")?,
        python: python.python.clone(),
        dir: part_directory("compile")?,
    };
    bench.stage(&python)?;
    let tree = e2e::repository_root().join("fixtures/tree");
    let packages = bench.dir.join("packages");
    std::fs::create_dir_all(&packages).with_context(|| format!("make {packages}"))?;
    link(&tree, &packages.join("openpilot"))?;
    let list = bench.dir.join("list.txt");
    let names: String = (1..=BATCH).map(|number| format!("m{number}\n")).collect();
    durable_fs::write_atomic(&list, names.as_bytes())?;
    // The caches are filled once, so that what is called warm is warm in the first round too.
    run_command(&mut bench.compile(&["--batch", list.as_str()]))?;
    run_command(&mut bench.compile(&["--dm"]))?;
    let report = Comparison::new("compile", arguments.runs)
        .side("plain", || Ok(()), bench.plain(&tree))
        .side("cold", || Ok(()), bench.compile(&["--m1", "--no-cache"]))
        .side("warm", || Ok(()), bench.compile(&["--m1"]))
        .side("batch of six", || Ok(()), bench.compile(&["--batch", list.as_str()]))
        .side("dm", || Ok(()), bench.compile(&["--dm"]))
        .measure()?;
    report.print("plain")?;
    report.goal("warm", "plain", 0.36)?;
    report.goal("batch of six", "plain", 2.9)?;
    report.time_goal("warm", 2.5)?;
    report.time_goal("cold", 9.0)?;
    report.time_goal("dm", 8.0)
}
