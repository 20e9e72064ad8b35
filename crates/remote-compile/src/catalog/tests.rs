use std::{
    collections::{BTreeMap, HashMap},
    fs,
    sync::Mutex,
};

use camino::Utf8Path;
use durable_fs::{Expected, NoProgress, Sha256, Written, write_atomic};
use model_catalog::{Component, InputFormat, RelPath};
use rebuild_workspace::{
    ArtifactRecord, ArtifactStatus, BuildRecord, FailureRecord, InitOptions, SourceFile, Stage, Stamp,
};
use serde_json::{Map, json};
use tinygrad_compile::job::{JobKind, JobRequest, REQUEST_FILE};

use super::*;
use crate::device::{DeviceFacts, JobName, JobState, JobView, Reservation};

type Files = BTreeMap<String, Vec<u8>>;

/// A device in memory. Its "compiler" makes an artifact of the request's digest, as long as `size`.
#[derive(Default)]
struct Fake {
    jobs: Mutex<HashMap<JobName, Files>>,
    asked: Mutex<Vec<String>>,
    broken: Vec<&'static str>,
    unreachable_get: Mutex<bool>,
    size: usize,
    /// The most jobs that were there at once.
    most: Mutex<usize>,
    /// Set when a job is started, as Ctrl-C would.
    stop_at_start: Option<std::sync::Arc<AtomicBool>>,
    /// Where a directory is made when a job is removed: nothing may be there then.
    blocks: Option<camino::Utf8PathBuf>,
    /// Bytes that are free there; without a number it has room for anything.
    free: Option<u64>,
    /// Whether it tells of an artifact before it is proven, and what it then holds: the artifact, or another one.
    tells: Option<Told>,
    /// The device's paths of the artifacts that were moved.
    moved: Mutex<Vec<String>>,
}

#[derive(Clone, Copy, PartialEq)]
enum Told {
    TheArtifact,
    Another,
}

const UNPROVEN: &str = "output/.compiling-7-x/artifact.pkl";

struct Free;
impl Reservation for Free {}

impl Fake {
    fn note(&self, what: &str, job: &JobName) {
        self.asked.lock().unwrap().push(format!("{what} {}", job.model()));
    }

    fn starts(&self) -> usize {
        self.asked.lock().unwrap().iter().filter(|what| what.starts_with("start")).count()
    }

    fn is_empty(&self) -> bool {
        self.jobs.lock().unwrap().is_empty()
    }

    fn work(&self, job: &JobName, files: &mut Files) {
        let request: JobRequest = serde_json::from_slice(&files[REQUEST_FILE]).unwrap();
        let JobKind::Compile(compile) = request.kind else { panic!("not a compile job") };
        for source in &compile.sources {
            assert_eq!(Sha256::digest(&files[&format!("input/{}", source.file)]), source.sha256);
        }
        files.insert("log.txt".to_owned(), format!("compiling {}\n", compile.id).into_bytes());
        let mut bytes = Sha256::digest(&files[REQUEST_FILE]).to_string().into_bytes();
        bytes.resize(self.size.max(64), b'.');
        if let Some(told) = self.tells {
            let unproven = if told == Told::TheArtifact { bytes.clone() } else { b"another".to_vec() };
            let event = json!({"event": "written", "file": UNPROVEN, "size": unproven.len(),
                "sha256": Sha256::digest(&unproven)});
            files.insert("events.jsonl".to_owned(), format!("{event}\n").into_bytes());
            files.insert(UNPROVEN.to_owned(), unproven);
        }
        let result = if self.broken.contains(&job.model().as_str()) {
            json!({"protocol": 1, "kind": "compile", "status": "failed", "error":
                {"kind": "non_finite", "message": "output plan is not finite", "hint": "see the log"}})
        } else {
            let artifact = json!({"file": format!("{}_driving_tinygrad.pkl", compile.id), "size": bytes.len(),
                "sha256": Sha256::digest(&bytes)});
            files.insert(format!("output/{}_driving_tinygrad.pkl", compile.id), bytes);
            json!({"protocol": 1, "kind": "compile", "status": "ok", "artifact": artifact, "build": {
                "format": 1, "id": compile.id, "target": compile.target, "model_type": "supercombo",
                "behavior_version": compile.version, "image_history_pipeline": "policy", "frame_skip": 4,
                "sources": [], "tool": {"version": "0.1.0", "toolchain": "embedded",
                "driver_sha256": tinygrad_compile::driver::embedded::digest()},
                "tinygrad": {"version": "0.14.0", "python": "3.11", "interpreter": "/python"},
                "devices": {}, "kernels": {}, "environment": {}, "seconds": {"compile": 2.0, "prove": 1.0},
                "proof": {"seeds": [42, 43], "tolerance": 0.0, "checks": []}, "artifact": artifact}})
        };
        files.insert("result.json".to_owned(), serde_json::to_vec(&result).unwrap());
    }
}

