//! Any bytes are a pointer, content, or refused; what is accepted is written back byte for byte.
#![no_main]

use lfs_extract::Pointer;

libfuzzer_sys::fuzz_target!(|content: &[u8]| {
    if let Ok(Some(pointer)) = Pointer::parse(content) {
        assert_eq!(pointer.to_string().as_bytes(), content);
    }
});
