//! A hundred thousand damaged streams: each is read or refused, in bounded time and memory, and never panics.

mod support;

use std::time::{Duration, Instant};

use artifact_pickle::{AbiDescription, AllowList, FileKind, Graph, Limits, decode_metadata, decode_slices};
use support::fixture;

const CASES: usize = 100_000;

/// A small generator with a fixed seed: a failure can be repeated.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let mixed = (self.0 ^ (self.0 >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed ^ (mixed >> 32)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }
}

/// Flips, cuts, inserts, repeats and swaps, up to four times.
fn mutate(bytes: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..=random.below(4) {
        let at = random.below(bytes.len());
        match random.below(6) {
            0 if !bytes.is_empty() => bytes[at] ^= 1 << random.below(8),
            1 if !bytes.is_empty() => bytes[at] = random.next() as u8,
            2 => bytes.truncate(at),
            3 => bytes.insert(at.min(bytes.len()), random.next() as u8),
            4 => {
                let len = random.below(16).min(bytes.len() - at);
                let copy = bytes[at..at + len].to_vec();
                let to = random.below(bytes.len());
                bytes.splice(to..to, copy);
            }
            _ => {
                let len = random.below(8).min(bytes.len() - at);
                bytes.drain(at..at + len);
            }
        }
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let slices = b"(dp0\nVplan\np1\nc__builtin__\nslice\np2\n(I0\nI990\nNtp3\nRp4\nsVpad\np5\ng2\n(I-2\nNNtp6\nRp7\ns.";
    let every_opcode: [&[u8]; 8] = [
        slices,
        b"\x80\x02}q\x00(X\x04\x00\x00\x00planq\x01c__builtin__\nslice\nq\x02K\x00M\xde\x03N\x87q\x03Rq\x04u.",
        b"(lp0\nI01\naI-5\naL123456789012345678901L\naF1.5\naVa\\u20ac\naS'x\\n'\na(dp1\n(Vk\nNt0s.",
        b"(](G?\xf8\x00\x00\x00\x00\x00\x00J\xff\xff\xff\xffK\x01M\x02\x00\x88\x89e)\x85\x86U\x01aT\x01\x00\x00\x00be2001.",
        b"\x80\x04\x95\x1e\x00\x00\x00\x00\x00\x00\x00\x8f\x94(K\x01K\x02\x90(K\x03\x91\x94\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x80\x00\x86\x86\x94.",
        b"\x80\x05\x96\x03\x00\x00\x00\x00\x00\x00\x00abcC\x02deB\x01\x00\x00\x00f\x8e\x01\x00\x00\x00\x00\x00\x00\x00gtN.",
        b"(ca\nB\nK\x01o(V1\nica\nB\n\x86\x8c\x01m\x8c\x01n\x93)\x81}b\x86.",
        b"\x0e\x00\x00\x00\x00\x00\x00\x00\x80\x05\x97\x98\x97\x86\x8c\x01ac\na\n0.\x01\x00\x00\x00\x00\x00\x00\x00x",
    ];
    let mut seeds: Vec<Vec<u8>> = every_opcode.iter().map(|seed| seed.to_vec()).collect();
    let jit = std::fs::read(fixture("jit-0.14.0.pkl")).expect("readable");
    seeds.push(jit);
    seeds
}

#[test]
fn damaged_streams_are_read_or_refused() {
    let (seeds, mut random, abi) = (seeds(), Random(20_260_622), AbiDescription::known_as("0.14.0"));
    let (allow, limits) = (AllowList::built_in(), Limits { nodes: 1 << 16, ..Limits::small() });
    let (mut read, mut refused, mut slowest) = (0, 0, Duration::ZERO);
    for case in 0..CASES {
        // One in sixteen is a whole jit; the rest are short and dense.
        let seed = if case % 16 == 0 { seeds.len() - 1 } else { random.below(seeds.len() - 1) };
        let mut bytes = seeds[seed].clone();
        mutate(&mut bytes, &mut random);
        let start = Instant::now();
        match Graph::read(&mut std::io::Cursor::new(&bytes), &limits) {
            Ok(graph) => {
                read += 1;
                assert!(graph.len() <= limits.nodes);
                let shown = graph.show(graph.root()).to_string();
                assert!(shown.len() < 1 << 17, "{}", shown.len());
                let _ = graph.refusals(FileKind::Driving, &allow);
                let _ = abi.as_ref().map(|abi| abi.compare(&graph));
            }
            Err(error) => {
                refused += 1;
                assert!(error.offset <= bytes.len() as u64, "{error}");
                assert!(error.to_string().starts_with("at byte "));
            }
        }
        let _ = decode_slices(&bytes);
        let _ = decode_metadata(&bytes);
        slowest = slowest.max(start.elapsed());
    }
    assert!(read > CASES / 100 && refused > CASES / 4, "{read} read, {refused} refused");
    assert!(slowest < Duration::from_secs(2), "{slowest:?}");
}

/// Peak memory of this process in KiB, where the system tells.
fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

#[test]
fn streams_made_to_exhaust_memory_do_not() {
    let before = peak_memory();
    let limits = Limits { nodes: 1 << 19, memo: 1 << 19, ..Limits::default() };
    for (unit, what) in [
        (&b"]"[..], "values"),
        (b"]0", "values"),
        (b"N", "values on the stack"),
        (b"(", "open marks"),
        (b"N\x940", "memo slots"),
        (b"G\x00\x00\x00\x00\x00\x00\x00\x010", "values"),
        (b"(NNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNt0", ""),
        (b"\x8c\x01a0", "values"),
        (b"cos\nsystem\n0", "values"),
        (b")\x85", "values"),
        (b"h\x00", "was never stored"),
    ] {
        let mut stream = unit.repeat((8 << 20) / unit.len());
        stream.extend_from_slice(b"N.");
        let outcome = Graph::read_bytes(&stream, &limits);
        if !what.is_empty() {
            assert!(outcome.expect_err("too much").to_string().contains(what), "{what}");
        }
    }
    // A length field alone allocates nothing.
    for head in [
        &b"X\xff\xff\xff\x7f"[..],
        b"\x8d\xff\xff\xff\xff\xff\x00\x00\x00",
        b"r\xff\xff\x3f\x00",
        b"\x8b\xff\xff\xff\x7f",
    ] {
        assert!(Graph::read_bytes(&[b"N", head].concat(), &Limits::default()).is_err());
    }
    if let (Some(before), Some(after)) = (before, peak_memory()) {
        assert!(after - before < 512 << 10, "{before} KiB before, {after} KiB after");
    }
}
