//! What a judge found, as data.

use std::fmt;

use model_catalog::{Camera, PolicyKey};
use serde::{Deserialize, Serialize};

/// How much a verdict weighs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Looked at by a person; the artifact passes.
    Warning,
    /// The artifact does not pass.
    Failure,
}

/// What was checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Check {
    /// A required output is absent.
    Missing,
    /// No output controls the car.
    NoControl,
    /// A slice does not fit its output, or an output has another width than its model says.
    Layout,
    /// A value is infinite or not a number.
    NonFinite,
    /// Every value of a slice is zero.
    AllZero,
    /// A slice ends in zeros: weights or an output buffer were cut off.
    ZeroTail,
    /// A slice has the same values for different frames.
    Constant,
    /// Two slices of different meaning have the same values.
    Duplicate,
    /// An output's width fits no generation of models.
    Shape,
    /// A slice is not the one that the ONNX has.
    Slices,
    /// The artifact was built from other sources than the workspace has.
    Sources,
    /// The file says something about itself that forbids its use: a wrong device, a foreign class.
    File,
    /// A second process computed something else.
    NotDeterministic,
    /// The steps before do not show in the outputs.
    StateIgnored,
    /// A camera does not show in the outputs.
    CameraIgnored,
    /// The calibration does not show in the outputs.
    CalibrationIgnored,
    /// A warp samples other pixels than its camera's layout says.
    WrongWarp,
    /// A step or the load takes longer than the device allows.
    Slow,
    /// Steps get slower.
    Drift,
    /// The process takes more memory than the device allows.
    Memory,
    /// A quantity lies outside of loose bounds of physics.
    Implausible,
    /// The outputs are not those of a reference implementation.
    Reference,
    /// A weight is not that of its ONNX.
    Weights,
    /// Something could not be checked.
    NotSeen,
}

impl Check {
    /// The word in records.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::NoControl => "no_control",
            Self::Layout => "layout",
            Self::NonFinite => "non_finite",
            Self::AllZero => "all_zero",
            Self::ZeroTail => "zero_tail",
            Self::Constant => "constant",
            Self::Duplicate => "duplicate",
            Self::Shape => "shape",
            Self::Slices => "slices",
            Self::Sources => "sources",
            Self::File => "file",
            Self::NotDeterministic => "not_deterministic",
            Self::StateIgnored => "state_ignored",
            Self::CameraIgnored => "camera_ignored",
            Self::CalibrationIgnored => "calibration_ignored",
            Self::WrongWarp => "wrong_warp",
            Self::Slow => "slow",
            Self::Drift => "drift",
            Self::Memory => "memory",
            Self::Implausible => "implausible",
            Self::Reference => "reference",
            Self::Weights => "weights",
            Self::NotSeen => "not_seen",
        }
    }
}

/// One finding.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// What was checked.
    pub check: Check,
    /// How much it weighs.
    pub severity: Severity,
    /// The camera, where it matters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub camera: Option<Camera>,
    /// The model inside the artifact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<PolicyKey>,
    /// The slice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slice: Option<String>,
    /// The step, from 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<usize>,
    /// The index in the slice, from 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<usize>,
    /// The value, where it is a number that JSON can write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
    /// What was found, in one sentence.
    pub text: String,
}

impl Verdict {
    /// A finding that fails the artifact.
    pub fn failure(check: Check, text: impl Into<String>) -> Self {
        Self {
            check,
            severity: Severity::Failure,
            camera: None,
            output: None,
            slice: None,
            step: None,
            index: None,
            value: None,
            text: text.into(),
        }
    }

    /// A finding that a person should look at.
    pub fn warning(check: Check, text: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::failure(check, text) }
    }

    /// Says in which slice of which output it was found.
    #[must_use]
    pub fn in_slice(mut self, output: PolicyKey, slice: &str) -> Self {
        self.output = Some(output);
        self.slice = Some(slice.to_owned());
        self
    }

    /// Says on which camera it was found.
    #[must_use]
    pub fn on(mut self, camera: Camera) -> Self {
        self.camera = Some(camera);
        self
    }

    /// Says at which step, index and value it was found.
    #[must_use]
    pub fn at(mut self, step: usize, index: usize, value: f32) -> Self {
        self.step = Some(step);
        self.index = Some(index);
        self.value = value.is_finite().then_some(f64::from(value));
        self
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(slice) = &self.slice {
            write!(f, "{slice}: ")?;
        }
        f.write_str(&self.text)?;
        match (self.camera, self.step) {
            (Some(camera), Some(step)) => write!(f, " ({camera}, step {step})"),
            (Some(camera), None) => write!(f, " ({camera})"),
            (None, Some(step)) => write!(f, " (step {step})"),
            (None, None) => Ok(()),
        }
    }
}
