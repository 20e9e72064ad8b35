//! One step's outputs as a scene: what a picture shows and what physics bounds.

use serde::{Deserialize, Serialize};

use super::{Decoded, decode};
use crate::{CameraRun, recording::Slice};

/// Points of plans, lane lines and road edges.
const POINTS: usize = 33;

/// Times of a plan's points in seconds: quadratic, so that the near future is dense.
pub const TIMES: [f64; POINTS] = quadratic(10.0);
/// Distances of the points of lane lines and road edges in metres.
pub const DISTANCES: [f64; POINTS] = quadratic(192.0);

const fn quadratic(last: f64) -> [f64; POINTS] {
    let mut values = [0.0; POINTS];
    let mut i = 0;
    while i < POINTS {
        let part = i as f64 / (POINTS - 1) as f64;
        values[i] = last * part * part;
        i += 1;
    }
    values
}

/// A vehicle ahead, now.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Lead {
    /// Distance in metres.
    pub x: f64,
    /// Lateral offset in metres, to the right.
    pub y: f64,
    /// Speed in metres a second.
    pub speed: f64,
    /// Probability that there is one.
    pub probability: f64,
}

/// What a model sees and plans at one step. Points are `[x, y]` in metres, ahead and to the right.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Scene {
    /// The step.
    pub step: usize,
    /// The planned path.
    pub path: Vec<[f64; 2]>,
    /// Planned speed at each point, in metres a second.
    pub speeds: Vec<f64>,
    /// Planned turn rate at each point, in radians a second.
    pub turn_rates: Vec<f64>,
    /// Lane lines from left to right.
    pub lane_lines: Vec<Vec<[f64; 2]>>,
    /// Probability of each lane line.
    pub lane_probabilities: Vec<f64>,
    /// The left and the right road edge.
    pub road_edges: Vec<Vec<[f64; 2]>>,
    /// Vehicles ahead.
    pub leads: Vec<Lead>,
    /// The car's own speed as the pose says it, in metres a second.
    pub own_speed: Option<f64>,
}

/// Values per point of a plan: position, velocity, acceleration, orientation, turn rate.
const PLAN_WIDTH: usize = 15;

/// The scene of one step on one camera. What a model does not have, or has in no known form, is left out.
pub(crate) fn scene_of(run: &CameraRun, slices: &[Slice], step: usize) -> Scene {
    let decoded = |name: &str| -> Option<Decoded> {
        // Of two slices of one name the runtime takes the last.
        let slice = slices.iter().rfind(|slice| slice.name == name)?;
        decode(name, run.rows(slice).nth(step)?)
    };
    let mut scene = Scene { step, ..Scene::default() };
    if let Some(plan) = decoded("plan") {
        for point in plan.values.chunks(PLAN_WIDTH) {
            scene.path.push([point[0], point[1]]);
            scene.speeds.push(point[3]);
            scene.turn_rates.push(point[14]);
        }
    }
    let lines = |decoded: Option<Decoded>| -> Vec<Vec<[f64; 2]>> {
        let values = decoded.map(|decoded| decoded.values).unwrap_or_default();
        let line = |line: &[f64]| line.chunks(2).zip(DISTANCES).map(|(point, x)| [x, point[0]]).collect();
        values.chunks(2 * POINTS).map(line).collect()
    };
    scene.lane_lines = lines(decoded("lane_lines"));
    scene.road_edges = lines(decoded("road_edges"));
    // Two values a line: that it is not there, and that it is.
    if let Some(probabilities) = decoded("lane_lines_prob") {
        scene.lane_probabilities =
            probabilities.values.chunks(2).filter_map(|pair| pair.get(1).copied()).collect();
    }
    if let (Some(lead), Some(probabilities)) = (decoded("lead"), decoded("lead_prob")) {
        let now = lead.values.chunks(6 * 4).map(|lead| (lead[0], lead[1], lead[2]));
        let found = now.zip(probabilities.values);
        scene.leads = found.map(|((x, y, speed), probability)| Lead { x, y, speed, probability }).collect();
    }
    scene.own_speed = decoded("pose").and_then(|pose| pose.values.first().copied());
    scene
}

impl Scene {
    /// The scene to the centimetre, which is all that a picture shows.
    #[must_use]
    pub(crate) fn rounded(mut self) -> Self {
        let round = |value: &mut f64| *value = (*value * 100.0).round() / 100.0;
        self.path.iter_mut().flatten().for_each(round);
        self.speeds.iter_mut().for_each(round);
        self.lane_lines.iter_mut().chain(&mut self.road_edges).flatten().flatten().for_each(round);
        self
    }
}
