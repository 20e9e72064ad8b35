//! Driver monitoring: its model, its metadata and a warp for each camera.
//!
//! The files are of use only together, so they are made in a private directory, each is proven and read as data, and then all
//! of them are moved under a journal: a kill leaves the old set or the new one.

use std::{collections::BTreeMap, sync::atomic::AtomicBool};

use artifact_pickle::{AbiDescription, AbiRecord, Expectations, encode_metadata};
use camino::{Utf8Path, Utf8PathBuf};
use durable_fs::{FsError, NoProgress, hash_file, write_atomic};
use model_catalog::{CAMERAS, DM_METADATA, DM_MODEL, InputFormat, PolicyKey, Target, Variant, dm_warp_name};
use onnx_source::OnnxModel;

use crate::{
    CompileError, CompileEvent, Workshop,
    compile::{Session, Source, check_artifact, tool_record},
    driver::{
        Program,
        request::{
            AbiRequest, AbiResult, DmOutputs, DmReplayRequest, DmReplayResult, DmRequest, DmResult, JitFacts,
            ProbeRequest, ProbeResult, ProofCheck, SEEDS,
        },
    },
    environment::Environment,
    placement::place_together,
    provenance::{
        BUILD_RECORD_FORMAT, DM_BUILD_RECORD, DmBuildRecord, FileRecord, ProofRecord, SourceRecord,
        TinygradRecord, ToolRecord, vendored_commit,
    },
    scratch::Scratch,
    toolchain::{self, COMPILE_DM_WARP, COMPILE3, Tree},
};

/// Names of the source, the usual one first.
pub const DM_SOURCES: [&str; 3] = ["dmonitoring_model.onnx", "dmonitoring.onnx", "dm.onnx"];
/// Why driver monitoring cannot be compiled as it was asked for.
#[derive(Debug, thiserror::Error)]
pub enum DmError {
    /// No source is staged.
    #[error("no driver-monitoring source is staged in {dir}; put dmonitoring_model.onnx there")]
    NoSource {
        /// Where was looked.
        dir: Utf8PathBuf,
    },
    /// More than one source is staged.
    #[error("two driver-monitoring sources are staged: {first} and {second}; remove one of them")]
    TwoSources {
        /// The first.
        first: Utf8PathBuf,
        /// The second.
        second: Utf8PathBuf,
    },
    /// Asked for an external GPU.
    #[error(
        "driver monitoring runs on the device's own GPU, also beside an external one; compile it without --gpu"
    )]
    ExternalGpu,
}

/// The staged source of driver monitoring in `dir`.
///
/// # Errors
/// [`DmError::NoSource`] or [`DmError::TwoSources`].
pub fn find_dm_source(dir: &Utf8Path) -> Result<Utf8PathBuf, DmError> {
    let mut found = DM_SOURCES.iter().map(|name| dir.join(name)).filter(|path| path.is_file());
    match (found.next(), found.next()) {
        (None, _) => Err(DmError::NoSource { dir: dir.to_owned() }),
        (Some(source), None) => Ok(source),
        (Some(first), Some(second)) => Err(DmError::TwoSources { first, second }),
    }
}

/// What of driver monitoring is compiled.
#[derive(Debug, Clone, PartialEq)]
pub struct DmPlan {
    /// The ONNX file.
    pub source: Utf8PathBuf,
    /// What is compiled for.
    pub target: Target,
    /// Largest accepted difference between a replay and the first run; 0 is exact.
    pub tolerance: f64,
}

/// The four files in their place.
#[derive(Debug, Clone)]
pub struct CompiledDm {
    /// The files.
    pub files: Vec<FileRecord>,
    /// Their build record, also beside them.
    pub build: DmBuildRecord,
}

/// What a toolchain made of the plan.
struct MadeDm {
    tool: ToolRecord,
    tinygrad: String,
    commit: Option<String>,
    python: String,
    abi: AbiDescription,
    jits: BTreeMap<String, JitFacts>,
    checks: Vec<ProofCheck>,
}

