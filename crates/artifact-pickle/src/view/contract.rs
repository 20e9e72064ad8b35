//! Compares a driving artifact with what its runtime calls it by.

use model_catalog::{BehaviorVersion, CAMERAS, ImageHistoryPipeline, ModelMetadata, ModelType};

use super::driving::DrivingView;
use super::finding::Finding;
use super::jit::JitView;
use super::queues::{Layout, Wanted};

/// The keys that every artifact has, in the order of the layout; `policy_order` only where there are policies.
const KEYS: [&str; 12] = [
    "format_version",
    "model_type",
    "metadata",
    "image_history_pipeline",
    "behavior_version",
    "policy_order",
    "frame_skip",
    "policy_input_keys",
    "warp_input_keys",
    "run_policy",
    "1928x1208",
    "1344x760",
];

pub(super) fn check(view: &DrivingView, findings: &mut Vec<Finding>) {
    let model_type: Option<ModelType> = parsed(view.model_type.as_deref(), "model_type", findings);
    let pipeline = parsed(view.image_history_pipeline.as_deref(), "image_history_pipeline", findings);
    version(view, findings);
    keys(view, model_type, findings);
    if let Some(model_type) = model_type {
        models(view, model_type, findings);
    }
    if let Some(pipeline) = pipeline {
        input_keys(view, pipeline, findings);
    }
    for (key, metadata) in &view.metadata {
        check_metadata(&format!("metadata.{key}"), metadata, findings);
    }
    if let (Some(model_type), Some(pipeline)) = (model_type, pipeline) {
        inputs(view, model_type, pipeline, findings);
    }
}

fn parsed<T: std::str::FromStr<Err: ToString>>(
    text: Option<&str>,
    place: &str,
    findings: &mut Vec<Finding>,
) -> Option<T> {
    match text?.parse() {
        Ok(value) => Some(value),
        Err(error) => {
            findings.push(Finding::error("layout.value", place, T::Err::to_string(&error)));
            None
        }
    }
}

fn version(view: &DrivingView, findings: &mut Vec<Finding>) {
    if let Some(version) = view.format_version.filter(|version| *version != 1) {
        let message = format!("format version {version} is refused by the runtime, which knows 1");
        findings.push(Finding::error("layout.format_version", "format_version", message));
    }
    if let Some(text) = &view.behavior_version
        && text.parse::<BehaviorVersion>().is_err()
    {
        let message = format!("{text:?} is no behaviour version such as v15");
        findings.push(Finding::error("layout.value", "behavior_version", message));
    }
    if let Some(skip) = view.frame_skip.filter(|skip| !(1..=64).contains(skip)) {
        findings.push(Finding::error(
            "layout.value",
            "frame_skip",
            format!("a frame skip of {skip} is impossible"),
        ));
    }
}

fn keys(view: &DrivingView, model_type: Option<ModelType>, findings: &mut Vec<Finding>) {
    let optional = |key: &str| match key {
        "behavior_version" => true,
        "policy_order" => model_type.is_none_or(|model_type| model_type.policy_order().is_none()),
        _ => false,
    };
    for key in KEYS.into_iter().filter(|key| !optional(key) && !view.keys.iter().any(|k| k == key)) {
        findings.push(Finding::error("layout.missing", "file", format!("the key {key} is missing")));
    }
    for key in view.keys.iter().filter(|key| !KEYS.contains(&key.as_str())) {
        findings.push(Finding::error(
            "layout.extra",
            "file",
            format!("the key {key} is not part of the layout"),
        ));
    }
    let known = KEYS.iter().filter(|key| view.keys.iter().any(|k| k == *key));
    let found = view.keys.iter().filter(|key| KEYS.contains(&key.as_str()));
    if !known.eq(found.clone()) {
        let found = found.cloned().collect::<Vec<_>>().join(", ");
        findings.push(Finding::warning(
            "layout.order",
            "file",
            format!("the keys stand in another order: {found}"),
        ));
    }
}

fn models(view: &DrivingView, model_type: ModelType, findings: &mut Vec<Finding>) {
    let wanted: Vec<&str> = model_type.metadata_keys().iter().map(|key| key.as_str()).collect();
    let found: Vec<&str> = view.metadata.keys().map(String::as_str).collect();
    if wanted != found {
        let message =
            format!("{model_type} has the models {}, found {}", wanted.join(", "), found.join(", "));
        findings.push(Finding::error("layout.models", "metadata", message));
    }
    let order =
        model_type.policy_order().map(|order| order.iter().map(|key| key.as_str()).collect::<Vec<_>>());
    let found = view.policy_order.as_ref().map(|order| order.iter().map(String::as_str).collect::<Vec<_>>());
    if order != found && (found.is_some() || order.is_none()) {
        let message = format!("{model_type} has the policy order {order:?}, found {found:?}");
        findings.push(Finding::error("layout.policy_order", "policy_order", message));
    }
    if model_type == ModelType::VisionMultiPolicy
        && let (Some(on), Some(off)) = (view.metadata.get("on_policy"), view.metadata.get("off_policy"))
        && on.input_shapes != off.input_shapes
    {
        let message = "the on-policy and the off-policy model have different inputs";
        findings.push(Finding::error("metadata.policies", "metadata", message));
    }
}

