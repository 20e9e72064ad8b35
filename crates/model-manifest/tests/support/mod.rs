//! A workspace filled by hand, and everything in it as text.
#![allow(dead_code, clippy::allow_attributes, reason = "each test binary uses its own part of this")]

use std::{collections::BTreeMap, fs};

use artifact_parts::{ChunkSize, SplitRequest, split};
use camino::{Utf8Path, Utf8PathBuf};
use durable_fs::{Expected, NoProgress, Sha256, write_atomic};
use model_catalog::{Manifest, ManifestVersion, ModelId, ReleaseMap, SourceMap, Target};
use model_manifest::{
    Additions, BaseRequest, ManifestWorkError, NamespaceRequest, Plan, ReconcileRequest, Snapshot, plan_base,
    plan_namespace, plan_reconcile,
};
use rebuild_workspace::{
    ArtifactRecord, ArtifactStatus, EMBEDDED_RELEASE_MAP, InitOptions, MultipartEntry, MultipartList, Stamp,
    Workspace,
};

pub const V22: ManifestVersion = ManifestVersion::from_number(22);
pub const V23: ManifestVersion = ManifestVersion::from_number(23);

pub fn id(text: &str) -> ModelId {
    ModelId::new(text).unwrap()
}

pub fn pkl(id: &str) -> String {
    format!("{id}_driving_tinygrad.pkl")
}

pub struct Bench {
    _guard: Option<tempfile::TempDir>,
    pub workspace: Workspace,
    pub sources: SourceMap,
    pub releases: ReleaseMap,
}

impl Bench {
    pub fn new() -> Self {
        // Thousands of small synced files: in memory where the system has such a directory.
        let memory = std::path::Path::new("/dev/shm");
        let guard = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap();
        let root = Utf8Path::from_path(guard.path()).unwrap().join("ws");
        Workspace::init(&root, &InitOptions::default()).unwrap();
        Self { _guard: Some(guard), ..Self::at(&root) }
    }

    pub fn at(root: &Utf8Path) -> Self {
        let workspace = Workspace::open(root).unwrap();
        let releases = ReleaseMap::from_json(EMBEDDED_RELEASE_MAP).unwrap();
        Self { _guard: None, workspace, sources: SourceMap::default(), releases }
    }

    pub fn root(&self) -> &Utf8Path {
        self.workspace.root()
    }

    pub fn path(&self, relative: &str) -> Utf8PathBuf {
        self.root().join(relative)
    }

    pub fn put(&self, relative: &str, content: impl AsRef<[u8]>) {
        write_atomic(self.path(relative), content.as_ref()).unwrap();
    }

    pub fn read(&self, relative: &str) -> String {
        fs::read_to_string(self.path(relative)).unwrap_or_else(|error| panic!("{relative}: {error}"))
    }

    /// A compiled, recorded artifact; `chunk` splits it into the upload folder, otherwise it lies there whole.
    pub fn artifact(&self, id: &str, content: &str, chunk: Option<u64>) {
        self.put(&format!("compiled/{}", pkl(id)), content);
        self.ready(id, content, chunk);
        self.record(id, content, chunk.is_some());
    }

    pub fn ready(&self, id: &str, content: &str, chunk: Option<u64>) {
        let Some(chunk) = chunk else {
            self.put(&format!("ready-for-resources/{}", pkl(id)), content);
            return;
        };
        let source = self.path(&format!("whole-{id}"));
        write_atomic(&source, content.as_bytes()).unwrap();
        let name = pkl(id);
        let request = SplitRequest {
            source: &source,
            into: &self.workspace.ready_dir(),
            name: Some(&name),
            chunk: ChunkSize::from_bytes(chunk),
            expected: Expected::default(),
            part_digests: false,
        };
        let set = split(&request, &NoProgress).unwrap();
        fs::remove_file(&source).unwrap();
        let mut list = MultipartList::load(&self.workspace).unwrap();
        list.insert(MultipartEntry {
            id: self::id(id),
            filename: name,
            size: set.size,
            sha256: set.sha256,
            parts: set.parts.into_iter().map(|part| part.name).collect(),
            extra: serde_json::Map::new(),
        });
        list.save(&self.workspace).unwrap();
    }

    pub fn record(&self, id: &str, content: &str, multipart: bool) {
        let path = self.path(&format!("compiled/{}", pkl(id)));
        let mut extra = serde_json::Map::new();
        extra.insert("note".to_owned(), "kept".into());
        let record = ArtifactRecord {
            id: self::id(id),
            status: ArtifactStatus::Compiled,
            modified_ns: Stamp::of(&path).unwrap().map(|stamp| stamp.modified_ns),
            path,
            size: content.len() as u64,
            sha256: Sha256::digest(content.as_bytes()),
            multipart,
            release_id: None,
            target: Some(Target::Qcom),
            fingerprint: None,
            extra,
        };
        self.workspace.save(&record).unwrap();
    }