/// Compiles driver monitoring and puts its four files and their build record into the workshop's output directory together.
///
/// # Errors
/// [`CompileError`]; the files that were there are then as they were.
pub fn compile_dm(
    plan: &DmPlan,
    workshop: &Workshop,
    cancel: &AtomicBool,
    on_event: &mut dyn FnMut(&CompileEvent),
) -> Result<CompiledDm, CompileError> {
    if plan.target == Target::ExternalGpu {
        return Err(DmError::ExternalGpu.into());
    }
    let mut session = Session::new(workshop, cancel, on_event);
    session.check_machine(plan.target)?;
    let source = session.own_stage("preflight", |session| session.read_dm(plan))?;
    let tree = toolchain::choose(workshop.toolchain, workshop.root.as_deref(), &[COMPILE_DM_WARP, COMPILE3])?;
    let scratch = Scratch::create(&workshop.output_dir)?;
    let files = DmFiles::new(&scratch);
    let environment = Environment::for_target(plan.target, InputFormat::Split, &workshop.caller_environment);
    let recorded = environment.recorded();
    let position = session.kernel_log_position(plan.target);
    let made = match tree {
        None => session.dm_embedded(plan, &source, &files, &scratch, environment)?,
        Some(tree) => session.dm_with_tree(plan, &source, &tree, &files, &scratch, environment)?,
    };
    session.check_kernel_log(position)?;
    session.finish_dm(plan, &source, &files, made, recorded)
}

/// The files while they are made.
struct DmFiles {
    outputs: DmOutputs,
    metadata: Utf8PathBuf,
}

impl DmFiles {
    fn new(scratch: &Scratch) -> Self {
        let dir = scratch.path();
        let warps = CAMERAS.map(|camera| (camera.to_string(), dir.join(dm_warp_name(&camera.to_string()))));
        let outputs = DmOutputs { model: dir.join(DM_MODEL), warps: warps.into_iter().collect() };
        Self { outputs, metadata: dir.join(DM_METADATA) }
    }

    fn jits(&self) -> impl Iterator<Item = &Utf8PathBuf> {
        [&self.outputs.model].into_iter().chain(self.outputs.warps.values())
    }
}

