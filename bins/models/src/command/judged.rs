//! What inspecting, verifying and comparing share: choosing an ABI, and failures of reading.

use std::{io, str::FromStr};

use artifact_pickle::{AbiDescription, InspectError};
use camino::{Utf8Path, Utf8PathBuf};
use console_report::{Exit, Failure};

/// A built-in description by its version, or a file.
#[derive(Debug, Clone)]
pub struct AbiChoice(String);

impl FromStr for AbiChoice {
    type Err = std::convert::Infallible;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self(text.to_owned()))
    }
}

impl AbiChoice {
    /// The description.
    pub fn load(&self) -> Result<AbiDescription, Failure> {
        if let Some(known) = AbiDescription::known_as(&self.0) {
            return Ok(known);
        }
        let path = Utf8PathBuf::from(&self.0);
        let what = || format!("the ABI description {path} cannot be used");
        let known: Vec<String> = AbiDescription::known().into_iter().map(|abi| abi.tinygrad).collect();
        let advice = format!("give a file that the driver printed, or one of {}", known.join(", "));
        let text = std::fs::read_to_string(&path)
            .map_err(|error| Failure::new(Exit::Usage, what()).because(&error).advice(advice.clone()))?;
        AbiDescription::from_json(&text)
            .map_err(|error| Failure::new(Exit::Usage, what()).because(&error).advice(advice))
    }
}

/// A file that could not be inspected.
pub fn of_inspect(path: &Utf8Path, error: &InspectError) -> Failure {
    let exit = match error {
        InspectError::Open { source, .. } if source.kind() == io::ErrorKind::NotFound => Exit::Usage,
        InspectError::Open { .. } => Exit::Environment,
        _ => Exit::Failed,
    };
    Failure::new(exit, format!("{path} cannot be inspected")).because(error)
}
