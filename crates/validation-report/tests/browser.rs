//! The page in headless Chromium: what is sorted, filtered, drawn and escaped.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test says what is wrong by its panic, and why it was skipped by a line"
)]
#![allow(clippy::allow_attributes, reason = "test code outside of #[test] functions")]

use std::{
    path::Path,
    process::{Command, Stdio},
};

use camino::{Utf8Path, Utf8PathBuf};
use device_validate::decode::DISTANCES;
use validation_report::{
    CameraPlot, Change, ModelReport, PathChange, Report, ScenePlot, VerdictLine, render,
};

const NASTY: &str =
    "</script><script>document.title='run'</script><img src=x onerror=\"document.title='run'\">";

fn scene(step: usize, shift: f64) -> ScenePlot {
    let path = DISTANCES.iter().map(|x| [*x, shift + x * x / 2000.0]).collect();
    let line = |offset: f64| DISTANCES.iter().map(|x| offset + x * x / 2000.0).collect::<Vec<f64>>();
    ScenePlot {
        step,
        path,
        lanes: vec![line(-5.4), line(-1.8), line(1.8), line(5.4)],
        lane_probs: vec![0.3, 0.9, 0.9, 0.4],
        edges: vec![line(-7.5), line(7.5)],
        leads: vec![[40.0, 0.8, 0.9], [70.0, 2.4, 0.3], [f64::NAN, 0.0, 1.0]],
        speed: Some(20.0),
    }
}

fn drive(shift: f64) -> Vec<CameraPlot> {
    let cameras = ["1928x1208", "1344x760"];
    let plot = |camera: &str| CameraPlot {
        camera: camera.to_owned(),
        scenes: vec![scene(2, shift), scene(5, shift)],
    };
    cameras.map(plot).into()
}

fn model(id: &str, status: &'static str, version: Option<&str>, size: Option<u64>) -> ModelReport {
    ModelReport {
        id: id.to_owned(),
        name: format!("Model {id}"),
        status,
        version: version.map(str::to_owned),
        kind: "vision_policy".to_owned(),
        size,
        ..ModelReport::default()
    }
}

/// Four models: one of every kind of content, with hostile text wherever text can stand.
fn report() -> Report {
    let verdict =
        |severity, text: &str| VerdictLine { severity, check: "zero_tail".to_owned(), text: text.to_owned() };
    let full = ModelReport {
        name: NASTY.to_owned(),
        release_id: Some("alpha3".to_owned()),
        kind: "supercombo".to_owned(),
        parts: 2,
        p50: Some(0.0312),
        p99: Some(0.0441),
        load_seconds: Some(3.2),
        compile_seconds: Some(120.0),
        device: Some("comma@192.168.3.109".to_owned()),
        target: Some("qcom".to_owned()),
        verdicts: vec![verdict("warning", NASTY)],
        step_seconds: [
            ("1928x1208".to_owned(), vec![0.03, 0.031, 0.045]),
            ("1344x760".to_owned(), vec![0.028]),
        ]
        .into(),
        drive: drive(0.0),
        previous_drive: drive(0.6),
        changes: vec![Change {
            what: "median step".to_owned(),
            before: "40 ms".to_owned(),
            now: NASTY.to_owned(),
        }],
        path_changes: vec![PathChange { camera: "1928x1208".to_owned(), mean: 0.6, most: 0.61 }],
        runtime: vec![VerdictLine {
            severity: "good",
            check: "1928x1208".to_owned(),
            text: "drove for 60 s".to_owned(),
        }],
        reference: Some(
            serde_json::json!({"runtime": "onnxruntime 1.0", "precision": "float16", "steps": 8, "slices": [
            {"output": "model", "slice": "plan", "absolute": 0.001, "relative": 0.0002, "correlation": 0.99999, "passed": true},
            {"output": "model", "slice": NASTY, "absolute": null, "relative": null, "correlation": null, "passed": false}]}),
        ),
        ..model("alpha", "passed", Some("v11"), Some(130 << 20))
    };
    let failed = ModelReport {
        failure: Some("validate: the artifact does not pass".to_owned()),
        device: Some("local".to_owned()),
        verdicts: vec![verdict("failure", "plan ends in zeros"), verdict("warning", "slow")],
        ..model("beta", "failed", Some("v8"), Some(9 << 20))
    };
    Report {
        workspace: NASTY.to_owned(),
        made: "2026-01-01".to_owned(),
        distances: DISTANCES.to_vec(),
        models: vec![
            full,
            failed,
            model("gamma", "not compiled", Some("v15"), None),
            model("delta", "not extracted", None, None),
        ],
    }
}