    pub fn artifact_record(&self, id: &str) -> ArtifactRecord {
        self.workspace.record(&self::id(id)).unwrap().unwrap()
    }

    pub fn snapshot(&self, version: ManifestVersion) -> Snapshot {
        Snapshot::take(&self.workspace, version, self.sources.clone(), &NoProgress).unwrap()
    }

    pub fn base(&self, base: &Manifest) -> Plan {
        let additions = Additions::embedded().unwrap();
        let request = BaseRequest { base, version: V22, additions: &additions };
        plan_base(&self.snapshot(V22), &request).unwrap()
    }

    pub fn try_namespace(
        &self,
        base: &Manifest,
        completed: Option<&[ModelId]>,
    ) -> Result<Plan, ManifestWorkError> {
        let additions = Additions::embedded().unwrap();
        let request = NamespaceRequest {
            base,
            version: V23,
            suffix: "3",
            completed,
            releases: &self.releases,
            additions: &additions,
        };
        plan_namespace(&self.snapshot(V23), &request)
    }

    pub fn namespace(&self, base: &Manifest) -> Plan {
        self.try_namespace(base, None).unwrap()
    }

    pub fn reconcile(&self) -> Plan {
        let additions = Additions::embedded().unwrap();
        let request = ReconcileRequest { version: V23, releases: &self.releases, additions: &additions };
        plan_reconcile(&self.snapshot(V23), &request).unwrap()
    }

    pub fn apply(&self, plan: &Plan) {
        plan.apply(&self.workspace).unwrap_or_else(|error| panic!("{error}\n{plan}"));
    }

    /// Every file with its content, but for the lock.
    pub fn files(&self) -> BTreeMap<String, String> {
        let mut found = BTreeMap::new();
        let mut open = vec![self.root().to_owned()];
        while let Some(dir) = open.pop() {
            for entry in dir.read_dir_utf8().unwrap() {
                let entry = entry.unwrap();
                if entry.file_type().unwrap().is_dir() {
                    open.push(entry.path().to_owned());
                } else if entry.file_name() != ".rebuild.lock" {
                    let name = entry.path().strip_prefix(self.root()).unwrap().to_string();
                    // The root differs between the workspaces that are compared.
                    let text =
                        fs::read_to_string(entry.path()).unwrap().replace(self.root().as_str(), "ROOT");
                    found.insert(name, without_times(&text));
                }
            }
        }
        found
    }

    /// The IDs in the names of a folder's artifacts, with their content.
    pub fn wholes(&self, folder: &str) -> BTreeMap<String, String> {
        let prefix = format!("{folder}/");
        let artifact = |(name, content): (String, String)| {
            let id = name.strip_prefix(&prefix)?.strip_suffix("_driving_tinygrad.pkl")?.to_owned();
            Some((id, content))
        };
        self.files().into_iter().filter_map(artifact).collect()
    }
}

/// Modification times are those of the run.
fn without_times(text: &str) -> String {
    text.lines().filter(|line| !line.contains("modified_ns")).map(|line| format!("{line}\n")).collect()
}

pub fn manifest(ids: &[&str]) -> Manifest {
    let entry =
        |id: &&str| format!(r#"{{"id": "{id}", "name": "Model {id} 👀", "version": "v11", "odd": [1]}}"#);
    let text = format!(r#"{{"models": [{}]}}"#, ids.iter().map(entry).collect::<Vec<_>>().join(","));
    Manifest::from_json(&text).unwrap()
}

pub fn listed(text: &str) -> Vec<String> {
    let manifest = Manifest::from_json(text).unwrap();
    manifest.models.iter().map(|entry| entry.id().to_string()).collect()
}

/// What a validation that passed leaves behind.
pub fn validated(bench: &Bench, id: &str) {
    let record = bench.artifact_record(id);
    let text = serde_json::json!({
        "id": id, "version": "v11", "model_type": "supercombo", "policy_order": [], "parsed_inputs": [],
        "output_sizes": {}, "output_shapes": {}, "missing": [], "non_finite": [], "has_control_output": true,
        "artifact_sha256": record.sha256, "passed": true,
    });
    bench.put(&format!("results/{id}_validation.json"), text.to_string());
}

/// Compares two workspaces file by file, so that a difference is seen.
pub fn assert_same(found: &BTreeMap<String, String>, expected: &BTreeMap<String, String>, when: &str) {
    let names = |files: &BTreeMap<String, String>| files.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(found), names(expected), "{when}");
    for (name, content) in found {
        assert_eq!(content, &expected[name], "{name}, {when}");
    }
}
