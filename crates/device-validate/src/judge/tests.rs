use std::collections::BTreeMap;

use model_catalog::{CAMERAS, ModelMetadata, ModelType, SliceSpec};

use super::*;
use crate::{
    CameraRun, Probe, ProbeKind, Series,
    warp::{faultless, faultless_driver},
};

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

const STEPS: usize = 20;
const PROBED: usize = 4;
const IDENTITY: [f32; 9] = [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0];

/// What a good split model leaves.
pub(crate) fn good() -> Recording {
    let mut vision = metadata(&VISION);
    vision.input_shapes.insert("img".to_owned(), vec![1, 12, 128, 256]);
    let metadata = BTreeMap::from([(PolicyKey::Vision, vision), (PolicyKey::Policy, metadata(&POLICY))]);
    let run = |(at, camera): (usize, model_catalog::Camera)| CameraRun {
        camera,
        outputs: BTreeMap::from([
            (PolicyKey::Vision, series(2 * at, 1576, STEPS)),
            (PolicyKey::Policy, series(2 * at + 1, 998, STEPS)),
        ]),
        step_seconds: vec![0.01; STEPS],
    };
    let mut recording = Recording {
        model_type: Some(ModelType::VisionPolicy),
        policy_order: vec![PolicyKey::Policy],
        behavior_version: None,
        metadata,
        packed_layout: vec![("desire".to_owned(), vec![8]), ("traffic_convention".to_owned(), vec![1, 2])],
        frame_skip: Some(4),
        settings: BTreeMap::new(),
        versions: BTreeMap::new(),
        given: Vec::new(),
        soak: Vec::new(),
        load_seconds: 0.5,
        peak_bytes: Some(400 << 20),
        temperature_celsius: crate::Temperature::default(),
        cameras: CAMERAS.into_iter().enumerate().map(run).collect(),
        probes: Vec::new(),
        warps: CAMERAS.map(|camera| faultless(camera, IDENTITY)).to_vec(),
    };
    for camera in 0..CAMERAS.len() {
        drive_straight(&mut recording, camera);
    }
    recording.probes = CAMERAS.into_iter().flat_map(probes).collect();
    recording
}

/// Lines in order and a path that goes ahead.
fn drive_straight(recording: &mut Recording, camera: usize) {
    for (name, count) in [("lane_lines", 4), ("road_edges", 2)] {
        plant_on(recording, camera, name, |_, values| {
            for (line, points) in values.chunks_mut(66).take(count).enumerate() {
                points.iter_mut().for_each(|value| *value += 3.0 * line as f32);
            }
        });
    }
    plant_on(recording, camera, "plan", |_, values| {
        values[..495].chunks_mut(15).enumerate().for_each(|(point, values)| values[0] += point as f32);
    });
}

/// What the outputs of a driving model have to depend on.
const PROBES: [ProbeKind; 6] = [
    ProbeKind::History,
    ProbeKind::ImageQueue,
    ProbeKind::FeatureQueue,
    ProbeKind::DesireQueue,
    ProbeKind::Road,
    ProbeKind::Wide,
];

fn probes(camera: model_catalog::Camera) -> [Probe; 6] {
    PROBES.map(|kind| Probe {
        kind,
        camera,
        step: PROBED,
        outputs: BTreeMap::from([
            (PolicyKey::Vision, series(77, 1576, 1).row(0).to_vec()),
            (PolicyKey::Policy, series(78, 998, 1).row(0).to_vec()),
        ]),
    })
}

/// Changes a slice on one camera in every step.
fn plant_on(recording: &mut Recording, camera: usize, name: &str, mut change: impl FnMut(usize, &mut [f32])) {
    let (slices, _) = recording.slices();
    let slice = slices.into_iter().find(|slice| slice.name == name).unwrap();
    let series = recording.cameras[camera].outputs.get_mut(&slice.output).unwrap();
    for step in 0..series.steps() {
        change(step, &mut series.row_mut(step)[slice.range.clone()]);
    }
}

