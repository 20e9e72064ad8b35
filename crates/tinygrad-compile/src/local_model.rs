//! A person's own models (`local-*`): installed into the device's model store as one file with a sidecar.
//!
//! The store's caches say which behaviour version a model drives on; a wrong one makes it drive on the wrong contract, so a
//! model without a known version is not installed. Everything of one installation appears together, under a journal.

use camino::{Utf8Path, Utf8PathBuf};
use durable_fs::{
    Expected, FileLock, FsError, Journal, JournalError, LockError, NoProgress, Step, Written, copy_file,
};
use model_catalog::{ArtifactName, BehaviorVersion, ModelId};
use serde_json::{Map, Value, json};

/// The layout that artifacts of this project have.
const ARTIFACT_FORMAT: &str = "tinygrad_single_v1";
/// The series of a local model that has no sidecar yet.
const SERIES: &str = "Local";
const VERSIONS: &str = ".model_versions.json";
const ARTIFACTS: &str = ".model_artifacts.json";
const JOURNAL: &str = ".models-installing.json";
const LOCK: &str = ".models-installing.lock";

/// Why a local model was not installed.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// Nothing says which behaviour version it has.
    #[error(
        "the behaviour version of {id} is not known, and a wrong one makes it drive on the wrong contract; give --version vN, or --no-install"
    )]
    NoVersion {
        /// The model.
        id: ModelId,
    },
    /// The store is not there.
    #[error("the model store {dir} does not exist; name it with --store-dir, or give --no-install")]
    NoStore {
        /// The directory.
        dir: Utf8PathBuf,
    },
    /// A file of the store cannot be understood; it is not overwritten.
    #[error("{path} is not what a model store has ({why}); correct or remove it")]
    Malformed {
        /// The file.
        path: Utf8PathBuf,
        /// What is wrong.
        why: String,
    },
    /// Another process installs.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// A file operation failed.
    #[error(transparent)]
    Fs(#[from] FsError),
    /// The installation could not be completed; running again completes it.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

/// What is installed.
#[derive(Debug, Clone)]
pub struct LocalModel<'m> {
    /// The model; its ID starts with `local-`.
    pub id: &'m ModelId,
    /// The artifact.
    pub artifact: &'m Utf8Path,
    /// Its size and digest.
    pub written: Written,
    /// Its behaviour version.
    pub version: BehaviorVersion,
    /// Whether it needs an external GPU.
    pub uses_external_gpu: bool,
}

/// The behaviour version that a local model's sidecar in `store` has.
///
/// # Errors
/// [`InstallError::Malformed`] where the sidecar cannot be understood.
pub fn sidecar_version(store: &Utf8Path, id: &ModelId) -> Result<Option<BehaviorVersion>, InstallError> {
    let path = store.join(sidecar_name(id));
    let sidecar = read_object(&path)?;
    match sidecar.get("version").and_then(Value::as_str).filter(|text| !text.is_empty()) {
        None => Ok(None),
        Some(text) => {
            text.parse().map(Some).map_err(|error| InstallError::Malformed { path, why: format!("{error}") })
        }
    }
}

fn sidecar_name(id: &ModelId) -> String {
    format!("{id}.json")
}

/// A JSON object in a file; an absent file is an empty one.
fn read_object(path: &Utf8Path) -> Result<Map<String, Value>, InstallError> {
    match std::fs::read_to_string(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Map::new()),
        text => {
            let text = text.map_err(FsError::io("read", path))?;
            let malformed = |error: serde_json::Error| InstallError::Malformed {
                path: path.to_owned(),
                why: error.to_string(),
            };
            serde_json::from_str(&text).map_err(malformed)
        }
    }
}

fn to_text(path: &str, object: &Map<String, Value>) -> Result<String, FsError> {
    let json = |source| FsError::Json { path: path.into(), source };
    Ok(serde_json::to_string_pretty(object).map_err(json)? + "\n")
}

/// Installs `model` into `store`: the artifact, its sidecar and its entries in both caches. Names that a person gave in the
/// sidecar, and entries of other models, are kept.
///
/// # Errors
/// [`InstallError`]; the store is then as it was, or completed by the next installation.
pub fn install(model: &LocalModel<'_>, store: &Utf8Path) -> Result<Utf8PathBuf, InstallError> {
    if !store.is_dir() {
        return Err(InstallError::NoStore { dir: store.to_owned() });
    }
    let _lock = FileLock::acquire(store.join(LOCK), &format!("models --model {}", model.id))?;
    let journal = Journal::new(store, JOURNAL);
    journal.recover()?;
    // What cannot be understood is found before anything arrives.
    let changed = changed_files(model, store)?;
    let artifact = ArtifactName::new(model.id.clone()).to_string();
    let arriving = format!(".arriving-{artifact}");
    let expected = Expected::exactly(model.written.size, model.written.sha256);
    copy_file(model.artifact, &store.join(&arriving), expected, &NoProgress)?;
    let mut steps = Vec::new();
    if store.join(&artifact).is_file() {
        steps.push(Step::Remove { path: artifact.as_str().into(), sha256: None });
    }
    steps.push(Step::Rename { from: arriving.into(), to: artifact.as_str().into() });
    for (path, object) in changed {
        let content = to_text(&path, &object)?;
        steps.push(Step::Write { path: path.into(), content });
    }
    journal.apply(&steps)?;
    Ok(store.join(artifact))
}

