//! Whether an artifact is fast enough, from recorded series.

use serde::{Deserialize, Serialize};

use super::Budget;
use crate::{Check, Recording, Severity, Verdict};

/// Steps that are not representative: caches are cold, clocks are low.
const WARM_UP: usize = 5;
/// Below this many steady steps nothing is said about time.
const FEWEST: usize = 12;
/// The median of the last third may be this much above that of the first.
const DRIFT: f64 = 1.3;

/// Steady-state times of one camera.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct StepTimes {
    /// Steady steps.
    pub steps: usize,
    /// Median seconds.
    pub p50: f64,
    /// Seconds that 99 of 100 steps do not pass.
    pub p99: f64,
    /// Median of the last third, divided by that of the first.
    pub drift: f64,
}

fn percentile(sorted: &[f64], percent: usize) -> f64 {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted[rank - 1]
}

pub(super) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    percentile(&sorted, 50)
}

impl StepTimes {
    /// The steady state of a series; `None` where it is too short for one.
    pub fn of(seconds: &[f64]) -> Option<Self> {
        let steady = seconds.get(WARM_UP..).filter(|steady| steady.len() >= FEWEST)?;
        let mut sorted = steady.to_vec();
        sorted.sort_by(f64::total_cmp);
        let third = steady.len() / 3;
        Some(Self {
            steps: steady.len(),
            p50: percentile(&sorted, 50),
            p99: percentile(&sorted, 99),
            drift: median(&steady[steady.len() - third..]) / median(&steady[..third]),
        })
    }
}

pub(super) fn judge(recording: &Recording, budget: &Budget) -> Vec<Verdict> {
    let mut found = Vec::new();
    let slow = |what: &str, value: f64, limit: Option<f64>| {
        let limit = limit.filter(|&limit| value > limit)?;
        let text = format!("{what} {:.1} ms; at most {:.1} ms are allowed", value * 1e3, limit * 1e3);
        Some(Verdict::failure(Check::Slow, text))
    };
    for run in &recording.cameras {
        let Some(times) = StepTimes::of(&run.step_seconds) else {
            let text = format!("{} steps are too few to say anything about time", run.step_seconds.len());
            found.push(Verdict::warning(Check::NotSeen, text).on(run.camera));
            continue;
        };
        found.extend(
            slow("half of the steps take more than", times.p50, budget.p50)
                .map(|verdict| verdict.on(run.camera)),
        );
        found.extend(
            slow("the slowest hundredth of the steps takes", times.p99, budget.p99)
                .map(|verdict| verdict.on(run.camera)),
        );
        if times.drift > DRIFT {
            let text = format!(
                "steps get slower: the last third takes {:.2} times as long as the first",
                times.drift
            );
            let mut verdict = Verdict::failure(Check::Drift, text);
            if budget.p50.is_none() {
                // On a host other programs come and go.
                verdict.severity = Severity::Warning;
            }
            found.push(verdict.on(run.camera));
        }
    }
    found.extend(slow("loading takes", recording.load_seconds, budget.load));
    if let (Some(peak), Some(limit)) = (recording.peak_bytes, budget.peak_bytes)
        && peak > limit
    {
        let text = format!("the process took {} MiB; at most {} MiB are allowed", peak >> 20, limit >> 20);
        found.push(Verdict::failure(Check::Memory, text));
    }
    found
}
