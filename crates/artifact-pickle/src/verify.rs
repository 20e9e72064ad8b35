//! Whether a file may be used for what it is meant for.

use std::collections::BTreeSet;

use camino::Utf8Path;
use model_catalog::{ArtifactName, BehaviorVersion, Camera, DmFile, Target};
use serde::Serialize;

use crate::inspect::{InspectError, InspectOptions, Inspection, inspect};
use crate::safety::FileKind;
use crate::view::{Content, Finding, JitView, Severity};

/// What the file is meant for; what is `None` is not compared.
#[derive(Debug, Clone, Copy, Default)]
pub struct Expectations {
    /// The device that it must run on.
    pub target: Option<Target>,
    /// The behaviour version that the manifest gives the model.
    pub behavior_version: Option<BehaviorVersion>,
    /// The kind of file.
    pub kind: Option<FileKind>,
    /// The camera of a warp that is alone in a file.
    pub camera: Option<Camera>,
}

impl Expectations {
    /// A driving artifact for `target`, which behaves as `behavior_version`.
    #[must_use]
    pub fn driving(target: Option<Target>, behavior_version: Option<BehaviorVersion>) -> Self {
        Self { target, behavior_version, kind: Some(FileKind::Driving), camera: None }
    }

    /// What a file must be by the name that its runtime opens it under; another name says nothing.
    #[must_use]
    pub fn of_file_name(name: &str, target: Option<Target>) -> Self {
        let of = |kind| Self { target, kind, ..Self::default() };
        match DmFile::parse(name) {
            Some(DmFile::Model) => of(Some(FileKind::DmModel)),
            Some(DmFile::Metadata) => of(Some(FileKind::Metadata)),
            Some(DmFile::Warp(camera)) => Self { camera: Some(camera), ..of(Some(FileKind::DmWarp)) },
            None => of(matches!(ArtifactName::parse(name), Some(Ok(_))).then_some(FileKind::Driving)),
        }
    }
}

/// The judgement over one file.
#[derive(Debug, Clone, Serialize)]
pub struct Verdict {
    /// What was found in it.
    pub inspection: Inspection,
    /// Everything that is wrong, worst first.
    pub findings: Vec<Finding>,
}

impl Verdict {
    /// Whether nothing is wrong that forbids its use.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.findings.iter().all(|finding| finding.severity == Severity::Warning)
    }

    /// The findings that forbid its use.
    pub fn errors(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|finding| finding.severity == Severity::Error)
    }
}

/// Inspects a file and compares it with what it is meant for.
///
/// # Errors
/// [`InspectError`] for a file that is no well-formed pickle; everything else is a finding.
pub fn verify(
    path: &Utf8Path,
    options: &InspectOptions,
    expected: &Expectations,
) -> Result<Verdict, InspectError> {
    Ok(judge(inspect(path, options)?, expected))
}

/// Compares an inspected file with what it is meant for.
#[must_use]
pub fn judge(inspection: Inspection, expected: &Expectations) -> Verdict {
    let mut findings = inspection.findings.clone();
    let refusal = |r: &crate::safety::Refusal| Finding::error("safety", "file", r.to_string());
    findings.extend(inspection.refusals.iter().map(refusal));
    abi(&inspection, &mut findings);
    kind(&inspection, expected, &mut findings);
    behavior_version(&inspection, expected, &mut findings);
    if let Some(target) = expected.target {
        devices(&inspection, target, &mut findings);
    }
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    Verdict { inspection, findings }
}

fn abi(inspection: &Inspection, findings: &mut Vec<Finding>) {
    let Some(report) = &inspection.abi else { return };
    if !report.given {
        if report.fitting().next().is_none() {
            let known: Vec<_> = report.compared.iter().map(|mismatch| mismatch.tinygrad.as_str()).collect();
            let message = format!(
                "it fits none of the known tinygrad revisions ({}); compare it with the description of the one that \
                 compiled it (the driver's `abi` operation prints one), or compile it again",
                known.join(", ")
            );
            findings.push(Finding::error("abi.unknown", "file", message));
        }
        return;
    }
    for mismatch in &report.compared {
        for problem in &mismatch.problems {
            let place = format!("tinygrad {}", mismatch.tinygrad);
            findings.push(Finding::error("abi", place, problem.to_string()));
        }
    }
}

