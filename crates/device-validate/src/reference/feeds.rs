//! What every model inside an artifact has to have been given, step by step, from what a run recorded.
//!
//! Written from the layout's description, without the driver: queues drop the oldest and append the new, are sampled every
//! `frame_skip` steps, and begin with zeros.

use std::collections::BTreeMap;

use model_catalog::{ModelMetadata, PolicyKey};
use onnx_source::{InputRole, input_role};

use crate::{CameraRun, Given, Recording};

/// Bytes of one packed image.
const IMAGE: usize = 6 * 128 * 256;
/// Channels of one packed image.
const CHANNELS: u64 = 6;
/// Values of a desire.
const DESIRES: usize = 8;

/// The inputs of one model over all steps of all cameras.
#[derive(Debug, Clone, PartialEq)]
pub struct Feed {
    /// The model.
    pub key: PolicyKey,
    /// Steps.
    pub steps: usize,
    /// Its inputs, in the ONNX's order.
    pub inputs: Vec<FeedInput>,
}

/// One input.
#[derive(Debug, Clone, PartialEq)]
pub struct FeedInput {
    /// Its name.
    pub name: String,
    /// Its shape.
    pub shape: Vec<u64>,
    /// The steps, concatenated.
    pub values: FeedValues,
}

/// Values of an input.
#[derive(Debug, Clone, PartialEq)]
pub enum FeedValues {
    /// Camera images.
    Bytes(Vec<u8>),
    /// Everything else.
    Floats(Vec<f32>),
}

/// The inputs of every model in `sources`, for all that was recorded.
///
/// # Errors
/// Why they cannot be told.
pub fn feeds(
    recording: &Recording,
    sources: &BTreeMap<PolicyKey, ModelMetadata>,
) -> Result<Vec<Feed>, String> {
    let steps = recording.given.iter().map(|given| given.steps).sum();
    if steps == 0 {
        return Err("the device did not record what the models were given".to_owned());
    }
    let feed = |(&key, source): (&PolicyKey, &ModelMetadata)| {
        let input = |(name, shape): (&String, &Vec<u64>)| {
            let mut values =
                if is_image(name) { FeedValues::Bytes(Vec::new()) } else { FeedValues::Floats(Vec::new()) };
            for given in &recording.given {
                let camera = CameraFeed::new(recording, sources, given)?;
                (0..given.steps).try_for_each(|step| camera.append(name, shape, step, &mut values))?;
            }
            Ok(FeedInput { name: name.clone(), shape: shape.clone(), values })
        };
        let inputs = source.input_shapes.iter().map(input).collect::<Result<_, String>>()?;
        Ok(Feed { key, steps, inputs })
    };
    sources.iter().map(feed).collect()
}

fn is_image(name: &str) -> bool {
    name.contains("img")
}

/// What was given on one camera.
struct CameraFeed<'r> {
    recording: &'r Recording,
    given: &'r Given,
    run: &'r CameraRun,
    /// Where the hidden state lies in the first output, as its ONNX says.
    hidden: Option<(PolicyKey, std::ops::Range<usize>)>,
    skip: usize,
}

impl<'r> CameraFeed<'r> {
    fn new(
        recording: &'r Recording,
        sources: &BTreeMap<PolicyKey, ModelMetadata>,
        given: &'r Given,
    ) -> Result<Self, String> {
        let run = recording.cameras.iter().find(|run| run.camera == given.camera);
        let run = run.ok_or_else(|| format!("inputs of {} were recorded and no outputs", given.camera))?;
        let hidden = [PolicyKey::Vision, PolicyKey::Model].into_iter().find_map(|key| {
            let source = sources.get(&key)?;
            let range = source.output_slices.get("hidden_state")?.resolve(source.output_width()?).ok()?;
            Some((key, range.start as usize..range.end as usize))
        });
        let skip = recording.frame_skip.unwrap_or(1).max(1) as usize;
        Ok(Self { recording, given, run, hidden, skip })
    }

    /// Appends what the input of this name has to have been at `step`.
    fn append(&self, name: &str, shape: &[u64], step: usize, to: &mut FeedValues) -> Result<(), String> {
        match (to, input_role(name)) {
            (FeedValues::Bytes(bytes), InputRole::RoadImage) => self.images(shape, step, 0, bytes),
            (FeedValues::Bytes(bytes), InputRole::WideImage) => self.images(shape, step, 1, bytes),
            (FeedValues::Bytes(bytes), _) => self.whole_image(shape, step, bytes),
            (FeedValues::Floats(values), InputRole::Desire) => self.desires(shape, step, values),
            (FeedValues::Floats(values), InputRole::FeaturesBuffer) => self.features(shape, step, values),
            (FeedValues::Floats(values), _) => {
                let part = self.packed(name, step)?;
                if part.len() as u64 != shape.iter().product::<u64>() {
                    return Err(format!(
                        "{name} has the shape {shape:?}, and {} values were packed",
                        part.len()
                    ));
                }
                values.extend_from_slice(part);
                Ok(())
            }
        }
    }

