//! The proof of an artifact that another compiler made: no values are handed over, so it is compared with itself.
//!
//! Three fresh processes load the file and drive it over synthetic frames: two with the first seed, which must agree bit for
//! bit (or within the tolerance), and one with the second, which must differ. Every output must be finite.

use std::fs::File;
use std::io::Read;

use camino::Utf8Path;
use durable_fs::FsError;

use super::Session;
use crate::{
    CompileError, CompilePlan,
    driver::{
        Driver,
        request::{ProofCheck, RunOutput, RunRequest, RunResult, SEEDS},
    },
};

/// Steps per camera: the queues have moved, and a supercombo has been given its hidden state.
const STEPS: u32 = 3;

/// Values of one output.
fn values(dir: &Utf8Path, output: &RunOutput) -> Result<Vec<f32>, FsError> {
    let path = dir.join(&output.file);
    let mut bytes = Vec::new();
    File::open(&path)
        .and_then(|mut file| file.read_to_end(&mut bytes))
        .map_err(FsError::io("read", &path))?;
    Ok(bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect())
}

fn agree(a: &[f32], b: &[f32], tolerance: f64) -> bool {
    let close = |(x, y): (&f32, &f32)| x.to_bits() == y.to_bits() || f64::from((x - y).abs()) <= tolerance;
    a.len() == b.len() && a.iter().zip(b).all(close)
}

impl Session<'_> {
    fn run_once(
        &mut self,
        plan: &CompilePlan,
        driver: &Driver,
        artifact: &Utf8Path,
        dir: &Utf8Path,
        seed: u32,
    ) -> Result<RunResult, CompileError> {
        std::fs::create_dir_all(dir).map_err(FsError::io("make the directory", dir))?;
        let request = RunRequest::new(artifact.to_owned(), dir.to_owned(), plan.cameras.clone(), STEPS, seed)
            .out_of_band(plan.target.is_out_of_band());
        self.operate(driver, "replay", &request)
    }

    /// Replays `artifact`; returns one check for each camera, output and seed.
    pub(crate) fn replay(
        &mut self,
        plan: &CompilePlan,
        driver: &Driver,
        artifact: &Utf8Path,
        scratch: &Utf8Path,
    ) -> Result<Vec<ProofCheck>, CompileError> {
        let dirs = ["first", "again", "other"].map(|name| scratch.join(name));
        let seeds = [SEEDS[0], SEEDS[0], SEEDS[1]];
        let mut results = Vec::new();
        for (dir, seed) in dirs.iter().zip(seeds) {
            results.push(self.run_once(plan, driver, artifact, dir, seed)?);
        }
        let refused = |what: String| CompileError::Replay { id: plan.id.clone(), what };
        let mut checks = Vec::new();
        for output in &results[0].outputs {
            let place = format!("{} on camera {}", output.key, output.camera);
            let [first, again, other] = [&dirs[0], &dirs[1], &dirs[2]].map(|dir| values(dir, output));
            let (first, again, other) = (first?, again?, other?);
            if let Some(at) = first.iter().position(|value| !value.is_finite()) {
                return Err(refused(format!("value {at} of {place} is {}", first[at])));
            }
            if !agree(&first, &again, plan.tolerance) {
                return Err(refused(format!("{place} differs between two runs with equal inputs")));
            }
            if first == other {
                return Err(refused(format!("{place} is the same for two different inputs")));
            }
            checks.extend(SEEDS.map(|seed| ProofCheck { jit: place.clone(), seed, outputs: 1, queues: 0 }));
        }
        Ok(checks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agreement_is_bit_for_bit_unless_asked_otherwise() {
        assert!(agree(&[1.0, -0.0], &[1.0, -0.0], 0.0));
        assert!(!agree(&[1.0], &[1.0, 1.0], 1.0));
        assert!(!agree(&[1.0], &[1.001], 0.0));
        assert!(agree(&[1.0], &[1.001], 5e-3));
        assert!(!agree(&[f32::NAN], &[1.0], 5e-3));
    }
}
