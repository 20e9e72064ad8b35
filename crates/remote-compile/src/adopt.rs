//! Artifacts that were put into the workspace by hand: looked at without running them, and taken as they are.

use artifact_pickle::{Expectations, FileKind, InspectError, InspectOptions, verify};
use camino::Utf8Path;
use model_catalog::{BehaviorVersion, Target};

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

/// Looks at a file in `compiled/` that nothing is recorded of. Nothing in it is run.
///
/// # Errors
/// [`AdoptError`] says why it is not taken.
pub fn inspect(path: &Utf8Path, target: Target, version: Option<BehaviorVersion>) -> Result<(), AdoptError> {
    let expected =
        Expectations { target: Some(target), behavior_version: version, kind: Some(FileKind::Driving) };
    let verdict = verify(path, &InspectOptions::default(), &expected)?;
    let first = verdict.errors().next().map(ToString::to_string);
    first.map_or(Ok(()), |finding| Err(AdoptError::Unfit(finding)))
}