fn input_keys(view: &DrivingView, pipeline: ImageHistoryPipeline, findings: &mut Vec<Finding>) {
    let policy: &[&str] = match pipeline {
        ImageHistoryPipeline::Policy => &["img_q", "big_img_q", "feat_q", "desire_q", "packed_npy_inputs"],
        ImageHistoryPipeline::Warp => &["feat_q", "desire_q", "packed_npy_inputs"],
    };
    let warp: &[&str] = match pipeline {
        ImageHistoryPipeline::Policy => &["tfm", "big_tfm"],
        ImageHistoryPipeline::Warp => &["img_q", "big_img_q", "tfm", "big_tfm"],
    };
    for (place, wanted, found) in [
        ("policy_input_keys", policy, &view.policy_input_keys),
        ("warp_input_keys", warp, &view.warp_input_keys),
    ] {
        if let Some(found) = found.as_ref().filter(|found| *found != wanted) {
            let message =
                format!("pipeline {pipeline} has ({}), found ({})", wanted.join(", "), found.join(", "));
            findings.push(Finding::error("layout.input_keys", place, message));
        }
    }
}

/// Slices inside of the output; no empty shapes.
pub(super) fn check_metadata(place: &str, metadata: &ModelMetadata, findings: &mut Vec<Finding>) {
    let Some(width) = metadata.output_width() else {
        let message = "there is no single output that the slices apply to";
        findings.push(Finding::error("metadata.output", place, message));
        return;
    };
    for (name, slice) in &metadata.output_slices {
        if let Err(error) = slice.resolve(width) {
            findings.push(Finding::error("metadata.slice", format!("{place}.{name}"), error.to_string()));
        }
    }
    if metadata.output_slices.is_empty() {
        findings.push(Finding::error("metadata.slices", place, "there are no output slices"));
    }
}

fn inputs(
    view: &DrivingView,
    model_type: ModelType,
    pipeline: ImageHistoryPipeline,
    findings: &mut Vec<Finding>,
) {
    let (images, policy) = match model_type {
        ModelType::VisionPolicy => ("vision", "policy"),
        ModelType::VisionMultiPolicy => ("vision", "on_policy"),
        ModelType::Supercombo => ("model", "model"),
    };
    let (Some(images), Some(policy)) = (view.metadata.get(images), view.metadata.get(policy)) else { return };
    let Some(frame_skip) = view.frame_skip.and_then(|skip| u64::try_from(skip).ok()) else { return };
    let layout = Layout { model_type, pipeline, frame_skip, images, policy };
    hidden_state(&layout, findings);
    if let Some(jit) = view.run_policy() {
        compare("run_policy", jit, &layout.policy_inputs(), findings);
    }
    for camera in CAMERAS {
        let name = camera.to_string();
        if let Some(jit) = view.jits.get(&name) {
            compare(&name, jit, &layout.warp_inputs(camera), findings);
        }
    }
}

/// The features of a frame are `hidden_state` of the model with the images; the feature queue holds them for the policy, whose last
/// axes say how wide they are.
fn hidden_state(layout: &Layout<'_>, findings: &mut Vec<Finding>) {
    let Some(wanted) = layout.feature_width() else { return };
    let place = match layout.model_type {
        ModelType::Supercombo => "metadata.model.hidden_state",
        _ => "metadata.vision.hidden_state",
    };
    let Some(slice) = layout.images.output_slices.get("hidden_state") else {
        let message = "the output has no hidden_state, which the feature queue is filled from";
        findings.push(Finding::error("metadata.hidden_state", place, message));
        return;
    };
    let found = layout.images.output_width().and_then(|width| slice.resolve(width).ok());
    if let Some(found) = found.map(|range| range.end - range.start).filter(|found| *found != wanted) {
        let message = format!("hidden_state is {found} wide, features_buffer of the policy takes {wanted}");
        findings.push(Finding::error("metadata.hidden_state", place, message));
    }
}

fn compare(place: &str, jit: &JitView, wanted: &[Wanted], findings: &mut Vec<Finding>) {
    for (name, dtype, elements) in wanted {
        let Some(input) = jit.input(name) else {
            findings.push(Finding::error("jit.input", place, format!("the jit has no input {name}")));
            continue;
        };
        if let Some(found) = input.dtype.as_deref().filter(|found| found != dtype) {
            let message = format!("input {name} is {found}, the runtime gives {dtype}");
            findings.push(Finding::error("jit.dtype", place, message));
        }
        if let (Some(wanted), Some(found)) = (elements, input.elements)
            && *wanted != found
        {
            let message = format!("input {name} has {found} elements, the metadata implies {wanted}");
            findings.push(Finding::error("jit.shape", place, message));
        }
    }
    for input in jit.inputs.iter().filter(|input| !wanted.iter().any(|(name, ..)| *name == input.name)) {
        let message = format!("the runtime gives no input {}, which the jit expects", input.name);
        findings.push(Finding::error("jit.input", place, message));
    }
}