impl Device for Fake {
    fn name(&self) -> &str {
        "fake"
    }
    fn probe(&self) -> Result<DeviceFacts, DeviceError> {
        Ok(DeviceFacts { free_bytes: self.free.unwrap_or(u64::MAX), ..DeviceFacts::default() })
    }
    fn reserve(&self, _purpose: &str) -> Result<Box<dyn Reservation + '_>, DeviceError> {
        Ok(Box::new(Free))
    }
    fn jobs_are_own(&self) -> bool {
        true
    }
    fn jobs(&self) -> Result<Vec<JobName>, DeviceError> {
        Ok(self.jobs.lock().unwrap().keys().cloned().collect())
    }
    fn put(
        &self,
        job: &JobName,
        from: &Utf8Path,
        to: &RelPath,
        expected: Expected,
        _progress: &dyn Progress,
    ) -> Result<(), DeviceError> {
        let bytes = fs::read(from).unwrap();
        expected.check(from, bytes.len() as u64, Sha256::digest(&bytes))?;
        self.put_bytes(job, &bytes, to)
    }
    fn put_bytes(&self, job: &JobName, bytes: &[u8], to: &RelPath) -> Result<(), DeviceError> {
        let mut jobs = self.jobs.lock().unwrap();
        jobs.entry(job.clone()).or_default().insert(to.to_string(), bytes.to_vec());
        let mut most = self.most.lock().unwrap();
        *most = jobs.len().max(*most);
        Ok(())
    }
    fn get(
        &self,
        job: &JobName,
        from: &RelPath,
        to: &Utf8Path,
        expected: Expected,
        _progress: &dyn Progress,
    ) -> Result<Written, DeviceError> {
        if from.as_str().ends_with(".pkl") && *self.unreachable_get.lock().unwrap() {
            return Err(DeviceError::Unreachable {
                device: "fake".to_owned(),
                why: "cable pulled".to_owned(),
            });
        }
        if let (Ok(here), Some(sha256)) = (fs::read(to), expected.sha256)
            && Sha256::digest(&here) == sha256
        {
            return Ok(Written {
                size: here.len() as u64,
                sha256,
                durability: durable_fs::Durability::Synced,
            });
        }
        if from.as_str().ends_with(".pkl") {
            self.moved.lock().unwrap().push(from.to_string());
        }
        let bytes = self.jobs.lock().unwrap()[job][from.as_str()].clone();
        expected.check(to, bytes.len() as u64, Sha256::digest(&bytes))?;
        Ok(write_atomic(to, &bytes)?)
    }
    fn start(&self, job: &JobName) -> Result<(), DeviceError> {
        self.note("start", job);
        if let Some(stop) = &self.stop_at_start {
            stop.store(true, Ordering::Relaxed);
        }
        self.work(job, self.jobs.lock().unwrap().get_mut(job).unwrap());
        Ok(())
    }
    fn look(&self, job: &JobName, offset: u64) -> Result<JobView, DeviceError> {
        let jobs = self.jobs.lock().unwrap();
        let state = match jobs.get(job) {
            None => JobState::Absent,
            Some(files) => files.get("result.json").cloned().map_or(JobState::Staged, JobState::Finished),
        };
        let events = jobs.get(job).and_then(|files| files.get("events.jsonl")?.get(offset as usize..));
        Ok(JobView { state, events: events.unwrap_or_default().to_vec() })
    }
    fn cancel(&self, _job: &JobName) -> Result<(), DeviceError> {
        Ok(())
    }
    fn remove(&self, job: &JobName) -> Result<(), DeviceError> {
        self.jobs.lock().unwrap().remove(job);
        if let Some(path) = &self.blocks {
            fs::create_dir(path).unwrap();
        }
        Ok(())
    }
}

