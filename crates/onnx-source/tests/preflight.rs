//! What is read of a model, and what is refused with which message.

mod wire_builder;

use std::io::Cursor;

use camino::Utf8Path;
use model_catalog::SliceSpec;
use onnx_source::{Dim, InputRole, OnnxModel};
use wire_builder::{
    bytes, fixed, graph, message, model, node, number, policy_slices, property, slices, tensor, value_info,
};

fn read(bytes: &[u8]) -> Result<OnnxModel, onnx_source::OnnxError> {
    OnnxModel::read(&mut Cursor::new(bytes), Utf8Path::new("m.onnx"))
}

fn refusal(bytes: &[u8]) -> String {
    match read(bytes) {
        Ok(model) => model.metadata().expect_err("must be refused").to_string(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_model_is_read_without_its_weights() {
    let checkpoint = property("model_checkpoint", "f1d30a23/200");
    let model = read(&model(&graph(), &[policy_slices(), checkpoint])).expect("reads");
    assert_eq!(
        (model.ir_version, model.producer_name.as_str(), model.graph_name.as_str()),
        (9, "maker", "policy")
    );
    assert_eq!((model.opsets[0].version, model.nodes, model.initializers), (17, 3, 1));
    assert_eq!((model.operators["Gemm"], model.weight_bytes), (2, 300));
    let names: Vec<_> = model.inputs.iter().map(|input| input.name.as_str()).collect();
    assert_eq!(names, ["features_buffer", "desire_pulse"], "a weight is no input");
    assert_eq!(model.input("desire_pulse").unwrap().shape_text(), "(1, 25, 8)");
    assert_eq!(model.input("desire_pulse").unwrap().dtype.to_string(), "float32");
    assert_eq!(model.inputs_with(InputRole::Desire).count(), 1);

    let metadata = model.metadata().expect("has metadata");
    assert_eq!(metadata.model_checkpoint.as_deref(), Some("f1d30a23/200"));
    assert_eq!(metadata.input_shapes["features_buffer"], [1, 25, 512]);
    assert_eq!(metadata.output_slices["pad"], SliceSpec::new(Some(-2), None));
    assert_eq!(model.resolved_slices().expect("fit")["pad"], 998..1000);
}

#[test]
fn each_kind_of_wrong_file_has_its_own_message() {
    let whole = model(&graph(), &[policy_slices()]);
    let pointer = b"version https://git-lfs.github.com/spec/v1\r\noid sha256:aa\r\nsize 3\r\n";
    for (bytes, expected) in [
        (Vec::new(), "m.onnx: the file is empty"),
        (pointer.to_vec(), "m.onnx: this is a Git LFS pointer to sha256:aa, not the model"),
        (whole[..whole.len() - 1].to_vec(), "m.onnx: the file is truncated: it has"),
        (whole[..100].to_vec(), "m.onnx: the file is truncated: it has 100 bytes and at least"),
        (whole[..3].to_vec(), "m.onnx: the file is truncated"),
        (b"<!DOCTYPE html><html>".to_vec(), "m.onnx: field 7 has the wire type 4"),
        (vec![0; 64], "m.onnx: 0 is no field number"),
        (number(7, 1), "m.onnx: field 7 has the wire type 0"),
        (number(1, 9), "m.onnx: the file has no graph"),
        (model(&[], &[]), "m.onnx: the graph is empty"),
        (model(&[bytes(2, b"g")], &[]), "m.onnx: the graph is empty"),
        (model(&[node("Relu")], &[]), "m.onnx: the graph has no outputs"),
        (model(&graph(), &[message(7, &graph())]), "m.onnx: the file has a second graph"),
        (model(&graph(), &[vec![0x3b]]), "m.onnx: field 7 has the wire type 3"),
        (model(&graph(), &[bytes(2, b"\xff")]), "m.onnx: the text of field 2 is not UTF-8"),
        (vec![0xff; 64], "m.onnx: a number is malformed"),
        (model(&[bytes(1, &[0x22, 0x70])], &[]), "m.onnx: field 4 reaches 112 bytes past the message"),
    ] {
        let got = refusal(&bytes);
        assert!(got.starts_with(expected), "expected {expected}\n  got      {got}");
    }
}

#[test]
fn damage_names_its_place() {
    let at = model(&graph(), &[]).len();
    assert!(refusal(&model(&graph(), &[vec![0x3b]])).ends_with(&format!("(at byte {at})")));
    assert!(!refusal(&number(1, 9)).contains("at byte"));
}

#[test]
fn metadata_is_refused_with_its_own_message() {
    let with = |after: Vec<u8>| refusal(&model(&graph(), &[after]));
    let evil = property("output_slices", "Y29zCnN5c3RlbQooUydlY2hvIGhpJwp0Ui4=");
    let symbolic = [vec![bytes(2, b"batch")], fixed(&[8]), vec![Vec::new()]].concat();
    let two_outputs =
        [value_info(12, "a", 1, &fixed(&[1])), value_info(12, "b", 1, &fixed(&[1])), node("Relu")];
    for (got, expected) in [
        (with(Vec::new()), "the metadata has no output_slices"),
        (with(property("output_slices", "%%")), "output_slices is not base64"),
        (
            with(property("output_slices", "Zm9v")),
            "output_slices is refused: the pickle is malformed at byte 0",
        ),
        (with(evil), "output_slices is refused: the pickle names os.system at byte 0"),
        (with(slices(&[("plan", SliceSpec::new(Some(0), Some(1001)))])), "output slice \"plan\" is wrong"),
        (with([policy_slices(), policy_slices()].concat()), "the metadata has \"output_slices\" twice"),
        (
            refusal(&model(&[graph(), vec![value_info(11, "x", 1, &symbolic)]].concat(), &[policy_slices()])),
            "\"x\" has no fixed shape ((batch, 8, ?))",
        ),
        (refusal(&model(&two_outputs, &[policy_slices()])), "the model has a, b"),
    ] {
        assert!(got.contains(expected), "expected {expected}\n  got      {got}");
    }
}

#[test]
fn symbolic_axes_are_named() {
    let dims = [vec![bytes(2, b"batch")], vec![Vec::new()], vec![number(1, u64::MAX)]].concat();
    let model = read(&model(&[node("Relu"), value_info(12, "y", 10, &dims)], &[])).expect("reads");
    assert_eq!(model.outputs[0].shape, Some(vec![Dim::Symbolic("batch".into()), Dim::Unknown, Dim::Unknown]));
    assert_eq!(model.outputs[0].dtype.to_string(), "float16");
}

#[test]
fn external_data_is_refused_wherever_it_hides() {
    let location = message(13, &[bytes(1, b"location"), bytes(2, b"../../weights.bin")]);
    let external = [bytes(8, b"w"), location].concat();
    let flagged = [bytes(8, b"w"), number(14, 1)].concat();
    let attribute =
        |field: u64, value: &[u8]| message(1, &[bytes(4, b"If"), message(5, &[bytes(field, value)])]);
    let in_graph = [graph(), vec![bytes(5, &external)]].concat();
    let cases = [
        model(&in_graph, &[]),
        model(&[graph(), vec![bytes(5, &flagged)]].concat(), &[]),
        model(&[graph(), vec![message(15, &[bytes(1, &external)])]].concat(), &[]),
        model(&[graph(), vec![attribute(5, &external)]].concat(), &[]),
        model(&[graph(), vec![attribute(10, &external)]].concat(), &[]),
        model(&[graph(), vec![attribute(6, &bytes(5, &external))]].concat(), &[]),
        model(&[graph(), vec![attribute(22, &bytes(1, &external))]].concat(), &[]),
        model(&graph(), &[message(20, &[bytes(1, &bytes(5, &external))])]),
        model(&graph(), &[message(25, &[bytes(7, &bytes(5, &bytes(5, &external)))])]),
    ];
    for (at, bytes) in cases.iter().enumerate() {
        let got = refusal(bytes);
        assert!(got.contains("tensor \"w\" keeps its data in another file"), "case {at}: {got}");
    }
    assert!(refusal(&cases[0]).contains("../../weights.bin"));
}

#[test]
fn endless_subgraphs_are_refused() {
    let mut inner = node("Relu");
    for _ in 0..40 {
        inner = message(1, &[bytes(4, b"If"), message(5, &[bytes(6, &inner)])]);
    }
    assert!(refusal(&model(&[inner], &[])).contains("more than 32 levels of sub-graphs"));
}

/// A source that fails where weights are.
struct Holed(Cursor<Vec<u8>>, std::ops::Range<u64>);

impl std::io::Read for Holed {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        assert!(!self.1.contains(&self.0.position()), "read inside of the weights");
        self.0.read(out)
    }
}

impl std::io::Seek for Holed {
    fn seek(&mut self, to: std::io::SeekFrom) -> std::io::Result<u64> {
        self.0.seek(to)
    }
}

#[test]
fn weights_are_not_read() {
    let mut parts = graph();
    parts.insert(0, tensor(5, "w", &[0; 3_000_000]));
    let bytes = model(&parts, &[policy_slices()]);
    let mut holed = Holed(Cursor::new(bytes), 100_000..2_999_000);
    let model = OnnxModel::read(&mut holed, Utf8Path::new("m.onnx")).expect("reads");
    assert_eq!(model.weight_bytes, 3_000_300);
}
