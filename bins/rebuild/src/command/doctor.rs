//! `rebuild doctor`: everything that a run needs, looked at before the run.

use clap::Args;
use console_report::{Console, Exit, Failure, size_text, table};
use remote_compile::link::Facts;
use serde::Serialize;

use crate::{
    cli::{Cli, DeviceArgs},
    device::{Allowed, allowed, connect, models_binary, of_ssh, remote},
    failure::of_device,
    session::Session,
};

/// Space below which a catalog will not go through.
const LITTLE_SPACE: u64 = 2 << 30;
/// Above this the device slows down or stops.
const HOT: f64 = 85.0;

/// Looks at the device and says what stands in the way of a compile.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// The device.
    #[command(flatten)]
    device: DeviceArgs,
}

/// How a look turned out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Good,
    Note,
    Bad,
}

#[derive(Debug, Serialize)]
struct Finding {
    check: &'static str,
    verdict: Verdict,
    found: String,
    /// What to do, where something is to be done.
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<String>,
}

impl Finding {
    fn new(check: &'static str, verdict: Verdict, found: impl Into<String>) -> Self {
        Self { check, verdict, found: found.into(), advice: None }
    }

    fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }
}

pub fn run(args: &DoctorArgs, cli: &Cli, console: &Console) -> Result<(), Failure> {
    let session = Session::look(cli, console)?;
    let device = allowed(&session, &args.device)?;
    let findings = match &device {
        Allowed::Local => local(&session, &device)?,
        Allowed::Remote(address, options) => {
            let connected = remote(address, options)?;
            let facts = connected
                .facts()
                .map_err(|error| of_ssh(format!("{} cannot be asked", address.asked()), error))?;
            judge(&facts, session.config.target().to_string().as_str())
        }
    };
    let bad = findings.iter().filter(|finding| finding.verdict == Verdict::Bad).count();
    if console.is_json() {
        findings.iter().for_each(|finding| console.result(finding, String::new));
    } else {
        let rows = findings.iter().map(|finding| {
            let verdict = match finding.verdict {
                Verdict::Good => "good",
                Verdict::Note => "note",
                Verdict::Bad => "BAD",
            };
            vec![
                finding.check.to_owned(),
                verdict.to_owned(),
                finding.found.clone(),
                finding.advice.clone().unwrap_or_default(),
            ]
        });
        let text = table(&["check", "verdict", "found", "what to do"], rows);
        console.result(&(), || text.clone());
    }
    match bad {
        0 => Ok(()),
        count => Err(Failure::new(
            Exit::Environment,
            format!("{count} of {} checks stand in the way", findings.len()),
        )
        .advice("do what the report says and look again")),
    }
}

fn local(session: &Session<'_>, device: &Allowed) -> Result<Vec<Finding>, Failure> {
    let facts = connect(session, device)?
        .probe()
        .map_err(|error| of_device("the local device cannot be asked", &error))?;
    let mut findings = vec![version(&facts.models_version), space(facts.free_bytes)];
    findings.push(Finding::new("models", Verdict::Good, models_binary(session).into_string()));
    Ok(findings)
}

fn version(found: &str) -> Finding {
    let own = env!("CARGO_PKG_VERSION");
    if found == own {
        Finding::new("version of models", Verdict::Good, found)
    } else {
        Finding::new("version of models", Verdict::Bad, format!("{found}; this program is {own}"))
            .advise("rebuild device bootstrap")
    }
}

fn space(free: u64) -> Finding {
    let found = format!("{} free", size_text(free));
    if free < LITTLE_SPACE {
        Finding::new("space", Verdict::Bad, found).advise("free some on the device")
    } else {
        Finding::new("space", Verdict::Good, found)
    }
}

fn judge(facts: &Facts, target: &str) -> Vec<Finding> {
    let mut findings = vec![
        Finding::new("architecture", Verdict::Good, &facts.architecture),
        version(&facts.models_version),
        space(facts.free_bytes),
        match &facts.python {
            Some(python) => Finding::new("Python", Verdict::Good, python),
            None => Finding::new("Python", Verdict::Bad, "none found")
                .advise("name one with `python` in rebuild.toml"),
        },
        match &facts.tinygrad_commit {
            Some(commit) => Finding::new("tinygrad", Verdict::Good, commit),
            None => Finding::new("tinygrad", Verdict::Note, "no vendored one; the Python's own is used"),
        },
    ];
    findings.push(match (facts.has_qcom_gpu, target) {
        (true, _) => Finding::new("Snapdragon GPU", Verdict::Good, "/dev/kgsl-3d0"),
        (false, "qcom") => Finding::new("Snapdragon GPU", Verdict::Bad, "/dev/kgsl-3d0 is absent")
            .advise("name another device, or set target in rebuild.toml"),
        (false, _) => Finding::new("Snapdragon GPU", Verdict::Note, "/dev/kgsl-3d0 is absent"),
    });
    if let Some(celsius) = facts.temperature_celsius {
        let verdict = if celsius > HOT { Verdict::Bad } else { Verdict::Good };
        let finding = Finding::new("temperature", verdict, format!("{celsius:.0} \u{b0}C"));
        findings.push(if verdict == Verdict::Bad { finding.advise("let it cool down") } else { finding });
    }
    findings.push(match facts.external_gpu_bridge.as_deref() {
        None => Finding::new("external GPU", Verdict::Note, "none"),
        Some(product) if product.starts_with("custom") => {
            Finding::new("external GPU", Verdict::Good, product)
        }
        Some(product) => Finding::new("external GPU", Verdict::Bad, format!("its bridge says {product:?}"))
            .advise("its firmware is not the one needed: https://github.com/tinygrad/asm2464pd-firmware"),
    });
    findings.push(if facts.is_on_road {
        Finding::new("on the road", Verdict::Bad, "IsOnroad is set")
            .advise("wait, or insist with --while-driving")
    } else {
        Finding::new("on the road", Verdict::Good, "no")
    });
    findings.push(match facts.holder.as_deref() {
        None => Finding::new("in use", Verdict::Good, "by nobody"),
        Some(holder) => Finding::new("in use", Verdict::Note, holder),
    });
    findings.push(match facts.jobs.len() {
        0 => Finding::new("jobs", Verdict::Good, "none"),
        _ => Finding::new("jobs", Verdict::Note, facts.jobs.join(", ")),
    });
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_in_the_way_is_bad_and_says_what_to_do() {
        let facts = Facts {
            models_version: env!("CARGO_PKG_VERSION").to_owned(),
            free_bytes: 1,
            is_on_road: true,
            external_gpu_bridge: Some("USB 3.2 PCIe TinyEnclosure".to_owned()),
            temperature_celsius: Some(90.0),
            ..Facts::default()
        };
        let findings = judge(&facts, "qcom");
        let bad: Vec<&str> = findings
            .iter()
            .filter(|finding| finding.verdict == Verdict::Bad)
            .map(|finding| finding.check)
            .collect();
        assert_eq!(bad, ["space", "Python", "Snapdragon GPU", "temperature", "external GPU", "on the road"]);
        assert!(findings.iter().all(|finding| finding.verdict != Verdict::Bad || finding.advice.is_some()));
    }
}