/// Changes a slice on the first camera in every step.
pub(crate) fn plant(recording: &mut Recording, name: &str, change: impl FnMut(usize, &mut [f32])) {
    plant_on(recording, 0, name, change);
}

fn evidence<'e>(run: &'e Recording, again: &'e Recording) -> Evidence<'e> {
    Evidence {
        run,
        again: Some(again),
        drive: None,
        budget: Budget::NONE,
        sources: BTreeMap::new(),
        known: Vec::new(),
    }
}

/// The judgement of a recording whose second process computed the same.
fn judged(recording: &Recording) -> Judgement {
    judge(&evidence(recording, recording))
}

fn checks(judgement: &Judgement) -> Vec<(Check, Option<String>)> {
    judgement.verdicts.iter().map(|verdict| (verdict.check, verdict.slice.clone())).collect()
}

/// What fails; warnings follow from what was planted.
fn found(recording: &Recording) -> Vec<(Check, Option<String>)> {
    let judgement = judged(recording);
    let failures = judgement.verdicts.into_iter().filter(|verdict| verdict.severity == Severity::Failure);
    failures.map(|verdict| (verdict.check, verdict.slice)).collect()
}

fn one(check: Check, slice: &str) -> Vec<(Check, Option<String>)> {
    vec![(check, Some(slice.to_owned()))]
}

#[test]
fn a_good_model_passes_without_a_word() {
    let judgement = judged(&good());
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
    let judgement = judged(&recording);
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
    assert!(!judged(&recording).has_control_output);
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
    assert!(!judged(&recording).passed());
}

#[test]
fn padding_may_be_zero() {
    let mut recording = good();
    let vision = recording.metadata.get_mut(&PolicyKey::Vision).unwrap();
    vision.output_slices.insert("pad".to_owned(), SliceSpec::new(Some(0), None));
    assert_eq!(found(&recording), []);
}

#[test]
fn state_that_is_ignored_is_found() {
    for (kind, word) in [
        (ProbeKind::History, "the steps before"),
        (ProbeKind::ImageQueue, "the image queues"),
        (ProbeKind::FeatureQueue, "the feature queue"),
        (ProbeKind::DesireQueue, "the desire queue"),
    ] {
        let mut recording = good();
        let run = recording.cameras[1].clone();
        let probe =
            recording.probes.iter_mut().find(|probe| probe.camera == run.camera && probe.kind == kind);
        let plain = |key: PolicyKey| (key, run.outputs[&key].row(PROBED).to_vec());
        probe.unwrap().outputs = [plain(PolicyKey::Vision), plain(PolicyKey::Policy)].into();
        let judgement = judged(&recording);
        assert_eq!(checks(&judgement), [(Check::StateIgnored, None)]);
        assert_eq!(judgement.verdicts[0].camera, Some(CAMERAS[1]));
        assert!(judgement.verdicts[0].text.contains(word), "{}", judgement.verdicts[0].text);
        // A model with one frame an image has no older one to depend on.
        let vision = recording.metadata.get_mut(&PolicyKey::Vision).unwrap();
        vision.input_shapes.values_mut().for_each(|shape| shape[1] = 6);
        assert_eq!(judged(&recording).passed(), kind == ProbeKind::ImageQueue);
    }
}

#[test]
fn a_camera_that_is_ignored_is_found_and_what_was_not_probed_is_said() {
    let mut recording = good();
    let run = recording.cameras[0].clone();
    let plain = |key: PolicyKey| (key, run.outputs[&key].row(PROBED).to_vec());
    let wide = recording.probes.iter_mut().find(|probe| probe.kind == ProbeKind::Wide).unwrap();
    wide.outputs = [plain(PolicyKey::Vision), plain(PolicyKey::Policy)].into();
    assert_eq!(found(&recording), [(Check::CameraIgnored, None)]);
    recording.probes.clear();
    let judgement = judged(&recording);
    assert_eq!(judgement.verdicts.len(), PROBES.len() * CAMERAS.len());
    assert!(judgement.passed() && judgement.verdicts.iter().all(|verdict| verdict.check == Check::NotSeen));
}

