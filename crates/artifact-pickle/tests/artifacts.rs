//! Good artifacts of three tinygrad revisions: what is read from them, and that nothing is wrong with them.

mod support;

use artifact_pickle::{
    AbiDescription, Content, Expectations, FileKind, InspectOptions, Inspection, diff, inspect, verify,
};
use camino::Utf8Path;
use model_catalog::Target;
use support::{fixture, write};

const REVISIONS: [&str; 3] = ["0.12.0", "0.13.0", "0.14.0"];

fn look(path: &Utf8Path) -> Inspection {
    inspect(path, &InspectOptions::default()).expect("is a pickle")
}

#[test]
fn good_artifacts_raise_no_alarm() {
    for revision in REVISIONS {
        let expected = Expectations::driving(Some(Target::Cpu), Some("v12".parse().expect("a version")));
        let path = fixture(&format!("driving-{revision}.pkl"));
        let options = InspectOptions { abi: AbiDescription::known_as(revision), ..InspectOptions::default() };
        let verdict = verify(&path, &options, &expected).expect("is a pickle");
        assert!(verdict.findings.is_empty(), "{revision}: {:#?}", verdict.findings);
    }
}

#[test]
fn an_artifact_fits_its_own_revision_and_no_other() {
    for revision in REVISIONS {
        let inspection = look(&fixture(&format!("driving-{revision}.pkl")));
        let report = inspection.abi.expect("has jits");
        let fitting: Vec<_> = report.fitting().map(|mismatch| mismatch.tinygrad.as_str()).collect();
        assert_eq!(fitting, [revision]);
    }
}

#[test]
fn the_parts_of_an_artifact_are_read() {
    for revision in REVISIONS {
        let inspection = look(&fixture(&format!("driving-{revision}.pkl")));
        let Content::Driving(view) = &inspection.content else { panic!("{revision} is a driving artifact") };
        assert_eq!((view.format_version, view.model_type.as_deref()), (Some(1), Some("vision_policy")));
        assert_eq!(view.cameras().len(), 2);
        assert_eq!(view.metadata["policy"].input_shapes["features_buffer"], [1, 25, 512]);
        let jit = view.run_policy().expect("is there");
        assert!(jit.devices.iter().eq(["CPU", "NPY"]), "{revision}: {:?}", jit.devices);
        assert_eq!(jit.kernels[0].language.to_string(), "C");
        assert!(jit.launches >= 1 && jit.steps > jit.launches, "{revision}");
        assert!(jit.kernels.iter().all(|kernel| kernel.source_bytes > 0 && kernel.binary_bytes > 0));
        let packed = jit.input("packed_npy_inputs").expect("is there");
        assert_eq!((packed.dtype.as_deref(), packed.device.as_deref()), (Some("float32"), Some("NPY")));
        assert_eq!(view.jits["1928x1208"].input("tfm").expect("is there").elements, Some(9), "{revision}");
    }
}

#[test]
fn an_out_of_band_artifact_is_the_same_artifact() {
    let (plain, apart) = (fixture("driving-0.14.0.pkl"), fixture("driving-0.14.0-out-of-band.pkl"));
    let inspection = look(&apart);
    assert!(inspection.file.out_of_band && inspection.findings.is_empty() && inspection.refusals.is_empty());
    assert!(inspection.abi.expect("has jits").fitting().any(|fit| fit.tinygrad == "0.14.0"));
    let found = diff(&plain, &apart).expect("pickles");
    let places: Vec<_> = found.changes.iter().map(|change| change.place.as_str()).collect();
    assert_eq!(places, ["out_of_band", "globals"], "{found}");
    assert!(found.jits.is_empty(), "{found}");
}

#[test]
fn a_jit_for_the_cpu_is_not_for_the_device() {
    for (target, message) in [
        (Target::Qcom, "compiled for CPU, the target qcom has QCOM"),
        (Target::ExternalGpu, "compiled for CPU, the target external-gpu has AMD"),
    ] {
        let expected = Expectations { target: Some(target), ..Expectations::default() };
        let path = fixture("driving-0.14.0.pkl");
        let verdict = verify(&path, &InspectOptions::default(), &expected).expect("is a pickle");
        let found: Vec<_> = verdict.errors().map(|finding| finding.message.as_str()).collect();
        assert!(found.contains(&message), "{found:?}");
    }
}

