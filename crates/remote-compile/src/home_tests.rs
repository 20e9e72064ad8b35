use durable_fs::{NoProgress, write_atomic};
use rebuild_workspace::{ArtifactStatus, InitOptions};

use super::*;

struct Case {
    _dir: tempfile::TempDir,
    workspace: Workspace,
    record: ArtifactRecord,
}

fn case(size: usize) -> Case {
    let dir = tempfile::tempdir().unwrap();
    let root = Utf8Path::from_path(dir.path()).unwrap().join("ws");
    let (workspace, _) = Workspace::init(&root, &InitOptions::default()).unwrap();
    let id = ModelId::new("m").unwrap();
    let path = workspace.compiled_file(&id);
    let bytes: Vec<u8> = (0..size).map(|i| (i % 251) as u8).collect();
    let written = write_atomic(&path, &bytes).unwrap();
    let record = ArtifactRecord {
        id,
        status: ArtifactStatus::Compiled,
        path,
        size: written.size,
        sha256: written.sha256,
        multipart: false,
        release_id: None,
        target: None,
        fingerprint: None,
        modified_ns: None,
        extra: serde_json::Map::new(),
    };
    Case { _dir: dir, workspace, record }
}

impl Case {
    fn make_ready(&mut self, rule: PartRule) -> Ready {
        let expected = Expected::exactly(self.record.size, self.record.sha256);
        let ready = make_ready(&self.workspace, &self.record.id, expected, rule, &NoProgress).unwrap();
        self.record.multipart = !ready.parts.is_empty();
        assert!(is_ready(&self.workspace, &self.record, rule).unwrap());
        ready
    }

    fn listing(&self) -> Vec<String> {
        durable_fs::list_dir(&self.workspace.ready_dir()).unwrap()
    }
}

fn rule(limit_mib: u64) -> PartRule {
    PartRule::new(PartLimit::from_mib(limit_mib).unwrap())
}

#[test]
fn parts_stand_instead_of_the_whole_and_the_whole_instead_of_parts() {
    let mut case = case((2 << 20) + 5);
    assert!(!is_ready(&case.workspace, &case.record, rule(100)).unwrap());
    assert!(case.make_ready(rule(100)).parts.is_empty());
    assert_eq!(case.listing(), ["m_driving_tinygrad.pkl", "multipart.json"]);
    assert!(!is_ready(&case.workspace, &case.record, rule(1)).unwrap());
    let ready = case.make_ready(rule(1));
    assert_eq!(ready.parts.len(), 3);
    assert_eq!(
        case.listing(),
        [
            "m_driving_tinygrad.pkl.p00",
            "m_driving_tinygrad.pkl.p01",
            "m_driving_tinygrad.pkl.p02",
            "m_driving_tinygrad.pkl.sha256",
            "multipart.json"
        ]
    );
    let list = MultipartList::load(&case.workspace).unwrap();
    assert_eq!((list.entries.len(), &list.entries[0].parts), (1, &ready.parts));
    case.make_ready(rule(100));
    assert_eq!(case.listing(), ["m_driving_tinygrad.pkl", "multipart.json"]);
    assert!(MultipartList::load(&case.workspace).unwrap().entries.is_empty());
}

#[test]
fn a_set_with_a_gap_is_not_ready() {
    let mut case = case((2 << 20) + 5);
    case.make_ready(rule(1));
    fs::remove_file(case.workspace.ready_dir().join("m_driving_tinygrad.pkl.p01")).unwrap();
    assert!(!is_ready(&case.workspace, &case.record, rule(1)).unwrap());
}

#[test]
fn an_artifact_that_is_not_the_recorded_one_does_not_get_ready() {
    let case = case(100);
    let expected = Expected::exactly(100, model_catalog::Sha256Digest::from_bytes([0; 32]));
    make_ready(&case.workspace, &case.record.id, expected, rule(1), &NoProgress).unwrap_err();
    assert!(case.listing().is_empty());
}

#[test]
fn what_is_withdrawn_leaves_nothing_in_either_form() {
    let mut case = case((2 << 20) + 5);
    for limit in [1, 100] {
        case.make_ready(rule(limit));
        withdraw(&case.workspace, &case.record.id).unwrap();
        assert!(!is_ready(&case.workspace, &case.record, rule(limit)).unwrap());
        let left = case
            .workspace
            .ready_dir()
            .read_dir_utf8()
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_owned());
        assert!(left.into_iter().all(|name| !name.starts_with("m_")));
        assert!(MultipartList::load(&case.workspace).unwrap().entries.is_empty());
    }
    withdraw(&case.workspace, &case.record.id).unwrap();
}
