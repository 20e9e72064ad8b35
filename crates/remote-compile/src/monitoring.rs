//! Driver monitoring through a device: one source, four files that belong together.
//!
//! [`plan_dm`] decides from the build record and the files' digests; [`compile_dm`] puts the source on the device, has it
//! compiled as a job, brings the four files home into a private directory, reads each as data, and then moves source, files
//! and record into the workspace under a journal. What can go wrong: a kill or a lost connection at any point leaves the old
//! set or the new one, never a mixture; what already came home is not moved again.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    time::Instant,
};

use artifact_pickle::{Expectations, InspectOptions, verify};
use camino::{Utf8Path, Utf8PathBuf};
use durable_fs::{Expected, FsError, JournalError, Progress, copy_file, hash_file};
use model_catalog::{DmFile, ModelId, RelPath, Sha256Digest, Target};
use onnx_source::{OnnxError, OnnxModel};
use rebuild_workspace::{BuildRecord, FailureRecord, Stage, Workspace, WorkspaceError};
use serde::Serialize;
use serde_json::Value;
use tinygrad_compile::{
    DM_BUILD_RECORD, DM_SOURCES, DmBuildRecord, DmError, FileRecord,
    driver::embedded,
    find_dm_source,
    job::{DmJob, JobKind, JobRequest, JobResult, OUTPUT_DIR},
    place_together, recover_placement,
};

use crate::{
    device::{Device, DeviceError},
    supervise::{
        JobFailure, JobInput, PreparedJob, Watch, begin, clear_away, fetch_log, job_path, supervise,
    },
};

/// Names the job, the log and the records.
const DM_ID: &str = "dmonitoring_model";
/// Where the files lie until all of them are home.
const INCOMING: &str = ".incoming-set";