    /// The history of one camera's images: the newest last, zeros before the first.
    fn images(&self, shape: &[u64], step: usize, which: usize, to: &mut Vec<u8>) -> Result<(), String> {
        let [1, channels, 128, 256] = *shape else {
            return Err(format!("an image input has the shape {shape:?}"));
        };
        let count = (channels / CHANNELS) as usize;
        for image in 0..count {
            match step.checked_sub(self.skip * (count - 1 - image)) {
                None => to.resize(to.len() + IMAGE, 0),
                Some(then) => {
                    let start = (2 * then + which) * IMAGE;
                    let bytes = self.given.images.get(start..start + IMAGE);
                    to.extend_from_slice(bytes.ok_or("fewer images were recorded than steps")?);
                }
            }
        }
        Ok(())
    }

    /// Driver monitoring's one image.
    fn whole_image(&self, shape: &[u64], step: usize, to: &mut Vec<u8>) -> Result<(), String> {
        let size = shape.iter().product::<u64>() as usize;
        let bytes = self.given.images.get(step * size..(step + 1) * size);
        to.extend_from_slice(bytes.ok_or("fewer images were recorded than steps")?);
        Ok(())
    }

    /// A part of the packed vector of a step.
    fn packed(&self, name: &str, step: usize) -> Result<&'r [f32], String> {
        let width = self.given.packed.len() / self.given.steps;
        let mut start = step * width;
        for (part, shape) in &self.recording.packed_layout {
            let len = shape.iter().product::<u64>() as usize;
            if part == name {
                return self
                    .given
                    .packed
                    .get(start..start + len)
                    .ok_or_else(|| format!("{name} was not recorded"));
            }
            start += len;
        }
        Err(format!("the artifact does not give its models {name}"))
    }

    /// The largest of each group of `skip` steps, so that no pulse is lost.
    fn desires(&self, shape: &[u64], step: usize, to: &mut Vec<f32>) -> Result<(), String> {
        let [1, length, 8] = *shape else { return Err(format!("the desire input has the shape {shape:?}")) };
        let rows = self.skip * length as usize;
        for group in 0..length as usize {
            let mut most = [f32::NEG_INFINITY; DESIRES];
            for row in group * self.skip..(group + 1) * self.skip {
                let values = match (step + row + 1).checked_sub(rows) {
                    None => &[0.0; DESIRES][..],
                    Some(then) => self.packed("desire", then)?,
                };
                most.iter_mut().zip(values).for_each(|(most, value)| *most = most.max(*value));
            }
            to.extend_from_slice(&most);
        }
        Ok(())
    }

    /// The history of hidden states. A split model's vision is part of its own step; a supercombo is given its last state.
    fn features(&self, shape: &[u64], step: usize, to: &mut Vec<f32>) -> Result<(), String> {
        let (key, range) = self.hidden.as_ref().ok_or("no ONNX of the sources has a hidden_state")?;
        let [1, length, ..] = *shape else { return Err(format!("features_buffer has the shape {shape:?}")) };
        if shape[2..].iter().product::<u64>() as usize != range.len() {
            return Err(format!(
                "features_buffer has the shape {shape:?}, hidden_state {} values",
                range.len()
            ));
        }
        let series = self.run.outputs.get(key).ok_or_else(|| format!("output {key} was not recorded"))?;
        for row in 0..length as usize {
            let back = match key {
                PolicyKey::Model => self.skip * (length as usize - row),
                _ => self.skip * (length as usize - 1 - row),
            };
            match step.checked_sub(back) {
                None => to.resize(to.len() + range.len(), 0.0),
                Some(then) if then < series.steps() => to.extend_from_slice(
                    series.row(then).get(range.clone()).ok_or("hidden_state lies outside of its output")?,
                ),
                Some(_) => return Err("fewer outputs were recorded than steps".to_owned()),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use model_catalog::{CAMERAS, SliceSpec};

    use super::*;
    use crate::{Series, judge::tests::good};

    fn source(inputs: &[(&str, &[u64])], hidden: Option<i64>) -> ModelMetadata {
        let shapes = inputs.iter().map(|(name, shape)| ((*name).to_owned(), shape.to_vec()));
        let mut metadata = ModelMetadata { input_shapes: shapes.collect(), ..ModelMetadata::default() };
        if let Some(width) = hidden {
            metadata
                .output_slices
                .insert("hidden_state".to_owned(), SliceSpec::new(Some(1), Some(1 + width)));
            metadata.output_shapes.insert("outputs".to_owned(), vec![1, 1 + width as u64]);
        }
        metadata
    }

    /// Twelve steps on one camera: images of the step's number, features of it, a pulse of desire at step 3.
    fn recording(key: PolicyKey) -> Recording {
        let steps = 12;
        let mut recording = good();
        recording.frame_skip = Some(4);
        recording.packed_layout = vec![("desire".to_owned(), vec![8]), ("action_t".to_owned(), vec![1, 2])];
        let image = |step: usize| [vec![step as u8 + 1; IMAGE], vec![step as u8 + 101; IMAGE]].concat();
        let pulse = |step: usize| if step == 3 { 1.0 } else { 0.0 };
        let packed = (0..steps).flat_map(|step| [vec![pulse(step); 8], vec![0.15, 0.25]].concat());
        recording.given = vec![Given {
            camera: CAMERAS[0],
            steps,
            images: (0..steps).flat_map(image).collect(),
            packed: packed.collect(),
        }];
        let values = (0..steps).flat_map(|step| [9.0, step as f32 + 1.0, step as f32 + 1.0]).collect();
        recording.cameras.truncate(1);
        recording.cameras[0].outputs = [(key, Series::new(3, values).unwrap())].into();
        recording
    }

    fn floats(feed: &Feed, name: &str) -> Vec<f32> {
        match &feed.inputs.iter().find(|input| input.name == name).unwrap().values {
            FeedValues::Floats(values) => values.clone(),
            FeedValues::Bytes(_) => panic!("{name} is an image"),
        }
    }

    const POLICY: [(&str, &[u64]); 3] =
        [("desire_pulse", &[1, 2, 8]), ("action_t", &[1, 2]), ("features_buffer", &[1, 3, 2])];

    #[test]
    fn images_are_the_newest_and_the_one_four_steps_before() {
        let vision = source(&[("img", &[1, 12, 128, 256]), ("big_img", &[1, 12, 128, 256])], Some(2));
        let feeds = feeds(&recording(PolicyKey::Vision), &[(PolicyKey::Vision, vision)].into()).unwrap();
        let FeedValues::Bytes(wide) = &feeds[0].inputs[1].values else { panic!("no image") };
        let first_of = |step: usize, image: usize| wide[(2 * step + image) * IMAGE];
        assert_eq!((first_of(3, 0), first_of(3, 1)), (0, 104));
        assert_eq!((first_of(11, 0), first_of(11, 1)), (108, 112));
        assert_eq!(feeds[0].steps, 12);
    }

    #[test]
    fn a_policy_sees_the_vision_of_its_own_step() {
        let sources = [(PolicyKey::Vision, source(&[], Some(2))), (PolicyKey::Policy, source(&POLICY, None))];
        let feeds = feeds(&recording(PolicyKey::Vision), &sources.into()).unwrap();
        let features = floats(&feeds[1], "features_buffer");
        assert_eq!(features[11 * 6..], [4.0, 4.0, 8.0, 8.0, 12.0, 12.0]);
        assert_eq!(features[..6], [0.0, 0.0, 0.0, 0.0, 1.0, 1.0]);
        assert_eq!(floats(&feeds[1], "action_t")[..2], [0.15, 0.25]);
    }

    #[test]
    fn a_supercombo_sees_its_last_state_late() {
        let inputs = [("features_buffer", &[1u64, 3, 2][..])];
        let sources = [(PolicyKey::Model, source(&inputs, Some(2)))];
        let feeds = feeds(&recording(PolicyKey::Model), &sources.into()).unwrap();
        let features = floats(&feeds[0], "features_buffer");
        // At step 11 the queue's row 8 holds what was pushed at step 8: the state of step 7.
        assert_eq!(features[11 * 6..], [0.0, 0.0, 4.0, 4.0, 8.0, 8.0]);
    }

    #[test]
    fn a_pulse_stays_for_as_long_as_its_group() {
        let sources = [(PolicyKey::Vision, source(&[], Some(2))), (PolicyKey::Policy, source(&POLICY, None))];
        let feeds = feeds(&recording(PolicyKey::Vision), &sources.into()).unwrap();
        let desires = floats(&feeds[1], "desire_pulse");
        let at = |step: usize| [desires[step * 16], desires[step * 16 + 8]];
        assert_eq!((at(2), at(3), at(6)), ([0.0, 0.0], [0.0, 1.0], [0.0, 1.0]));
        assert_eq!((at(7), at(10), at(11)), ([1.0, 0.0], [1.0, 0.0], [0.0, 0.0]));
    }

    #[test]
    fn what_was_not_recorded_is_said() {
        let mut recording = recording(PolicyKey::Vision);
        let odd = source(&[("img", &[1, 12, 64, 64])], None);
        let refused = feeds(&recording, &[(PolicyKey::Vision, odd)].into()).unwrap_err();
        assert!(refused.contains("[1, 12, 64, 64]"), "{refused}");
        let unknown = source(&[("speed", &[1, 1])], None);
        assert!(feeds(&recording, &[(PolicyKey::Policy, unknown)].into()).unwrap_err().contains("speed"));
        recording.given.clear();
        assert!(feeds(&recording, &BTreeMap::new()).is_err());
    }
}