impl Session<'_> {
    fn read_dm(&mut self, plan: &DmPlan) -> Result<Source, CompileError> {
        let path = &plan.source;
        let metadata = OnnxModel::open(path)?.metadata()?;
        let (sha256, size) = hash_file(path, &NoProgress)?;
        if let Some(expected) = self.workshop.expected.get(path) {
            expected.check(path, size, sha256)?;
        }
        let record = SourceRecord {
            component: "dmonitoring_model".to_owned(),
            variant: Variant::Standard,
            file: path.file_name().unwrap_or_default().to_owned(),
            size,
            sha256,
            model_checkpoint: metadata.model_checkpoint.clone(),
        };
        Ok(Source { record, metadata })
    }

    fn dm_embedded(
        &mut self,
        plan: &DmPlan,
        source: &Source,
        files: &DmFiles,
        scratch: &Scratch,
        environment: Environment,
    ) -> Result<MadeDm, CompileError> {
        let driver = self.workshop.driver(scratch.path(), plan.target, environment)?;
        let handover = scratch.path().join("handover");
        std::fs::create_dir(&handover).map_err(FsError::io("make the directory", &handover))?;
        let model = source.request(PolicyKey::Model, &plan.source)?;
        let request = DmRequest::new(model, plan.target, files.outputs.clone(), handover, plan.tolerance);
        let result: DmResult = self.operate(&driver, "dm", &request)?;
        Ok(MadeDm {
            tool: tool_record(self.workshop),
            tinygrad: result.tinygrad,
            commit: self.workshop.root.as_deref().and_then(vendored_commit),
            python: result.python,
            abi: result.abi,
            jits: result.jits,
            checks: result.checks,
        })
    }

    fn dm_with_tree(
        &mut self,
        plan: &DmPlan,
        source: &Source,
        tree: &Tree,
        files: &DmFiles,
        scratch: &Scratch,
        environment: Environment,
    ) -> Result<MadeDm, CompileError> {
        let mut driver = self.workshop.driver(scratch.path(), plan.target, environment)?;
        tree.prepare(scratch.path(), &mut driver.environment)?;
        let model = source.request(PolicyKey::Model, &plan.source)?;
        let mut commands = vec![(
            "dm",
            tree.compile3(&driver.python, &model.onnx, &files.outputs.model, &driver.environment),
        )];
        for camera in CAMERAS {
            let output = &files.outputs.warps[&camera.to_string()];
            commands.push(("dm", tree.compile_dm_warp(&driver.python, camera, output, &driver.environment)));
        }
        self.own_stage("dm", |session| {
            for (op, command) in commands {
                let program = Program {
                    op,
                    command,
                    scratch: &driver.scratch,
                    log: &driver.log,
                    quiet_limit: driver.quiet_limit,
                    cpu: driver.cpu,
                };
                program.run(session.cancel)?;
            }
            let missing = files.jits().find(|file| !file.is_file());
            missing.map_or(Ok(()), |file| {
                Err(CompileError::NoOutput { file: file.clone(), log: driver.log.clone() })
            })
        })?;
        let probe: ProbeResult = self.operate(&driver, "probe", &ProbeRequest::default())?;
        let AbiResult(abi) = self.operate(&driver, "abi", &AbiRequest::default())?;
        let values = scratch.path().join("handover");
        std::fs::create_dir(&values).map_err(FsError::io("make the directory", &values))?;
        let request = DmReplayRequest::new(files.outputs.clone(), model, plan.target, values, plan.tolerance);
        let replay: DmReplayResult = self.operate(&driver, "dm_replay", &request)?;
        Ok(MadeDm {
            tool: self.tree_record(tree),
            tinygrad: probe.tinygrad,
            commit: self.workshop.root.as_deref().and_then(vendored_commit).or(probe.tinygrad_commit),
            python: probe.python,
            abi,
            jits: BTreeMap::new(),
            checks: replay.checks,
        })
    }

    fn finish_dm(
        &mut self,
        plan: &DmPlan,
        source: &Source,
        files: &DmFiles,
        mut made: MadeDm,
        environment: BTreeMap<String, String>,
    ) -> Result<CompiledDm, CompileError> {
        self.check_cancelled()?;
        write_atomic(&files.metadata, &encode_metadata(&source.metadata))?;
        let expected = |file: &Utf8Path| {
            Expectations::of_file_name(file.file_name().unwrap_or_default(), Some(plan.target))
        };
        check_artifact(&files.metadata, &expected(&files.metadata), &made.abi)?;
        let mut records = Vec::new();
        for file in files.jits() {
            let verdict = check_artifact(file, &expected(file), &made.abi)?;
            for (_, jit) in verdict.inspection.content.jits() {
                let facts = JitFacts {
                    devices: jit.devices.iter().cloned().collect(),
                    kernels: jit.kernels.len() as u64,
                    size: file.metadata().map_or(0, |metadata| metadata.len()),
                };
                made.jits.entry(jit_name(file)).or_insert(facts);
            }
        }
        let mut moves = BTreeMap::new();
        for file in files.jits().chain([&files.metadata]) {
            let name = file.file_name().unwrap_or_default().to_owned();
            let (sha256, size) = hash_file(file, &NoProgress)?;
            sync(file)?;
            records.push(FileRecord { file: name.clone(), size, sha256 });
            moves.insert(name, file.clone());
        }
        let build = DmBuildRecord {
            format: BUILD_RECORD_FORMAT,
            target: plan.target,
            source: source.record.clone(),
            tool: made.tool,
            tinygrad: TinygradRecord {
                version: made.tinygrad,
                commit: made.commit,
                python: made.python,
                interpreter: self.workshop.python.clone(),
                abi: Some(AbiRecord::of(&made.abi)),
            },
            jits: made.jits,
            environment,
            seconds: self.seconds.clone(),
            proof: ProofRecord { seeds: SEEDS, tolerance: plan.tolerance, checks: made.checks },
            files: records.clone(),
        };
        let text = serde_json::to_string_pretty(&build).map_err(|source| FsError::Json {
            path: self.workshop.output_dir.join(DM_BUILD_RECORD),
            source,
        })?;
        let texts = BTreeMap::from([(DM_BUILD_RECORD.to_owned(), text + "\n")]);
        let output_dir = self
            .workshop
            .output_dir
            .canonicalize_utf8()
            .map_err(FsError::io("find", &self.workshop.output_dir))?;
        self.own_stage("place", |_| Ok(place_together(&output_dir, &moves, &texts)?))?;
        Ok(CompiledDm { files: records, build })
    }
}

fn sync(path: &Utf8Path) -> Result<(), FsError> {
    let file = std::fs::File::open(path).map_err(FsError::io("open", path))?;
    durable_fs::sync_file(&file, path).map(drop)
}

/// `model` or the camera of a file.
fn jit_name(file: &Utf8Path) -> String {
    let name = file.file_name().unwrap_or_default();
    let camera = name.strip_prefix("dm_warp_").and_then(|rest| rest.strip_suffix("_tinygrad.pkl"));
    camera.unwrap_or("model").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_one_source_is_taken() {
        let guard = tempfile::tempdir().unwrap();
        let dir = Utf8Path::from_path(guard.path()).unwrap();
        assert!(matches!(find_dm_source(dir), Err(DmError::NoSource { .. })));
        write_atomic(dir.join("dm.onnx"), b"x").unwrap();
        assert_eq!(find_dm_source(dir).unwrap(), dir.join("dm.onnx"));
        write_atomic(dir.join("dmonitoring_model.onnx"), b"x").unwrap();
        assert!(matches!(find_dm_source(dir), Err(DmError::TwoSources { .. })));
    }

    #[test]
    fn files_are_named_after_their_jits() {
        assert_eq!(jit_name("/x/dm_warp_1344x760_tinygrad.pkl".into()), "1344x760");
        assert_eq!(jit_name(DM_MODEL.into()), "model");
    }
}