struct Case {
    _dir: tempfile::TempDir,
    workspace: Workspace,
    device: Fake,
    options: CatalogOptions,
    models: Vec<CatalogModel>,
}

fn id(text: &str) -> ModelId {
    ModelId::new(text).unwrap()
}

fn case(ids: &[&str]) -> Case {
    let dir = tempfile::tempdir().unwrap();
    let root = Utf8Path::from_path(dir.path()).unwrap().join("ws");
    let (workspace, _) = Workspace::init(&root, &InitOptions::default()).unwrap();
    let options = CatalogOptions {
        target: Target::Cpu,
        image_history_pipeline: ImageHistoryPipeline::Policy,
        force: false,
        outdated: false,
        parts: PartRule::new(artifact_parts::PartLimit::MAX),
        python: None,
        toolchain: None,
        jobs: NonZeroUsize::MIN.saturating_add(1),
        judge: |_, _, _, _| Ok(()),
    };
    let model = |text: &&str| CatalogModel {
        id: id(text),
        entry: SourceEntry {
            git_ref: "abc".to_owned(),
            input_format: InputFormat::Supercombo,
            uses_external_gpu: false,
            extra: Map::new(),
        },
        version: None,
        is_named: false,
    };
    let case = Case {
        _dir: dir,
        workspace,
        device: Fake::default(),
        options,
        models: ids.iter().map(model).collect(),
    };
    for text in ids {
        case.extract(text, text.as_bytes());
    }
    case
}

impl Case {
    fn extract(&self, text: &str, content: &[u8]) {
        let dir = self.workspace.source_dir(&id(text));
        fs::create_dir_all(&dir).unwrap();
        let path = dir.join(format!("{text}_driving_supercombo.onnx"));
        let written = write_atomic(&path, content).unwrap();
        let file = SourceFile {
            component: Component::Supercombo,
            git_path: RelPath::new("selfdrive/modeld/models/driving_supercombo.onnx").unwrap(),
            size: written.size,
            sha256: written.sha256,
            modified_ns: Stamp::of(&path).unwrap().map(|stamp| stamp.modified_ns),
            path,
            extra: Map::new(),
        };
        let record = SourceRecord {
            id: id(text),
            git_ref: "abc".to_owned(),
            input_format: InputFormat::Supercombo,
            files: vec![file],
            uses_external_gpu: false,
            commit: None,
            extra: Map::new(),
        };
        self.workspace.save(&record).unwrap();
    }

    fn run(&self) -> RunSummary {
        let plan = plan_catalog(&self.workspace, self.models.clone(), &self.options, &NoProgress);
        let cancel = AtomicBool::new(false);
        let watched: (&dyn Progress, &AtomicBool) = (&NoProgress, &cancel);
        compile_catalog(&self.workspace, Some(&self.device), plan, &self.options, watched, &mut |_| {})
            .unwrap()
    }

    fn outcomes(&self) -> Vec<Outcome> {
        self.run().models.iter().map(|model| model.outcome).collect()
    }

    fn failure(&self, text: &str) -> Option<FailureRecord> {
        self.workspace.record(&id(text)).unwrap()
    }
}

#[test]
fn a_catalog_is_built_recorded_and_left_alone_the_second_time() {
    let case = case(&["a", "b"]);
    let summary = case.run();
    assert_eq!(summary.count(Outcome::Built), 2);
    assert_eq!(summary.models[0].reasons, ["there is no artifact"]);
    assert!(case.device.is_empty(), "nothing of ours stays on the device");
    let record: ArtifactRecord = case.workspace.record(&id("a")).unwrap().unwrap();
    assert_eq!(
        (record.status, record.target, record.multipart),
        (ArtifactStatus::Compiled, Some(Target::Cpu), false)
    );
    assert_eq!(record.extra["model_type"], "supercombo");
    assert_eq!(record.fingerprint.unwrap().tinygrad.as_deref(), Some("0.14.0"));
    assert!(case.workspace.ready_dir().join("a_driving_tinygrad.pkl").is_file());
    assert_eq!(fs::read_to_string(case.workspace.log_file(&id("a"))).unwrap(), "compiling a\n");
    let build: BuildRecord = case.workspace.record(&id("a")).unwrap().unwrap();
    assert_eq!(
        (build.provenance["device"].as_str(), build.provenance["seconds"]["prove"].as_f64()),
        (Some("fake"), Some(1.0))
    );
    assert_eq!(case.outcomes(), [Outcome::Current, Outcome::Current]);
    assert_eq!(case.device.starts(), 2);
}

