//! Where everything lies in a workspace.

use std::fs;

use camino::{Utf8Path, Utf8PathBuf};
use durable_fs::{FileLock, FsError, sweep_temporaries};
use model_catalog::{ArtifactName, ManifestVersion, ModelId};

use crate::{
    Config, WorkspaceError,
    mount::{is_mount_point, missing_mount},
};

/// The configuration file of a workspace.
pub const CONFIG_NAME: &str = "rebuild.toml";

/// The folders of a workspace.
pub(crate) const FOLDERS: [&str; 8] = [
    "onnx",
    "compiled",
    "driver-monitoring",
    "ready-for-resources",
    "logs",
    "results",
    "manifests",
    "source-maps",
];

/// A workspace directory. Its path is absolute, so that records can carry it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workspace {
    root: Utf8PathBuf,
}

/// The exclusive right to change a workspace, held until dropped.
#[derive(Debug)]
pub struct WorkspaceLock {
    _lock: FileLock,
    swept: Vec<Utf8PathBuf>,
}

impl WorkspaceLock {
    /// Leftovers of earlier, killed commands that were removed when the lock was taken.
    pub fn swept(&self) -> &[Utf8PathBuf] {
        &self.swept
    }
}

impl Workspace {
    /// The workspace at `path`, whether it exists or not; nothing is touched.
    ///
    /// # Errors
    /// [`WorkspaceError::Path`] where the path cannot be made absolute.
    pub fn at(path: &Utf8Path) -> Result<Self, WorkspaceError> {
        let refused = |why: String| WorkspaceError::Path { path: path.to_owned(), why };
        let absolute = std::path::absolute(path).map_err(|error| refused(error.to_string()))?;
        let root = Utf8PathBuf::from_path_buf(absolute).map_err(|_| refused("it is not UTF-8".to_owned()))?;
        Ok(Self { root })
    }

    /// Opens an existing workspace.
    ///
    /// # Errors
    /// [`WorkspaceError::NotMounted`] or [`WorkspaceError::NotAWorkspace`] where it is not there.
    pub fn open(path: &Utf8Path) -> Result<Self, WorkspaceError> {
        let workspace = Self::at(path)?;
        if workspace.root.join(CONFIG_NAME).is_file() || workspace.results_dir().is_dir() {
            return Ok(workspace);
        }
        workspace.check_mounted()?;
        let why = match fs::metadata(&workspace.root) {
            Err(_) => "there is no such directory",
            Ok(found) if !found.is_dir() => "it is not a directory",
            Ok(_) => "it has neither rebuild.toml nor a folder results",
        };
        Err(WorkspaceError::NotAWorkspace { path: workspace.root, why })
    }

    pub(crate) fn check_mounted(&self) -> Result<(), WorkspaceError> {
        missing_mount(&self.root, is_mount_point).map_or(Ok(()), |mount_point| {
            Err(WorkspaceError::NotMounted { path: self.root.clone(), mount_point })
        })
    }

    /// Makes the folders that are missing and returns them.
    pub(crate) fn make_folders(&self) -> Result<Vec<Utf8PathBuf>, FsError> {
        let mut made = Vec::new();
        for folder in FOLDERS.map(|name| self.root.join(name)) {
            if !folder.is_dir() {
                fs::create_dir_all(&folder).map_err(FsError::io("create the folder", &folder))?;
                made.push(folder);
            }
        }
        Ok(made)
    }

    /// Takes the workspace for one command, makes missing folders and sweeps what killed commands left behind.
    ///
    /// # Errors
    /// [`WorkspaceError::Locked`] names the command that holds it; [`WorkspaceError::Fs`] where it cannot be written.
    pub fn lock(&self, purpose: &str) -> Result<WorkspaceLock, WorkspaceError> {
        let lock =
            FileLock::acquire(self.root.join(".rebuild.lock"), purpose).map_err(WorkspaceError::Locked)?;
        self.make_folders()?;
        let mut swept = sweep_temporaries(&self.root)?;
        for folder in FOLDERS {
            swept.extend(sweep_temporaries(&self.root.join(folder))?);
        }
        for sources in self.source_dirs()? {
            swept.extend(sweep_temporaries(&sources)?);
        }
        Ok(WorkspaceLock { _lock: lock, swept })
    }

