#![no_main]
//! Any bytes as output slices and as metadata; what is accepted is written and read back equal.

use artifact_pickle::{decode_metadata, decode_slices, encode_metadata, encode_slices};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(slices) = decode_slices(bytes) {
        assert_eq!(decode_slices(&encode_slices(&slices)).unwrap(), slices);
    }
    if let Ok(metadata) = decode_metadata(bytes) {
        assert_eq!(decode_metadata(&encode_metadata(&metadata)).unwrap(), metadata);
    }
});
