//! An inspection as text for people.

use std::fmt::{self, Display, Formatter};

use model_catalog::ModelMetadata;

use crate::inspect::{AbiReport, FileFacts, Inspection};
use crate::verify::Verdict;
use crate::view::{Content, DrivingView, JitView};

/// Problems of one comparison that are shown.
const PROBLEMS: usize = 8;

impl Display for Inspection {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        file(f, &self.file, self.content.kind())?;
        match &self.content {
            Content::Driving(view) => driving(f, view)?,
            Content::DmModel(view)
            | Content::DmWarp(view)
            | Content::CameraWarp(view)
            | Content::Jit(view) => {
                jit(f, "jit", view)?;
            }
            Content::Metadata(view) => metadata(f, "metadata", view)?,
            Content::Other { value } => writeln!(f, "  value: {value}")?,
        }
        match (&self.abi, &self.content) {
            (Some(report), _) => abi(f, report)?,
            (None, Content::Driving(_)) => writeln!(f, "  compared with no tinygrad: it holds no jit")?,
            (None, _) => {}
        }
        if let Some(digests) = &self.digests {
            writeln!(f, "  sha256: {}", digests.sha256)?;
        }
        for refusal in &self.refusals {
            writeln!(f, "  REFUSED: {refusal}")?;
        }
        for finding in &self.findings {
            writeln!(f, "  {finding}")?;
        }
        Ok(())
    }
}

impl Display for Verdict {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let word = if self.passed() { "good" } else { "NOT USABLE" };
        writeln!(f, "{}: {word}", self.inspection.file.path)?;
        self.findings.iter().try_for_each(|finding| writeln!(f, "  {finding}"))
    }
}

fn file(f: &mut Formatter<'_>, facts: &FileFacts, kind: impl Display) -> fmt::Result {
    let form = if facts.out_of_band { ", out-of-band" } else { "" };
    writeln!(f, "{}: {kind}, {} bytes, protocol {}{form}", facts.path, facts.size, facts.protocol)?;
    writeln!(f, "  {} opcodes, {} values, {} payload bytes", facts.opcodes, facts.values, facts.payload_bytes)
}

fn driving(f: &mut Formatter<'_>, view: &DrivingView) -> fmt::Result {
    let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".to_owned());
    let number = |value: Option<i64>| value.map_or_else(|| "-".to_owned(), |v| v.to_string());
    let list = |value: &Option<Vec<String>>| value.as_ref().map_or_else(|| "-".to_owned(), |v| v.join(", "));
    let lines = [
        ("format version", number(view.format_version)),
        ("model type", text(&view.model_type)),
        ("behaviour version", text(&view.behavior_version)),
        ("image history", text(&view.image_history_pipeline)),
        ("policy order", list(&view.policy_order)),
        ("frame skip", number(view.frame_skip)),
        ("policy inputs", list(&view.policy_input_keys)),
        ("warp inputs", list(&view.warp_input_keys)),
    ];
    for (name, value) in lines {
        writeln!(f, "  {name}: {value}")?;
    }
    for (key, value) in &view.metadata {
        metadata(f, key, value)?;
    }
    view.jits.iter().try_for_each(|(name, value)| jit(f, name, value))
}

fn metadata(f: &mut Formatter<'_>, key: &str, view: &ModelMetadata) -> fmt::Result {
    let checkpoint = view.model_checkpoint.as_deref().unwrap_or("no checkpoint");
    writeln!(f, "  {key}: {checkpoint}")?;
    for (what, shapes) in [("input", &view.input_shapes), ("output", &view.output_shapes)] {
        for (name, shape) in shapes {
            let dims: Vec<_> = shape.iter().map(u64::to_string).collect();
            writeln!(f, "    {what} {name} ({})", dims.join(", "))?;
        }
    }
    let width = view.output_width().unwrap_or_default();
    let slices = view.output_slices.iter().map(|(name, slice)| match slice.resolve(width) {
        Ok(range) => format!("{name} {}:{}", range.start, range.end),
        Err(_) => format!("{name} {slice} (outside)"),
    });
    writeln!(f, "    slices {}", slices.collect::<Vec<_>>().join(", "))
}

fn jit(f: &mut Formatter<'_>, name: &str, view: &JitView) -> fmt::Result {
    let devices: Vec<_> = view.devices.iter().map(String::as_str).collect();
    let mut languages: Vec<_> = view.kernels.iter().map(|kernel| kernel.language).collect();
    languages.sort_unstable();
    languages.dedup();
    let languages: Vec<_> = languages.iter().map(ToString::to_string).collect();
    writeln!(
        f,
        "  {name}: {} on {}, {} steps ({} launches of {} kernels in {}), {} buffers, {} with contents of {} bytes",
        view.class,
        devices.join(", "),
        view.steps,
        view.launches,
        view.kernels.len(),
        languages.join(", "),
        view.buffers.count,
        view.buffers.carried,
        view.buffers.bytes,
    )?;
    for input in &view.inputs {
        let dtype = input.dtype.as_deref().unwrap_or("?");
        let elements = input.elements.map_or_else(|| "?".to_owned(), |count| count.to_string());
        let device = input.device.as_deref().unwrap_or("?");
        writeln!(f, "    input {}: {elements} x {dtype} on {device}", input.name)?;
    }
    Ok(())
}

fn abi(f: &mut Formatter<'_>, report: &AbiReport) -> fmt::Result {
    let fitting: Vec<_> = report.fitting().map(|mismatch| mismatch.tinygrad.as_str()).collect();
    if !fitting.is_empty() {
        return writeln!(f, "  fits tinygrad {}", fitting.join(", "));
    }
    if !report.given {
        writeln!(f, "  fits none of the {} known tinygrad revisions; the nearest:", report.compared.len())?;
    }
    let Some(nearest) = report.compared.iter().min_by_key(|mismatch| mismatch.problems.len()) else {
        return Ok(());
    };
    writeln!(f, "  does not fit tinygrad {}:", nearest.tinygrad)?;
    for problem in nearest.problems.iter().take(PROBLEMS) {
        writeln!(f, "    {problem}")?;
    }
    if nearest.problems.len() > PROBLEMS {
        writeln!(f, "    and {} more", nearest.problems.len() - PROBLEMS)?;
    }
    Ok(())
}
