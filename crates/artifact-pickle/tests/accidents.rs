//! Two real files that would have reached a device, and what is seen in them without loading.

mod support;

use artifact_pickle::{AbiDescription, Expectations, FileKind, InspectOptions, inspect, verify};
use model_catalog::Target;
use support::facts;

const DM_WARP: &str = "dm_warp_1928x1208_tinygrad.pkl";
const WARP: &str = "warp_1344x760_tinygrad.pkl";

/// The first problem, as a loader would meet it.
fn first_problem(file: &str, abi: AbiDescription, test: &str) -> Option<String> {
    let path = facts("pickles", test)?.join(file);
    let options = InspectOptions { abi: Some(abi), ..InspectOptions::default() };
    let report = inspect(&path, &options).expect("is a pickle").abi.expect("is a jit");
    Some(report.compared[0].problems.first().map_or_else(|| "none".to_owned(), |p| p.kind.to_string()))
}

#[test]
fn a_warp_for_another_revision_is_seen() {
    let test = "a_warp_for_another_revision_is_seen";
    let known = |label| AbiDescription::known_as(label).expect("built in");
    for (file, label, expected) in [
        (DM_WARP, "443f976", "none"),
        (DM_WARP, "0.14.0", "82 is not a valid Ops"),
        (WARP, "443f976", "a buffer is set for Ops.DEVICE (71), which only Ops.BUFFER may have"),
        // A constructor counts itself: "takes 5 positional arguments but 7 were given".
        (WARP, "0.14.0", "DType takes 4 positional arguments, 6 are given"),
    ] {
        if let Some(found) = first_problem(file, known(label), test) {
            assert_eq!(found, expected, "{file} under {label}");
        }
    }
}

#[test]
fn the_recorded_facts_of_the_vendored_revision_agree() {
    let test = "the_recorded_facts_of_the_vendored_revision_agree";
    let Some(folder) = facts("abi", test) else { return };
    let text = std::fs::read_to_string(folder.join("tinygrad-443f976.json")).expect("readable");
    let recorded = AbiDescription::from_json(&text).expect("a description");
    let own = AbiDescription::known_as("443f976").expect("built in");
    assert_eq!(recorded.enums, own.enums);
    assert_eq!(recorded.classes.len(), own.classes.len());
    assert_eq!(first_problem(DM_WARP, recorded.clone(), test).as_deref(), Some("none"));
    let found = first_problem(WARP, recorded, test);
    assert!(found.is_some_and(|found| found.starts_with("a buffer is set for Ops.DEVICE (71)")));
}

#[test]
fn the_real_files_are_recognised() {
    let test = "the_real_files_are_recognised";
    let Some(folder) = facts("pickles", test) else { return };
    for (file, kind) in [(DM_WARP, FileKind::DmWarp), (WARP, FileKind::CameraWarp)] {
        let inspection = inspect(&folder.join(file), &InspectOptions::default()).expect("is a pickle");
        assert_eq!(inspection.content.kind(), kind, "{file}");
    }
    let verdict = verify(
        &folder.join(DM_WARP),
        &InspectOptions::default(),
        &Expectations::of_file_name("dm_warp_1344x760_tinygrad.pkl", Some(Target::Qcom)),
    );
    let errors: Vec<String> = verdict.expect("is a pickle").errors().map(ToString::to_string).collect();
    assert!(errors.len() == 1 && errors[0].contains("frames of 1928x1208, expected 1344x760"), "{errors:?}");
}

#[test]
fn a_warp_for_the_host_is_not_for_the_device() {
    let test = "a_warp_for_the_host_is_not_for_the_device";
    let Some(folder) = facts("pickles", test) else { return };
    let expected = Expectations { target: Some(Target::Qcom), ..Expectations::default() };
    let judge = |file| {
        let verdict = verify(&folder.join(file), &InspectOptions::default(), &expected).expect("is a pickle");
        verdict.errors().map(|finding| finding.message.clone()).collect::<Vec<_>>()
    };
    assert!(judge(DM_WARP).is_empty(), "{:?}", judge(DM_WARP));
    assert!(judge(WARP).iter().any(|message| message == "compiled for CPU, the target qcom has QCOM"));
}
