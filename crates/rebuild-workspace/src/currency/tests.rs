use std::fs;

use durable_fs::{NoProgress, write_atomic};
use model_catalog::{Component, ImageHistoryPipeline, InputFormat, ModelId, RelPath, Target};
use serde_json::Map;

use super::*;
use crate::{ArtifactStatus, InitOptions, SourceFile};

struct Case {
    _dir: tempfile::TempDir,
    workspace: Workspace,
    sources: SourceRecord,
    record: ArtifactRecord,
    wanted: Fingerprint,
}

fn id() -> ModelId {
    ModelId::new("m").unwrap()
}

fn case() -> Case {
    let dir = tempfile::tempdir().unwrap();
    let root = Utf8Path::from_path(dir.path()).unwrap().join("ws");
    let (workspace, _) = Workspace::init(&root, &InitOptions::default()).unwrap();
    let source = workspace.source_dir(&id()).join("m_driving_supercombo.onnx");
    fs::create_dir_all(workspace.source_dir(&id())).unwrap();
    let written = write_atomic(&source, b"onnx").unwrap();
    let sources = SourceRecord {
        id: id(),
        git_ref: "abc".to_owned(),
        input_format: InputFormat::Supercombo,
        uses_external_gpu: false,
        commit: None,
        files: vec![SourceFile {
            component: Component::Supercombo,
            git_path: RelPath::new("selfdrive/modeld/models/driving_supercombo.onnx").unwrap(),
            size: written.size,
            sha256: written.sha256,
            modified_ns: Stamp::of(&source).unwrap().map(|stamp| stamp.modified_ns),
            path: source,
            extra: Map::new(),
        }],
        extra: Map::new(),
    };
    let wanted = Fingerprint::of_sources(&sources, None, ImageHistoryPipeline::Policy, Target::Cpu);
    let path = workspace.compiled_file(&id());
    let written = write_atomic(&path, b"artifact").unwrap();
    let record = ArtifactRecord {
        id: id(),
        status: ArtifactStatus::Compiled,
        size: written.size,
        sha256: written.sha256,
        multipart: false,
        release_id: None,
        target: Some(Target::Cpu),
        fingerprint: Some(wanted.clone()),
        modified_ns: Stamp::of(&path).unwrap().map(|stamp| stamp.modified_ns),
        path,
        extra: Map::new(),
    };
    Case { _dir: dir, workspace, sources, record, wanted }
}

impl Case {
    fn state(&self) -> ArtifactState {
        artifact_state(&self.workspace, &id(), Some(&self.record), &self.wanted, &NoProgress).unwrap()
    }

    fn artifact(&self) -> Utf8PathBuf {
        self.workspace.compiled_file(self.record.artifact_id())
    }
}

fn reasons(state: ArtifactState) -> Vec<String> {
    match state {
        ArtifactState::Build(reasons) => reasons.iter().map(ToString::to_string).collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_untouched_artifact_is_current_without_hashing() {
    let mut case = case();
    // A wrong digest shows that nothing was hashed.
    case.record.sha256 = Sha256Digest::from_bytes([0; 32]);
    assert_eq!(case.state(), ArtifactState::Current { outdated: Vec::new(), restamp: None });
}

#[test]
fn a_touched_artifact_is_hashed_and_stamped_anew() {
    let mut case = case();
    case.record.modified_ns = Some(1);
    let ArtifactState::Current { restamp: Some(stamp), .. } = case.state() else { panic!("not current") };
    assert_eq!(Some(stamp), Stamp::of(&case.artifact()).unwrap());
    case.record.sha256 = Sha256Digest::from_bytes([0; 32]);
    assert_eq!(reasons(case.state()), ["the artifact is not the one that was recorded"]);
}

#[test]
fn truncated_empty_and_missing_artifacts_count_as_absent() {
    let case = case();
    write_atomic(case.artifact(), b"art").unwrap();
    assert_eq!(reasons(case.state()), ["the artifact has 3 bytes instead of 8"]);
    write_atomic(case.artifact(), b"").unwrap();
    assert_eq!(reasons(case.state()), ["the artifact has 0 bytes instead of 8"]);
    fs::remove_file(case.artifact()).unwrap();
    assert_eq!(reasons(case.state()), ["there is no artifact"]);
}

#[test]
fn a_changed_source_is_a_reason() {
    let mut case = case();
    case.wanted.sources.insert("driving_supercombo".to_owned(), Sha256Digest::from_bytes([7; 32]));
    assert_eq!(reasons(case.state()), ["source driving_supercombo changed"]);
}

#[test]
fn a_renamed_artifact_is_still_current() {
    let mut case = case();
    let released = ModelId::new("m3").unwrap();
    fs::rename(case.artifact(), case.workspace.compiled_file(&released)).unwrap();
    case.record.release_id = Some(released);
    assert_eq!(case.state(), ArtifactState::Current { outdated: Vec::new(), restamp: None });
}

#[test]
fn a_file_without_a_record_can_be_adopted_unless_it_is_empty() {
    let case = case();
    let state = || artifact_state(&case.workspace, &id(), None, &case.wanted, &NoProgress).unwrap();
    assert!(matches!(state(), ArtifactState::Unrecorded { .. }));
    write_atomic(case.artifact(), b"").unwrap();
    assert_eq!(state(), ArtifactState::Build(vec![BuildReason::Absent]));
}

fn entry(case: &Case) -> SourceEntry {
    SourceEntry {
        git_ref: case.sources.git_ref.clone(),
        input_format: case.sources.input_format,
        uses_external_gpu: false,
        extra: Map::new(),
    }
}

#[test]
fn sources_are_extracted_again_when_anything_about_them_changed() {
    let case = case();
    let state = |entry: &SourceEntry, commit| {
        source_state(&case.workspace, Some(&case.sources), entry, commit, &NoProgress).unwrap()
    };
    let same = entry(&case);
    assert_eq!(state(&same, None), SourceState::Current);
    assert_eq!(state(&same, Some("c1")), SourceState::Current);
    let other_ref = SourceEntry { git_ref: "def".to_owned(), ..same.clone() };
    assert_eq!(state(&other_ref, None), SourceState::Extract("the ref abc became def".to_owned()));
    let big = SourceEntry { uses_external_gpu: true, ..same.clone() };
    assert!(matches!(state(&big, None), SourceState::Extract(_)));
    let file = &case.sources.files[0].path;
    write_atomic(file, b"pointer").unwrap();
    let SourceState::Extract(why) = state(&same, None) else { panic!("current") };
    assert_eq!(why, "m_driving_supercombo.onnx has 7 bytes instead of 4");
    write_atomic(file, b"ONNX").unwrap();
    let SourceState::Extract(why) = state(&same, None) else { panic!("current") };
    assert!(why.contains("changed since"), "{why}");
    fs::remove_file(file).unwrap();
    let SourceState::Extract(why) = state(&same, None) else { panic!("current") };
    assert!(why.contains("missing"), "{why}");
}
