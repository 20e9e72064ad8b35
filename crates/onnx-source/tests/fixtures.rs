//! The project's own fixture models, of every kind and with every planted fault that the walker can see.

use std::path::{Path, PathBuf};
use std::process::Command;

use camino::Utf8PathBuf;
use onnx_source::{InputRole, OnnxModel};

#[expect(clippy::print_stdout, reason = "a skipped test says so")]
fn maker(test: &str) -> Option<(PathBuf, PathBuf)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let python = root.join("target/venv/bin/python");
    if !python.is_file() {
        println!("skipped: {test}: no Python environment (cargo xtask setup makes it)");
        return None;
    }
    Some((python, root.join("fixtures/make_onnx.py")))
}

fn make(maker: &(PathBuf, PathBuf), folder: &tempfile::TempDir, kind: &str, more: &[&str]) -> Utf8PathBuf {
    let out = Utf8PathBuf::from_path_buf(folder.path().join(format!("{kind}.onnx"))).expect("UTF-8");
    let status = Command::new(&maker.0).arg(&maker.1).arg(kind).arg(&out).args(more).status().expect("runs");
    assert!(status.success());
    out
}

#[test]
fn fixture_models_are_read() {
    let Some(maker) = maker("fixture_models_are_read") else { return };
    let folder = tempfile::tempdir().expect("a folder");
    for (kind, inputs, width) in [("vision", 2, 1576), ("policy", 3, 1000), ("supercombo", 6, 2580)] {
        let model = OnnxModel::open(&make(&maker, &folder, kind, &[])).expect("reads");
        let metadata = model.metadata().expect("has metadata");
        assert_eq!((metadata.input_shapes.len(), metadata.output_width()), (inputs, Some(width)), "{kind}");
        assert_eq!(model.image_pair().is_some(), kind != "policy");
        assert_eq!(model.inputs_with(InputRole::FeaturesBuffer).count(), usize::from(kind != "vision"));
        assert!(model.weight_bytes > 1 << 20 && model.operators["Gemm"] >= 2, "{kind}");
    }
}

#[test]
fn planted_faults_are_refused() {
    let Some(maker) = maker("planted_faults_are_refused") else { return };
    let folder = tempfile::tempdir().expect("a folder");
    for (fault, words) in [
        ("no_slices", "the metadata has no output_slices"),
        ("wide_slices", "output slice \"beyond\" is wrong"),
        ("evil_slices", "output_slices is refused: the pickle names builtins.eval"),
    ] {
        let model = OnnxModel::open(&make(&maker, &folder, "policy", &["--fault", fault])).expect("reads");
        let message = model.metadata().expect_err("is refused").to_string();
        assert!(message.contains(words), "{fault}: {message}");
    }
}
