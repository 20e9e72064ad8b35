//! Any bytes are a batch answer or refused.
#![no_main]

use lfs_extract::parse_batch_answer;

libfuzzer_sys::fuzz_target!(|body: &[u8]| {
    let _ = parse_batch_answer(body);
});
