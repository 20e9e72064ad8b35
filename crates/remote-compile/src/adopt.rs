//! Artifacts that were put into the workspace by hand: looked at without running them, and taken as they are.

use artifact_pickle::{Graph, Limits};
use camino::Utf8Path;
use durable_fs::FsError;

/// Why a file is not taken for an artifact.
#[derive(Debug, thiserror::Error)]
pub enum AdoptError {
    /// The file cannot be read.
    #[error(transparent)]
    Fs(#[from] FsError),
    /// It is not a pickle that can be read.
    #[error("it is no artifact: {0}")]
    Pickle(#[from] artifact_pickle::PickleError),
    /// It is a pickle, but not of a driving artifact.
    #[error("it is no driving artifact: {0}")]
    Layout(String),
}

/// Where classes of an artifact may come from: what the runtime has.
const MODULES: [&str; 4] = ["builtins", "tinygrad", "numpy", "collections"];
/// Keys that every driving artifact has.
const KEYS: [&str; 5] = ["model_type", "metadata", "run_policy", "policy_input_keys", "warp_input_keys"];

/// Looks at a file in `compiled/` that nothing is recorded of. Nothing in it is run.
///
/// # Errors
/// [`AdoptError`] says why it is no artifact.
pub fn inspect(path: &Utf8Path) -> Result<(), AdoptError> {
    let mut file = std::fs::File::open(path).map_err(FsError::io("open", path))?;
    let graph = Graph::read(&mut file, &Limits::default())?;
    let foreign = graph.globals().find(|global| {
        let module = global.module.to_string();
        !MODULES.contains(&module.split('.').next().unwrap_or_default())
    });
    if let Some(global) = foreign {
        return Err(AdoptError::Layout(format!("it refers to {}.{}", global.module, global.name)));
    }
    let value = |key: &str| graph.get(graph.root(), key);
    if let Some(key) = KEYS.iter().find(|key| value(key).is_none()) {
        return Err(AdoptError::Layout(format!("it has no key {key:?}")));
    }
    match value("format_version").and_then(|id| graph.as_int(id)) {
        Some(1) => Ok(()),
        other => Err(AdoptError::Layout(format!("its format_version is {other:?}, not 1"))),
    }
}
