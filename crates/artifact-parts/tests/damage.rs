//! Splitting and joining is the identity; every kind of damage has its own error and leaves the target as it was.
#![expect(clippy::disallowed_methods, clippy::unwrap_used, reason = "tests damage files on purpose")]

use std::fs;

use artifact_parts::{
    ChunkSize, KnownParts, PartSet, PartsError, SplitRequest, join, sets_in, split, verify,
};
use camino::{Utf8Path, Utf8PathBuf};
use durable_fs::{Expected, NoProgress, Sha256, list_dir};
use proptest::prelude::*;

const NAME: &str = "m_driving_tinygrad.pkl";

struct Bench {
    _guard: tempfile::TempDir,
    dir: Utf8PathBuf,
    bytes: Vec<u8>,
}

impl Bench {
    fn new(bytes: Vec<u8>) -> Self {
        let guard = tempfile::tempdir().unwrap();
        let dir = Utf8PathBuf::from_path_buf(guard.path().to_owned()).unwrap();
        fs::create_dir(dir.join("parts")).unwrap();
        fs::write(dir.join(NAME), &bytes).unwrap();
        Self { _guard: guard, dir, bytes }
    }

    fn split(&self, chunk: u64) -> Result<PartSet, PartsError> {
        let request = SplitRequest {
            source: &self.dir.join(NAME),
            into: &self.parts(),
            name: None,
            chunk: ChunkSize::from_bytes(chunk),
            expected: Expected::exactly(self.bytes.len() as u64, Sha256::digest(&self.bytes)),
            part_digests: true,
        };
        split(&request, &NoProgress)
    }

    fn parts(&self) -> Utf8PathBuf {
        self.dir.join("parts")
    }

    fn part(&self, number: usize) -> Utf8PathBuf {
        self.parts().join(format!("{NAME}.p{number:02}"))
    }

    fn checksum(&self) -> Utf8PathBuf {
        self.parts().join(format!("{NAME}.sha256"))
    }

    fn target(&self) -> Utf8PathBuf {
        self.dir.join("joined")
    }

    /// Joins over an older file; returns the error after checking that the older file is still there.
    fn refused(&self, known: KnownParts<'_>) -> PartsError {
        fs::write(self.target(), b"older").unwrap();
        let refused = join(&self.parts(), NAME, &self.target(), known, &NoProgress).unwrap_err();
        assert_eq!(fs::read(self.target()).unwrap(), b"older");
        assert_eq!(list_dir(&self.dir).unwrap(), ["joined", NAME], "nothing temporary stays");
        let verified = verify(&self.parts(), NAME, known, &NoProgress).unwrap_err();
        assert_eq!(verified.to_string(), refused.to_string());
        refused
    }
}

fn bytes(size: usize) -> Vec<u8> {
    (0..size as u64).map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

/// 3 parts: 1000, 1000 and 500 bytes.
fn three() -> (Bench, PartSet) {
    let bench = Bench::new(bytes(2500));
    let set = bench.split(1000).unwrap();
    (bench, set)
}

fn listed(set: &PartSet) -> KnownParts<'_> {
    KnownParts {
        whole: Expected::exactly(set.size, set.sha256),
        parts: Some(&set.parts),
        without_checksum: false,
    }
}

#[test]
fn a_split_is_described_and_joined() {
    let (bench, set) = three();
    assert_eq!(set.parts.iter().map(|part| part.size).collect::<Vec<_>>(), [1000, 1000, 500]);
    assert_eq!(set.parts[1].sha256, Some(Sha256::digest(&bench.bytes[1000..2000])));
    let checksum = fs::read_to_string(bench.checksum()).unwrap();
    assert_eq!(checksum, format!("{}  {NAME}\n", Sha256::digest(&bench.bytes)));
    assert_eq!(verify(&bench.parts(), NAME, KnownParts::default(), &NoProgress).unwrap(), set);
    assert_eq!(sets_in(&bench.parts()).unwrap(), [NAME]);
    let written = join(&bench.parts(), NAME, &bench.target(), KnownParts::default(), &NoProgress).unwrap();
    assert_eq!((written.size, written.sha256), (2500, set.sha256));
    assert_eq!(fs::read(bench.target()).unwrap(), bench.bytes);
}

#[test]
fn a_missing_part_is_a_gap_or_an_incomplete_set() {
    let (bench, set) = three();
    fs::remove_file(bench.part(2)).unwrap();
    assert!(matches!(bench.refused(KnownParts::default()), PartsError::WholeDigest { count: 2, .. }));
    assert!(matches!(
        bench.refused(listed(&set)),
        PartsError::Incomplete { actual: 2000, expected: 2500, .. }
    ));
    let size = KnownParts { whole: Expected { size: Some(2500), sha256: None }, ..KnownParts::default() };
    assert!(matches!(bench.refused(size), PartsError::Incomplete { actual: 2000, .. }));
    fs::remove_file(bench.part(0)).unwrap();
    match bench.refused(KnownParts::default()) {
        PartsError::Gap { missing, next, .. } => assert!(missing.ends_with(".p00") && next.ends_with(".p01")),
        other => panic!("{other}"),
    }
    fs::remove_file(bench.part(1)).unwrap();
    assert!(matches!(bench.refused(KnownParts::default()), PartsError::NoParts { .. }));
}

