//! What the runtime published, judged: arriving, complete, finite, alive.

use std::collections::BTreeMap;

use model_catalog::{CAMERAS, Camera};
use serde::Deserialize;
use tinygrad_compile::job::{RuntimeFinding, ServiceFacts};

/// The service whose first message means that the model drives.
pub const MODEL: &str = "modelV2";
const ODOMETRY: &str = "cameraOdometry";
const DRIVER: &str = "driverStateV2";
/// Points of a path, a lane line or a road edge, each with x, y and z.
const POINT_VALUES: usize = 33 * 3;

/// One line of the sampler.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Line {
    /// It listens.
    Ready,
    /// A message.
    Message(Message),
}

/// What one message says.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Message {
    /// The service.
    pub service: String,
    /// When it came, in seconds of a clock that never goes back.
    pub at: f64,
    /// The camera frame that it is of.
    pub frame: Option<i64>,
    /// Its quantities; `None` where it has none.
    pub fields: BTreeMap<String, Option<Vec<Number>>>,
    /// The camera's sensor, of a camera's own messages.
    #[serde(default)]
    pub sensor: Option<String>,
}

/// A number; one that is not finite is text in JSON.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum Number {
    /// A finite one.
    Finite(f64),
    /// `nan`, `inf` or `-inf`.
    Other(String),
}

/// What a service has to publish.
struct Expected {
    service: &'static str,
    /// The least messages a second.
    hertz: f64,
    /// The longest accepted silence in seconds.
    gap: f64,
    /// Quantities and the least number of values that each must have.
    fields: &'static [(&'static str, usize)],
}

/// Rates are three quarters of what the runtime is made for.
const EXPECTED: [Expected; 2] = [
    Expected {
        service: MODEL,
        hertz: 15.0,
        gap: 1.0,
        fields: &[
            ("path", POINT_VALUES),
            ("lane_lines", 4 * POINT_VALUES),
            ("lane_line_probs", 4),
            ("road_edges", 2 * POINT_VALUES),
            // One lead of at least one time: distance, offset, speed, acceleration, probability.
            ("leads", 5),
            ("pose", 6),
            ("action", 2),
        ],
    },
    Expected {
        service: DRIVER,
        hertz: 7.5,
        gap: 2.0,
        // Orientation, position, probability of a face.
        fields: &[("left_driver", 6), ("right_driver", 6)],
    },
];

#[derive(Debug, Default)]
struct Series {
    first: Option<f64>,
    last: f64,
    messages: u64,
    longest_gap: f64,
    frame: Option<i64>,
    /// Whether a frame came after a later one.
    goes_back: bool,
}

#[derive(Debug, Default)]
struct Field {
    seen: u64,
    absent: u64,
    least: Option<usize>,
    bad: Option<(usize, String)>,
    bad_messages: u64,
    first: Option<Vec<Number>>,
    changed: bool,
}

/// Everything that was published so far.
#[derive(Debug, Default)]
pub struct Watched {
    services: BTreeMap<String, Series>,
    fields: BTreeMap<(String, String), Field>,
    camera: Option<Camera>,
    sensor: Option<String>,
}

impl Watched {
    /// Takes in a message.
    pub fn take(&mut self, message: Message) {
        let series = self.services.entry(message.service.clone()).or_default();
        series.messages += 1;
        match series.first {
            None => series.first = Some(message.at),
            Some(_) => series.longest_gap = series.longest_gap.max(message.at - series.last),
        }
        series.last = message.at;
        series.goes_back |= message.frame.zip(series.frame).is_some_and(|(now, before)| now < before);
        series.frame = message.frame.or(series.frame);
        if let Some(sensor) = message.sensor {
            self.camera = self.camera.or_else(|| camera_of(&sensor));
            self.sensor = Some(sensor);
        }
        for (name, values) in message.fields {
            self.fields.entry((message.service.clone(), name)).or_default().take(values);
        }
    }

    /// When the model's first output came.
    pub fn began(&self) -> Option<f64> {
        self.services.get(MODEL)?.first
    }

    /// For how long outputs have come.
    pub fn seconds(&self) -> f64 {
        self.services.get(MODEL).and_then(|series| Some(series.last - series.first?)).unwrap_or_default()
    }

    /// The cameras of the device, by their sensor.
    pub fn camera(&self) -> Option<Camera> {
        self.camera
    }

    /// What each service published.
    pub fn facts(&self) -> BTreeMap<String, ServiceFacts> {
        let facts = |series: &Series| ServiceFacts {
            messages: series.messages,
            hertz: series.hertz(),
            longest_gap: series.longest_gap,
        };
        self.services.iter().map(|(name, series)| (name.clone(), facts(series))).collect()
    }