fn compiled_names(case: &Case) -> Vec<String> {
    let dir = case.workspace.compiled_file(&id("a")).parent().unwrap().to_owned();
    let mut names: Vec<_> =
        dir.read_dir_utf8().unwrap().map(|entry| entry.unwrap().file_name().to_owned()).collect();
    names.sort();
    names
}

#[test]
fn an_artifact_comes_home_while_its_proof_runs_and_counts_once_it_is_proven() {
    let mut case = case(&["a", "b"]);
    case.device.tells = Some(Told::TheArtifact);
    assert_eq!(case.outcomes(), [Outcome::Built, Outcome::Built]);
    assert_eq!(*case.device.moved.lock().unwrap(), [UNPROVEN, UNPROVEN], "each was moved once");
    assert_eq!(compiled_names(&case), ["a_driving_tinygrad.pkl", "b_driving_tinygrad.pkl"]);
    assert_eq!(fs::metadata(case.workspace.compiled_file(&id("a"))).unwrap().len(), 64);
}

#[test]
fn what_came_home_early_and_is_not_the_proven_artifact_is_fetched_again() {
    let mut case = case(&["a"]);
    case.device.tells = Some(Told::Another);
    assert_eq!(case.outcomes(), [Outcome::Built]);
    assert_eq!(*case.device.moved.lock().unwrap(), [UNPROVEN, "output/a_driving_tinygrad.pkl"]);
    assert_eq!(compiled_names(&case), ["a_driving_tinygrad.pkl"]);
    assert_eq!(fs::metadata(case.workspace.compiled_file(&id("a"))).unwrap().len(), 64);
}

#[test]
fn what_came_home_early_goes_where_the_proof_fails() {
    let mut case = case(&["a"]);
    case.run();
    let before = fs::read(case.workspace.compiled_file(&id("a"))).unwrap();
    case.device.broken = vec!["a"];
    case.device.tells = Some(Told::TheArtifact);
    case.extract("a", b"other weights");
    assert_eq!(case.outcomes(), [Outcome::Failed]);
    assert_eq!(case.device.moved.lock().unwrap().last().unwrap(), UNPROVEN);
    assert_eq!(compiled_names(&case), ["a_driving_tinygrad.pkl"]);
    assert_eq!(fs::read(case.workspace.compiled_file(&id("a"))).unwrap(), before, "the earlier one stays");
}

#[test]
fn one_models_failure_is_recorded_and_the_others_go_on() {
    let mut case = case(&["a", "b", "c"]);
    case.device.broken = vec!["b"];
    assert_eq!(case.outcomes(), [Outcome::Built, Outcome::Failed, Outcome::Built]);
    let failure = case.failure("b").unwrap();
    assert_eq!((failure.stage, failure.kind.as_deref()), (Some(Stage::Compile), Some("non_finite")));
    assert_eq!(failure.hint.as_deref(), Some("see the log"));
    assert!(!case.workspace.compiled_file(&id("b")).exists());
    assert!(case.device.is_empty());
    case.device.broken.clear();
    assert_eq!(case.outcomes(), [Outcome::Current, Outcome::Built, Outcome::Current]);
    assert_eq!(case.failure("b"), None);
}

#[test]
fn a_changed_source_version_or_target_is_built_again_and_says_why() {
    let mut case = case(&["a"]);
    case.run();
    case.extract("a", b"other weights");
    assert_eq!(case.run().models[0].reasons, ["source driving_supercombo changed"]);
    case.models[0].version = Some(BehaviorVersion::from_number(15));
    assert_eq!(case.run().models[0].reasons, ["version none became v15"]);
    case.options.target = Target::Qcom;
    assert_eq!(case.run().models[0].reasons, ["target cpu became qcom"]);
    case.options.force = true;
    assert_eq!(case.run().models[0].reasons, ["asked for with --force"]);
    case.options.force = false;
    assert_eq!(case.outcomes(), [Outcome::Current]);
}