fn chromium() -> Option<&'static str> {
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let dirs = std::env::var("PATH").unwrap_or_default();
    names.into_iter().find(|name| dirs.split(':').any(|dir| Path::new(dir).join(name).is_file()))
}

/// Headless, offline, with a profile of its own.
fn browser(program: &str, dir: &Utf8Path) -> Command {
    let mut command = Command::new(program);
    command.args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]);
    command.args(["--disable-component-update", "--disable-sync", "--no-first-run", "--hide-scrollbars"]);
    command.arg("--virtual-time-budget=4000").arg(format!("--user-data-dir={}", dir.join("profile")));
    command.stdin(Stdio::null()).stderr(Stdio::null());
    command
}

/// The text that `probe`, run in the page, gives back.
fn probed(html: &str, probe: &str) -> Option<String> {
    let Some(program) = chromium() else {
        let test = std::thread::current().name().unwrap_or_default().to_owned();
        println!("skipped: {test}: no chromium; `cargo xtask setup --tests` installs it");
        return None;
    };
    let dir = tempfile::tempdir().unwrap();
    let root = Utf8Path::from_path(dir.path()).unwrap();
    let script = format!(
        "<script>{{ const out = document.createElement('pre'); out.id = 'probe'; let text;\n\
         try {{ text = JSON.stringify((() => {{ {probe} }})()); }} catch (error) {{ text = String(error); }}\n\
         out.textContent = 'PROBE[' + btoa(unescape(encodeURIComponent(text))) + ']'; document.body.append(out); }}</script></body>"
    );
    let file = page(root, &html.replacen("</body>", &script, 1));
    let output = browser(program, root).arg("--dump-dom").arg(format!("file://{file}")).output().unwrap();
    let dom = String::from_utf8_lossy(&output.stdout).into_owned();
    let start =
        dom.find(">PROBE[").unwrap_or_else(|| panic!("no probe in the page:\n{dom}")) + ">PROBE[".len();
    let end = start + dom[start..].find(']').unwrap();
    Some(from_base64(&dom[start..end]))
}

fn page(root: &Utf8Path, html: &str) -> Utf8PathBuf {
    let file = root.join("report.html");
    durable_fs::write_atomic(&file, html.as_bytes()).unwrap();
    file
}

fn from_base64(text: &str) -> String {
    let digit = |byte: u8| match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let (mut bits, mut held, mut bytes) = (0u32, 0, Vec::new());
    for byte in text.bytes().filter(|byte| *byte != b'=') {
        bits = (bits << 6) | u32::from(digit(byte));
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push((bits >> held) as u8);
        }
    }
    String::from_utf8(bytes).unwrap()
}

const IDS: &str = "const ids = () => [...document.querySelectorAll('#catalog tbody tr')].map((row) => row.dataset.id).join(' ');
    const press = (title) => [...document.querySelectorAll('#catalog th button')].find((button) => button.textContent === title).click();
    const set = (id, value, event) => { const field = document.getElementById(id); field.value = value; field.dispatchEvent(new Event(event)); };";