#[test]
fn a_behaviour_version_that_contradicts_the_manifest_is_an_error() {
    let expected =
        Expectations { behavior_version: Some("v15".parse().expect("valid")), ..Expectations::default() };
    let path = fixture("driving-0.14.0.pkl");
    let verdict = verify(&path, &InspectOptions::default(), &expected).expect("is a pickle");
    assert!(!verdict.passed());
    assert!(verdict.to_string().contains("behaves as v12, the manifest says v15"), "{verdict}");
}

#[test]
fn a_truncated_artifact_says_where_it_breaks_off() {
    let folder = tempfile::tempdir().expect("a folder");
    let whole = std::fs::read(fixture("driving-0.14.0.pkl")).expect("readable");
    for len in [1, 100, whole.len() / 2, whole.len() - 1] {
        let path = write(&folder, "cut.pkl", &whole[..len]);
        let message = inspect(&path, &InspectOptions::default()).expect_err("is cut").to_string();
        assert!(message.contains("cut.pkl is truncated at byte"), "{len}: {message}");
    }
    let path = write(&folder, "empty.pkl", b"");
    let message = inspect(&path, &InspectOptions::default()).expect_err("is empty").to_string();
    assert!(message.ends_with("empty.pkl is refused at byte 0: the file is empty"), "{message}");
}

#[test]
fn other_files_are_named() {
    let folder = tempfile::tempdir().expect("a folder");
    for (bytes, what) in [
        (&b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n"[..], "a Git LFS pointer"),
        (b"\n<!DOCTYPE html><title>429</title>", "a saved web page"),
        (b"{\"models\": []}", "a JSON file"),
    ] {
        let path = write(&folder, "x.pkl", bytes);
        let message = inspect(&path, &InspectOptions::default()).expect_err("is no pickle").to_string();
        assert!(message.contains(what), "{message}");
    }
}

#[test]
fn digests_are_those_of_the_bytes() {
    let path = fixture("driving-0.14.0.pkl");
    let options = InspectOptions { deep: true, ..InspectOptions::default() };
    let inspection = inspect(&path, &options).expect("is a pickle");
    let digests = inspection.digests.expect("asked for");
    let bytes = std::fs::read(path).expect("readable");
    assert_eq!(digests.sha256, durable_fs::Sha256::digest(&bytes));
    for content in &digests.contents {
        let part = &bytes[content.offset as usize..][..content.len as usize];
        assert_eq!(content.sha256, durable_fs::Sha256::digest(part));
    }
}

#[test]
fn single_jits_are_told_apart_by_what_they_take() {
    let folder = tempfile::tempdir().expect("a folder");
    let kinds = [
        ("dm-model", FileKind::DmModel, None),
        ("dm-warp", FileKind::DmWarp, Some("1928x1208")),
        ("jit", FileKind::CameraWarp, Some("1344x760")),
        ("other-jit", FileKind::Jit, None),
    ];
    for (file, kind, camera) in kinds {
        let inspection = look(&fixture(&format!("{file}-0.14.0.pkl")));
        assert_eq!(inspection.content.kind(), kind, "{file}");
        let (_, jit) = inspection.content.jits()[0];
        assert_eq!(jit.camera().map(|camera| camera.to_string()).as_deref(), camera, "{file}");
        assert!(inspection.findings.is_empty() && inspection.refusals.is_empty(), "{file}: {inspection}");
        let names = [
            ("dmonitoring_model_tinygrad.pkl", FileKind::DmModel, None),
            ("dmonitoring_model_metadata.pkl", FileKind::Metadata, None),
            ("dm_warp_1928x1208_tinygrad.pkl", FileKind::DmWarp, Some("1928x1208")),
            ("dm_warp_1344x760_tinygrad.pkl", FileKind::DmWarp, Some("1344x760")),
            ("a_driving_tinygrad.pkl", FileKind::Driving, None),
        ];
        for (name, wanted, place) in names {
            let path = write(
                &folder,
                name,
                &std::fs::read(fixture(&format!("{file}-0.14.0.pkl"))).expect("readable"),
            );
            let expected = Expectations::of_file_name(name, Some(Target::Cpu));
            assert_eq!(expected.kind, Some(wanted));
            let verdict = verify(&path, &InspectOptions::default(), &expected).expect("is a pickle");
            let codes: Vec<_> = verdict.errors().map(|finding| finding.code).collect();
            let mut wrong = Vec::new();
            wrong.extend((wanted != kind).then_some("kind"));
            wrong.extend((place.is_some() && camera.is_some() && place != camera).then_some("camera"));
            assert_eq!(codes, wrong, "{file} as {name}: {verdict}");
        }
    }
    assert_eq!(Expectations::of_file_name("any.pkl", None).kind, None);
}

#[test]
fn slices_are_given_as_ranges_of_the_output() {
    let inspection = look(&fixture("driving-0.14.0.pkl"));
    assert_eq!(inspection.slices["vision"]["hidden_state"], 1064..1576);
    assert_eq!(inspection.slices["vision"]["pad"], 0..1576);
    assert_eq!(inspection.slices["policy"]["pad"], 998..1000);
    let json = serde_json::to_value(&inspection).expect("plain data");
    assert_eq!(json["slices"]["policy"]["pad"], serde_json::json!({"start": 998, "end": 1000}));
    let changed = std::fs::read(fixture("driving-0.14.0.pkl")).expect("readable");
    let at = changed.windows(5).position(|window| window == b"K\x00M\xde\x03").expect("has a plan");
    let mut changed = changed;
    changed[at + 4] = 0x7f;
    let folder = tempfile::tempdir().expect("a folder");
    let inspection = look(&write(&folder, "outside.pkl", &changed));
    assert!(!inspection.slices["policy"].contains_key("plan"));
    assert_eq!(inspection.slices["policy"]["desire_state"], 990..998);
}

#[test]
fn differences_are_told_by_kind() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = fixture("driving-0.14.0.pkl");
    assert!(diff(&path, &path).expect("pickles").is_empty());

    let mut bytes = std::fs::read(&path).expect("readable");
    let weights: Vec<u8> = (0..8u8).flat_map(|v| f32::from(v).to_le_bytes()).collect();
    let at = bytes.windows(weights.len()).position(|window| window == weights).expect("carries its weights");
    bytes[at] ^= 1;
    let flipped = write(&folder, "weights.pkl", &bytes);
    let changed = diff(&path, &flipped).expect("pickles");
    assert!(changed.changes.is_empty(), "{changed}");
    assert_eq!(changed.jits.len(), 1, "{changed}");
    let buffers = &changed.jits[0].buffers;
    assert_eq!((buffers.only_a.len(), buffers.only_b.len()), (1, 1));
    assert!(changed.jits[0].kernels.only_a.is_empty());

    let at = bytes.windows(3).position(|window| window == b"v12").expect("has a version");
    bytes[at + 2] = b'3';
    let changed = diff(&flipped, &write(&folder, "version.pkl", &bytes)).expect("pickles");
    assert_eq!(changed.to_string(), "behavior_version: \"v12\" -> \"v13\"\n");
}