fn kind(inspection: &Inspection, expected: &Expectations, findings: &mut Vec<Finding>) {
    let found = inspection.content.kind();
    if let Some(wanted) = expected.kind.filter(|wanted| *wanted != found) {
        let message = format!("this is a {found}, expected a {wanted}");
        findings.push(Finding::error("kind", "file", message));
    }
    if let Some(wanted) = expected.camera {
        for (name, jit) in inspection.content.jits() {
            match jit.camera() {
                Some(found) if found == wanted => {}
                Some(found) => {
                    let message = format!("the warp takes frames of {found}, expected {wanted}");
                    findings.push(Finding::error("camera", name, message));
                }
                // Older revisions do not record how large a frame is.
                None => {
                    let message = format!("the jit does not say whether its frames are those of {wanted}");
                    findings.push(Finding::warning("camera", name, message));
                }
            }
        }
    }
}

fn behavior_version(inspection: &Inspection, expected: &Expectations, findings: &mut Vec<Finding>) {
    let (Some(wanted), Content::Driving(view)) = (&expected.behavior_version, &inspection.content) else {
        return;
    };
    let wanted = wanted.to_string();
    match &view.behavior_version {
        Some(found) if *found == wanted => {}
        Some(found) => {
            let message = format!("the artifact behaves as {found}, the manifest says {wanted}");
            findings.push(Finding::error("behavior_version", "behavior_version", message));
        }
        None => {
            let message =
                format!("the artifact does not say its behaviour version, the manifest says {wanted}");
            findings.push(Finding::warning("behavior_version", "behavior_version", message));
        }
    }
}

/// Memory that every target's jits may read their small inputs from.
const HOST: &str = "NPY";

fn devices(inspection: &Inspection, target: Target, findings: &mut Vec<Finding>) {
    for (name, jit) in inspection.content.jits() {
        let found: BTreeSet<String> = jit.devices.iter().map(|device| family(device)).collect();
        let (needed, allowed) = wanted_devices(name, target);
        let foreign: Vec<&str> =
            found.iter().map(String::as_str).filter(|d| *d != HOST && !allowed.contains(d)).collect();
        if !foreign.is_empty() {
            let message = format!("compiled for {}, the target {target} has {}", foreign.join(", "), needed);
            findings.push(Finding::error("target.device", name, message));
        } else if !found.contains(needed) {
            let message = format!("nothing runs on {needed}, which the target {target} asks for");
            findings.push(Finding::error("target.device", name, message));
        }
        language(name, jit, target, findings);
    }
    let form = inspection.file.out_of_band;
    if matches!(inspection.content, Content::Driving(_)) && form != target.is_out_of_band() {
        let message = if form { "the out-of-band form" } else { "a plain pickle" };
        let message = format!("{message} is unusual for the target {target}");
        findings.push(Finding::warning("target.form", "file", message));
    }
}

/// The device that must be used and those that may be. With an external GPU the warps stay on the device's own.
fn wanted_devices(jit: &str, target: Target) -> (&'static str, &'static [&'static str]) {
    match target {
        Target::Qcom => ("QCOM", &["QCOM"]),
        Target::Cpu => ("CPU", &["CPU"]),
        Target::ExternalGpu if jit == "run_policy" => ("AMD", &["AMD", "QCOM"]),
        Target::ExternalGpu => ("QCOM", &["QCOM"]),
    }
}

/// `CPU:1` and `USB+AMD` are a CPU and an AMD GPU.
fn family(device: &str) -> String {
    let device = device.split(':').next().unwrap_or(device);
    device.rsplit('+').next().unwrap_or(device).to_ascii_uppercase()
}

fn language(name: &str, jit: &JitView, target: Target, findings: &mut Vec<Finding>) {
    use crate::view::Language;
    let wrong = |language: Language| match target {
        Target::Qcom => !matches!(language, Language::OpenCl | Language::Unknown),
        Target::Cpu => {
            matches!(language, Language::OpenCl | Language::Metal | Language::Cuda | Language::Wgsl)
        }
        Target::ExternalGpu => matches!(language, Language::Metal | Language::Wgsl),
    };
    if let Some(kernel) = jit.kernels.iter().find(|kernel| wrong(kernel.language)) {
        let message = format!("kernel {} is {}, which {target} does not run", kernel.name, kernel.language);
        findings.push(Finding::error("target.language", name, message));
    }
}