#[test]
fn the_table_sorts_and_filters() {
    let probe = format!(
        "{IDS} const steps = [ids()];
        press('Model'); steps.push(ids()); press('Model'); steps.push(ids());
        press('Version'); steps.push(ids()); press('Size MiB'); press('Size MiB'); steps.push(ids());
        set('status', 'failed', 'change'); steps.push(ids()); set('status', '', 'change');
        set('kind', 'supercombo', 'change'); steps.push(ids()); set('kind', '', 'change');
        set('search', 'ENDS zeros', 'input'); steps.push(ids()); set('search', 'nothing has this', 'input');
        steps.push(ids()); steps.push(document.getElementById('count').textContent);
        steps.push(document.querySelectorAll('article').length);
        set('search', '', 'input'); steps.push(document.querySelectorAll('article').length);
        steps.push(document.querySelector('th[aria-sort]').textContent);
        return steps;"
    );
    let Some(found) = probed(&render(&report()).unwrap(), &probe) else { return };
    let found: Vec<serde_json::Value> = serde_json::from_str(&found).unwrap_or_else(|_| panic!("{found}"));
    let expected = serde_json::json!([
        "alpha beta gamma delta",
        "alpha beta delta gamma",
        "gamma delta beta alpha",
        "beta alpha gamma delta",
        "alpha beta gamma delta",
        "beta",
        "alpha",
        "beta",
        "",
        "0 of 4 models",
        0,
        4,
        "Size MiB"
    ]);
    assert_eq!(serde_json::Value::Array(found), expected);
}

#[test]
fn hostile_text_is_shown_and_not_run() {
    let probe = "return [document.title, document.images.length, document.querySelectorAll('script').length,
        document.querySelector('#catalog small').textContent, document.getElementById('about').textContent,
        performance.getEntriesByType('resource').length]";
    let Some(found) = probed(&render(&report()).unwrap(), probe) else { return };
    let found: Vec<serde_json::Value> = serde_json::from_str(&found).unwrap_or_else(|_| panic!("{found}"));
    // Two scripts are the page's, one is the probe.
    assert_eq!(found[..3], [serde_json::json!("Driving models"), 0.into(), 3.into()]);
    assert!(found[3].as_str().unwrap().starts_with(NASTY), "{}", found[3]);
    assert!(found[4].as_str().unwrap().starts_with(NASTY), "{}", found[4]);
    assert_eq!(found[5], 0, "the page asked for something");
}

#[test]
fn every_scene_is_drawn_and_the_slider_moves_through_them() {
    let probe = "const one = document.getElementById('model-alpha');
        const count = (what) => one.querySelectorAll('.' + what).length;
        const path = () => one.querySelector('path.path').getAttribute('d');
        const label = () => one.querySelector('.steps span').textContent;
        const before = [count('path'), count('lane'), count('edge'), count('lead'), count('before'), count('histogram'), label()];
        const first = path(); const slider = one.querySelector('input[type=range]');
        slider.value = 0; slider.dispatchEvent(new Event('input'));
        return [...before, label(), first.length > 100, one.querySelector('.changes').textContent.includes('moved 0.60 m'),
            one.querySelector('.reference').rows.length, one.querySelector('.reference').rows[2].textContent.includes('differs'),
            document.getElementById('model-gamma').querySelectorAll('svg').length,
            document.documentElement.scrollWidth <= window.innerWidth];";
    let Some(found) = probed(&render(&report()).unwrap(), probe) else { return };
    assert_eq!(found, r#"[2,8,4,4,2,1,"step 6","step 3",true,true,3,true,0,true]"#);
}

#[test]
fn screenshots_of_both_schemes_and_a_phone_are_not_blank() {
    let Some(program) = chromium() else {
        println!("skipped: screenshots_of_both_schemes_and_a_phone_are_not_blank: no chromium");
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let root = Utf8Path::from_path(dir.path()).unwrap();
    let file = page(root, &render(&report()).unwrap());
    let dark = "--blink-settings=preferredColorScheme=0";
    for (name, size, scheme) in
        [("light", "1280,1400", None), ("dark", "1280,1400", Some(dark)), ("phone", "500,1600", None)]
    {
        // Kept where somebody wants to look at them.
        let keep = std::env::var("REPORT_SCREENSHOTS").map_or_else(|_| root.to_owned(), Utf8PathBuf::from);
        let image = keep.join(format!("report-{name}.png"));
        let mut command = browser(program, root);
        command.args(scheme).arg(format!("--window-size={size}")).arg(format!("--screenshot={image}"));
        assert!(command.arg(format!("file://{file}")).stdout(Stdio::null()).status().unwrap().success());
        let size = std::fs::metadata(&image).unwrap().len();
        assert!(size > 30_000, "{name}: {size} bytes");
    }
}
