//! Where campaigns kill: random moments by a seed, until enough kills came before the end of what they were aimed at.
#![allow(
    dead_code,
    clippy::allow_attributes,
    clippy::print_stdout,
    reason = "each test binary uses its own part of this; what a campaign did is told"
)]

use std::time::Duration;

/// The moments of one campaign. `CAMPAIGN_SEED` repeats one; the seed is printed.
pub struct KillPoints {
    state: u64,
    wanted: usize,
    tries: usize,
    hits: usize,
}

impl KillPoints {
    /// With `THOROUGH`, goes on until `wanted` kills hit; otherwise tries `sample` times, whatever they hit.
    pub fn new(wanted: usize, sample: usize) -> Self {
        let thorough = std::env::var_os("THOROUGH").is_some_and(|value| value != "0");
        let seed = std::env::var("CAMPAIGN_SEED").ok().and_then(|text| text.parse::<u64>().ok());
        let seed = seed.unwrap_or(20_261_130);
        println!("CAMPAIGN_SEED={seed}");
        let state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        Self {
            state,
            wanted: if thorough { wanted } else { 0 },
            tries: if thorough { wanted * 8 } else { sample },
            hits: 0,
        }
    }

    /// The next moment of a run that takes `whole`; `None` at the end of the campaign.
    pub fn next(&mut self, whole: Duration) -> Option<Duration> {
        let enough = self.wanted > 0 && self.hits >= self.wanted;
        if enough || self.tries == 0 {
            return None;
        }
        self.tries -= 1;
        Some(whole.mul_f64(self.random()))
    }

    /// A number from 0 to 1.
    pub fn random(&mut self) -> f64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Counts a kill that came before the end.
    pub fn note(&mut self, hit: bool) {
        self.hits += usize::from(hit);
    }

    /// Says what the campaign did; a thorough one must have hit as often as it was meant to.
    pub fn finish(self, what: &str) {
        println!("{what}: {} kills before the end", self.hits);
        assert!(self.hits >= self.wanted, "only {} of {} kills hit anything", self.hits, self.wanted);
    }
}
