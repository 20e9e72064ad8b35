#![no_main]
//! Any bytes as a file of either form: read or refused, then shown and judged.

use artifact_pickle::{AbiDescription, AllowList, FileKind, Graph, Limits};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(graph) = Graph::read(&mut std::io::Cursor::new(bytes), &Limits::small()) else { return };
    let _ = graph.show(graph.root()).to_string();
    let _ = graph.refusals(FileKind::Driving, &AllowList::built_in());
    for abi in AbiDescription::known() {
        let _ = abi.compare(&graph);
    }
});