#[test]
fn a_truncated_artifact_counts_as_absent() {
    let case = case(&["a"]);
    case.run();
    write_atomic(case.workspace.compiled_file(&id("a")), b"cut").unwrap();
    assert_eq!(case.run().models[0].reasons, ["the artifact has 3 bytes instead of 64"]);
    assert_eq!(fs::metadata(case.workspace.compiled_file(&id("a"))).unwrap().len(), 64);
}

#[test]
fn an_outdated_artifact_is_kept_unless_asked_for() {
    let mut case = case(&["a"]);
    case.run();
    let mut record: ArtifactRecord = case.workspace.record(&id("a")).unwrap().unwrap();
    record.fingerprint.as_mut().unwrap().driver = Some("an older one".to_owned());
    case.workspace.save(&record).unwrap();
    let summary = case.run();
    assert_eq!((summary.models[0].outcome, summary.models[0].outdated.len()), (Outcome::Current, 1));
    case.options.outdated = true;
    assert_eq!(case.run().models[0].reasons, ["the compile driver changed"]);
}

#[test]
fn old_and_new_sources_are_never_mixed() {
    let case = case(&["a"]);
    // Changed behind the record, with its size and time: only the hash on the way shows it.
    let mut record: SourceRecord = case.workspace.record(&id("a")).unwrap().unwrap();
    let path = record.files[0].path.clone();
    write_atomic(&path, b"X").unwrap();
    record.files[0].modified_ns = Stamp::of(&path).unwrap().map(|stamp| stamp.modified_ns);
    case.workspace.save(&record).unwrap();
    assert_eq!(case.outcomes(), [Outcome::Failed]);
    assert!(case.failure("a").unwrap().error.contains("SHA-256"));
    assert!(case.device.is_empty());
    assert_eq!(case.device.starts(), 0);
}

#[test]
fn sources_of_another_ref_are_not_compiled() {
    let mut case = case(&["a"]);
    case.models[0].entry.git_ref = "def".to_owned();
    assert_eq!(case.outcomes(), [Outcome::Failed]);
    let failure = case.failure("a").unwrap();
    assert!(failure.error.contains("the ref abc became def") && failure.error.contains("rebuild extract"));
}

#[test]
fn a_failed_extraction_stays_recorded() {
    let mut case = case(&["a", "b"]);
    case.workspace.remove_record::<SourceRecord>(&id("a")).unwrap();
    case.workspace.remove_record::<SourceRecord>(&id("b")).unwrap();
    case.workspace.save(&FailureRecord::new(id("a"), Stage::Extract, "no such commit")).unwrap();
    assert_eq!(case.outcomes(), [Outcome::Failed, Outcome::Waiting]);
    assert_eq!(case.failure("a").unwrap().stage, Some(Stage::Extract));
    assert_eq!(case.failure("b"), None);
    case.models[1].is_named = true;
    assert_eq!(case.outcomes(), [Outcome::Failed, Outcome::Failed]);
    assert!(case.failure("b").unwrap().error.contains("rebuild extract --model b"));
}

#[test]
fn a_result_that_could_not_be_fetched_is_taken_up_by_the_next_run() {
    let case = case(&["a", "b"]);
    *case.device.unreachable_get.lock().unwrap() = true;
    assert_eq!(case.outcomes(), [Outcome::Failed, Outcome::Failed], "b was compiling by then");
    *case.device.unreachable_get.lock().unwrap() = false;
    assert_eq!(case.outcomes(), [Outcome::Built, Outcome::Built]);
    assert_eq!(case.device.starts(), 2, "no model was compiled twice");
    assert!(case.device.is_empty());
}

#[test]
fn an_artifact_over_the_limit_comes_home_and_is_split() {
    let mut case = case(&["a"]);
    case.device.size = (1 << 20) + 7;
    case.options.parts = PartRule::new(artifact_parts::PartLimit::from_mib(1).unwrap());
    let summary = case.run();
    assert_eq!(summary.models[0].parts.len(), 2);
    assert!(summary.models[0].multipart);
    assert!(case.workspace.compiled_file(&id("a")).is_file());
    assert!(!case.workspace.ready_dir().join("a_driving_tinygrad.pkl").exists());
    assert_eq!(case.outcomes(), [Outcome::Current]);
    // What was lost from the upload folder is put there again without a compile.
    fs::remove_file(case.workspace.ready_dir().join("a_driving_tinygrad.pkl.p00")).unwrap();
    assert_eq!(case.outcomes(), [Outcome::Current]);
    assert!(case.workspace.ready_dir().join("a_driving_tinygrad.pkl.p00").is_file());
    assert_eq!(case.device.starts(), 1);
}

