//! Hand-made wire bytes: messages as nested byte strings.

use artifact_pickle::encode_slices;
use base64::Engine as _;
use model_catalog::SliceSpec;

pub fn varint(mut value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while value > 0x7f {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
    out
}

pub fn number(field: u64, value: u64) -> Vec<u8> {
    [varint(field << 3), varint(value)].concat()
}

pub fn bytes(field: u64, value: &[u8]) -> Vec<u8> {
    [varint(field << 3 | 2), varint(value.len() as u64), value.to_vec()].concat()
}

pub fn message(field: u64, parts: &[Vec<u8>]) -> Vec<u8> {
    bytes(field, &parts.concat())
}

pub fn value_info(field: u64, name: &str, dtype: u64, dims: &[Vec<u8>]) -> Vec<u8> {
    let shape = message(2, &dims.iter().map(|dim| bytes(1, dim)).collect::<Vec<_>>());
    let tensor = message(1, &[number(1, dtype), shape]);
    message(field, &[bytes(1, name.as_bytes()), bytes(2, &tensor)])
}

pub fn fixed(dims: &[u64]) -> Vec<Vec<u8>> {
    dims.iter().map(|dim| number(1, *dim)).collect()
}

pub fn tensor(field: u64, name: &str, data: &[u8]) -> Vec<u8> {
    message(field, &[number(1, data.len() as u64), number(2, 2), bytes(8, name.as_bytes()), bytes(9, data)])
}

pub fn node(operator: &str) -> Vec<u8> {
    message(1, &[bytes(1, b"x"), bytes(2, b"y"), bytes(4, operator.as_bytes())])
}

pub fn property(key: &str, value: &str) -> Vec<u8> {
    message(14, &[bytes(1, key.as_bytes()), bytes(2, value.as_bytes())])
}

pub fn slices(entries: &[(&str, SliceSpec)]) -> Vec<u8> {
    let pickle = encode_slices(&entries.iter().map(|(name, slice)| ((*name).to_owned(), *slice)).collect());
    let text = base64::engine::general_purpose::STANDARD.encode(pickle);
    // As Python's codec does.
    let lines: Vec<&str> =
        text.as_bytes().chunks(76).map(|line| std::str::from_utf8(line).expect("ASCII")).collect();
    property("output_slices", &(lines.join("\n") + "\n"))
}

/// The graph of a small policy.
pub fn graph() -> Vec<Vec<u8>> {
    vec![
        node("Gemm"),
        node("Relu"),
        node("Gemm"),
        bytes(2, b"policy"),
        tensor(5, "weight", &[7; 300]),
        value_info(11, "features_buffer", 1, &fixed(&[1, 25, 512])),
        value_info(11, "desire_pulse", 1, &fixed(&[1, 25, 8])),
        value_info(11, "weight", 1, &fixed(&[300])),
        value_info(12, "outputs", 1, &fixed(&[1, 1000])),
    ]
}

pub fn policy_slices() -> Vec<u8> {
    slices(&[
        ("plan", SliceSpec::new(Some(0), Some(990))),
        ("desire_state", SliceSpec::new(Some(990), Some(998))),
        ("pad", SliceSpec::new(Some(-2), None)),
    ])
}

/// A whole model around a graph.
pub fn model(graph: &[Vec<u8>], after: &[Vec<u8>]) -> Vec<u8> {
    let head = [number(1, 9), bytes(2, b"maker"), bytes(3, b"1.2"), message(7, graph)].concat();
    let opset = message(8, &[number(2, 17)]);
    [head, opset, after.concat()].concat()
}
