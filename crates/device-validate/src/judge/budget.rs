//! What a device allows a model to take.

use model_catalog::Target;
use rebuild_workspace::BudgetConfig;
use serde::{Deserialize, Serialize};

const MIB: u64 = 1 << 20;

/// What a device allows; what is absent is not bounded.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Budget {
    /// Median seconds of a step.
    pub p50: Option<f64>,
    /// Seconds that 99 of 100 steps do not pass.
    pub p99: Option<f64>,
    /// Seconds that loading may take.
    pub load: Option<f64>,
    /// Largest resident size in bytes.
    pub peak_bytes: Option<u64>,
    /// Bytes by which memory may grow in a minute of a soak.
    #[serde(default)]
    pub growth_bytes: Option<u64>,
}

impl Budget {
    /// No bound.
    pub const NONE: Self = Self { p50: None, p99: None, load: None, peak_bytes: None, growth_bytes: None };

    /// What the device behind a target allows. Models run at 20 Hz, so a step of 50 ms is late; a host's CPU drives nothing,
    /// yet a leak shows there, too.
    pub const fn of(target: Target) -> Self {
        let growth_bytes = Some(4 * MIB);
        let device = Self {
            p50: Some(0.040),
            p99: Some(0.050),
            load: Some(30.0),
            peak_bytes: Some(1024 * MIB),
            growth_bytes,
        };
        match target {
            Target::Cpu => Self { growth_bytes: Some(16 * MIB), ..Self::NONE },
            Target::Qcom => device,
            Target::ExternalGpu => Self { load: Some(120.0), peak_bytes: Some(2048 * MIB), ..device },
        }
    }

    /// The same with the bounds that are given; an infinite one is none.
    #[must_use]
    pub fn changed(self, by: &BudgetConfig) -> Self {
        let bound = |given: Option<f64>, scale: f64, own: Option<f64>| match given {
            Some(value) if value.is_finite() => Some(value * scale),
            Some(_) => None,
            None => own,
        };
        let bytes = |given: Option<f64>, own: Option<u64>| match given {
            Some(value) if value.is_finite() => Some((value * MIB as f64) as u64),
            Some(_) => None,
            None => own,
        };
        Self {
            p50: bound(by.step_p50_ms, 1e-3, self.p50),
            p99: bound(by.step_p99_ms, 1e-3, self.p99),
            load: bound(by.load_seconds, 1.0, self.load),
            peak_bytes: bytes(by.peak_mib, self.peak_bytes),
            growth_bytes: bytes(by.growth_mib, self.growth_bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_given_lifted_or_kept() {
        let by = BudgetConfig {
            step_p50_ms: Some(45.0),
            load_seconds: Some(f64::INFINITY),
            peak_mib: Some(0.5),
            ..Default::default()
        };
        let budget = Budget::of(Target::Qcom).changed(&by);
        assert_eq!((budget.p50, budget.p99, budget.load), (Some(0.045), Some(0.050), None));
        assert_eq!((budget.peak_bytes, budget.growth_bytes), (Some(MIB / 2), Some(4 * MIB)));
    }
}