#[test]
fn a_renamed_artifact_is_current_and_is_rebuilt_under_its_release_name() {
    let case = case(&["a"]);
    case.run();
    let mut record: ArtifactRecord = case.workspace.record(&id("a")).unwrap().unwrap();
    for dir in [case.workspace.compiled_dir(), case.workspace.ready_dir()] {
        fs::rename(dir.join("a_driving_tinygrad.pkl"), dir.join("a3_driving_tinygrad.pkl")).unwrap();
    }
    record.release_id = Some(id("a3"));
    case.workspace.save(&record).unwrap();
    assert_eq!(case.outcomes(), [Outcome::Current]);
    case.extract("a", b"other weights");
    let summary = case.run();
    assert_eq!(
        (summary.models[0].outcome, summary.models[0].release_id.clone()),
        (Outcome::Built, Some(id("a3")))
    );
    assert!(!case.workspace.compiled_file(&id("a")).exists());
    assert!(case.workspace.compiled_file(&id("a3")).is_file());
}

#[test]
fn an_interrupted_run_says_what_it_did_not_try() {
    let case = case(&["a", "b"]);
    let plan = plan_catalog(&case.workspace, case.models.clone(), &case.options, &NoProgress);
    let cancel = AtomicBool::new(true);
    let watched: (&dyn Progress, &AtomicBool) = (&NoProgress, &cancel);
    let summary =
        compile_catalog(&case.workspace, Some(&case.device), plan, &case.options, watched, &mut |_| {})
            .unwrap();
    assert!(summary.interrupted);
    assert_eq!(summary.count(Outcome::NotTried), 2);
    assert_eq!(case.failure("a"), None);
}

#[test]
fn what_was_finished_when_the_run_was_interrupted_is_not_made_again() {
    let mut case = case(&["a", "b"]);
    let cancel = std::sync::Arc::new(AtomicBool::new(false));
    case.device.stop_at_start = Some(std::sync::Arc::clone(&cancel));
    let plan = plan_catalog(&case.workspace, case.models.clone(), &case.options, &NoProgress);
    let watched: (&dyn Progress, &AtomicBool) = (&NoProgress, &cancel);
    let summary =
        compile_catalog(&case.workspace, Some(&case.device), plan, &case.options, watched, &mut |_| {})
            .unwrap();
    assert_eq!(summary.count(Outcome::NotTried), 2);
    case.device.stop_at_start = None;
    assert_eq!(case.outcomes(), [Outcome::Built, Outcome::Built]);
    assert_eq!(case.device.starts(), 2);
    assert!(case.device.is_empty());
}

#[test]
fn the_build_record_says_whose_an_artifact_without_a_record_is() {
    let case = case(&["a"]);
    case.run();
    let build: BuildRecord = case.workspace.record(&id("a")).unwrap().unwrap();
    let made: ArtifactRecord = case.workspace.record(&id("a")).unwrap().unwrap();
    let fingerprint = made.fingerprint.unwrap();
    let known = build::built_with(&build, made.sha256).unwrap();
    assert_eq!((Some(known.0), Some(known.1)), (fingerprint.driver, fingerprint.tinygrad));
    assert_eq!(build::built_with(&build, Sha256::digest(b"another")), None);
}

#[test]
fn the_next_model_goes_there_early_and_no_third_one() {
    let case = case(&["a", "b", "c", "d", "e"]);
    assert_eq!(case.run().count(Outcome::Built), 5);
    assert_eq!(*case.device.most.lock().unwrap(), 2);
    assert!(case.device.is_empty());
}

#[test]
fn an_artifact_that_is_not_what_was_asked_for_does_not_replace_the_old_one() {
    let mut case = case(&["a"]);
    assert_eq!(case.run().models[0].outcome, Outcome::Built);
    let compiled = case.workspace.compiled_file(&id("a"));
    let old = fs::read(&compiled).unwrap();
    // What the fake device makes is no pickle.
    case.options.judge = crate::adopt::inspect;
    case.options.force = true;
    let summary = case.run();
    assert_eq!(summary.models[0].outcome, Outcome::Failed);
    assert_eq!(summary.models[0].kind.as_deref(), Some("unfit"));
    assert_eq!(fs::read(&compiled).unwrap(), old);
    assert_eq!(fs::read_dir(compiled.parent().unwrap()).unwrap().count(), 1, "nothing else stays");
    assert!(case.device.is_empty());
}

