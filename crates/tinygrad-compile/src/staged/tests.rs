#![expect(clippy::disallowed_methods, reason = "tests stage small files themselves")]

use camino::{Utf8Path, Utf8PathBuf};
use model_catalog::{Component, InputFormat, ModelId, Target, Variant};

use super::{FormatChoice, SourceSet, StagedError, StagedSources};

struct Staged {
    _guard: tempfile::TempDir,
    dir: Utf8PathBuf,
}

fn stage(names: &[&str]) -> Staged {
    let guard = tempfile::tempdir().unwrap();
    let dir = Utf8Path::from_path(guard.path()).unwrap().to_owned();
    for name in names {
        let path = dir.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, b"\x08\x07").unwrap();
    }
    Staged { _guard: guard, dir }
}

fn select(names: &[&str], id: &str) -> Result<SourceSet, StagedError> {
    select_as(names, id, FormatChoice::Auto, Target::Cpu)
}

fn select_as(
    names: &[&str],
    id: &str,
    format: FormatChoice,
    target: Target,
) -> Result<SourceSet, StagedError> {
    let staged = stage(names);
    let id = (!id.is_empty()).then(|| ModelId::new(id).unwrap());
    StagedSources::scan(&staged.dir)?.select(id.as_ref(), format, target)
}

fn names(set: &SourceSet) -> Vec<&str> {
    set.files.iter().map(|file| file.path.file_name().unwrap()).collect()
}

#[test]
fn all_three_forms_are_found() {
    for files in [
        ["rdf2/rdf2_driving_vision.onnx", "rdf2/rdf2_driving_policy.onnx"],
        ["rdf2/driving_vision.onnx", "rdf2/driving_policy.onnx"],
        ["rdf2_driving_vision.onnx", "rdf2_driving_policy.onnx"],
        ["driving_vision.onnx", "driving_policy.onnx"],
    ] {
        let set = select(&files, "rdf2").unwrap();
        assert_eq!(set.format, InputFormat::Split);
        assert_eq!(
            set.files.iter().map(|f| f.component).collect::<Vec<_>>(),
            [Component::Vision, Component::Policy]
        );
        assert!(set.notes.is_empty(), "{:?}", set.notes);
    }
}

#[test]
fn ids_that_contain_component_words_stay_right() {
    let files = [
        "tr_driving_vision.onnx",
        "tr_driving_policy.onnx",
        "tr_policy_driving_vision.onnx",
        "tr_policy_driving_policy.onnx",
        "tr_policy_driving_off_policy.onnx",
    ];
    assert_eq!(names(&select(&files, "tr").unwrap()), ["tr_driving_vision.onnx", "tr_driving_policy.onnx"]);
    let set = select(&files, "tr_policy").unwrap();
    assert_eq!(
        names(&set),
        [
            "tr_policy_driving_vision.onnx",
            "tr_policy_driving_policy.onnx",
            "tr_policy_driving_off_policy.onnx"
        ]
    );
    let set = select(&["vision-policy/vision-policy_driving_supercombo.onnx"], "vision-policy").unwrap();
    assert_eq!(set.files[0].component, Component::Supercombo);
}

#[test]
fn two_files_for_one_component_are_refused_for_that_model_only() {
    let files = [
        "a/driving_vision.onnx",
        "a/a_driving_vision.onnx",
        "a/driving_policy.onnx",
        "b_driving_supercombo.onnx",
    ];
    let refused = select(&files, "a").unwrap_err().to_string();
    assert!(refused.contains("a_driving_vision.onnx") && refused.contains("remove one"), "{refused}");
    select(&files, "b").unwrap();
    let refused = select(&["a_off_policy.onnx", "a_offpolicy.onnx", "a_vision.onnx", "a_policy.onnx"], "a")
        .unwrap_err();
    assert!(matches!(refused, StagedError::TwoFiles { .. }), "{refused}");
}

#[test]
fn one_model_in_two_places_is_refused() {
    let refused = select(&["a/driving_supercombo.onnx", "a_driving_supercombo.onnx"], "a").unwrap_err();
    assert!(matches!(refused, StagedError::TwoPlaces { .. }), "{refused}");
}