#[test]
fn programs_of_equal_parts_differ() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = fixture("driving-0.14.0.pkl");
    let bytes = std::fs::read(&path).expect("readable");
    // Integers of one byte: dimensions, numbers of slots, constants.
    let places: Vec<usize> =
        (0..bytes.len() - 2).filter(|&at| bytes[at] == b'K' && bytes[at + 1] < 64).collect();
    assert!(places.len() > 50, "{}", places.len());
    let mut seen = 0;
    for &at in places.iter().step_by(places.len() / 40) {
        let mut changed = bytes.clone();
        changed[at + 1] ^= 1;
        let Ok(found) = diff(&path, &write(&folder, "changed.pkl", &changed)) else { continue };
        assert!(!found.is_empty(), "byte {}", at + 1);
        if found.is_equal_in_parts() {
            assert_eq!(found.first_byte, Some(at as u64 + 1));
            assert!(found.to_string().contains("the programs differ"), "{found}");
            seen += 1;
        }
    }
    assert!(seen > 5, "{seen}");
    let short = write(&folder, "short.pkl", b"\x80\x04}.");
    let error =
        diff(&path, &camino::Utf8PathBuf::from_path_buf(folder.path().join("none.pkl")).expect("UTF-8"))
            .expect_err("is absent");
    assert!(error.path.ends_with("none.pkl") && error.to_string().contains("none.pkl"), "{error}");
    assert!(!diff(&path, &short).expect("pickles").is_empty());
}

