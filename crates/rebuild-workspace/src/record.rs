//! Reading and replacing records.

use std::{fs, io};

use camino::Utf8PathBuf;
use durable_fs::{FsError, list_dir, sync_dir, write_json};
use model_catalog::ModelId;
use serde::{Serialize, de::DeserializeOwned};

use crate::{Workspace, WorkspaceError};

/// A record is some kilobytes; what is larger than this is damaged and is not read into memory.
const MAX_RECORD: u64 = 8 << 20;

/// A record of one model, kept in `results/<id>_<KIND>.json` under the model's source ID.
pub trait Record: Serialize + DeserializeOwned {
    /// What stands between the ID and `.json`.
    const KIND: &'static str;

    /// The model, by source ID.
    fn id(&self) -> &ModelId;
}

impl Workspace {
    /// Where the record of kind `R` of a model is.
    pub fn record_file<R: Record>(&self, id: &ModelId) -> Utf8PathBuf {
        self.results_dir().join(format!("{id}_{}.json", R::KIND))
    }

    /// The record of kind `R` of a model; `None` where there is none.
    ///
    /// # Errors
    /// [`WorkspaceError::Fs`] where it cannot be read or is not valid, [`WorkspaceError::ForeignRecord`] where it is about
    /// another model.
    pub fn record<R: Record>(&self, id: &ModelId) -> Result<Option<R>, WorkspaceError> {
        let path = self.record_file::<R>(id);
        let size = match fs::metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            found => found.map_err(FsError::io("look at the record", &path))?.len(),
        };
        if size > MAX_RECORD {
            return Err(WorkspaceError::RecordTooLarge { path, size, limit: MAX_RECORD });
        }
        let text = fs::read(&path).map_err(FsError::io("read the record", &path))?;
        let record: R =
            serde_json::from_slice(&text).map_err(|source| FsError::Json { path: path.clone(), source })?;
        if record.id() == id {
            Ok(Some(record))
        } else {
            let found = record.id().clone();
            Err(WorkspaceError::ForeignRecord { path, expected: id.clone(), found })
        }
    }

    /// Replaces the record of its kind and model.
    ///
    /// # Errors
    /// [`WorkspaceError::Fs`] where it cannot be written; the old record then stands.
    pub fn save<R: Record>(&self, record: &R) -> Result<(), WorkspaceError> {
        write_json(self.record_file::<R>(record.id()), record)?;
        Ok(())
    }

    /// Removes the record of kind `R` of a model, where there is one.
    ///
    /// # Errors
    /// [`WorkspaceError::Fs`] where it cannot be removed.
    pub fn remove_record<R: Record>(&self, id: &ModelId) -> Result<(), WorkspaceError> {
        let path = self.record_file::<R>(id);
        match fs::remove_file(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            result => {
                result.map_err(FsError::io("remove the record", &path))?;
                let _ = sync_dir(&self.results_dir())?;
                Ok(())
            }
        }
    }

    /// The source IDs that have a record of kind `R`, sorted.
    ///
    /// # Errors
    /// [`WorkspaceError::Fs`] where `results/` cannot be listed.
    pub fn recorded<R: Record>(&self) -> Result<Vec<ModelId>, WorkspaceError> {
        let suffix = format!("_{}.json", R::KIND);
        let names = list_dir(&self.results_dir())?;
        Ok(names.iter().filter_map(|name| ModelId::new(name.strip_suffix(&suffix)?).ok()).collect())
    }
}