#[test]
fn the_primary_policy_is_the_on_policy_file() {
    let files = [
        "a_driving_vision.onnx",
        "a_driving_policy.onnx",
        "a_driving_on_policy.onnx",
        "a_driving_off_policy.onnx",
    ];
    let set = select(&files, "a").unwrap();
    assert_eq!(
        names(&set),
        ["a_driving_vision.onnx", "a_driving_on_policy.onnx", "a_driving_off_policy.onnx"]
    );
    assert_eq!(set.notes, ["a_driving_policy.onnx is not used"]);
}

#[test]
fn auto_format_prefers_a_supercombo() {
    let files = ["a_driving_vision.onnx", "a_driving_policy.onnx", "a_driving_supercombo.onnx"];
    assert_eq!(select(&files, "a").unwrap().format, InputFormat::Supercombo);
    let split = select_as(&files, "a", FormatChoice::Exactly(InputFormat::Split), Target::Cpu).unwrap();
    assert_eq!(split.files.len(), 2);
}

#[test]
fn both_sizes_are_kept_apart() {
    let files = ["a_driving_supercombo.onnx", "a_big_driving_supercombo.onnx"];
    let small = select_as(&files, "a", FormatChoice::Auto, Target::Qcom).unwrap();
    let big = select_as(&files, "a", FormatChoice::Auto, Target::ExternalGpu).unwrap();
    assert_eq!((small.files[0].variant, big.files[0].variant), (Variant::Standard, Variant::ExternalGpu));
    let only_big = select_as(&files[1..], "a", FormatChoice::Auto, Target::Cpu).unwrap();
    assert_eq!(only_big.files[0].variant, Variant::ExternalGpu);
    // A big vision model never gets a small policy.
    let mixed = ["a_big_driving_vision.onnx", "a_driving_policy.onnx"];
    let refused = select_as(&mixed, "a", FormatChoice::Auto, Target::ExternalGpu).unwrap_err().to_string();
    assert!(refused.contains("big_driving_policy.onnx"), "{refused}");
}

#[test]
fn the_only_staged_model_serves_any_id() {
    let set = select(&["other_driving_supercombo.onnx"], "mine").unwrap();
    assert_eq!((set.id.as_str(), set.notes.len()), ("mine", 1));
    assert_eq!(select(&["other_driving_supercombo.onnx"], "").unwrap().id.as_str(), "other");
    let refused = select(&["driving_supercombo.onnx"], "").unwrap_err();
    assert!(matches!(refused, StagedError::NoModelGiven { .. }), "{refused}");
}

#[test]
fn unknown_ids_name_the_staged_ones() {
    let refused =
        select(&["tr1422_driving_supercombo.onnx", "rdf2_driving_supercombo.onnx"], "tr1242").unwrap_err();
    let text = refused.to_string();
    assert!(text.contains("did you mean tr1422?") && text.contains("rdf2"), "{text}");
}

#[test]
fn missing_components_are_named_with_what_was_found() {
    let refused =
        select(&["a_driving_vision.onnx", "a_driving_off_policy.onnx"], "a").unwrap_err().to_string();
    assert!(refused.contains("driving_policy.onnx or driving_on_policy.onnx"), "{refused}");
    assert!(refused.contains("a_driving_off_policy.onnx"), "{refused}");
    let format = FormatChoice::Exactly(InputFormat::Supercombo);
    let refused = select_as(&["a_driving_vision.onnx"], "a", format, Target::Cpu).unwrap_err().to_string();
    assert!(refused.contains("needs driving_supercombo.onnx"), "{refused}");
}

#[test]
fn sidecars_and_driver_monitoring_are_no_driving_models() {
    let staged = stage(&["._a_driving_supercombo.onnx", "dmonitoring_model.onnx", "dm.onnx"]);
    std::fs::write(staged.dir.join("copy_driving_vision.onnx"), [0, 5, 0x16, 7]).unwrap();
    let sources = StagedSources::scan(&staged.dir).unwrap();
    assert!(sources.models.is_empty(), "{sources:?}");
    let refused = sources.select(None, FormatChoice::Auto, Target::Cpu).unwrap_err();
    assert!(matches!(refused, StagedError::Empty { .. }));
    let missing = StagedSources::scan(&staged.dir.join("no")).unwrap_err();
    assert!(matches!(missing, StagedError::NoDirectory { .. }));
}