#[test]
fn a_truncated_part_is_named_by_its_size() {
    let (bench, set) = three();
    fs::write(bench.part(1), &bench.bytes[1000..1900]).unwrap();
    for known in [KnownParts::default(), listed(&set)] {
        match bench.refused(known) {
            PartsError::PartSize { path, actual: 900, expected: 1000 } => assert_eq!(path, bench.part(1)),
            other => panic!("{other}"),
        }
    }
    fs::write(bench.part(1), &bench.bytes[1000..2000]).unwrap();
    fs::write(bench.part(2), &bench.bytes[2000..2400]).unwrap();
    assert!(matches!(bench.refused(KnownParts::default()), PartsError::WholeDigest { .. }));
    assert!(matches!(bench.refused(listed(&set)), PartsError::PartSize { actual: 400, expected: 500, .. }));
}

#[test]
fn flipped_and_swapped_parts_are_told_apart_where_a_list_is_known() {
    let (bench, set) = three();
    let mut flipped = bench.bytes[1000..2000].to_vec();
    flipped[7] ^= 1;
    fs::write(bench.part(1), &flipped).unwrap();
    assert!(matches!(bench.refused(KnownParts::default()), PartsError::WholeDigest { .. }));
    match bench.refused(listed(&set)) {
        PartsError::PartDigest { path, .. } => assert_eq!(path, bench.part(1)),
        other => panic!("{other}"),
    }
    fs::write(bench.part(1), &bench.bytes[..1000]).unwrap();
    fs::write(bench.part(0), &bench.bytes[1000..2000]).unwrap();
    assert!(matches!(bench.refused(KnownParts::default()), PartsError::WholeDigest { .. }));
    match bench.refused(listed(&set)) {
        PartsError::Misplaced { path, holds } => {
            assert_eq!(path, bench.part(0));
            assert!(holds.ends_with(".p01"));
        }
        other => panic!("{other}"),
    }
}

#[test]
fn a_surplus_part_is_named_whatever_its_size() {
    for (size, chunk) in [(2500, 1000), (3000, 1000)] {
        for extra in [1, 600, 1000] {
            let bench = Bench::new(bytes(size));
            let set = bench.split(chunk).unwrap();
            fs::write(bench.part(3), vec![7; extra]).unwrap();
            let whole = KnownParts { parts: None, ..listed(&set) };
            for known in [KnownParts::default(), whole, listed(&set)] {
                match bench.refused(known) {
                    PartsError::Surplus { part, .. } => assert!(part.ends_with(".p03"), "{part}"),
                    other => panic!("{size} {extra}: {other}"),
                }
            }
        }
    }
}

#[test]
fn each_wrong_checksum_has_its_error() {
    let (bench, set) = three();
    let good = fs::read_to_string(bench.checksum()).unwrap();
    fs::write(bench.checksum(), good.replace(NAME, "other.pkl")).unwrap();
    match bench.refused(KnownParts::default()) {
        PartsError::ChecksumForeign { names, .. } => assert_eq!(names, "other.pkl"),
        other => panic!("{other}"),
    }
    fs::write(bench.checksum(), "<html>not found</html>").unwrap();
    assert!(matches!(bench.refused(KnownParts::default()), PartsError::ChecksumMalformed { .. }));
    fs::write(bench.checksum(), format!("{}  {NAME}\n", Sha256::digest(b"other build"))).unwrap();
    assert!(matches!(bench.refused(listed(&set)), PartsError::ChecksumDisagrees { .. }));
    assert!(matches!(bench.refused(KnownParts::default()), PartsError::WholeDigest { .. }));
    fs::remove_file(bench.checksum()).unwrap();
    assert!(matches!(bench.refused(KnownParts::default()), PartsError::ChecksumMissing { .. }));
    assert!(matches!(bench.refused(listed(&set)), PartsError::ChecksumMissing { .. }));
    let known = KnownParts { without_checksum: true, ..listed(&set) };
    join(&bench.parts(), NAME, &bench.target(), known, &NoProgress).unwrap();
}

#[test]
fn too_many_parts_are_refused_before_anything_is_written() {
    let bench = Bench::new(bytes(2500));
    bench.split(1000).unwrap();
    let before = list_dir(&bench.parts()).unwrap();
    let refused = bench.split(24).unwrap_err();
    assert!(matches!(refused, PartsError::TooMany { count: 105, smallest_mib: Some(1), .. }), "{refused}");
    assert_eq!(list_dir(&bench.parts()).unwrap(), before);
    assert_eq!(bench.split(25).unwrap().parts.len(), 100);
}