    /// Everything that does not hold after `now`, the end of the watch on the sampler's clock.
    pub fn findings(&self, now: f64) -> Vec<RuntimeFinding> {
        let mut findings = Vec::new();
        for expected in &EXPECTED {
            self.judge(expected, now, &mut findings);
        }
        if self.camera.is_none() {
            let text = match &self.sensor {
                Some(sensor) => format!("the sensor {sensor:?} is that of no known camera"),
                None => "the road camera published nothing, so the resolution is not known".to_owned(),
            };
            findings.push(finding("camera", "roadCameraState", None, text));
        }
        findings
    }

    fn judge(&self, expected: &Expected, now: f64, findings: &mut Vec<RuntimeFinding>) {
        let service = expected.service;
        let Some(series) = self.services.get(service) else {
            findings.push(finding("silent", service, None, format!("{service} never came")));
            return;
        };
        let gap = series.longest_gap.max(now - series.last);
        if gap > expected.gap {
            let text = format!("{service} was silent for {gap:.2} s; {} s are allowed", expected.gap);
            findings.push(finding("gap", service, None, text));
        }
        if series.hertz() < expected.hertz {
            let text =
                format!("{service} came {:.1} times a second; {} are needed", series.hertz(), expected.hertz);
            findings.push(finding("rate", service, None, text));
        }
        if series.goes_back {
            let text = format!("{service} is of an earlier frame than the one before");
            findings.push(finding("order", service, None, text));
        }
        for &(name, least) in expected.fields {
            self.judge_field(service, name, least, findings);
        }
    }

    fn judge_field(&self, service: &str, name: &str, least: usize, findings: &mut Vec<RuntimeFinding>) {
        let absent = |field: Option<&Field>| field.is_none_or(|field| field.seen == 0);
        let mut field = self.fields.get(&(service.to_owned(), name.to_owned()));
        let mut from = service;
        if name == "pose" && absent(field) {
            // Newer trees publish the pose in a service of its own.
            from = ODOMETRY;
            field = self.fields.get(&(ODOMETRY.to_owned(), name.to_owned()));
        }
        let Some(field) = field.filter(|field| field.seen > 0) else {
            let text = format!("{service} has no {name}");
            findings.push(finding("missing", service, Some(name), text));
            return;
        };
        if field.absent > 0 {
            let text = format!(
                "{name} is absent from {} of {} messages of {from}",
                field.absent,
                field.absent + field.seen
            );
            findings.push(finding("missing", from, Some(name), text));
        }
        if let Some(found) = field.least.filter(|&found| found < least) {
            let text = format!("{name} has {found} values in {from}; {least} are needed");
            findings.push(finding("shape", from, Some(name), text));
        }
        if let Some((index, value)) = &field.bad {
            let text = format!(
                "{name}[{index}] is {value}; {} of {} messages of {from} are not finite",
                field.bad_messages, field.seen
            );
            findings.push(RuntimeFinding {
                index: Some(*index),
                ..finding("non_finite", from, Some(name), text)
            });
        }
        // A parked car sees the same scene, and yet no two camera frames are equal. What it is told to do may be: to stand.
        if !field.changed && field.seen > 1 && name != "action" {
            let text = format!("{name} is the same in all {} messages of {from}", field.seen);
            findings.push(finding("constant", from, Some(name), text));
        }
    }
}

impl Series {
    fn hertz(&self) -> f64 {
        let seconds = self.first.map_or(0.0, |first| self.last - first);
        if seconds > 0.0 { (self.messages - 1) as f64 / seconds } else { 0.0 }
    }
}

impl Field {
    fn take(&mut self, values: Option<Vec<Number>>) {
        let Some(values) = values else {
            self.absent += 1;
            return;
        };
        self.seen += 1;
        self.least = Some(self.least.map_or(values.len(), |least| least.min(values.len())));
        let bad = values.iter().enumerate().find_map(|(index, value)| match value {
            Number::Finite(value) if value.is_finite() => None,
            Number::Finite(value) => Some((index, value.to_string())),
            Number::Other(text) => Some((index, text.clone())),
        });
        if let Some(bad) = bad {
            self.bad_messages += 1;
            self.bad.get_or_insert(bad);
        }
        match &self.first {
            None => self.first = Some(values),
            Some(first) => self.changed |= *first != values,
        }
    }
}

/// The resolution that a sensor gives.
fn camera_of(sensor: &str) -> Option<Camera> {
    match sensor.rsplit('.').next().unwrap_or(sensor).to_ascii_lowercase().as_str() {
        "ar0231" | "ox03c10" => Some(CAMERAS[0]),
        "os04c10" => Some(CAMERAS[1]),
        _ => None,
    }
}

/// A finding about a service.
pub fn finding(check: &str, service: &str, field: Option<&str>, text: String) -> RuntimeFinding {
    RuntimeFinding {
        check: check.to_owned(),
        service: Some(service.to_owned()),
        field: field.map(str::to_owned),
        index: None,
        text,
    }
}

#[cfg(test)]
#[path = "watch_tests.rs"]
mod tests;