/// An artifact of a tinygrad that no description is built in for, and its description: one field has another name.
fn of_an_unknown_tinygrad(folder: &tempfile::TempDir) -> (camino::Utf8PathBuf, AbiDescription) {
    let mut bytes = std::fs::read(fixture("driving-0.14.0.pkl")).expect("readable");
    let at = bytes.windows(6).position(|window| window == b"\x8c\x04slot").expect("names the field");
    bytes[at + 2..at + 6].copy_from_slice(b"port");
    let mut abi = AbiDescription::known_as("0.14.0").expect("is built in");
    let class = abi.classes.get_mut("tinygrad.uop.ops:ParamArg").expect("is described");
    class.fields.as_mut().expect("are described")[0] = "port".to_owned();
    (abi.tinygrad, abi.digest) = ("0.99.0".to_owned(), None);
    (write(folder, "unknown.pkl", &bytes), abi)
}

#[test]
fn an_artifact_of_an_unknown_tinygrad_is_refused_unless_that_is_given() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, abi) = of_an_unknown_tinygrad(&folder);
    let judge =
        |options: InspectOptions| verify(&path, &options, &Expectations::default()).expect("is a pickle");
    let verdict = judge(InspectOptions::default());
    let errors: Vec<_> = verdict.errors().map(|finding| finding.code).collect();
    assert_eq!(errors, ["abi.unknown"], "{verdict}");
    assert!(verdict.to_string().contains("0.12.0, 0.13.0, 443f976"), "{verdict}");
    for options in [
        InspectOptions { abi: Some(abi.clone()), ..InspectOptions::default() },
        InspectOptions { also: vec![abi.clone()], ..InspectOptions::default() },
    ] {
        let verdict = judge(options);
        assert!(verdict.passed(), "{verdict}");
    }
    // Another unknown one does not help.
    let mut other = abi;
    other.enums.get_mut("tinygrad.uop:Ops").expect("is described").clear();
    assert!(!judge(InspectOptions { also: vec![other], ..InspectOptions::default() }).passed());
    // Looking is no judging.
    assert!(look(&path).findings.is_empty());
}

#[test]
fn what_holds_no_jit_is_compared_with_no_tinygrad() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = write(&folder, "empty.pkl", b"\x80\x04}\x8c\x0eformat_versionK\x01s.");
    let inspection = look(&path);
    assert!(inspection.abi.is_none());
    let text = inspection.to_string();
    assert!(text.contains("compared with no tinygrad: it holds no jit") && !text.contains("fits"), "{text}");
}

#[test]
fn a_wrong_layout_is_found() {
    let folder = tempfile::tempdir().expect("a folder");
    let whole = std::fs::read(fixture("driving-0.14.0.pkl")).expect("readable");
    let edit = |from: &[u8], to: &[u8]| {
        assert_eq!(from.len(), to.len());
        let mut bytes = whole.clone();
        let at = bytes.windows(from.len()).position(|window| window == from).expect("is there");
        bytes[at..at + from.len()].copy_from_slice(to);
        bytes
    };
    for (bytes, code, words) in [
        (
            edit(b"frame_skip\x94K\x04", b"frame_skip\x94K\x02"),
            "jit.shape",
            "input img_q has 983040 elements",
        ),
        (edit(b"frame_skip", b"frame_skap"), "layout.missing", "the key frame_skip is missing"),
        (edit(b"frame_skip", b"frame_skap"), "layout.extra", "the key frame_skap is not part"),
        (
            edit(b"format_version\x94K\x01", b"format_version\x94K\x02"),
            "layout.format_version",
            "is refused by",
        ),
        (edit(b"vision_policy", b"vision_polica"), "layout.value", "\"vision_polica\" is not a model type"),
        (
            edit(b"K\x00M\xde\x03", b"K\x00M\xff\x7f"),
            "metadata.slice",
            "does not fit an output that is 1000 wide",
        ),
        (
            edit(b"M(\x04M(\x06", b"M(\x04M(\x05"),
            "metadata.hidden_state",
            "hidden_state is 256 wide, features_buffer of the policy takes 512",
        ),
        (
            edit(b"hidden_state", b"hidden_stata"),
            "metadata.hidden_state",
            "has no hidden_state, which the feature queue is filled from",
        ),
        (edit(b"\x93\x94(hyK\x08", b"\x93\x94(hyK\x09"), "jit.buffer", "1 buffers carry more or fewer bytes"),
        (edit(b"\x8c\x05img_q", b"\x8c\x05img_p"), "layout.input_keys", "pipeline policy has (img_q,"),
    ] {
        let path = write(&folder, "edited.pkl", &bytes);
        let inspection = look(&path);
        let found = inspection.findings.iter().any(|f| f.code == code && f.message.contains(words));
        assert!(found, "{code}: {:#?}", inspection.findings);
    }
}
