//! How step times and memory develop over minutes, from recorded windows.

use serde::{Deserialize, Serialize};

use super::Budget;
use crate::{Check, Recording, Severity, Verdict};

/// The median of the last quarter of the windows may be this much above that of the first.
const DRIFT: f64 = 1.2;
/// Below this many windows nothing is said.
const FEWEST: usize = 8;
/// Cameras run at 20 Hz: one Python object a step that is never freed.
const OBJECTS_A_MINUTE: f64 = 20.0 * 60.0;

/// Some seconds of a soak.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SoakWindow {
    /// Seconds from the beginning of the soak to the window's end.
    pub at_seconds: f64,
    /// Steps in the window.
    pub steps: u64,
    /// Median seconds of a step.
    pub p50: f64,
    /// Seconds that 99 of 100 steps do not pass.
    pub p99: f64,
    /// Resident size at the window's end, where the device says it.
    pub resident_bytes: Option<u64>,
    /// Live Python objects at the window's end.
    #[serde(default)]
    pub objects: Option<u64>,
}

pub(super) fn judge(recording: &Recording, budget: &Budget) -> Vec<Verdict> {
    let windows = &recording.soak;
    if windows.is_empty() {
        return Vec::new();
    }
    if windows.len() < FEWEST {
        let text = format!("{} windows of a soak are too few to say how it develops", windows.len());
        return vec![Verdict::warning(Check::NotSeen, text)];
    }
    let mut found = Vec::new();
    let p50: Vec<f64> = windows.iter().map(|window| window.p50).collect();
    let (first, last) = quarters(&p50);
    if last > DRIFT * first {
        let text = format!(
            "steps get slower over {:.1} minutes: from {:.1} ms to {:.1} ms",
            minutes(windows),
            first * 1e3,
            last * 1e3
        );
        let mut verdict = Verdict::failure(Check::Drift, text);
        if budget.p50.is_none() {
            // On a host other programs come and go.
            verdict.severity = Severity::Warning;
        }
        found.push(verdict);
    }
    let late = windows.iter().find(|window| budget.p99.is_some_and(|limit| window.p99 > limit));
    if let Some(window) = late {
        let text = format!(
            "after {:.0} s of the soak the slowest hundredth of the steps takes {:.1} ms; at most {:.1} ms are allowed",
            window.at_seconds,
            window.p99 * 1e3,
            budget.p99.unwrap_or_default() * 1e3
        );
        found.push(Verdict::failure(Check::Slow, text));
    }
    found.extend(growth(windows, budget));
    found
}

fn minutes(windows: &[SoakWindow]) -> f64 {
    windows.last().map_or(0.0, |window| window.at_seconds / 60.0)
}

/// Medians of the first quarter and of the last.
fn quarters(values: &[f64]) -> (f64, f64) {
    let quarter = (values.len() / 4).max(1);
    (super::timing::median(&values[..quarter]), super::timing::median(&values[values.len() - quarter..]))
}

fn growth(windows: &[SoakWindow], budget: &Budget) -> Vec<Verdict> {
    // Caches fill at first: the second half shows what goes on.
    let later = &windows[windows.len() / 2..];
    let rate = |value: fn(&SoakWindow) -> Option<u64>| {
        let points: Option<Vec<(f64, f64)>> =
            later.iter().map(|window| Some((window.at_seconds / 60.0, value(window)? as f64))).collect();
        points.as_deref().and_then(slope)
    };
    let mut found = Vec::new();
    match (rate(|window| window.resident_bytes), budget.growth_bytes) {
        (Some(rate), Some(limit)) if rate > limit as f64 => {
            let text = format!(
                "memory grows by {:.1} MiB a minute; at most {:.1} MiB are allowed",
                rate / f64::from(1 << 20),
                limit as f64 / f64::from(1 << 20)
            );
            found.push(Verdict::failure(Check::Memory, text));
        }
        (None, _) => {
            found.push(Verdict::warning(Check::NotSeen, "the device does not say how much memory is in use"));
        }
        _ => {}
    }
    if let Some(rate) = rate(|window| window.objects).filter(|&rate| rate >= OBJECTS_A_MINUTE) {
        let text = format!("{rate:.0} objects a minute are never freed: one a step or more");
        found.push(Verdict::failure(Check::Memory, text));
    }
    found
}

/// The slope of the least-squares line; `None` where all points have one place.
fn slope(points: &[(f64, f64)]) -> Option<f64> {
    let count = points.len() as f64;
    let mean = |side: fn(&(f64, f64)) -> f64| points.iter().map(side).sum::<f64>() / count;
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let over: f64 = points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum();
    let under: f64 = points.iter().map(|point| (point.0 - x).powi(2)).sum();
    (under > 0.0).then(|| over / under)
}
