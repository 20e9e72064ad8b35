//! What the driver says on its standard output: one JSON object a line.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Version of the request and event protocol.
pub const PROTOCOL: u32 = 1;

/// One event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum DriverEvent {
    /// A stage begins or ends.
    Stage {
        /// Its name, such as `load_onnx` or `warp_1928x1208`.
        stage: String,
        /// Begin or end.
        state: StageState,
        /// How long it took, at its end.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        seconds: Option<f64>,
        /// Facts of the stage, such as kernel counts.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        detail: Option<Value>,
        /// The model of a batch that the stage belongs to.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        model: Option<Value>,
    },
    /// A model of a batch is finished.
    Model {
        /// The label that the request gave it.
        model: Value,
        /// What became of it.
        #[serde(flatten)]
        outcome: ModelOutcome,
    },
    /// Something that a person should know; ours, the driver has none.
    Note {
        /// What.
        message: String,
    },
    /// The last event of a run that succeeded.
    Done {
        /// What the operation found.
        result: Value,
    },
    /// The last event of a run that failed.
    Failed {
        /// The class of the failure.
        kind: FailureKind,
        /// What happened.
        message: String,
        /// Facts, such as the name of an operator.
        #[serde(default)]
        detail: Value,
    },
    /// An event of a newer driver; it is passed on and otherwise ignored.
    #[serde(other)]
    Other,
}

/// What became of one model of a batch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum ModelOutcome {
    /// It is compiled.
    Done {
        /// As the result of a single compile.
        result: Value,
    },
    /// It is not.
    Failed {
        /// Why.
        error: ModelFailure,
    },
}

/// Why one model of a batch failed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelFailure {
    /// The class of the failure.
    pub kind: FailureKind,
    /// What happened.
    pub message: String,
    /// Facts, such as the name of an operator.
    #[serde(default)]
    pub detail: Value,
}

/// Whether a stage begins or ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StageState {
    /// It begins.
    Start,
    /// It has ended.
    End,
}

/// The classes of failure that the driver tells apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// The request has a fault of ours.
    BadRequest,
    /// The interpreter has no tinygrad.
    TinygradMissing,
    /// The interpreter has no numpy.
    NumpyMissing,
    /// The C compiler of tinygrad's CPU backend is not installed.
    BackendMissing,
    /// tinygrad cannot run the ONNX; the detail names the operator.
    OnnxUnsupported,
    /// Inputs or outputs do not fit together.
    ShapeMismatch,
    /// A slice does not fit the output.
    SliceWidth,
    /// An output is not finite.
    NonFinite,
    /// The replay of a captured jit differs from its first run.
    ReplayMismatch,
    /// Another input gave the same output.
    InputIgnored,
    /// The loaded file computes something else than the compiling process did.
    RoundTripMismatch,
    /// The artifact cannot be loaded.
    ArtifactUnreadable,
    /// Memory ran out.
    OutOfMemory,
    /// The disk is full.
    DiskFull,
    /// Anything else, and classes of a newer driver.
    #[serde(other)]
    Internal,
}

impl FailureKind {
    /// The spelling in events and results.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::BadRequest => "bad_request",
            Self::TinygradMissing => "tinygrad_missing",
            Self::NumpyMissing => "numpy_missing",
            Self::BackendMissing => "backend_missing",
            Self::OnnxUnsupported => "onnx_unsupported",
            Self::ShapeMismatch => "shape_mismatch",
            Self::SliceWidth => "slice_width",
            Self::NonFinite => "non_finite",
            Self::ReplayMismatch => "replay_mismatch",
            Self::InputIgnored => "input_ignored",
            Self::RoundTripMismatch => "round_trip_mismatch",
            Self::ArtifactUnreadable => "artifact_unreadable",
            Self::OutOfMemory => "out_of_memory",
            Self::DiskFull => "disk_full",
            Self::Internal => "internal",
        }
    }

    /// Whether the machine and not the model is at fault.
    pub fn is_environment(self) -> bool {
        matches!(
            self,
            Self::TinygradMissing
                | Self::NumpyMissing
                | Self::BackendMissing
                | Self::OutOfMemory
                | Self::DiskFull
        )
    }

    /// What to do next, for a person.
    pub fn advice(self) -> Option<&'static str> {
        Some(match self {
            Self::TinygradMissing | Self::NumpyMissing => {
                "name an interpreter that has tinygrad and numpy with --python, or make one with: cargo xtask setup"
            }
            Self::BackendMissing => {
                "install clang (Debian and Ubuntu: apt-get install clang; macOS: xcode-select --install), then run again"
            }
            Self::OnnxUnsupported => {
                "export the model without this operator, or compile with a tinygrad that has it"
            }
            Self::ShapeMismatch | Self::SliceWidth => "check that all files are of one export of the model",
            Self::NonFinite => "check the export: the model itself computes values that are not finite",
            Self::InputIgnored => "check the export: an output that no input reaches is of no use",
            Self::ReplayMismatch | Self::RoundTripMismatch => {
                "the artifact was refused by its proof and not kept: try another tinygrad revision"
            }
            Self::ArtifactUnreadable => "compile the model again with the tinygrad that will load it",
            Self::OutOfMemory => "close other programs or compile on a machine with more memory",
            Self::DiskFull => "free space and run again",
            Self::BadRequest | Self::Internal => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_this_and_of_newer_drivers_are_read() {
        let event: DriverEvent = serde_json::from_str(
            r#"{"event":"stage","stage":"write","state":"end","seconds":0.5,"detail":{"size":3}}"#,
        )
        .unwrap();
        assert!(
            matches!(event, DriverEvent::Stage { state: StageState::End, seconds: Some(s), .. } if s == 0.5)
        );
        let event: DriverEvent = serde_json::from_str(
            r#"{"event":"model","model":"a","status":"failed","error":{"kind":"non_finite","message":"m","detail":{}}}"#,
        )
        .unwrap();
        assert!(matches!(event, DriverEvent::Model { outcome: ModelOutcome::Failed { .. }, .. }));
        let event: DriverEvent =
            serde_json::from_str(r#"{"event":"failed","kind":"from_the_future","message":"m"}"#).unwrap();
        assert!(matches!(event, DriverEvent::Failed { kind: FailureKind::Internal, .. }));
        let event: DriverEvent = serde_json::from_str(r#"{"event":"heartbeat"}"#).unwrap();
        assert_eq!(event, DriverEvent::Other);
        assert!(serde_json::from_str::<DriverEvent>("tinygrad says hello").is_err());
    }
}
