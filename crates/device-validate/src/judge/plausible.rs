//! Loose bounds of physics. Synthetic frames show no road, so what lies outside is a warning for a person.

use crate::{
    CameraRun, Check, Verdict,
    decode::{Scene, scene_of},
    recording::Slice,
};

/// Metres a second: faster than any car that runs this, and a little backwards.
const SPEEDS: std::ops::RangeInclusive<f64> = -5.0..=80.0;
/// Radians a second: faster than a car turns.
const TURN_RATE: f64 = 1.5;
/// Metres: wider than any road.
const LATERAL: f64 = 60.0;

/// Bounds of the last step on one camera, when state has settled.
pub(super) fn judge(run: &CameraRun, slices: &[Slice]) -> Vec<Verdict> {
    let Some(last) =
        run.outputs.values().map(crate::Series::steps).min().and_then(|steps| steps.checked_sub(1))
    else {
        return Vec::new();
    };
    let scene = scene_of(run, slices, last);
    let checks: [(&str, Option<String>); 5] = [
        ("plan", path(&scene)),
        ("plan", speeds(&scene)),
        ("lane_lines", lines("lane line", &scene.lane_lines)),
        ("road_edges", lines("road edge", &scene.road_edges)),
        ("pose", own_speed(&scene)),
    ];
    let verdict = |(slice, text): (&str, Option<String>)| {
        let verdict = Verdict {
            slice: Some(slice.to_owned()),
            step: Some(last),
            ..Verdict::warning(Check::Implausible, text?)
        };
        Some(verdict.on(run.camera))
    };
    checks.into_iter().filter_map(verdict).collect()
}

fn path(scene: &Scene) -> Option<String> {
    let at = scene.path.windows(2).position(|pair| pair[1][0] < pair[0][0] - 1.0)?;
    Some(format!(
        "the path goes back from {:.1} m to {:.1} m at point {}",
        scene.path[at][0],
        scene.path[at + 1][0],
        at + 1
    ))
}

fn speeds(scene: &Scene) -> Option<String> {
    if let Some(speed) = scene.speeds.iter().find(|speed| !SPEEDS.contains(speed)) {
        return Some(format!("a planned speed is {speed:.1} m/s"));
    }
    let rate = scene.turn_rates.iter().find(|rate| rate.abs() > TURN_RATE)?;
    Some(format!("a planned turn rate is {rate:.2} rad/s"))
}

fn lines(what: &str, lines: &[Vec<[f64; 2]>]) -> Option<String> {
    if let Some(point) = lines.iter().flatten().find(|point| point[1].abs() > LATERAL) {
        return Some(format!("a {what} lies {:.1} m to the side", point[1]));
    }
    let near: Vec<f64> = lines.iter().filter_map(|line| line.first()).map(|point| point[1]).collect();
    let at = near.windows(2).position(|pair| pair[0] > pair[1])?;
    Some(format!(
        "{what} {at} lies at {:.1} m, to the right of the next one at {:.1} m",
        near[at],
        near[at + 1]
    ))
}

fn own_speed(scene: &Scene) -> Option<String> {
    let speed = scene.own_speed.filter(|speed| !SPEEDS.contains(speed))?;
    Some(format!("the car's own speed is {speed:.1} m/s"))
}
