#![no_main]
//! Any bytes as an ONNX file: read or refused; metadata decoded or refused.

use camino::Utf8Path;
use libfuzzer_sys::fuzz_target;
use onnx_source::OnnxModel;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(model) = OnnxModel::read(&mut std::io::Cursor::new(bytes), Utf8Path::new("fuzz.onnx")) {
        let _ = model.metadata();
    }
});
