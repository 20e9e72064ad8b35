//! Damaged and hostile files: read or refused, in bounded time and memory, never a panic.

mod wire_builder;

use std::io::Cursor;
use std::time::{Duration, Instant};

use camino::Utf8Path;
use onnx_source::OnnxModel;
use proptest::prelude::*;
use wire_builder::{bytes, fixed, graph, message, model, policy_slices, property, value_info, varint};

fn read(bytes: &[u8]) -> Result<OnnxModel, onnx_source::OnnxError> {
    OnnxModel::read(&mut Cursor::new(bytes), Utf8Path::new("m.onnx"))
}

#[test]
fn a_model_cut_anywhere_is_refused_or_lacks_its_metadata() {
    let whole = model(&graph(), &[policy_slices()]);
    for len in 0..whole.len() {
        if let Ok(model) = read(&whole[..len]) {
            let message = model.metadata().expect_err("is cut").to_string();
            assert!(message.contains("output_slices"), "{len}: {message}");
        }
    }
    assert!(read(&whole).expect("whole").metadata().is_ok());
}

#[test]
fn every_byte_may_be_damaged() {
    let whole = model(&graph(), &[policy_slices(), property("model_checkpoint", "a/1")]);
    let start = Instant::now();
    for at in 0..whole.len() {
        for value in [0, 1, 0x7f, 0x80, 0xff, whole[at] ^ 1, whole[at] ^ 0x80] {
            let mut bytes = whole.clone();
            bytes[at] = value;
            if let Ok(model) = read(&bytes) {
                let _ = model.metadata();
            }
        }
    }
    assert!(start.elapsed() < Duration::from_secs(60));
}

#[test]
fn more_of_anything_than_a_model_has_is_refused() {
    let input = value_info(11, "x", 1, &fixed(&[1]));
    for (bytes, what) in [
        (model(&[graph(), vec![input.repeat(5000)]].concat(), &[]), "inputs"),
        (
            model(&[graph(), vec![value_info(11, "x", 1, &fixed(&[1; 5000]))]].concat(), &[]),
            "axes of a shape",
        ),
        (model(&graph(), &[message(8, &[bytes(1, b"d")]).repeat(5000)]), "opsets"),
        (model(&[graph(), vec![bytes(2, &[b'a'; 5000])]].concat(), &[]), "more than the 4096 that are read"),
    ] {
        let message = read(&bytes).expect_err("too much").to_string();
        assert!(message.contains(what), "{what}: {message}");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
        let _ = read(&bytes).map(|model| model.metadata());
    }

    #[test]
    fn shapes_come_back_as_written(dims in prop::collection::vec(1..=i64::MAX as u64, 0..6), name in "[a-z_]{1,20}") {
        let graph = [graph(), vec![value_info(11, &name, 2, &fixed(&dims))]].concat();
        let model = read(&model(&graph, &[policy_slices()])).expect("reads");
        let input = model.inputs.last().expect("is there");
        prop_assert_eq!((&input.name, input.fixed_shape()), (&name, Some(dims)));
    }

    #[test]
    fn numbers_of_any_size_are_read(value: u64) {
        let mut bytes = model(&graph(), &[policy_slices()]);
        bytes.extend(varint(5 << 3));
        bytes.extend(varint(value));
        prop_assert_eq!(read(&bytes).expect("reads").model_version, value as i64);
    }
}