/// Why driver monitoring was not built.
#[derive(Debug, thiserror::Error)]
pub enum MonitoringError {
    /// The source or the target cannot be what is compiled.
    #[error(transparent)]
    Source(#[from] DmError),
    /// The source is no ONNX model.
    #[error(transparent)]
    Onnx(#[from] OnnxError),
    /// Its job failed.
    #[error(transparent)]
    Job(#[from] JobFailure),
    /// A file that came home is not what it has to be.
    #[error("{file} from {device} cannot be used: {why}; nothing was replaced")]
    Unfit {
        /// The file.
        file: String,
        /// The device.
        device: String,
        /// What is wrong with it.
        why: String,
    },
    /// The files could not be put in place.
    #[error(transparent)]
    Place(#[from] JournalError),
    /// The workspace failed.
    #[error(transparent)]
    Workspace(#[from] WorkspaceError),
}

impl From<DeviceError> for MonitoringError {
    fn from(error: DeviceError) -> Self {
        Self::Job(error.into())
    }
}

impl From<FsError> for MonitoringError {
    fn from(error: FsError) -> Self {
        Self::Workspace(error.into())
    }
}

impl MonitoringError {
    /// A stable word for records.
    pub fn kind(&self) -> &str {
        match self {
            Self::Source(_) => "source",
            Self::Onnx(_) => "onnx",
            Self::Job(failure) => failure.kind(),
            Self::Unfit { .. } => "unfit",
            Self::Place(_) => "place",
            Self::Workspace(_) => "workspace",
        }
    }

    /// What to do next, where the message does not say it.
    pub fn hint(&self) -> Option<&str> {
        match self {
            Self::Job(failure) => failure.hint(),
            _ => None,
        }
    }

    /// Whether a machine and not the source is at fault.
    pub fn is_environment(&self) -> bool {
        match self {
            Self::Source(_) | Self::Onnx(_) | Self::Unfit { .. } => false,
            Self::Place(error) => matches!(error, JournalError::Fs(_)),
            Self::Job(failure) => failure.is_environment(),
            Self::Workspace(error) => error.is_environment(),
        }
    }
}

/// How driver monitoring is built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MonitoringOptions {
    /// What it is compiled for.
    pub target: Target,
    /// Build it although it is current.
    pub force: bool,
    /// Build it where it is merely outdated, too.
    pub outdated: bool,
    /// The Python of the device, where it is not the usual one.
    pub python: Option<Utf8PathBuf>,
    /// `embedded`, `tree` or `auto`, where the caller chooses.
    pub toolchain: Option<String>,
}

/// What will be done.
#[derive(Debug, Clone)]
pub struct MonitoringPlan {
    /// The source file.
    pub onnx: Utf8PathBuf,
    /// Its size in bytes.
    pub size: u64,
    /// Its SHA-256.
    pub sha256: Sha256Digest,
    /// Why it is built; empty where the files in place are what would be built now.
    pub reasons: Vec<String>,
    /// What makes the files in place outdated, where they are only that.
    pub outdated: Vec<String>,
    /// The files in place, where they are current.
    pub files: Vec<FileRecord>,
    job: PreparedJob,
}

impl MonitoringPlan {
    /// Whether a device is needed.
    pub fn builds(&self) -> bool {
        !self.reasons.is_empty()
    }
}

/// What was built.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BuiltMonitoring {
    /// The four files.
    pub files: Vec<FileRecord>,
    /// Bytes that were moved to and from the device, at most.
    pub moved_bytes: u64,
    /// Wall-clock seconds.
    pub seconds: f64,
    /// What could not be removed from the device, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_on_device: Option<String>,
}

fn model_id() -> ModelId {
    ModelId::new(DM_ID).unwrap_or_else(|_| unreachable!("the name is a plain one"))
}

/// The names of the four files.
fn names() -> BTreeSet<String> {
    DmFile::ALL.iter().map(ToString::to_string).collect()
}

/// Decides what is to be done with `onnx`, or with the source that is in the workspace already.
///
/// # Errors
/// [`MonitoringError`] where the source is missing or is no model, or the workspace cannot be read.
pub fn plan_dm(
    workspace: &Workspace,
    onnx: Option<&Utf8Path>,
    options: &MonitoringOptions,
    progress: &dyn Progress,
) -> Result<MonitoringPlan, MonitoringError> {
    if options.target == Target::ExternalGpu {
        return Err(DmError::ExternalGpu.into());
    }
    let onnx = match onnx {
        Some(file) => file.to_owned(),
        None => find_dm_source(&workspace.driver_monitoring_dir())?,
    };
    let (sha256, size) = hash_file(&onnx, progress)?;
    // A pointer, a truncated download or a picture is refused here, before a device is asked.
    OnnxModel::open(&onnx)?.metadata()?;
    let name = RelPath::new(DM_SOURCES[0]).unwrap_or_else(|_| unreachable!("the name is a plain one"));
    let request = DmJob {
        target: options.target,
        toolchain: options.toolchain.clone(),
        python: options.python.clone(),
        tolerance: None,
        file: name.clone(),
        size,
        sha256,
    };
    let input = JobInput { from: onnx.clone(), name, expected: Expected::exactly(size, sha256) };
    let job = PreparedJob::new(&model_id(), &JobRequest::new(JobKind::Dm(request)), vec![input]);
    let mut plan = MonitoringPlan {
        onnx,
        size,
        sha256,
        reasons: Vec::new(),
        outdated: Vec::new(),
        files: Vec::new(),
        job,
    };
    decide(workspace, &mut plan, options, progress)?;
    Ok(plan)
}

/// Compares the record and the files in place with what would be built.
fn decide(
    workspace: &Workspace,
    plan: &mut MonitoringPlan,
    options: &MonitoringOptions,
    progress: &dyn Progress,
) -> Result<(), MonitoringError> {
    let record = recorded(workspace)?;
    let mut because = |why: String| plan.reasons.push(why);
    if options.force {
        because("it was asked for".to_owned());
    }
    let Some(record) = record else {
        because("it was not built yet".to_owned());
        return Ok(());
    };
    if record.source.sha256 != plan.sha256 {
        because("the source changed".to_owned());
    }
    if record.target != options.target {
        because(format!("target {} became {}", record.target, options.target));
    }
    let toolchain = options.toolchain.as_deref().filter(|which| *which != "auto");
    if let Some(which) = toolchain.filter(|which| *which != record.tool.toolchain) {
        because(format!("toolchain {} became {which}", record.tool.toolchain));
    }
    let listed = |name: &String| record.files.iter().any(|file| file.file == *name);
    if let Some(absent) = names().iter().find(|name| !listed(name)) {
        because(format!("{absent} is not in its record"));
    }
    for file in &record.files {
        let path = workspace.driver_monitoring_dir().join(&file.file);
        match fs::metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                because(format!("{} is missing", file.file))
            }
            Err(error) => return Err(FsError::io("look at", &path)(error).into()),
            Ok(found) if found.len() == file.size && hash_file(&path, progress)?.0 == file.sha256 => {}
            Ok(_) => because(format!("{} is not the recorded file", file.file)),
        }
    }
    let driver = embedded::digest();
    if options.toolchain.as_deref() != Some("tree") && record.tool.driver_sha256 != driver {
        plan.outdated.push("the compile driver changed".to_owned());
        if options.outdated && plan.reasons.is_empty() {
            plan.reasons.clone_from(&plan.outdated);
        }
    }
    if plan.reasons.is_empty() {
        plan.files = record.files;
    }
    Ok(())
}

/// The record of the files in place. One that cannot be read says nothing: the files are built again.
fn recorded(workspace: &Workspace) -> Result<Option<DmBuildRecord>, MonitoringError> {
    match workspace.record::<BuildRecord>(&model_id()) {
        Ok(None) => Ok(None),
        Ok(Some(record)) => Ok(serde_json::from_value(Value::Object(record.provenance)).ok()),
        Err(WorkspaceError::Fs(FsError::Json { .. })) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Finishes what a kill interrupted while files were put in place. The caller holds the workspace's lock.
///
/// # Errors
/// [`MonitoringError::Place`] says what stands in the way.
pub fn recover_dm(workspace: &Workspace) -> Result<(), MonitoringError> {
    Ok(recover_placement(workspace.root())?)
}

/// Builds what was planned. A failure is recorded; a success removes the record of an earlier one.
///
/// # Errors
/// [`MonitoringError`]; the files in place are then as they were.
pub fn compile_dm(
    workspace: &Workspace,
    device: &dyn Device,
    plan: &MonitoringPlan,
    options: &MonitoringOptions,
    watch: &Watch<'_>,
    on_event: &mut dyn FnMut(&Value),
) -> Result<BuiltMonitoring, MonitoringError> {
    let began = Instant::now();
    let built = Building { workspace, device, plan, options, watch }.run(on_event);
    match built {
        Ok(mut built) => {
            workspace.clear_failure(&model_id(), Stage::Compile)?;
            built.seconds = began.elapsed().as_secs_f64();
            Ok(built)
        }
        Err(error) => {
            if !matches!(error, MonitoringError::Job(JobFailure::Interrupted)) {
                let record = FailureRecord {
                    kind: Some(error.kind().to_owned()),
                    hint: error.hint().map(str::to_owned),
                    ..FailureRecord::new(model_id(), Stage::Compile, error.to_string())
                };
                // What failed is more news than that it could not be recorded.
                let _ = workspace.save(&record);
            }
            Err(error)
        }
    }
}

struct Building<'b> {
    workspace: &'b Workspace,
    device: &'b dyn Device,
    plan: &'b MonitoringPlan,
    options: &'b MonitoringOptions,
    watch: &'b Watch<'b>,
}

impl Building<'_> {
    fn run(&self, on_event: &mut dyn FnMut(&Value)) -> Result<BuiltMonitoring, MonitoringError> {
        let (device, job) = (self.device, &self.plan.job);
        let _reservation = device.reserve("rebuild dm")?;
        self.sweep()?;
        if self.options.force {
            // A result that an earlier run left would be taken up as the one that was asked for.
            device.remove(&job.name)?;
        }
        begin(device, job, self.watch)?;
        let result = supervise(device, &job.name, self.watch, on_event);
        let _ = fetch_log(device, &job.name, &self.workspace.log_file(&model_id()));
        let built = result.map_err(MonitoringError::from).and_then(|result| self.bring_home(&result));
        let left = match &built {
            // The job goes on, or its result can still be had by the next run.
            Err(MonitoringError::Job(JobFailure::Device(DeviceError::Unreachable { .. }))) => None,
            Err(error)
                if error.is_environment()
                    && !matches!(error, MonitoringError::Job(JobFailure::Failed(_))) =>
            {
                None
            }
            _ => clear_away(device, &job.name),
        };
        built.map(|built| BuiltMonitoring { left_on_device: left, ..built })
    }

    /// Removes the jobs of other sources and options, which nobody waits for any more.
    fn sweep(&self) -> Result<(), MonitoringError> {
        let name = &self.plan.job.name;
        for job in self.device.jobs()? {
            if job.kind() == name.kind() && job.model() == name.model() && job != *name {
                self.device.remove(&job)?;
            }
        }
        Ok(())
    }

    fn refused(&self, why: &str) -> MonitoringError {
        let (device, job) = (self.device.name().to_owned(), self.plan.job.name.to_string());
        JobFailure::Result { device, job, why: why.to_owned() }.into()
    }

    fn bring_home(&self, result: &JobResult) -> Result<BuiltMonitoring, MonitoringError> {
        let build = result.dm_build.as_ref().ok_or_else(|| self.refused("it has no build record"))?;
        let names = names();
        let complete = names.iter().all(|name| result.files.iter().any(|file| file.file == *name));
        if !complete || result.files.len() != names.len() {
            return Err(self.refused("it does not name the four files"));
        }
        let incoming = self.workspace.driver_monitoring_dir().join(INCOMING);
        fs::create_dir_all(&incoming).map_err(FsError::io("make the directory", &incoming))?;
        let mut moves = BTreeMap::new();
        for file in &result.files {
            let path = self.fetch(file, &incoming)?;
            self.check(&path, file, build)?;
            moves.insert(format!("driver-monitoring/{}", file.file), path);
        }
        if let Some(source) = self.source_beside(&incoming)? {
            moves.insert(format!("driver-monitoring/{}", DM_SOURCES[0]), source);
        }
        self.place(&moves, build)?;
        fs::remove_dir_all(&incoming).map_err(FsError::io("remove", &incoming))?;
        let moved_bytes = self.plan.size + result.files.iter().map(|file| file.size).sum::<u64>();
        Ok(BuiltMonitoring { files: result.files.clone(), moved_bytes, seconds: 0.0, left_on_device: None })
    }

    fn fetch(&self, file: &FileRecord, incoming: &Utf8Path) -> Result<Utf8PathBuf, MonitoringError> {
        let (from, to) = (job_path(OUTPUT_DIR, &file.file)?, incoming.join(&file.file));
        let expected = Expected::exactly(file.size, file.sha256);
        let progress = self.watch.progress;
        progress.begin(&format!("{} from {}", file.file, self.device.name()), Some(file.size));
        let got = self.device.get(&self.plan.job.name, &from, &to, expected, progress);
        progress.end();
        got?;
        Ok(to)
    }

    /// Looks at a file that came home. Nothing in it is run.
    fn check(
        &self,
        path: &Utf8Path,
        file: &FileRecord,
        build: &DmBuildRecord,
    ) -> Result<(), MonitoringError> {
        let also = build.tinygrad.description().into_iter().collect();
        let options = InspectOptions { also, ..InspectOptions::default() };
        let expected = Expectations::of_file_name(&file.file, Some(self.options.target));
        let why = match verify(path, &options, &expected) {
            Ok(verdict) => verdict.errors().next().map(ToString::to_string),
            Err(error) => Some(error.to_string()),
        };
        why.map_or(Ok(()), |why| {
            let (file, device) = (file.file.clone(), self.device.name().to_owned());
            Err(MonitoringError::Unfit { file, device, why })
        })
    }

    /// A copy of the source that goes into place with the files; none where it lies there already.
    fn source_beside(&self, incoming: &Utf8Path) -> Result<Option<Utf8PathBuf>, MonitoringError> {
        let dir = self.workspace.driver_monitoring_dir();
        let parent = self.plan.onnx.parent().and_then(|parent| parent.canonicalize_utf8().ok());
        if parent.is_some() && parent == dir.canonicalize_utf8().ok() {
            return Ok(None);
        }
        let copy = incoming.join(DM_SOURCES[0]);
        copy_file(
            &self.plan.onnx,
            &copy,
            Expected::exactly(self.plan.size, self.plan.sha256),
            &durable_fs::NoProgress,
        )?;
        Ok(Some(copy))
    }

    fn place(
        &self,
        moves: &BTreeMap<String, Utf8PathBuf>,
        build: &DmBuildRecord,
    ) -> Result<(), MonitoringError> {
        let dir = self.workspace.driver_monitoring_dir();
        let json = |path: Utf8PathBuf| move |source| FsError::Json { path, source };
        let beside = serde_json::to_string_pretty(build).map_err(json(dir.join(DM_BUILD_RECORD)))?;
        let Ok(Value::Object(mut provenance)) = serde_json::to_value(build) else {
            return Err(self.refused("its build record cannot be written as JSON"));
        };
        provenance.insert("device".to_owned(), self.device.name().into());
        let record = BuildRecord { id: model_id(), provenance };
        let path = self.workspace.results_dir().join(format!("{DM_ID}_build.json"));
        let text = serde_json::to_string_pretty(&record).map_err(json(path))?;
        // The release gate compares the files with the record beside them.
        let texts = BTreeMap::from([
            (format!("results/{DM_ID}_build.json"), text + "\n"),
            (format!("driver-monitoring/{DM_BUILD_RECORD}"), beside + "\n"),
        ]);
        place_together(self.workspace.root(), moves, &texts)?;
        Ok(())
    }
}

#[cfg(test)]
#[path = "monitoring_tests.rs"]
mod tests;