#[test]
fn the_warp_of_another_camera_is_found() {
    let mut recording = good();
    recording.warps[0].pixels = faultless(CAMERAS[1], IDENTITY).pixels;
    assert_eq!(found(&recording), [(Check::WrongWarp, None)]);
}

#[test]
fn a_process_that_computes_something_else_is_found() {
    let run = good();
    let mut again = good();
    plant(&mut again, "lead", |step, values| {
        if step == 3 {
            values[1] += 1e-7;
        }
    });
    let judgement = judge(&evidence(&run, &again));
    assert_eq!(checks(&judgement), one(Check::NotDeterministic, "lead"));
    assert_eq!((judgement.verdicts[0].step, judgement.verdicts[0].index), (Some(3), Some(1)));
    let alone = judge(&Evidence { again: None, ..evidence(&run, &run) });
    assert_eq!(checks(&alone), [(Check::NotSeen, None)]);
}

#[test]
fn swapped_slices_are_found_by_what_the_onnx_says() {
    let mut recording = good();
    let sources = recording.metadata.clone();
    let slices = &mut recording.metadata.get_mut(&PolicyKey::Vision).unwrap().output_slices;
    let (pose, transform) = (slices["pose"], slices["road_transform"]);
    slices.insert("pose".to_owned(), transform);
    slices.insert("road_transform".to_owned(), pose);
    let judgement = judge(&Evidence { sources, ..evidence(&recording, &recording) });
    assert_eq!(
        checks(&judgement),
        [(Check::Slices, Some("pose".to_owned())), (Check::Slices, Some("road_transform".to_owned()))]
    );
}

#[test]
fn a_vision_of_another_export_is_found() {
    let recording = good();
    let mut sources = recording.metadata.clone();
    sources.get_mut(&PolicyKey::Vision).unwrap().model_checkpoint = Some("new/1".to_owned());
    let judgement = judge(&Evidence { sources, ..evidence(&recording, &recording) });
    assert_eq!(checks(&judgement), [(Check::Sources, None)]);
    assert_eq!(judgement.verdicts[0].output, Some(PolicyKey::Vision));
}

fn timed(seconds: impl Fn(usize) -> f64) -> Vec<Check> {
    let mut recording = good();
    recording.cameras[0].step_seconds = (0..40).map(seconds).collect();
    let judgement = judge(&Evidence {
        budget: Budget::of(model_catalog::Target::Qcom),
        ..evidence(&recording, &recording)
    });
    judgement.verdicts.into_iter().map(|verdict| verdict.check).collect()
}

#[test]
fn slow_and_drifting_series_are_found_and_slow_starts_are_not() {
    assert_eq!(timed(|step| if step < 5 { 2.0 } else { 0.02 }), []);
    assert_eq!(timed(|_| 0.045), [Check::Slow]);
    assert_eq!(timed(|step| if step == 30 { 0.2 } else { 0.02 }), [Check::Slow]);
    assert_eq!(timed(|step| 0.01 + 0.0005 * step as f64), [Check::Drift]);
    assert_eq!(timed(|_| 0.06), [Check::Slow, Check::Slow]);
}

#[test]
fn a_host_has_no_budget_and_its_drift_is_a_warning() {
    let mut recording = good();
    recording.cameras[0].step_seconds = (0..40).map(|step| 0.5 + 0.1 * f64::from(step)).collect();
    let judgement = judged(&recording);
    assert_eq!(checks(&judgement), [(Check::Drift, None)]);
    assert!(judgement.passed());
    recording.cameras[0].step_seconds = vec![0.01; 6];
    assert_eq!(checks(&judged(&recording)), [(Check::NotSeen, None)]);
}

