use super::*;

fn values(count: usize, salt: f64) -> Option<Vec<Number>> {
    Some((0..count).map(|index| Number::Finite(index as f64 + salt)).collect())
}

fn model(at: f64, frame: i64) -> Message {
    let fields = EXPECTED[0].fields.iter().map(|&(name, count)| (name.to_owned(), values(count, at)));
    Message { service: MODEL.to_owned(), at, frame: Some(frame), fields: fields.collect(), sensor: None }
}

fn driver(at: f64, frame: i64) -> Message {
    let fields = EXPECTED[1].fields.iter().map(|&(name, count)| (name.to_owned(), values(count, at)));
    Message { service: DRIVER.to_owned(), at, frame: Some(frame), fields: fields.collect(), sensor: None }
}

fn camera(sensor: &str) -> Message {
    let service = "roadCameraState".to_owned();
    Message { service, at: 0.0, frame: Some(0), fields: BTreeMap::new(), sensor: Some(sensor.to_owned()) }
}

/// Two seconds of a healthy runtime, each message changed by `change`.
fn checks(mut change: impl FnMut(&mut Message)) -> Vec<String> {
    let mut watched = Watched::default();
    for step in 0..41 {
        let at = 100.0 + f64::from(step) / 20.0;
        for mut message in [camera("ox03c10"), model(at, step.into()), driver(at, step.into())] {
            change(&mut message);
            if !message.service.is_empty() {
                watched.take(message);
            }
        }
    }
    let findings = watched.findings(102.0);
    findings
        .into_iter()
        .map(|f| format!("{} {}", f.check, f.field.unwrap_or_default()).trim().to_owned())
        .collect()
}

fn drop_field(message: &mut Message, name: &str) {
    if message.service == MODEL {
        message.fields.insert(name.to_owned(), None);
    }
}

#[test]
fn a_healthy_runtime_has_no_finding() {
    assert!(checks(|_| {}).is_empty());
    let mut watched = Watched::default();
    watched.take(model(5.0, 0));
    watched.take(model(5.5, 1));
    assert_eq!((watched.began(), watched.seconds()), (Some(5.0), 0.5));
    assert_eq!(watched.facts()[MODEL], ServiceFacts { messages: 2, hertz: 2.0, longest_gap: 0.5 });
}

#[test]
fn every_planted_fault_is_named() {
    for &(name, _) in EXPECTED[0].fields {
        assert_eq!(checks(|message| drop_field(message, name)), [format!("missing {name}")]);
        let found = checks(|message| {
            if message.service == MODEL && message.frame == Some(7) {
                message.fields.get_mut(name).unwrap().as_mut().unwrap()[1] = Number::Other("nan".to_owned());
            }
        });
        assert_eq!(found, [format!("non_finite {name}")]);
        let found = checks(|message| {
            if message.service == MODEL {
                message.fields.get_mut(name).unwrap().as_mut().unwrap().pop();
            }
        });
        assert_eq!(found, [format!("shape {name}")]);
    }
    let silent = checks(|message| {
        if message.service == DRIVER {
            message.service.clear();
        }
    });
    assert_eq!(silent, ["silent"]);
    let stuck = checks(|message| {
        if message.service == MODEL {
            message.fields.insert("path".to_owned(), values(POINT_VALUES, 0.0));
        }
    });
    assert_eq!(stuck, ["constant path"]);
    let stalled = checks(|message| {
        if message.service == MODEL && message.frame > Some(10) {
            message.service.clear();
        }
    });
    assert_eq!(stalled, ["gap"]);
    let slow = checks(|message| {
        if message.service == MODEL && message.frame.is_some_and(|frame| frame % 2 == 1) {
            message.service.clear();
        }
    });
    assert_eq!(slow, ["rate"]);
    let back = checks(|message| {
        if message.frame == Some(9) && message.service == MODEL {
            message.frame = Some(3);
        }
    });
    assert_eq!(back, ["order"]);
    let unknown = checks(|message| {
        if message.sensor.is_some() {
            message.sensor = Some("imx999".to_owned());
        }
    });
    assert_eq!(unknown, ["camera"]);
}

#[test]
fn a_pose_of_its_own_service_counts() {
    let found = checks(|message| {
        drop_field(message, "pose");
        if message.sensor.is_some() {
            message.fields.insert("pose".to_owned(), values(6, rand_like()));
            message.service = ODOMETRY.to_owned();
        }
    });
    // The sensor came with the odometry here, so nothing else is missing.
    assert!(found.is_empty(), "{found:?}");
}

fn rand_like() -> f64 {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed).into()
}

#[test]
fn sensors_give_the_resolution() {
    for (sensor, expected) in [
        ("ox03c10", Some(CAMERAS[0])),
        ("ar0231", Some(CAMERAS[0])),
        ("ImageSensor.os04c10", Some(CAMERAS[1])),
        ("unknown", None),
    ] {
        assert_eq!(camera_of(sensor), expected, "{sensor}");
    }
}

#[test]
fn lines_of_the_sampler_are_understood() {
    let text = r#"{"event": "message", "service": "modelV2", "at": 1.5, "frame": null,
        "fields": {"path": [1, 2.5, "nan"], "pose": null}}"#;
    let Line::Message(message) = serde_json::from_str(text).unwrap() else { panic!("another line") };
    assert_eq!(message.fields["path"].as_ref().unwrap()[2], Number::Other("nan".to_owned()));
    assert_eq!(message.fields["pose"], None);
    assert_eq!(serde_json::from_str::<Line>(r#"{"event": "ready"}"#).unwrap(), Line::Ready);
}
