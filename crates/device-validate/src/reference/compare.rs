//! Slice by slice: what the artifact gave, and what the reference gives on the same inputs.

use std::collections::BTreeMap;

use model_catalog::{ModelMetadata, PolicyKey, Target};
use onnx_source::ElementType;
use serde::{Deserialize, Serialize};

use crate::{Check, Recording, Series, Verdict, judge::is_padding, recording::Slice};

/// How exactly an artifact computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Precision {
    /// 32-bit floats throughout.
    Float32,
    /// 16-bit floats somewhere: in the ONNX, or because the target's flags ask for them.
    Float16,
}

impl Precision {
    /// The precision of an artifact for `target` that was run with these settings of tinygrad, from ONNX files whose weights
    /// have these types.
    pub fn of(target: Target, settings: &BTreeMap<String, String>, weights: &[ElementType]) -> Self {
        let is_on =
            |name: &str| settings.get(name).is_some_and(|value| !["", "0", "None"].contains(&value.as_str()));
        let halves = is_on("FLOAT16") && is_on("IMAGE");
        if target != Target::Cpu || halves || weights.contains(&ElementType::FLOAT16) {
            Self::Float16
        } else {
            Self::Float32
        }
    }

    /// The error that is allowed in a slice of this name, relative to the value and to the slice's size (root mean square),
    /// and the least correlation. A hidden state is bounded by no loss of its own and is the noisiest.
    pub fn tolerance(self, slice: &str) -> (f64, f64) {
        let (error, correlation) = match self {
            Self::Float32 => (2e-4, 0.999_999),
            Self::Float16 => (1e-2, 0.999_5),
        };
        if slice == "hidden_state" { (2.0 * error, 2.0 * correlation - 1.0) } else { (error, correlation) }
    }
}

/// What the reference gave for one model: the steps of all cameras, in the order of the recording's inputs.
#[derive(Debug, Clone, PartialEq)]
pub struct ReferenceOutput {
    /// The model.
    pub key: PolicyKey,
    /// Its output.
    pub values: Series,
}

/// One slice compared, over all steps of all cameras.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SliceComparison {
    /// The model inside the artifact.
    pub output: PolicyKey,
    /// The slice.
    pub slice: String,
    /// The largest absolute error; absent where a value is not finite.
    pub absolute: Option<f64>,
    /// The largest absolute error, divided by the slice's root mean square.
    pub relative: Option<f64>,
    /// Pearson's correlation; absent where either side is constant.
    pub correlation: Option<f64>,
    /// Whether it lies within the tolerances.
    pub passed: bool,
}

/// The worst value of a slice.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Worst {
    at: usize,
    step: usize,
    index: usize,
    ours: f32,
    theirs: f32,
    /// Its error, in units of what is allowed.
    excess: f64,
}

/// Compares every slice that the sources have. Slices are found where each side says they are, so that swapped ones differ.
pub fn compare(
    recording: &Recording,
    sources: &BTreeMap<PolicyKey, ModelMetadata>,
    reference: &[ReferenceOutput],
    precision: Precision,
) -> (Vec<SliceComparison>, Vec<Verdict>) {
    let (mut compared, mut verdicts) = (Vec::new(), Vec::new());
    let (ours, _) = recording.slices();
    for ReferenceOutput { key, values } in reference {
        let Some(source) = sources.get(key) else { continue };
        for (name, slice) in &source.output_slices {
            let Ok(range) = slice.resolve(values.width() as u64) else { continue };
            let theirs =
                Slice { output: *key, name: name.clone(), range: range.start as usize..range.end as usize };
            let own = ours.iter().find(|own| own.output == *key && own.name == *name);
            // That a slice is absent or of another width is found by comparing the metadata.
            let Some(own) = own.filter(|own| !is_padding(own) && own.range.len() == theirs.range.len())
            else {
                continue;
            };
            let pair = Pair { recording, own, theirs: &theirs, values };
            let (comparison, verdict) = pair.compare(precision);
            compared.push(comparison);
            verdicts.extend(verdict);
        }
    }
    (compared, verdicts)
}

struct Pair<'p> {
    recording: &'p Recording,
    own: &'p Slice,
    theirs: &'p Slice,
    values: &'p Series,
}