/// A file of the store by name, with its new content.
type Changed = (String, Map<String, Value>);

fn changed_files(model: &LocalModel<'_>, store: &Utf8Path) -> Result<Vec<Changed>, InstallError> {
    let id = model.id.to_string();
    let version = Value::from(model.version.to_string());
    let mut sidecar = read_object(&store.join(sidecar_name(model.id)))?;
    sidecar.entry("name").or_insert_with(|| id.trim_start_matches("local-").into());
    sidecar.entry("series").or_insert_with(|| SERIES.into());
    sidecar.insert("version".to_owned(), version.clone());
    sidecar.insert("uses_external_gpu".to_owned(), model.uses_external_gpu.into());
    let mut versions = read_object(&store.join(VERSIONS))?;
    versions.insert(id.clone(), version);
    let mut artifacts = read_object(&store.join(ARTIFACTS))?;
    let entry = json!({"artifact_format": ARTIFACT_FORMAT, "artifact_size": model.written.size,
        "artifact_sha256": model.written.sha256, "artifact_url": "", "uses_external_gpu": model.uses_external_gpu});
    artifacts.insert(id, entry);
    Ok(vec![
        (sidecar_name(model.id), sidecar),
        (VERSIONS.to_owned(), versions),
        (ARTIFACTS.to_owned(), artifacts),
    ])
}

#[cfg(test)]
mod tests {
    use durable_fs::write_atomic;

    use super::*;

    #[test]
    fn an_installation_keeps_what_others_wrote() {
        let guard = tempfile::tempdir().unwrap();
        let dir = Utf8Path::from_path(guard.path()).unwrap();
        let store = dir.join("store");
        let id = ModelId::new("local-mine").unwrap();
        let written = write_atomic(dir.join("made.pkl"), b"artifact").unwrap();
        let made = dir.join("made.pkl");
        let version = "v12".parse().unwrap();
        let model = LocalModel { id: &id, artifact: &made, written, version, uses_external_gpu: false };
        assert!(matches!(install(&model, &store), Err(InstallError::NoStore { .. })));
        std::fs::create_dir(&store).unwrap();
        write_atomic(store.join(VERSIONS), br#"{"rdf2": "v15"}"#).unwrap();
        write_atomic(store.join("local-mine.json"), br#"{"name": "My own", "note": 1, "version": "v11"}"#)
            .unwrap();
        write_atomic(store.join("local-mine_driving_tinygrad.pkl"), b"older").unwrap();
        assert_eq!(sidecar_version(&store, &id).unwrap().unwrap().number(), 11);
        let installed = install(&model, &store).unwrap();
        assert_eq!(std::fs::read(installed).unwrap(), b"artifact");
        let read = |name: &str| -> Value {
            serde_json::from_slice(&std::fs::read(store.join(name)).unwrap()).unwrap()
        };
        assert_eq!(read(VERSIONS), json!({"rdf2": "v15", "local-mine": "v12"}));
        assert_eq!(
            read("local-mine.json"),
            json!({"name": "My own", "note": 1, "version": "v12", "series": "Local", "uses_external_gpu": false})
        );
        assert_eq!(read(ARTIFACTS)["local-mine"]["artifact_size"], 8);
        assert_eq!(
            durable_fs::list_dir(&store).unwrap(),
            [ARTIFACTS, VERSIONS, LOCK, "local-mine.json", "local-mine_driving_tinygrad.pkl"]
        );
    }

    #[test]
    fn a_damaged_cache_is_not_overwritten() {
        let guard = tempfile::tempdir().unwrap();
        let store = Utf8Path::from_path(guard.path()).unwrap();
        let id = ModelId::new("local-mine").unwrap();
        let written = write_atomic(store.join("made.pkl"), b"artifact").unwrap();
        let made = store.join("made.pkl");
        write_atomic(store.join(ARTIFACTS), b"{").unwrap();
        let version = "v12".parse().unwrap();
        let model = LocalModel { id: &id, artifact: &made, written, version, uses_external_gpu: false };
        assert!(matches!(install(&model, store), Err(InstallError::Malformed { .. })));
        assert!(
            !store.join("local-mine.json").exists()
                && !store.join("local-mine_driving_tinygrad.pkl").exists()
        );
    }
}