    fn source_dirs(&self) -> Result<Vec<Utf8PathBuf>, FsError> {
        let onnx = self.root.join("onnx");
        let mut dirs = Vec::new();
        for entry in onnx.read_dir_utf8().map_err(FsError::io("list", &onnx))? {
            let entry = entry.map_err(FsError::io("list", &onnx))?;
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                dirs.push(entry.path().to_owned());
            }
        }
        dirs.sort();
        Ok(dirs)
    }

    /// The configuration; defaults where there is no file.
    ///
    /// # Errors
    /// [`WorkspaceError::UnknownKey`] and [`WorkspaceError::Config`] name the key.
    pub fn config(&self) -> Result<Config, WorkspaceError> {
        Config::load(&self.root.join(CONFIG_NAME))
    }

    /// The workspace directory.
    pub fn root(&self) -> &Utf8Path {
        &self.root
    }

    /// `onnx/<id>/`, the sources of a model.
    pub fn source_dir(&self, id: &ModelId) -> Utf8PathBuf {
        self.root.join("onnx").join(id.as_str())
    }

    /// `compiled/`.
    pub fn compiled_dir(&self) -> Utf8PathBuf {
        self.root.join("compiled")
    }

    /// `compiled/<id>_driving_tinygrad.pkl`.
    pub fn compiled_file(&self, id: &ModelId) -> Utf8PathBuf {
        self.compiled_dir().join(ArtifactName::new(id.clone()).to_string())
    }

    /// `driver-monitoring/`.
    pub fn driver_monitoring_dir(&self) -> Utf8PathBuf {
        self.root.join("driver-monitoring")
    }

    /// `ready-for-resources/`, the flat upload hand-off.
    pub fn ready_dir(&self) -> Utf8PathBuf {
        self.root.join("ready-for-resources")
    }

    /// `ready-for-resources/multipart.json`.
    pub fn multipart_file(&self) -> Utf8PathBuf {
        self.ready_dir().join("multipart.json")
    }

    /// `logs/`.
    pub fn logs_dir(&self) -> Utf8PathBuf {
        self.root.join("logs")
    }

    /// `logs/<id>.log`, the compilation log of a model.
    pub fn log_file(&self, id: &ModelId) -> Utf8PathBuf {
        self.logs_dir().join(format!("{id}.log"))
    }

    /// `results/`, the records.
    pub fn results_dir(&self) -> Utf8PathBuf {
        self.root.join("results")
    }

    /// `manifests/`.
    pub fn manifests_dir(&self) -> Utf8PathBuf {
        self.root.join("manifests")
    }

    /// `manifests/model_names_vN.json`.
    pub fn manifest_file(&self, version: ManifestVersion) -> Utf8PathBuf {
        self.manifests_dir().join(format!("model_names_{version}.json"))
    }

    /// `source-maps/`, the maps in use.
    pub fn source_maps_dir(&self) -> Utf8PathBuf {
        self.root.join("source-maps")
    }

    /// `source-maps/model_id_namespace_vN.json`, old ID to new ID.
    pub fn id_map_file(&self, version: ManifestVersion) -> Utf8PathBuf {
        self.source_maps_dir().join(format!("model_id_namespace_{version}.json"))
    }

    /// What is known to be on devices: jobs that were put there and not yet removed.
    pub fn device_jobs_file(&self) -> Utf8PathBuf {
        self.root.join(".device-jobs.json")
    }

    /// Where the local device keeps its jobs: on the workspace's own disk, so that large files stay off the system disk.
    pub fn local_jobs_dir(&self) -> Utf8PathBuf {
        self.root.join(".jobs")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::InitOptions;

    #[test]
    fn a_second_command_is_told_who_holds_the_workspace() {
        let dir = tempfile::tempdir().unwrap();
        let root = Utf8Path::from_path(dir.path()).unwrap().join("ws");
        let (workspace, _) = Workspace::init(&root, &InitOptions::default()).unwrap();
        let held = workspace.lock("rebuild extract").unwrap();
        let refused = workspace.lock("rebuild compile").unwrap_err();
        assert!(refused.to_string().contains("rebuild extract (process"), "{refused}");
        drop(held);
        workspace.lock("rebuild compile").unwrap();
    }

    #[test]
    fn leftovers_of_killed_commands_are_swept() {
        let dir = tempfile::tempdir().unwrap();
        let root = Utf8Path::from_path(dir.path()).unwrap().join("ws");
        let (workspace, _) = Workspace::init(&root, &InitOptions::default()).unwrap();
        let sources = workspace.source_dir(&ModelId::new("m").unwrap());
        fs::create_dir_all(&sources).unwrap();
        // No process has this ID: the largest that Linux gives out is 4194304.
        for folder in [&sources, &workspace.compiled_dir()] {
            durable_fs::write_atomic(folder.join(".writing-2000000000-x"), b"half").unwrap();
        }
        assert_eq!(workspace.lock("test").unwrap().swept().len(), 2);
        assert!(!sources.join(".writing-2000000000-x").exists());
    }

    #[test]
    fn what_is_no_workspace_is_said_so() {
        let dir = tempfile::tempdir().unwrap();
        let root = Utf8Path::from_path(dir.path()).unwrap();
        let refused = Workspace::open(root).unwrap_err().to_string();
        assert!(refused.contains("neither rebuild.toml") && refused.contains("rebuild init"), "{refused}");
        let refused = Workspace::open(&root.join("absent")).unwrap_err().to_string();
        assert!(refused.contains("no such directory"), "{refused}");
        let refused = Workspace::open(Utf8Path::new("/Volumes/no-such-disk/ws")).unwrap_err();
        assert!(matches!(refused, WorkspaceError::NotMounted { .. }), "{refused}");
    }
}
