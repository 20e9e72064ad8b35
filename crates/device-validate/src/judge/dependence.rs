//! Whether the outputs depend on what they have to depend on.

use model_catalog::Camera;

use crate::{CameraRun, Check, Probe, ProbeKind, Recording, Verdict, recording::Slice, warp::differing};

/// Channels of one packed frame.
const FRAME_PLANES: u64 = 6;
/// Pixels that may differ where a coordinate lies exactly between two: one in a thousand.
const ROUNDING: usize = 1000;

pub(super) fn judge(recording: &Recording, slices: &[Slice]) -> Vec<Verdict> {
    let mut found = Vec::new();
    for run in &recording.cameras {
        for kind in kinds(recording) {
            let probe =
                recording.probes.iter().find(|probe| probe.camera == run.camera && probe.kind == kind);
            match probe.map(|probe| (probe, unchanged(run, probe, slices))) {
                None => found.push(not_seen(kind, run.camera)),
                Some((_, None)) => found.push(not_seen(kind, run.camera)),
                Some((probe, Some(true))) => found.push(ignored(probe)),
                Some((_, Some(false))) => {}
            }
        }
    }
    found.extend(warps(recording));
    found
}

/// What the outputs have to depend on. Driver monitoring has no state and one camera.
fn kinds(recording: &Recording) -> Vec<ProbeKind> {
    if recording.model_type.is_none() {
        return vec![ProbeKind::Image, ProbeKind::Calibration];
    }
    let mut kinds = vec![
        ProbeKind::History,
        ProbeKind::FeatureQueue,
        ProbeKind::DesireQueue,
        ProbeKind::Road,
        ProbeKind::Wide,
    ];
    kinds.extend(has_image_history(recording).then_some(ProbeKind::ImageQueue));
    kinds
}

/// Whether an image input holds more than the newest frame: only then there is something older to depend on.
fn has_image_history(recording: &Recording) -> bool {
    let inputs = recording.metadata.values().flat_map(|metadata| &metadata.input_shapes);
    inputs.into_iter().any(|(name, shape)| {
        name.contains("img") && shape.get(1).is_some_and(|planes| *planes > FRAME_PLANES)
    })
}

/// Whether every output is what it was in the plain run; `None` where that was not recorded.
fn unchanged(run: &CameraRun, probe: &Probe, slices: &[Slice]) -> Option<bool> {
    let mut compared = false;
    for slice in slices.iter().filter(|slice| !super::is_padding(slice)) {
        let plain = run.rows(slice).nth(probe.step)?;
        let probed = probe.outputs.get(&slice.output)?.get(slice.range.clone())?;
        if plain != probed {
            return Some(false);
        }
        compared = true;
    }
    compared.then_some(true)
}

fn ignored(probe: &Probe) -> Verdict {
    let (check, text) = match probe.kind {
        ProbeKind::History => (
            Check::StateIgnored,
            "the outputs are the same with and without the steps before: state is ignored or stale",
        ),
        ProbeKind::ImageQueue => (
            Check::StateIgnored,
            "the outputs are the same whatever the image queues hold: they are ignored or stale",
        ),
        ProbeKind::FeatureQueue => (
            Check::StateIgnored,
            "the outputs are the same whatever the feature queue holds: it is ignored or stale",
        ),
        ProbeKind::DesireQueue => (
            Check::StateIgnored,
            "the outputs are the same whatever the desire queue holds: it is ignored or stale",
        ),
        ProbeKind::Road => {
            (Check::CameraIgnored, "the outputs are the same for another frame of the road camera")
        }
        ProbeKind::Wide => {
            (Check::CameraIgnored, "the outputs are the same for another frame of the wide camera")
        }
        ProbeKind::Image => {
            (Check::CameraIgnored, "the outputs are the same for another frame of the driver camera")
        }
        ProbeKind::Calibration => {
            (Check::CalibrationIgnored, "the outputs are the same for another calibration")
        }
    };
    Verdict { step: Some(probe.step), ..Verdict::failure(check, text) }.on(probe.camera)
}

fn not_seen(kind: ProbeKind, camera: Camera) -> Verdict {
    let what = match kind {
        ProbeKind::History => "history",
        ProbeKind::ImageQueue => "the image queues",
        ProbeKind::FeatureQueue => "the feature queue",
        ProbeKind::DesireQueue => "the desire queue",
        ProbeKind::Road => "the road camera",
        ProbeKind::Wide => "the wide camera",
        ProbeKind::Image => "the driver camera",
        ProbeKind::Calibration => "the calibration",
    };
    Verdict::warning(Check::NotSeen, format!("whether the outputs depend on {what} was not recorded"))
        .on(camera)
}

fn warps(recording: &Recording) -> Vec<Verdict> {
    let mut found = Vec::new();
    for run in &recording.cameras {
        let images: Vec<_> = recording.warps.iter().filter(|image| image.camera == run.camera).collect();
        if images.is_empty() {
            let text = "what the camera's warp does was not recorded";
            found.push(Verdict::warning(Check::NotSeen, text).on(run.camera));
        }
        for image in images {
            let (wrong, all) = differing(image);
            if wrong * ROUNDING > all {
                let text = format!(
                    "the warp samples other pixels than this camera's frame layout says: {wrong} of {all} differ"
                );
                found.push(Verdict::failure(Check::WrongWarp, text).on(run.camera));
                break;
            }
        }
    }
    found
}