#[test]
fn a_wrong_source_leaves_the_earlier_set() {
    let (mut bench, set) = three();
    for other in [bytes(2400), bytes(2501).split_off(1)] {
        fs::write(bench.dir.join(NAME), &other).unwrap();
        let refused = bench.split(1000).unwrap_err();
        assert!(matches!(refused, PartsError::Fs(_)), "{refused}");
        assert_eq!(verify(&bench.parts(), NAME, listed(&set), &NoProgress).unwrap(), set);
    }
    // Named for another model, and split smaller: stale parts of the earlier split go.
    bench.bytes = bytes(900);
    fs::write(bench.dir.join(NAME), &bench.bytes).unwrap();
    fs::write(bench.parts().join(format!("._{NAME}.p00")), b"sidecar").unwrap();
    bench.split(500).unwrap();
    let names = list_dir(&bench.parts()).unwrap();
    assert_eq!(names, [format!("{NAME}.p00"), format!("{NAME}.p01"), format!("{NAME}.sha256")]);
}

#[test]
fn names_that_are_no_file_names_are_refused() {
    let bench = Bench::new(bytes(10));
    for name in ["", ".hidden", "a/b", "..", "a\nb"] {
        let request = SplitRequest {
            source: &bench.dir.join(NAME),
            into: &bench.parts(),
            name: Some(name),
            chunk: ChunkSize::default(),
            expected: Expected::default(),
            part_digests: false,
        };
        assert!(matches!(split(&request, &NoProgress), Err(PartsError::Name { .. })), "{name:?}");
    }
}

#[test]
fn a_missing_source_or_directory_is_an_error_with_its_path() {
    let bench = Bench::new(bytes(10));
    let request = |source: &Utf8Path, into: &Utf8Path| {
        let request = SplitRequest {
            source,
            into,
            name: None,
            chunk: ChunkSize::default(),
            expected: Expected::default(),
            part_digests: false,
        };
        split(&request, &NoProgress).unwrap_err().to_string()
    };
    assert!(request(&bench.dir.join("gone"), &bench.parts()).contains("gone"));
    assert!(request(&bench.dir.join(NAME), &bench.dir.join("nowhere")).contains("nowhere"));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn split_then_join_is_the_identity(size in 0usize..600_000, chunk in 1u64..300_000) {
        let chunk = chunk.max(size as u64 / 100 + 1);
        let bench = Bench::new(bytes(size));
        let set = bench.split(chunk).unwrap();
        prop_assert_eq!(set.size, size as u64);
        prop_assert_eq!(set.parts.len() as u64, (size as u64).div_ceil(chunk).max(1));
        let written = join(&bench.parts(), NAME, &bench.target(), listed(&set), &NoProgress).unwrap();
        prop_assert_eq!(written.sha256, Sha256::digest(&bench.bytes));
        prop_assert_eq!(&fs::read(bench.target()).unwrap(), &bench.bytes);
    }

    /// One random change to a set of parts is never accepted, and is told by the right error where sizes and digests of the
    /// parts are known.
    #[test]
    fn any_damage_is_refused(size in 2usize..5000, chunk in 1u64..2000, at in any::<prop::sample::Index>(), kind in 0..5) {
        let chunk = chunk.max(size as u64 / 100 + 1).min(size as u64 - 1);
        let bench = Bench::new(bytes(size));
        let set = bench.split(chunk).unwrap();
        let number = at.index(set.parts.len());
        let part = bench.part(number);
        let content = fs::read(&part).unwrap();
        let last = number + 1 == set.parts.len();
        match kind {
            0 => {
                let mut flipped = content;
                let byte = at.index(flipped.len());
                flipped[byte] ^= 0x40;
                fs::write(&part, flipped).unwrap();
                let refused = bench.refused(listed(&set));
                // A flipped byte can make a part equal to another one of a byte or two.
                prop_assert!(matches!(refused, PartsError::PartDigest { .. } | PartsError::Misplaced { .. }), "{refused}");
            }
            1 => {
                fs::remove_file(&part).unwrap();
                let refused = bench.refused(listed(&set));
                prop_assert!(matches!((last, &refused), (true, PartsError::Incomplete { .. }) | (false, PartsError::Gap { .. })), "{refused}");
            }
            2 => {
                let other = bench.part((number + 1) % set.parts.len());
                let swapped = fs::read(&other).unwrap();
                prop_assume!(swapped != content);
                fs::write(&part, &swapped).unwrap();
                fs::write(&other, &content).unwrap();
                let refused = bench.refused(listed(&set));
                prop_assert!(matches!(refused, PartsError::Misplaced { .. } | PartsError::PartSize { .. }), "{refused}");
            }
            3 => {
                prop_assume!(set.parts.len() < 100);
                fs::write(bench.part(set.parts.len()), &content).unwrap();
                let refused = bench.refused(listed(&set));
                prop_assert!(matches!(refused, PartsError::Surplus { .. }), "{refused}");
            }
            _ => {
                fs::write(&part, &content[..at.index(content.len())]).unwrap();
                let refused = bench.refused(listed(&set));
                prop_assert!(matches!(refused, PartsError::PartSize { .. }), "{refused}");
            }
        }
        bench.refused(KnownParts::default());
    }
}
