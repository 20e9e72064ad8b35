//! Making a workspace.

use std::fs;

use camino::{Utf8Path, Utf8PathBuf};
use durable_fs::{FsError, write_atomic};
use model_catalog::{SourceMap, Target};

use crate::{CONFIG_NAME, EMBEDDED_SOURCE_MAPS, Workspace, WorkspaceError};

/// What a new workspace is made with.
#[derive(Debug, Clone, Default)]
pub struct InitOptions {
    /// Go on although no disk is mounted where the path says.
    pub create: bool,
    /// Source maps to use instead of the built-in ones.
    pub source_maps: Vec<Utf8PathBuf>,
    /// The device to write into a new `rebuild.toml`.
    pub device: Option<String>,
    /// The target to write into a new `rebuild.toml`.
    pub target: Option<Target>,
}

/// What `init` did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InitReport {
    /// Files and folders that were made.
    pub made: Vec<Utf8PathBuf>,
    /// Files that were there with other content than a new workspace has; they were kept.
    pub kept: Vec<Utf8PathBuf>,
}

impl Workspace {
    /// Makes a workspace, or completes one: nothing that exists is changed.
    ///
    /// # Errors
    /// [`WorkspaceError::NotMounted`] where the path names a disk that is not there, [`WorkspaceError::SourceMap`] for a
    /// source map that is not valid, [`WorkspaceError::Fs`] where the directory cannot be written.
    pub fn init(path: &Utf8Path, options: &InitOptions) -> Result<(Self, InitReport), WorkspaceError> {
        let workspace = Self::at(path)?;
        if !options.create {
            workspace.check_mounted()?;
        }
        // Everything that can be refused is looked at before the first folder is made.
        let maps = wanted_maps(&options.source_maps)?;
        let mut report = InitReport { made: workspace.make_folders()?, ..InitReport::default() };
        for (name, text) in maps {
            place(&workspace.source_maps_dir().join(name), &text, &mut report)?;
        }
        let config = workspace.root().join(CONFIG_NAME);
        if !config.exists() {
            place(&config, &new_config(options), &mut report)?;
        }
        Ok((workspace, report))
    }
}

fn wanted_maps(given: &[Utf8PathBuf]) -> Result<Vec<(String, String)>, WorkspaceError> {
    if given.is_empty() {
        let embedded = EMBEDDED_SOURCE_MAPS.iter();
        return Ok(embedded.map(|&(name, text)| (name.to_owned(), text.to_owned())).collect());
    }
    let read = |path: &Utf8PathBuf| {
        let text = fs::read_to_string(path).map_err(FsError::io("read the source map", path))?;
        SourceMap::from_json(&text)
            .map_err(|source| WorkspaceError::SourceMap { path: path.clone(), source })?;
        Ok((path.file_name().unwrap_or("source_map.json").to_owned(), text))
    };
    given.iter().map(read).collect()
}

fn place(path: &Utf8Path, text: &str, report: &mut InitReport) -> Result<(), FsError> {
    match fs::read(path) {
        Ok(found) if found == text.as_bytes() => {}
        Ok(_) => report.kept.push(path.to_owned()),
        Err(_) => {
            write_atomic(path, text.as_bytes())?;
            report.made.push(path.to_owned());
        }
    }
    Ok(())
}

fn new_config(options: &InitOptions) -> String {
    let line = |key: &str, value: Option<&str>, default: &str| match value {
        Some(value) => format!("{key} = {}\n", toml::Value::String(value.to_owned())),
        None => format!("# {key} = \"{default}\"\n"),
    };
    let mut text =
        String::from("# What does not change from one command to the next. Command-line options win.\n\n");
    text += "# Where artifacts are compiled: the supported device, or \"local\" for this machine.\n";
    text += &line("device", options.device.as_deref(), "comma@192.168.3.109");
    text += "# What they are compiled for: qcom, external-gpu or cpu.\n";
    text += &line("target", options.target.map(Target::as_str), "qcom");
    text += "# The openpilot clone that sources are extracted from.\n# openpilot = \"~/openpilot\"\n";
    text += "# Artifacts over this size are uploaded in parts; 100 is the most a repository takes.\n# part_limit_mib = 100\n";
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn temporary() -> (tempfile::TempDir, Utf8PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let root = Utf8PathBuf::from_path_buf(dir.path().join("ws")).unwrap();
        (dir, root)
    }

    #[test]
    fn a_second_init_changes_nothing_and_keeps_edits() {
        let (_dir, root) = temporary();
        let (workspace, first) = Workspace::init(&root, &InitOptions::default()).unwrap();
        assert_eq!(first.made.len(), 8 + 2 + 1);
        let map = workspace.source_maps_dir().join("model_source_map_v23.json");
        write_atomic(&map, b"{}\n").unwrap();
        let (_, second) = Workspace::init(&root, &InitOptions::default()).unwrap();
        assert_eq!(second, InitReport { made: Vec::new(), kept: vec![map.clone()] });
        assert_eq!(fs::read_to_string(map).unwrap(), "{}\n");
    }

    #[test]
    fn a_new_configuration_says_what_was_asked_for() {
        let (_dir, root) = temporary();
        let options = InitOptions {
            device: Some("local".to_owned()),
            target: Some(Target::Cpu),
            ..InitOptions::default()
        };
        let (workspace, _) = Workspace::init(&root, &options).unwrap();
        let config = workspace.config().unwrap();
        assert_eq!((config.device.as_deref(), config.target), (Some("local"), Some(Target::Cpu)));
    }

    #[test]
    fn an_absent_disk_is_refused_before_anything_is_made() {
        let path = Utf8Path::new("/Volumes/no-such-disk/ws");
        let refused = Workspace::init(path, &InitOptions::default()).unwrap_err();
        assert!(refused.to_string().contains("--create"), "{refused}");
        assert!(!path.exists());
    }

    #[test]
    fn a_bad_source_map_is_refused_before_anything_is_made() {
        let (dir, root) = temporary();
        let map = Utf8PathBuf::from_path_buf(dir.path().join("map.json")).unwrap();
        write_atomic(&map, br#"{"a b": {"ref": "x", "input_format": "split"}}"#).unwrap();
        let options = InitOptions { source_maps: vec![map], ..InitOptions::default() };
        assert!(Workspace::init(&root, &options).unwrap_err().to_string().contains("a b"));
        assert!(!root.exists());
    }
}
