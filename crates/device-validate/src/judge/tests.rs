use std::collections::BTreeMap;

use model_catalog::{CAMERAS, ModelMetadata, ModelType, SliceSpec};

use super::*;
use crate::{CameraRun, Series};

/// Slices of a split model's two outputs, with the widths of real ones.
const VISION: [(&str, usize); 11] = [
    ("meta", 55),
    ("desire_pred", 32),
    ("pose", 12),
    ("wide_from_device_euler", 6),
    ("road_transform", 12),
    ("lane_lines", 528),
    ("lane_lines_prob", 8),
    ("road_edges", 264),
    ("lead", 144),
    ("lead_prob", 3),
    ("hidden_state", 512),
];
const POLICY: [(&str, usize); 2] = [("plan", 990), ("desire_state", 8)];

fn metadata(slices: &[(&str, usize)]) -> ModelMetadata {
    let mut metadata = ModelMetadata::default();
    let mut start = 0;
    for &(name, width) in slices {
        let slice = SliceSpec::new(Some(start), Some(start + width as i64));
        metadata.output_slices.insert(name.to_owned(), slice);
        start += width as i64;
    }
    metadata.output_shapes.insert("outputs".to_owned(), vec![1, start as u64]);
    metadata
}

/// A value that differs with everything, never zero.
fn value(seed: usize, step: usize, index: usize) -> f32 {
    let mixed = (seed * 7919 + step * 104_729 + index * 1_299_709) % 65_521;
    mixed as f32 / 65_521.0 - 0.5 + 1e-4
}

fn series(seed: usize, width: usize, steps: usize) -> Series {
    let values = (0..steps).flat_map(|step| (0..width).map(move |index| value(seed, step, index)));
    Series::new(width, values.collect()).unwrap()
}

/// What a good split model leaves.
pub(crate) fn good() -> Recording {
    let metadata =
        BTreeMap::from([(PolicyKey::Vision, metadata(&VISION)), (PolicyKey::Policy, metadata(&POLICY))]);
    let run = |(at, camera): (usize, model_catalog::Camera)| CameraRun {
        camera,
        outputs: BTreeMap::from([
            (PolicyKey::Vision, series(2 * at, 1576, 4)),
            (PolicyKey::Policy, series(2 * at + 1, 998, 4)),
        ]),
        step_seconds: vec![0.01; 4],
    };
    Recording {
        model_type: ModelType::VisionPolicy,
        policy_order: vec![PolicyKey::Policy],
        behavior_version: None,
        metadata,
        parsed_inputs: vec!["desire".to_owned(), "traffic_convention".to_owned()],
        load_seconds: 0.5,
        peak_bytes: None,
        cameras: CAMERAS.into_iter().enumerate().map(run).collect(),
    }
}

/// Changes a slice on the first camera in every step.
pub(crate) fn plant(recording: &mut Recording, name: &str, mut change: impl FnMut(usize, &mut [f32])) {
    let (slices, _) = recording.slices();
    let slice = slices.into_iter().find(|slice| slice.name == name).unwrap();
    let series = recording.cameras[0].outputs.get_mut(&slice.output).unwrap();
    for step in 0..series.steps() {
        change(step, &mut series.row_mut(step)[slice.range.clone()]);
    }
}

fn found(recording: &Recording) -> Vec<(Check, Option<String>)> {
    judge(recording).verdicts.into_iter().map(|verdict| (verdict.check, verdict.slice)).collect()
}

fn one(check: Check, slice: &str) -> Vec<(Check, Option<String>)> {
    vec![(check, Some(slice.to_owned()))]
}

#[test]
fn a_good_model_passes_without_a_word() {
    let judgement = judge(&good());
    assert_eq!(judgement.verdicts, []);
    assert!(judgement.passed() && judgement.has_control_output);
    assert_eq!(judgement.sizes.iter().find(|(name, ..)| name == "plan").unwrap().2, 990);
}

#[test]
fn planted_nan_is_found_with_its_place() {
    let mut recording = good();
    plant(&mut recording, "lead", |step, values| {
        if step == 2 {
            values[7] = f32::NAN;
        }
    });
    let judgement = judge(&recording);
    let verdict = &judgement.verdicts[0];
    assert_eq!((verdict.check, verdict.step, verdict.index), (Check::NonFinite, Some(2), Some(7)));
    assert_eq!(verdict.camera, Some(CAMERAS[0]));
    assert_eq!(judgement.slices_with(Check::NonFinite), ["lead"]);
    assert!(!judgement.passed());
}

#[test]
fn a_zero_tail_and_an_all_zero_slice_are_told_apart() {
    let mut recording = good();
    plant(&mut recording, "plan", |_, values| values[980..].fill(0.0));
    assert_eq!(found(&recording), one(Check::ZeroTail, "plan"));
    let mut recording = good();
    plant(&mut recording, "plan", |_, values| values.fill(0.0));
    assert_eq!(found(&recording), one(Check::AllZero, "plan"));
}

#[test]
fn a_constant_output_is_found() {
    let mut recording = good();
    plant(&mut recording, "road_edges", |_, values| {
        values.iter_mut().enumerate().for_each(|(index, v)| *v = value(99, 0, index));
    });
    assert_eq!(found(&recording), one(Check::Constant, "road_edges"));
}

#[test]
fn a_slice_that_was_copied_over_another_is_found() {
    let mut recording = good();
    let mut pose = Vec::new();
    plant(&mut recording, "pose", |_, values| pose.push(values.to_vec()));
    plant(&mut recording, "road_transform", |step, values| values.copy_from_slice(&pose[step]));
    assert_eq!(found(&recording), one(Check::Duplicate, "road_transform"));
}

#[test]
fn missing_outputs_and_control_are_named() {
    let mut recording = good();
    recording.metadata.get_mut(&PolicyKey::Policy).unwrap().output_slices.shift_remove("plan");
    assert_eq!(found(&recording), [(Check::Missing, Some("plan".to_owned())), (Check::NoControl, None)]);
    assert!(!judge(&recording).has_control_output);
}

#[test]
fn outputs_that_do_not_fit_the_metadata_are_named() {
    let mut recording = good();
    let slices = &mut recording.metadata.get_mut(&PolicyKey::Policy).unwrap().output_slices;
    slices.insert("desire_state".to_owned(), SliceSpec::new(Some(990), Some(1000)));
    assert_eq!(found(&recording), one(Check::Layout, "desire_state"));
    let mut recording = good();
    recording.cameras[1].outputs.remove(&PolicyKey::Policy);
    assert_eq!(found(&recording), [(Check::Layout, None)]);
    recording.cameras.clear();
    assert!(!judge(&recording).passed());
}

#[test]
fn padding_may_be_zero() {
    let mut recording = good();
    let vision = recording.metadata.get_mut(&PolicyKey::Vision).unwrap();
    vision.output_slices.insert("pad".to_owned(), SliceSpec::new(Some(0), None));
    assert_eq!(found(&recording), []);
}
