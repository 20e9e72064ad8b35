//! What a command did: exit code and both streams.

use std::process::Command;

use anyhow::{Context, Result};

/// The end of a command.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Exit code; `None` after a signal.
    pub code: Option<i32>,
    /// What it printed on stdout.
    pub stdout: String,
    /// What it printed on stderr.
    pub stderr: String,
}

impl Outcome {
    /// Both streams, for a failure message.
    #[must_use]
    pub fn transcript(&self) -> String {
        format!("exit code {:?}\n--- stdout\n{}\n--- stderr\n{}", self.code, self.stdout, self.stderr)
    }

    /// Panics with the transcript unless the exit code is `code`.
    #[track_caller]
    pub fn expect_code(&self, code: i32) -> &Self {
        assert!(self.code == Some(code), "expected exit code {code}\n{}", self.transcript());
        self
    }

    /// The objects of a JSON-lines stdout.
    ///
    /// # Errors
    /// When a line is no JSON.
    pub fn json_lines(&self) -> Result<Vec<serde_json::Value>> {
        let parse = |line: &str| serde_json::from_str(line).with_context(|| format!("not JSON: {line}"));
        self.stdout.lines().filter(|line| !line.is_empty()).map(parse).collect()
    }
}

/// Runs a command to its end.
///
/// # Errors
/// When it does not start.
pub fn run(command: &mut Command) -> Result<Outcome> {
    let output = command.output().with_context(|| format!("start {}", command.get_program().display()))?;
    Ok(Outcome {
        code: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}
