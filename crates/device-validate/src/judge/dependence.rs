//! Whether the outputs depend on what they have to depend on.

use model_catalog::Camera;

use crate::{CameraRun, Check, Probe, ProbeKind, Recording, Verdict, recording::Slice, warp::differing};

/// Pixels that may differ where a coordinate lies exactly between two: one in a thousand.
const ROUNDING: usize = 1000;

pub(super) fn judge(recording: &Recording, slices: &[Slice]) -> Vec<Verdict> {
    let mut found = Vec::new();
    for run in &recording.cameras {
        for &kind in kinds(recording) {
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
fn kinds(recording: &Recording) -> &'static [ProbeKind] {
    match recording.model_type {
        Some(_) => &[ProbeKind::History, ProbeKind::Road, ProbeKind::Wide],
        None => &[ProbeKind::Image, ProbeKind::Calibration],
    }
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
