//! The checks of a release that a person makes, and the answers.
//!
//! Answers belong to one manifest, byte for byte: another one is another release, and everything is asked again.

use std::collections::BTreeMap;

use camino::Utf8PathBuf;
use durable_fs::{FsError, hash_file, write_json};
use model_catalog::{ManifestVersion, Sha256Digest};
use rebuild_workspace::{Workspace, WorkspaceError};
use serde::{Deserialize, Serialize};

/// A record is some kilobytes.
const MAX_RECORD: u64 = 1 << 20;

/// Where something is tried: key and name.
const PLACES: [(&str, &str); 3] = [
    ("device-large", "device UI, large screen (comma three and 3X)"),
    ("device-small", "device UI, small screen (comma four)"),
    ("galaxy", "Galaxy, in a browser"),
];

/// What is tried: key, what to do, what must be seen.
const ACTIONS: [(&str, &str, &str); 6] = [
    (
        "download",
        "Download a model that is not installed, one whole and one in parts.",
        "Progress moves, it ends without an error, and the model is listed as installed.",
    ),
    (
        "select",
        "Select the downloaded model, start the car or the demo route.",
        "Its name is shown as the current one, the path appears, nothing says that a model is missing.",
    ),
    (
        "delete",
        "Delete a model that is not selected; then try to delete the selected one.",
        "The first is gone from the list and from the disk; the selected one and the built-in one stay.",
    ),
    (
        "randomise",
        "Switch the randomiser on, blacklist one model, start three drives.",
        "Each drive has another installed model, never the blacklisted one.",
    ),
    (
        "migrate",
        "On a device with the previous manifest and a selected model, let it fetch this one.",
        "Old artifacts are gone, the selected model is downloaded under its new ID and selected; local models are untouched.",
    ),
    (
        "fallback",
        "Select a model, rename its file in /data/models, start the car or the demo route.",
        "The built-in model drives within seconds, and the interface says so.",
    ),
];

/// One check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ChecklistItem {
    /// A stable key, such as `galaxy/download`.
    pub key: String,
    /// Where it is tried.
    pub place: &'static str,
    /// What to do.
    pub todo: &'static str,
    /// What must be seen.
    pub expect: &'static str,
}

/// Every check, place by place.
pub fn checklist() -> Vec<ChecklistItem> {
    let item = |(place_key, place): (&str, &'static str)| {
        ACTIONS.map(|(action, todo, expect)| ChecklistItem {
            key: format!("{place_key}/{action}"),
            place,
            todo,
            expect,
        })
    };
    PLACES.into_iter().flat_map(item).collect()
}

/// What a person says of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// What must be seen was seen.
    Pass,
    /// It was not.
    Fail,
}

/// An answer as it is recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedAnswer {
    /// The answer.
    pub answer: Answer,
    /// What the person adds.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// Who answered.
    #[serde(default)]
    pub by: String,
    /// When, RFC 3339 in UTC.
    #[serde(default)]
    pub at: String,
}

/// The answers about one manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChecklistRecord {
    /// The manifest's version.
    pub manifest_version: ManifestVersion,
    /// SHA-256 of the manifest that was checked.
    pub manifest_sha256: Sha256Digest,
    /// Answers by key.
    pub answers: BTreeMap<String, RecordedAnswer>,
}

/// Where a checklist stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ChecklistState {
    /// Keys with the answer `pass`.
    pub passed: Vec<String>,
    /// Keys with the answer `fail`.
    pub failed: Vec<String>,
    /// Keys without an answer.
    pub open: Vec<String>,
}

impl ChecklistRecord {
    /// Where the answers of a release are.
    pub fn file(workspace: &Workspace, version: ManifestVersion) -> Utf8PathBuf {
        workspace.results_dir().join(format!("release_checklist_{version}.json"))
    }