impl Pair<'_> {
    /// Camera's place, step, and both rows.
    fn rows(&self) -> Vec<(usize, usize, &[f32], &[f32])> {
        let mut found = Vec::new();
        let mut row = 0;
        for (at, given) in self.recording.given.iter().enumerate() {
            let run = self.recording.cameras.iter().find(|run| run.camera == given.camera);
            let rows: Vec<&[f32]> =
                run.map(|run| run.rows(self.own).take(given.steps).collect()).unwrap_or_default();
            for (step, own) in rows.into_iter().enumerate() {
                if row + step < self.values.steps() {
                    found.push((at, step, own, &self.values.row(row + step)[self.theirs.range.clone()]));
                }
            }
            row += given.steps;
        }
        found
    }

    fn compare(&self, precision: Precision) -> (SliceComparison, Option<Verdict>) {
        let rows = self.rows();
        let (tolerance, least) = precision.tolerance(&self.own.name);
        let pairs =
            || rows.iter().flat_map(|(_, _, own, theirs)| own.iter().copied().zip(theirs.iter().copied()));
        let count = pairs().count().max(1) as f64;
        let size = (pairs().map(|(_, theirs)| f64::from(theirs).powi(2)).sum::<f64>() / count).sqrt();
        let mut absolute = 0.0f64;
        let mut worst: Option<Worst> = None;
        for &(at, step, own, theirs) in &rows {
            for (index, (&ours, &theirs)) in own.iter().zip(theirs).enumerate() {
                let error = (f64::from(ours) - f64::from(theirs)).abs();
                let excess = error / (tolerance * (size + f64::from(theirs).abs())).max(f64::MIN_POSITIVE);
                absolute = if error.is_nan() { f64::NAN } else { absolute.max(error) };
                // A value that is no number is worse than any.
                let excess = if excess.is_nan() && error != 0.0 { f64::INFINITY } else { excess };
                if worst.is_none_or(|worst| excess > worst.excess) {
                    worst = Some(Worst { at, step, index, ours, theirs, excess });
                }
            }
        }
        let correlation = correlation(&pairs().collect::<Vec<_>>());
        let outside = worst.filter(|worst| worst.excess > 1.0);
        let passed = outside.is_none() && correlation.is_none_or(|found| found >= least);
        let finite = |value: f64| value.is_finite().then_some(value);
        let comparison = SliceComparison {
            output: self.own.output,
            slice: self.own.name.clone(),
            absolute: finite(absolute),
            relative: finite(absolute / size),
            correlation,
            passed,
        };
        let text = match (outside, correlation) {
            _ if passed => return (comparison, None),
            (Some(worst), _) => format!(
                "value {} is {} where ONNX Runtime gives {}: {:.1} times the error that is allowed",
                worst.index, worst.ours, worst.theirs, worst.excess
            ),
            (None, found) => format!(
                "the values follow those of ONNX Runtime with a correlation of {:.6}; at least {least} is needed",
                found.unwrap_or(f64::NAN)
            ),
        };
        let mut verdict = Verdict::failure(Check::Reference, text);
        if let Some(Worst { at, step, index, ours, .. }) = worst {
            verdict = verdict.at(step, index, ours).on(self.recording.given[at].camera);
        }
        (comparison, Some(verdict.in_slice(self.own.output, &self.own.name)))
    }
}

