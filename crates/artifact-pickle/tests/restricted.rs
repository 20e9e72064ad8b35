//! The restricted decoders: what is no metadata is refused by name and place, and nothing is run.

mod support;

use artifact_pickle::{decode_metadata, decode_slices, encode_metadata, encode_slices};
use model_catalog::SliceSpec;
use support::facts;

fn refusal(bytes: &[u8]) -> String {
    decode_slices(bytes).expect_err("must be refused").to_string()
}

#[test]
fn slices_of_every_protocol_decode() {
    // pickle.dumps({"plan": slice(0, 990, None), "pad": slice(-2, None, None)}, protocol) for 0, 2 and 4
    let streams: [&[u8]; 3] = [
        b"(dp0\nVplan\np1\nc__builtin__\nslice\np2\n(I0\nI990\nNtp3\nRp4\nsVpad\np5\ng2\n(I-2\nNNtp6\nRp7\ns.",
        b"\x80\x02}q\x00(X\x04\x00\x00\x00planq\x01c__builtin__\nslice\nq\x02K\x00M\xde\x03N\x87q\x03Rq\x04X\x03\x00\x00\x00padq\x05h\x02J\xfe\xff\xff\xffNN\x87q\x06Rq\x07u.",
        b"\x80\x04\x95>\x00\x00\x00\x00\x00\x00\x00}\x94(\x8c\x04plan\x94\x8c\x08builtins\x94\x8c\x05slice\x94\x93\x94K\x00M\xde\x03N\x87\x94R\x94\x8c\x03pad\x94h\x04J\xfe\xff\xff\xffNN\x87\x94R\x94u.",
    ];
    for stream in streams {
        let slices = decode_slices(stream).expect("decodes");
        let expected =
            [("plan", SliceSpec::new(Some(0), Some(990))), ("pad", SliceSpec::new(Some(-2), None))];
        let got: Vec<_> = slices.iter().map(|(name, slice)| (name.as_str(), *slice)).collect();
        assert_eq!(got, expected);
        assert_eq!(decode_slices(&encode_slices(&slices)).expect("reads back"), slices);
    }
}

#[test]
fn anything_but_slices_is_refused() {
    let cases: &[(&[u8], &str)] = &[
        (b"cos\nsystem\n(Vtrue\ntR.", "names os.system at byte 0"),
        // Imported and thrown away: the loader would have imported it all the same.
        (b"cos\nsystem\n0}.", "names os.system at byte 0"),
        (b"}N\x8c\x02os\x8c\x06system\x93\x8c\x02id\x85Rs.", "names os.system at byte 14"),
        (b"cbuiltins\neval\n(V1\ntR.", "names builtins.eval at byte 0"),
        (b"cbuiltins\nslice.indices\n.", "names builtins.slice.indices at byte 0"),
        (b"cbuiltins\nslice\n(K\x01tR.", "made at byte 20 is not slice(start, stop, step)"),
        (b"cbuiltins\nslice\n(K\x01NV1\ntR.", "is not slice(start, stop, step)"),
        (b"(cbuiltins\nslice\nK\x01K\x01No.", "is not slice(start, stop, step)"),
        (b"cbuiltins\nslice\n(NNNtR)R.", "is not slice(start, stop, step)"),
        (b"cbuiltins\nslice\n(NNNtR}b.", "is not slice(start, stop, step)"),
        (b"].", " is a list, expected a dict"),
        (b"}K\x01K\x02s.", "output_slices is an int, expected a string key"),
        (b"}Va\nK\x02s.", "output_slices[\"a\"] is an int, expected a slice"),
        (b"cbuiltins\nslice\n(NNNtRp0\n0}Va\ng0\nsVa\ng0\ns.", "output_slices has the key \"a\" twice"),
        (b"not a pickle", "the pickle is malformed at byte 0"),
    ];
    for (bytes, expected) in cases {
        assert!(
            refusal(bytes).contains(expected),
            "{bytes:?}\n  expected {expected}\n  got      {}",
            refusal(bytes)
        );
    }
}

#[test]
fn real_metadata_decodes_and_is_written_back_equal() {
    let Some(folder) = facts("pickles", "real_metadata_decodes_and_is_written_back_equal") else { return };
    for (name, slices, width) in [
        ("driving_vision_metadata.pkl", 12, 1576),
        ("driving_policy_metadata.pkl", 3, 1000),
        ("dmonitoring_model_metadata.pkl", 20, 553),
        ("supercombo_metadata_v1.pkl", 15, 6504),
        ("supercombo_metadata_v4.pkl", 15, 6500),
        ("supercombo_metadata_v6.pkl", 14, 6500),
    ] {
        let metadata =
            decode_metadata(&std::fs::read(folder.join(name)).expect("readable")).expect("decodes");
        assert_eq!((metadata.output_slices.len(), metadata.output_width()), (slices, Some(width)), "{name}");
        for (slice, spec) in &metadata.output_slices {
            assert!(spec.resolve(width).is_ok(), "{name} {slice}");
        }
        assert_eq!(decode_metadata(&encode_metadata(&metadata)).expect("reads back"), metadata);
    }
}