#[test]
fn load_and_memory_have_their_bounds() {
    let mut recording = good();
    recording.load_seconds = 31.0;
    recording.peak_bytes = Some(3 << 30);
    let budget = Budget::of(model_catalog::Target::Qcom);
    let judgement = judge(&Evidence { budget, ..evidence(&recording, &recording) });
    assert_eq!(checks(&judgement), [(Check::Slow, None), (Check::Memory, None)]);
}

#[test]
fn implausible_quantities_warn() {
    let mut recording = good();
    plant(&mut recording, "plan", |_, values| values[3] = 200.0);
    plant(&mut recording, "lane_lines", |_, values| values[0] = 50.0);
    let judgement = judged(&recording);
    assert!(judgement.passed());
    assert_eq!(judgement.slices_with(Check::Implausible), ["lane_lines", "plan"]);
}

#[test]
fn an_output_of_no_generation_is_named() {
    let mut recording = good();
    let policy = recording.metadata.get_mut(&PolicyKey::Policy).unwrap();
    policy.output_slices.insert("plan".to_owned(), SliceSpec::new(Some(0), Some(989)));
    assert_eq!(found(&recording), one(Check::Shape, "plan"));
}

#[test]
fn what_is_known_of_the_file_counts() {
    let recording = good();
    let known = vec![Verdict::failure(Check::File, "run_policy runs on CPU, not on QCOM")];
    let judgement = judge(&Evidence { known, ..evidence(&recording, &recording) });
    assert!(!judgement.passed());
}

/// Windows of a soak of twenty minutes: time of a step, resident bytes and objects by window.
fn soaked(p50: impl Fn(f64) -> f64, bytes: impl Fn(f64) -> f64, objects: impl Fn(f64) -> f64) -> Judgement {
    let mut recording = good();
    recording.soak = (1..=60)
        .map(|window| {
            let minute = f64::from(window) / 3.0;
            SoakWindow {
                at_seconds: minute * 60.0,
                steps: 400,
                p50: p50(minute),
                p99: p50(minute) * 1.1,
                resident_bytes: Some(bytes(minute) as u64),
                objects: Some(objects(minute) as u64),
            }
        })
        .collect();
    let budget = Budget::of(model_catalog::Target::Qcom);
    judge(&Evidence { budget, ..evidence(&recording, &recording) })
}

const MIB: f64 = 1024.0 * 1024.0;

#[test]
fn a_soak_that_settles_passes() {
    let warming = |minute: f64| 400.0 * MIB + 50.0 * MIB * (1.0 - (-minute).exp());
    let judgement = soaked(|_| 0.03, warming, |minute| 150_000.0 + minute * 10.0);
    assert_eq!(judgement.verdicts, []);
}

#[test]
fn a_soak_that_drifts_leaks_or_is_late_is_named() {
    let steady = |_| 400.0 * MIB;
    let few = |_| 150_000.0;
    let drift = soaked(|minute| 0.02 + 0.001 * minute, steady, few);
    assert_eq!(checks(&drift), [(Check::Drift, None)]);
    assert!(!drift.passed());
    let leak = soaked(|_| 0.03, |minute| (400.0 + 6.0 * minute) * MIB, few);
    assert_eq!(checks(&leak), [(Check::Memory, None)]);
    assert!(leak.verdicts[0].text.contains("6.0 MiB a minute"), "{}", leak.verdicts[0]);
    let objects = soaked(|_| 0.03, steady, |minute| 150_000.0 + 2400.0 * minute);
    assert_eq!(checks(&objects), [(Check::Memory, None)]);
    let late = soaked(|minute| if minute > 10.0 { 0.049 } else { 0.045 }, steady, few);
    assert_eq!(checks(&late), [(Check::Slow, None)]);
}