/// Pearson's correlation; `None` where a side is constant, too short or not finite.
fn correlation(pairs: &[(f32, f32)]) -> Option<f64> {
    let count = pairs.len() as f64;
    let mean =
        |side: fn(&(f32, f32)) -> f32| pairs.iter().map(|pair| f64::from(side(pair))).sum::<f64>() / count;
    let (ours, theirs) = (mean(|pair| pair.0), mean(|pair| pair.1));
    let (mut both, mut own, mut other) = (0.0, 0.0, 0.0);
    for &(a, b) in pairs {
        let (a, b) = (f64::from(a) - ours, f64::from(b) - theirs);
        (both, own, other) = (both + a * b, own + a * a, other + b * b);
    }
    let found = both / (own * other).sqrt();
    (pairs.len() > 2 && found.is_finite()).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Given,
        judge::tests::{good, plant},
    };

    /// A recording with inputs of five steps on both cameras, and a reference that agrees with it.
    fn agreeing() -> (Recording, Vec<ReferenceOutput>) {
        let mut recording = good();
        recording.given = recording
            .cameras
            .iter()
            .map(|run| Given { camera: run.camera, steps: 5, images: Vec::new(), packed: Vec::new() })
            .collect();
        let output = |key: PolicyKey| {
            let rows = recording.cameras.iter().flat_map(|run| run.outputs[&key].rows().take(5));
            let values: Vec<f32> = rows.flatten().map(|value| value * (1.0 + 1e-6)).collect();
            ReferenceOutput { key, values: Series::new(recording.width(key).unwrap(), values).unwrap() }
        };
        let outputs = vec![output(PolicyKey::Vision), output(PolicyKey::Policy)];
        (recording, outputs)
    }

    fn compared(recording: &Recording, reference: &[ReferenceOutput], precision: Precision) -> Vec<Verdict> {
        compare(recording, &good().metadata, reference, precision).1
    }

    #[test]
    fn equal_outputs_pass_and_every_slice_is_recorded() {
        let (recording, reference) = agreeing();
        let (slices, verdicts) = compare(&recording, &recording.metadata, &reference, Precision::Float32);
        assert_eq!(verdicts, []);
        assert_eq!(slices.len(), 13);
        for slice in slices {
            assert!(
                slice.passed && slice.relative.unwrap() < 1e-4 && slice.correlation.unwrap() > 0.999_99,
                "{slice:?}"
            );
        }
    }

    #[test]
    fn one_wrong_value_is_named_with_its_place() {
        let (mut recording, reference) = agreeing();
        plant(&mut recording, "lead", |step, values| {
            if step == 4 {
                values[17] += 0.01;
            }
        });
        let verdicts = compared(&recording, &reference, Precision::Float32);
        let [verdict] = &verdicts[..] else { panic!("{verdicts:?}") };
        assert_eq!((verdict.check, verdict.slice.as_deref()), (Check::Reference, Some("lead")));
        assert_eq!((verdict.step, verdict.index), (Some(4), Some(17)));
        assert!(verdict.camera.is_some() && verdict.value.is_some(), "{verdict}");
    }

    #[test]
    fn sixteen_bits_are_allowed_more_and_not_everything() {
        for (error, precision, expected) in
            [(1e-3, Precision::Float32, 1), (1e-3, Precision::Float16, 0), (0.05, Precision::Float16, 1)]
        {
            let (mut recording, reference) = agreeing();
            plant(&mut recording, "pose", |_, values| values[3] += error);
            assert_eq!(compared(&recording, &reference, precision).len(), expected, "{error} {precision:?}");
        }
    }

    #[test]
    fn swapped_slices_are_found_by_their_values() {
        let (mut recording, reference) = agreeing();
        let slices = &mut recording.metadata.get_mut(&PolicyKey::Vision).unwrap().output_slices;
        let (pose, transform) = (slices["pose"], slices["road_transform"]);
        slices.insert("pose".to_owned(), transform);
        slices.insert("road_transform".to_owned(), pose);
        let found: Vec<_> = compared(&recording, &reference, Precision::Float16)
            .into_iter()
            .map(|v| v.slice.unwrap())
            .collect();
        assert_eq!(found, ["pose", "road_transform"]);
    }

    #[test]
    fn what_is_no_number_never_passes() {
        let (mut recording, mut reference) = agreeing();
        plant(&mut recording, "plan", |_, values| values[0] = f32::NAN);
        reference[0].values.row_mut(7)[0] = f32::INFINITY;
        let found: Vec<_> = compared(&recording, &reference, Precision::Float16)
            .into_iter()
            .map(|v| v.slice.unwrap())
            .collect();
        assert_eq!(found, ["meta", "plan"]);
    }

    #[test]
    fn the_precision_follows_from_weights_target_and_flags() {
        let flags = |float16: &str, image: &str| {
            BTreeMap::from([
                ("FLOAT16".to_owned(), float16.to_owned()),
                ("IMAGE".to_owned(), image.to_owned()),
            ])
        };
        let float = [ElementType::FLOAT];
        assert_eq!(Precision::of(Target::Cpu, &flags("1", "0"), &float), Precision::Float32);
        assert_eq!(Precision::of(Target::Cpu, &flags("1", "2"), &float), Precision::Float16);
        assert_eq!(Precision::of(Target::Qcom, &flags("0", "0"), &float), Precision::Float16);
        assert_eq!(Precision::of(Target::Cpu, &flags("0", "0"), &[ElementType::FLOAT16]), Precision::Float16);
    }
}
