//! Artifacts that were put into the workspace by hand: looked at without running them, and taken as they are.

use artifact_pickle::{AbiDescription, AbiRecord, Expectations, InspectError, InspectOptions, verify};
use camino::Utf8Path;
use model_catalog::{BehaviorVersion, Target};
use rebuild_workspace::BuildRecord;

/// Why a file is not taken for an artifact of a model.
#[derive(Debug, thiserror::Error)]
pub enum AdoptError {
    /// It is no pickle that can be read.
    #[error("it is no artifact: {0}")]
    Unreadable(#[from] InspectError),
    /// It can be read, and something about it forbids its use.
    #[error("it is not the artifact that is wanted: {0}")]
    Unfit(String),
}

/// Looks at a file in `compiled/` that nothing is recorded of. Nothing in it is run. Its tinygrad must be a known one, or that of
/// the build record, where there is one.
///
/// # Errors
/// [`AdoptError`] says why it is not taken.
pub fn inspect(
    path: &Utf8Path,
    target: Target,
    version: Option<BehaviorVersion>,
    recorded: Option<&AbiDescription>,
) -> Result<(), AdoptError> {
    let expected = Expectations::driving(Some(target), version);
    let options =
        InspectOptions { also: recorded.cloned().into_iter().collect(), ..InspectOptions::default() };
    let verdict = verify(path, &options, &expected)?;
    let first = verdict.errors().next().map(ToString::to_string);
    first.map_or(Ok(()), |finding| Err(AdoptError::Unfit(finding)))
}

/// The description of the tinygrad that a workspace's build record names. A record that lacks it or is damaged adds nothing: the
/// file must then fit a known tinygrad.
#[must_use]
pub fn recorded_abi(build: Option<&BuildRecord>) -> Option<AbiDescription> {
    AbiRecord::of_build(&build?.provenance).ok()??.description()
}