    /// The answers about the manifest as it is now; also whether answers about another manifest were there.
    ///
    /// # Errors
    /// [`WorkspaceError::Fs`] where the manifest is absent or the record cannot be read.
    pub fn load(workspace: &Workspace, version: ManifestVersion) -> Result<(Self, bool), WorkspaceError> {
        let manifest = workspace.manifest_file(version);
        let (manifest_sha256, _) = hash_file(&manifest, &durable_fs::NoProgress)?;
        let empty = Self { manifest_version: version, manifest_sha256, answers: BTreeMap::new() };
        let path = Self::file(workspace, version);
        let size = match std::fs::metadata(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok((empty, false)),
            found => found.map_err(FsError::io("look at the record", &path))?.len(),
        };
        if size > MAX_RECORD {
            return Err(WorkspaceError::RecordTooLarge { path, size, limit: MAX_RECORD });
        }
        let text = std::fs::read(&path).map_err(FsError::io("read the record", &path))?;
        let record: Self = serde_json::from_slice(&text).map_err(|source| FsError::Json { path, source })?;
        if record.manifest_sha256 == manifest_sha256 {
            Ok((record, false))
        } else {
            Ok((empty, !record.answers.is_empty()))
        }
    }

    /// Records the answers.
    ///
    /// # Errors
    /// [`WorkspaceError::Fs`] where they cannot be written.
    pub fn save(&self, workspace: &Workspace) -> Result<(), WorkspaceError> {
        write_json(Self::file(workspace, self.manifest_version), self)?;
        Ok(())
    }

    /// Where the checklist stands.
    pub fn state(&self) -> ChecklistState {
        let mut state = ChecklistState { passed: Vec::new(), failed: Vec::new(), open: Vec::new() };
        for item in checklist() {
            let list = match self.answers.get(&item.key).map(|recorded| recorded.answer) {
                Some(Answer::Pass) => &mut state.passed,
                Some(Answer::Fail) => &mut state.failed,
                None => &mut state.open,
            };
            list.push(item.key);
        }
        state
    }
}

#[cfg(test)]
mod tests {
    use camino::Utf8Path;
    use rebuild_workspace::InitOptions;

    use super::*;

    fn answer(answer: Answer) -> RecordedAnswer {
        RecordedAnswer {
            answer,
            note: String::new(),
            by: "me".to_owned(),
            at: "2026-01-01T00:00:00Z".to_owned(),
        }
    }

    #[test]
    fn every_place_has_every_action_once() {
        let items = checklist();
        let keys: std::collections::BTreeSet<_> = items.iter().map(|item| item.key.clone()).collect();
        assert_eq!((items.len(), keys.len()), (18, 18));
        assert!(keys.contains("galaxy/fallback") && keys.contains("device-small/migrate"));
    }

    #[test]
    fn answers_are_those_of_one_manifest() {
        let dir = tempfile::tempdir().unwrap();
        let root = Utf8Path::from_path(dir.path()).unwrap().join("ws");
        let (workspace, _) = Workspace::init(&root, &InitOptions::default()).unwrap();
        let version: ManifestVersion = "v23".parse().unwrap();
        assert!(
            ChecklistRecord::load(&workspace, version).is_err(),
            "there is nothing to check without a manifest"
        );
        durable_fs::write_atomic(workspace.manifest_file(version), b"{\"models\": []}").unwrap();
        let (mut record, stale) = ChecklistRecord::load(&workspace, version).unwrap();
        assert!(!stale && record.state().open.len() == 18);
        record.answers.insert("galaxy/select".to_owned(), answer(Answer::Pass));
        record.answers.insert("galaxy/delete".to_owned(), answer(Answer::Fail));
        record.save(&workspace).unwrap();
        let (again, stale) = ChecklistRecord::load(&workspace, version).unwrap();
        assert!(!stale);
        let state = again.state();
        assert_eq!((state.passed.len(), state.failed.len(), state.open.len()), (1, 1, 16));
        durable_fs::write_atomic(workspace.manifest_file(version), b"{\"models\": [] }").unwrap();
        let (other, stale) = ChecklistRecord::load(&workspace, version).unwrap();
        assert!(stale && other.answers.is_empty());
    }
}