#[test]
fn a_broken_file_without_a_record_is_not_adopted() {
    let mut case = case(&["a"]);
    case.options.judge = |path, target, version, abi| {
        // What was found is looked at; what the fake device makes is not a pickle and passes.
        if fs::read(path).unwrap().starts_with(b"\x80") {
            crate::adopt::inspect(path, target, version, abi)
        } else {
            Ok(())
        }
    };
    write_atomic(case.workspace.compiled_file(&id("a")), b"\x80\x04.").unwrap();
    let summary = case.run();
    assert_eq!(summary.models[0].outcome, Outcome::Built);
    assert!(summary.models[0].reasons[0].contains("not adopted"), "{:?}", summary.models[0].reasons);
}

/// The names of all that is ready for upload.
fn ready(case: &Case) -> Vec<String> {
    let mut names: Vec<String> = case
        .workspace
        .ready_dir()
        .read_dir_utf8()
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_owned())
        .collect();
    names.sort();
    names
}

#[test]
fn however_many_threads_there_are_the_workspace_is_the_same() {
    let ids: Vec<String> = (0..12).map(|number| format!("m{number:02}")).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let run = |jobs: usize| {
        let mut case = case(&ids);
        case.options.jobs = NonZeroUsize::new(jobs).unwrap();
        case.device.size = (1 << 20) + 7;
        case.device.broken = vec!["m03"];
        case.options.parts = PartRule::new(artifact_parts::PartLimit::from_mib(1).unwrap());
        // Half of them were compiled before and have to get into the upload folder again, two are found without a record.
        case.models.truncate(6);
        case.run();
        fs::remove_dir_all(case.workspace.ready_dir()).unwrap();
        fs::create_dir_all(case.workspace.ready_dir()).unwrap();
        for text in ["m04", "m05"] {
            case.workspace.remove_record::<ArtifactRecord>(&id(text)).unwrap();
            case.workspace.remove_record::<BuildRecord>(&id(text)).unwrap();
        }
        case.models =
            ids.iter().map(|text| CatalogModel { id: id(text), ..case.models[0].clone() }).collect();
        let summary = case.run();
        assert!(*case.device.most.lock().unwrap() <= 2);
        assert!(case.device.is_empty());
        let outcomes: Vec<_> =
            summary.models.iter().map(|model| (model.id.to_string(), model.outcome)).collect();
        let list = rebuild_workspace::MultipartList::load(&case.workspace).unwrap();
        let listed: Vec<_> =
            list.entries.into_iter().map(|entry| (entry.id.to_string(), entry.parts)).collect();
        let again = case.outcomes();
        assert!(
            again.iter().enumerate().all(|(at, outcome)| (*outcome == Outcome::Current) != (at == 3)),
            "{again:?}"
        );
        (outcomes, listed, ready(&case))
    };
    let alone = run(1);
    assert_eq!(alone.0.len(), 12);
    assert_eq!(alone.0.iter().map(|(id, _)| id.as_str()).collect::<Vec<_>>(), ids);
    let count = |wanted: Outcome| alone.0.iter().filter(|(_, outcome)| *outcome == wanted).count();
    assert_eq!(
        (count(Outcome::Built), count(Outcome::Current), count(Outcome::Adopted), count(Outcome::Failed)),
        (6, 3, 2, 1)
    );
    assert_eq!(alone.1.len(), 11);
    assert_eq!(alone, run(4));
}

#[test]
fn an_artifact_that_could_not_get_ready_is_not_compiled_again_and_no_old_one_stays_for_upload() {
    let mut case = case(&["a", "b"]);
    assert_eq!(case.outcomes(), [Outcome::Built, Outcome::Built]);
    let ready = case.workspace.ready_dir().join("a_driving_tinygrad.pkl");
    case.extract("a", b"other weights");
    // When its job is gone, a directory lies where it has to go.
    case.device.blocks = Some(ready.clone());
    assert_eq!(case.outcomes(), [Outcome::Failed, Outcome::Current]);
    assert_eq!(case.failure("a").unwrap().stage, Some(Stage::Compile));
    case.device.blocks = None;
    fs::remove_dir(&ready).unwrap();
    assert_eq!(case.outcomes(), [Outcome::Current, Outcome::Current]);
    assert_eq!(fs::read(&ready).unwrap(), fs::read(case.workspace.compiled_file(&id("a"))).unwrap());
    assert_eq!(case.failure("a"), None);
    assert_eq!(case.device.starts(), 3, "it was not compiled again");
}

