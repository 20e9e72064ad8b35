//! The fuzz targets' corpora, and seeded mutations of them, as plain tests.
#![expect(clippy::unwrap_used, reason = "tests panic on failure")]

use std::{fs, path::Path};

use lfs_extract::{Pointer, parse_batch_answer};

/// Calls `target` with every file of a corpus and with `rounds` mutations of each.
fn run(corpus: &str, rounds: u32, target: impl Fn(&[u8])) {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(corpus);
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below.max(1) as u64) as usize
    };
    let mut files = 0;
    for entry in fs::read_dir(dir).unwrap() {
        let content = fs::read(entry.unwrap().path()).unwrap();
        files += 1;
        target(&content);
        for _ in 0..rounds {
            let mut mutated = content.clone();
            for _ in 0..=random(4) {
                let at = random(mutated.len());
                match random(5) {
                    0 if !mutated.is_empty() => mutated[at] ^= 1 << random(8),
                    1 if !mutated.is_empty() => drop(mutated.remove(at)),
                    2 => mutated.insert(at, random(256) as u8),
                    3 => mutated.truncate(at),
                    _ => mutated.extend_from_slice(&content[random(content.len())..]),
                }
            }
            target(&mutated);
        }
    }
    assert!(files > 3);
}

#[test]
fn pointers() {
    run("pointer", 3000, |content| {
        if let Ok(Some(pointer)) = Pointer::parse(content) {
            assert_eq!(pointer.to_string().as_bytes(), content);
        }
    });
}

#[test]
fn batch_answers() {
    run("batch_answer", 3000, |body| {
        let _ = parse_batch_answer(body);
    });
}
