//! `models about`: which version this is, for whoever starts it from afar.

use console_report::{Console, Failure};
use serde::Serialize;
use tinygrad_compile::{driver::embedded, job};

#[derive(Serialize)]
struct About {
    version: &'static str,
    protocol: u32,
    driver_sha256: String,
    architecture: &'static str,
}

/// Prints one JSON object, with and without `--json`.
pub fn run(console: &Console) -> Result<(), Failure> {
    let about = About {
        version: env!("CARGO_PKG_VERSION"),
        protocol: job::PROTOCOL,
        driver_sha256: embedded::digest().to_string(),
        architecture: std::env::consts::ARCH,
    };
    console.result(&about, || serde_json::to_string(&about).unwrap_or_default());
    Ok(())
}