#[test]
fn an_interruption_leaves_what_was_found_and_ends_what_came_home() {
    let mut case = case(&["a", "b", "c"]);
    assert_eq!(case.run().count(Outcome::Built), 3);
    for text in ["b", "c"] {
        case.workspace.remove_record::<ArtifactRecord>(&id(text)).unwrap();
    }
    case.extract("a", b"other weights");
    let cancel = std::sync::Arc::new(AtomicBool::new(false));
    case.device.stop_at_start = Some(std::sync::Arc::clone(&cancel));
    let plan = plan_catalog(&case.workspace, case.models.clone(), &case.options, &NoProgress);
    let watched: (&dyn Progress, &AtomicBool) = (&NoProgress, &cancel);
    let summary =
        compile_catalog(&case.workspace, Some(&case.device), plan, &case.options, watched, &mut |_| {})
            .unwrap();
    assert_eq!(summary.count(Outcome::NotTried), 3);
    assert!((0..3).all(|at| case.failure(["a", "b", "c"][at]).is_none()));
    case.device.stop_at_start = None;
    assert_eq!(case.outcomes(), [Outcome::Built; 3]);
    assert_eq!(case.device.starts(), 4, "what was found was not compiled again");
}

/// What begins, on which thread.
#[derive(Default)]
struct Begun(Mutex<Vec<(std::thread::ThreadId, String)>>);

impl Progress for Begun {
    fn begin(&self, label: &str, _total: Option<u64>) {
        self.0.lock().unwrap().push((std::thread::current().id(), label.to_owned()));
    }
    fn advance(&self, _amount: u64) {}
    fn end(&self) {}
}

#[test]
fn transfers_beside_a_compile_are_seen_as_well() {
    let case = case(&["a", "b"]);
    let plan = plan_catalog(&case.workspace, case.models.clone(), &case.options, &NoProgress);
    let (begun, cancel) = (Begun::default(), AtomicBool::new(false));
    let watched: (&dyn Progress, &AtomicBool) = (&begun, &cancel);
    compile_catalog(&case.workspace, Some(&case.device), plan, &case.options, watched, &mut |_| {}).unwrap();
    let begun = begun.0.into_inner().unwrap();
    let here = std::thread::current().id();
    for (label, is_here) in [
        ("a_driving_supercombo.onnx to fake", true),
        ("a_driving_tinygrad.pkl from fake", false),
        ("b_driving_supercombo.onnx to fake", false),
        ("b_driving_tinygrad.pkl from fake", true),
        ("a_driving_tinygrad.pkl to ready-for-resources", false),
    ] {
        let found = begun.iter().find(|(_, begun)| begun == label);
        assert_eq!(found.map(|(thread, _)| *thread == here), Some(is_here), "{label}: {begun:?}");
    }
}

#[test]
fn a_model_that_does_not_fit_as_a_whole_is_refused_before_its_first_byte_moves() {
    let mut case = case(&["large", "small"]);
    // Each file alone would fit, and so would the artifact.
    case.extract("large", &vec![7; 12 << 20]);
    case.device.free = Some(40 << 20);
    assert_eq!(case.outcomes(), [Outcome::Failed, Outcome::Built]);
    let failure = case.failure("large").unwrap();
    let needed: u64 = (12 << 20) + (12 << 20) + (3 << 20) + (16 << 20);
    for words in [format!("needs {needed}"), format!("has {} bytes free", 40 << 20)] {
        assert!(failure.error.contains(&words), "{words}: {}", failure.error);
    }
    assert!(!case.device.asked.lock().unwrap().iter().any(|asked| asked == "start large"));
    assert!(case.device.jobs.lock().unwrap().keys().all(|job| job.model().as_str() != "large"));
    case.device.free = Some(needed);
    assert_eq!(case.outcomes(), [Outcome::Built, Outcome::Current]);
}