#[test]
fn a_soak_that_says_too_little_is_not_passed_over() {
    let mut recording = good();
    let window =
        SoakWindow { at_seconds: 1.0, steps: 20, p50: 0.01, p99: 0.01, resident_bytes: None, objects: None };
    recording.soak = vec![window];
    assert_eq!(checks(&judged(&recording)), [(Check::NotSeen, None)]);
    recording.soak = (0..10).map(|at| SoakWindow { at_seconds: f64::from(at), ..window }).collect();
    assert_eq!(checks(&judged(&recording)), [(Check::NotSeen, None)]);
}

#[test]
fn what_fails_on_drawn_frames_only_is_said_so() {
    let run = good();
    let mut drive = good();
    plant(&mut drive, "lead", |_, values| values.fill(0.0));
    let judgement = judge(&Evidence { drive: Some(&drive), ..evidence(&run, &run) });
    assert_eq!(checks(&judgement), one(Check::AllZero, "lead"));
    assert!(judgement.verdicts[0].text.contains("on drawn frames"), "{}", judgement.verdicts[0]);
    let both = judge(&Evidence { drive: Some(&drive), ..evidence(&drive, &drive) });
    assert_eq!(checks(&both).len(), 1, "{:?}", both.verdicts);
}

const BEYOND: [f32; 9] = [2.0, 0.0, -64.0, 0.0, 2.0, -64.0, 0.0, 0.0, 1.0];

/// What a good driver-monitoring set leaves.
fn good_dm() -> Recording {
    let mut slices: Vec<(&str, usize)> =
        DM_OUTPUTS.iter().map(|name| (*name, if name.starts_with("face_descs") { 12 } else { 1 })).collect();
    slices.push(("features", 512));
    let mut recording = good();
    recording.model_type = None;
    recording.policy_order.clear();
    recording.metadata = BTreeMap::from([(PolicyKey::Model, metadata(&slices))]);
    for (at, run) in recording.cameras.iter_mut().enumerate() {
        run.outputs = BTreeMap::from([(PolicyKey::Model, series(at, 553, STEPS))]);
    }
    let probe = |(at, camera): (usize, model_catalog::Camera)| {
        [ProbeKind::Image, ProbeKind::Calibration].map(|kind| Probe {
            kind,
            camera,
            step: 0,
            outputs: BTreeMap::from([(PolicyKey::Model, series(90 + at, 553, 1).row(0).to_vec())]),
        })
    };
    recording.probes = CAMERAS.into_iter().enumerate().flat_map(probe).collect();
    recording.warps = CAMERAS.map(|camera| faultless_driver(camera, BEYOND)).to_vec();
    recording
}

#[test]
fn a_good_driver_monitoring_set_passes_without_a_word() {
    let judgement = judged(&good_dm());
    assert_eq!(judgement.verdicts, []);
    assert_eq!(judgement.sizes.len(), 20);
}

#[test]
fn faults_of_driver_monitoring_are_named() {
    let mut recording = good_dm();
    plant(&mut recording, "sleep_prob_lhd", |_, values| values[0] = f32::NAN);
    assert_eq!(found(&recording), one(Check::NonFinite, "sleep_prob_lhd"));
    let mut recording = good_dm();
    recording.metadata.get_mut(&PolicyKey::Model).unwrap().output_slices.shift_remove("face_prob_rhd");
    assert_eq!(found(&recording), one(Check::Missing, "face_prob_rhd"));
    let mut recording = good_dm();
    recording.warps[1].pixels = faultless_driver(CAMERAS[0], BEYOND).pixels;
    assert_eq!(found(&recording), [(Check::WrongWarp, None)]);
    for (kind, check) in
        [(ProbeKind::Image, Check::CameraIgnored), (ProbeKind::Calibration, Check::CalibrationIgnored)]
    {
        let mut recording = good_dm();
        let plain = recording.cameras[0].outputs[&PolicyKey::Model].row(0).to_vec();
        let probe = recording.probes.iter_mut().find(|probe| probe.kind == kind).unwrap();
        probe.outputs = BTreeMap::from([(PolicyKey::Model, plain)]);
        assert_eq!(found(&recording), [(check, None)]);
    }
}
