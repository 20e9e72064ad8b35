//! The judge: verdicts from a recording, without a device.

mod budget;
mod dependence;
mod layout;
mod plausible;
mod replay;
mod soak;
mod sources;
mod timing;
mod values;

use std::collections::BTreeMap;

use model_catalog::{ModelMetadata, PolicyKey};

pub use budget::Budget;
pub use soak::SoakWindow;
pub use timing::StepTimes;

use crate::{CameraRun, Check, Recording, Severity, Verdict, recording::Slice};

/// Outputs that every driving model must have.
pub const REQUIRED_OUTPUTS: [&str; 7] =
    ["plan", "lane_lines", "lane_lines_prob", "road_edges", "lead", "lead_prob", "pose"];
/// Outputs of which one must be there to control the car.
pub(crate) const CONTROL_OUTPUTS: [&str; 3] = ["action", "desired_curvature", "plan"];

/// Outputs that driver monitoring must have.
pub(crate) const DM_OUTPUTS: [&str; 19] = [
    "face_descs_lhd",
    "face_prob_lhd",
    "left_eye_prob_lhd",
    "right_eye_prob_lhd",
    "sunglasses_prob_lhd",
    "left_blink_prob_lhd",
    "right_blink_prob_lhd",
    "using_phone_prob_lhd",
    "sleep_prob_lhd",
    "face_descs_rhd",
    "face_prob_rhd",
    "left_eye_prob_rhd",
    "right_eye_prob_rhd",
    "sunglasses_prob_rhd",
    "left_blink_prob_rhd",
    "right_blink_prob_rhd",
    "using_phone_prob_rhd",
    "sleep_prob_rhd",
    "wheel_on_right",
];

/// What a recording shows.
#[derive(Debug, Clone, PartialEq)]
pub struct Judgement {
    /// Every finding, the worst first.
    pub verdicts: Vec<Verdict>,
    /// Name, output and width of each slice, in the artifact's order; of two slices of one name the one that the runtime
    /// takes, the last.
    pub sizes: Vec<(String, PolicyKey, usize)>,
    /// Whether an output that controls the car is there.
    pub has_control_output: bool,
}

impl Judgement {
    /// Whether nothing fails the artifact.
    pub fn passed(&self) -> bool {
        self.verdicts.iter().all(|verdict| verdict.severity == Severity::Warning)
    }

    /// Names of the slices with a finding of this kind, sorted, each once.
    pub fn slices_with(&self, check: Check) -> Vec<String> {
        let found = self.verdicts.iter().filter(|verdict| verdict.check == check);
        let names: std::collections::BTreeSet<_> =
            found.filter_map(|verdict| verdict.slice.clone()).collect();
        names.into_iter().collect()
    }
}

/// Everything that a judgement rests on.
#[derive(Debug, Clone)]
pub struct Evidence<'e> {
    /// The run.
    pub run: &'e Recording,
    /// A run of a second process on the same frames.
    pub again: Option<&'e Recording>,
    /// A run over gradients, checkerboards and a drawn road.
    pub drive: Option<&'e Recording>,
    /// What the device allows.
    pub budget: Budget,
    /// What the ONNX files of the workspace say, where they are there.
    pub sources: BTreeMap<PolicyKey, ModelMetadata>,
    /// What is known without a run: findings about the file, about its sources, about a reference.
    pub known: Vec<Verdict>,
}

/// Judges what was recorded.
pub fn judge(evidence: &Evidence<'_>) -> Judgement {
    let recording = evidence.run;
    let (slices, bad) = recording.slices();
    let mut verdicts = evidence.known.clone();
    verdicts.extend(layout::judge(recording, &slices, &bad));
    verdicts.extend(sources::judge(recording, &evidence.sources));
    for run in &recording.cameras {
        verdicts.extend(values_of(run, &slices));
        verdicts.extend(values::duplicates(run, &slices));
        verdicts.extend(plausible::judge(run, &slices));
    }
    for run in evidence.drive.iter().flat_map(|drive| &drive.cameras) {
        // What fails on noise is named already; what fails only on a picture is said to do so.
        let is_new = |verdict: &Verdict| {
            !verdicts.iter().any(|known| known.check == verdict.check && known.slice == verdict.slice)
        };
        let new: Vec<Verdict> = values_of(run, &slices).filter(is_new).collect();
        let on_pictures =
            |verdict: Verdict| Verdict { text: format!("{}, on drawn frames", verdict.text), ..verdict };
        verdicts.extend(new.into_iter().map(on_pictures));
    }
    verdicts.extend(dependence::judge(recording, &slices));
    match evidence.again {
        Some(again) => verdicts.extend(replay::judge(recording, again)),
        None => verdicts.push(Verdict::warning(Check::NotSeen, "no second process was run to compare with")),
    }
    verdicts.extend(timing::judge(recording, &evidence.budget));
    verdicts.extend(soak::judge(recording, &evidence.budget));
    verdicts.sort_by(|a, b| b.severity.cmp(&a.severity).then(a.check.cmp(&b.check)));
    let mut sizes: Vec<(String, PolicyKey, usize)> = Vec::new();
    for slice in &slices {
        sizes.retain(|(name, ..)| *name != slice.name);
        sizes.push((slice.name.clone(), slice.output, slice.range.len()));
    }
    let has_control_output =
        CONTROL_OUTPUTS.iter().any(|name| slices.iter().any(|slice| slice.name == *name));
    Judgement { verdicts, sizes, has_control_output }
}

fn values_of<'r>(run: &'r CameraRun, slices: &'r [Slice]) -> impl Iterator<Item = Verdict> + 'r {
    slices.iter().filter(|slice| !is_padding(slice)).filter_map(|slice| values::judge(run, slice))
}

/// Padding says nothing: it may be constant, and in some models it covers the whole output.
pub(crate) fn is_padding(slice: &Slice) -> bool {
    slice.name == "pad" || slice.range.is_empty()
}

#[cfg(test)]
pub(crate) mod tests;
