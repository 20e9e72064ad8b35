//! The demo's models: real IDs and places, small synthetic ONNX.

use e2e::{ModelSource, OnnxKind, OnnxRequest, ScenarioModel};

const fn small(kind: OnnxKind, seed: u64) -> OnnxRequest {
    OnnxRequest::small(kind, seed)
}

/// Two split models, one with an on-policy and an off-policy, two supercombos. The IDs are chosen so that namespacing
/// meets its hard case: `deeprl3`, `deeprl33` and `deeprl3v2` want each other's release names.
pub const MODELS: [ScenarioModel; 5] = [
    ScenarioModel {
        id: "tr1422",
        name: "Tomb Raider 14 👀📡",
        version: "v8",
        listed: true,
        source: ModelSource {
            directory: "selfdrive/modeld/models",
            plain: true,
            files: &[
                ("driving_vision.onnx", small(OnnxKind::Vision, 1)),
                ("driving_policy.onnx", small(OnnxKind::Policy, 2)),
            ],
        },
    },
    ScenarioModel {
        id: "deeprl3v2",
        name: "Deep RL 3 V2 👀📡",
        version: "v15",
        listed: false,
        source: ModelSource {
            directory: "openpilot/selfdrive/modeld/models",
            plain: false,
            files: &[
                ("driving_vision.onnx", small(OnnxKind::Vision, 3)),
                ("driving_policy.onnx", small(OnnxKind::Policy, 4)),
            ],
        },
    },
    ScenarioModel {
        id: "deeprl3",
        name: "Deep RL 3 👀📡",
        version: "v12",
        listed: true,
        source: ModelSource {
            directory: "openpilot/selfdrive/modeld/models",
            plain: false,
            files: &[
                ("driving_vision.onnx", small(OnnxKind::Vision, 5)),
                ("driving_on_policy.onnx", small(OnnxKind::OnPolicy, 6)),
                ("driving_off_policy.onnx", small(OnnxKind::OffPolicy, 7)),
            ],
        },
    },
    ScenarioModel {
        id: "deeprl33",
        name: "Deep RL 3.3 👀📡",
        version: "v15",
        listed: true,
        source: ModelSource {
            directory: "frogpilot/tinygrad_modeld/models",
            plain: false,
            files: &[("driving_supercombo.onnx", small(OnnxKind::Supercombo, 8))],
        },
    },
    ScenarioModel {
        id: "rdf2",
        name: "Regret Driven Framework V2 👀📡",
        version: "v15",
        listed: false,
        source: ModelSource {
            directory: "openpilot/selfdrive/modeld/models",
            plain: false,
            files: &[("driving_supercombo.onnx", small(OnnxKind::Supercombo, 9))],
        },
    },
];
