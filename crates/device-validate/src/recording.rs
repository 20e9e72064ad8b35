//! The raw outputs of a run, in memory: some hundred kilobytes a camera.

use std::collections::BTreeMap;

use model_catalog::{BehaviorVersion, Camera, ModelMetadata, ModelType, PolicyKey, SliceError};
use serde::{Deserialize, Serialize};

use crate::SoakWindow;

/// One output over all steps: `steps` rows of `width` values.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    width: usize,
    values: Vec<f32>,
}

impl Series {
    /// The series of rows `width` wide; `None` where the values are not whole rows.
    pub fn new(width: usize, values: Vec<f32>) -> Option<Self> {
        (width > 0 && values.len().is_multiple_of(width)).then_some(Self { width, values })
    }

    /// The series in little-endian float32 bytes.
    pub fn from_bytes(width: usize, bytes: &[u8]) -> Option<Self> {
        if !bytes.len().is_multiple_of(4) {
            return None;
        }
        let value = |four: &[u8]| f32::from_le_bytes([four[0], four[1], four[2], four[3]]);
        Self::new(width, bytes.chunks_exact(4).map(value).collect())
    }

    /// Values in a row.
    pub const fn width(&self) -> usize {
        self.width
    }

    /// Rows.
    pub const fn steps(&self) -> usize {
        self.values.len() / self.width
    }

    /// The values of a step.
    pub fn row(&self, step: usize) -> &[f32] {
        &self.values[step * self.width..(step + 1) * self.width]
    }

    /// All rows.
    pub fn rows(&self) -> impl Iterator<Item = &[f32]> {
        self.values.chunks_exact(self.width)
    }

    /// The values of a step, to be changed: tests plant faults.
    #[cfg(test)]
    pub(crate) fn row_mut(&mut self, step: usize) -> &mut [f32] {
        &mut self.values[step * self.width..(step + 1) * self.width]
    }
}

/// What one camera's run left.
#[derive(Debug, Clone, PartialEq)]
pub struct CameraRun {
    /// The camera.
    pub camera: Camera,
    /// Output of each model inside the artifact.
    pub outputs: BTreeMap<PolicyKey, Series>,
    /// Seconds of each step.
    pub step_seconds: Vec<f64>,
}

/// What one run of an artifact left.
#[derive(Debug, Clone, PartialEq)]
pub struct Recording {
    /// The artifact's type; driver monitoring has none.
    pub model_type: Option<ModelType>,
    /// Its policies in the order of their outputs; empty for a supercombo.
    pub policy_order: Vec<PolicyKey>,
    /// The behaviour version that it carries.
    pub behavior_version: Option<BehaviorVersion>,
    /// Metadata of each model inside it.
    pub metadata: BTreeMap<PolicyKey, ModelMetadata>,
    /// Names and shapes of the inputs that are packed for each step, in their order.
    pub packed_layout: Vec<(String, Vec<u64>)>,
    /// Steps of 20 Hz between two steps of context.
    pub frame_skip: Option<u32>,
    /// tinygrad's settings that can change what is computed.
    pub settings: BTreeMap<String, String>,
    /// Versions of tinygrad and Python, where the device says them.
    pub versions: BTreeMap<String, String>,
    /// Seconds that loading took.
    pub load_seconds: f64,
    /// Largest resident size of the process in bytes, where the device says it.
    pub peak_bytes: Option<u64>,
    /// How hot the device was.
    pub temperature_celsius: Temperature,
    /// Each camera's run.
    pub cameras: Vec<CameraRun>,
    /// Steps with one thing changed.
    pub probes: Vec<Probe>,
    /// What each warp makes of known frames.
    pub warps: Vec<WarpImage>,
    /// What the models were given in the first steps, where it was asked for.
    pub given: Vec<Given>,
    /// How a long run went on, where it was asked for.
    pub soak: Vec<SoakWindow>,
}

/// The highest temperature of a device's zones in degrees Celsius, where it tells one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Temperature {
    /// Before the artifact was loaded.
    pub before: Option<f64>,
    /// After the last step.
    pub after: Option<f64>,
}

/// What the models were given in the first steps on one camera.
#[derive(Debug, Clone, PartialEq)]
pub struct Given {
    /// The camera.
    pub camera: Camera,
    /// Steps.
    pub steps: usize,
    /// What the warp made of the frames: of each step road then wide, six channels each; for driver monitoring one image.
    pub images: Vec<u8>,
    /// The packed vector of each step.
    pub packed: Vec<f32>,
}

/// What a probe changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProbeKind {
    /// There was no step before.
    History,
    /// The image queues were empty.
    ImageQueue,
    /// The feature queue was empty.
    FeatureQueue,
    /// The desire queue held desires.
    DesireQueue,
    /// The road camera saw another frame.
    Road,
    /// The wide camera saw another frame.
    Wide,
    /// Driver monitoring: the driver camera saw another frame.
    Image,
    /// Driver monitoring: the calibration was another.
    Calibration,
}

/// One step with one thing changed; everything else was as in the plain run.
#[derive(Debug, Clone, PartialEq)]
pub struct Probe {
    /// What was changed.
    pub kind: ProbeKind,
    /// The camera.
    pub camera: Camera,
    /// The step of the plain run that it is compared with.
    pub step: usize,
    /// Output of each model inside the artifact.
    pub outputs: BTreeMap<PolicyKey, Vec<f32>>,
}

/// What a warp made of two frames whose bytes follow from their position.
#[derive(Debug, Clone, PartialEq)]
pub struct WarpImage {
    /// The camera.
    pub camera: Camera,
    /// Row by row: from an output pixel to a pixel of the frame.
    pub matrix: [f32; 9],
    /// Salt of the road frame and of the wide one; driver monitoring has one frame.
    pub salts: Vec<u32>,
    /// Six channels of the road frame, then six of the wide one; for driver monitoring one image of luminance.
    pub pixels: Vec<u8>,
}

/// A named slice of a model's output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Slice {
    pub(crate) output: PolicyKey,
    pub(crate) name: String,
    pub(crate) range: std::ops::Range<usize>,
}

impl Recording {
    /// Every slice that fits its output, in the artifact's order, and those that do not with why.
    pub(crate) fn slices(&self) -> (Vec<Slice>, Vec<(PolicyKey, String, SliceError)>) {
        let (mut good, mut bad) = (Vec::new(), Vec::new());
        for (&output, metadata) in &self.metadata {
            let width = self.width(output).unwrap_or_default();
            for (name, slice) in &metadata.output_slices {
                match slice.resolve(width as u64) {
                    Ok(range) => {
                        let range = range.start as usize..range.end as usize;
                        good.push(Slice { output, name: name.clone(), range });
                    }
                    Err(error) => bad.push((output, name.clone(), error)),
                }
            }
        }
        (good, bad)
    }

    /// Names of the inputs that are packed for each step, in their order.
    pub fn parsed_inputs(&self) -> Vec<String> {
        self.packed_layout.iter().map(|(name, _)| name.clone()).collect()
    }

    /// The width of an output as it was recorded.
    pub(crate) fn width(&self, output: PolicyKey) -> Option<usize> {
        self.cameras.iter().find_map(|run| run.outputs.get(&output)).map(Series::width)
    }
}

impl CameraRun {
    /// The rows of a slice.
    pub(crate) fn rows<'r>(&'r self, slice: &'r Slice) -> impl Iterator<Item = &'r [f32]> {
        self.outputs
            .get(&slice.output)
            .into_iter()
            .flat_map(|series| series.rows().map(|row| &row[slice.range.start..slice.range.end]))
    }
}
