//! From a made artifact to one in its place: checks of the file, rename, build record.

use artifact_pickle::{AbiDescription, AbiRecord, Expectations, InspectOptions, Verdict, verify};
use camino::Utf8Path;
use durable_fs::{Expected, NoProgress, place_file, write_json};
use model_catalog::ArtifactName;

use super::{Compiled, Made, Session, Source};
use crate::{
    CompileError, CompilePlan,
    driver::request::SEEDS,
    provenance::{
        BUILD_RECORD_FORMAT, BuildRecord, FileRecord, ProofRecord, TinygradRecord, build_record_name,
    },
};

/// Reads a finished file as data and compares it with what was asked for, and with the tinygrad that compiled it.
pub(crate) fn check_artifact(
    file: &Utf8Path,
    expected: &Expectations,
    abi: &AbiDescription,
) -> Result<Verdict, CompileError> {
    let options = InspectOptions { abi: Some(abi.clone()), ..InspectOptions::default() };
    let verdict = verify(file, &options, expected)?;
    if verdict.passed() {
        return Ok(verdict);
    }
    let findings = verdict.errors().map(ToString::to_string).collect();
    Err(CompileError::Artifact { file: file.file_name().unwrap_or_default().to_owned(), findings })
}

impl Session<'_> {
    /// Checks the file, places it and writes its record.
    pub(crate) fn finish(
        &mut self,
        plan: &CompilePlan,
        sources: Vec<Source>,
        mut made: Made,
    ) -> Result<Compiled, CompileError> {
        self.check_cancelled()?;
        let name = ArtifactName::new(plan.id.clone()).to_string();
        let artifact = self.workshop.output_dir.join(&name);
        let written = self.own_stage("place", |_| {
            let expected = Expectations::driving(Some(plan.target), plan.version);
            let verdict = check_artifact(&made.file, &expected, &made.abi)?;
            add_jit_facts(&mut made, &verdict);
            Ok(place_file(&made.file, &artifact, Expected::default(), &NoProgress)?)
        })?;
        let file = FileRecord { file: name, size: written.size, sha256: written.sha256 };
        let build = self.build_record(plan, sources, made, file);
        write_json(self.workshop.output_dir.join(build_record_name(&plan.id)), &build)?;
        Ok(Compiled { artifact, written, build })
    }

    fn build_record(
        &self,
        plan: &CompilePlan,
        sources: Vec<Source>,
        made: Made,
        artifact: FileRecord,
    ) -> BuildRecord {
        BuildRecord {
            format: BUILD_RECORD_FORMAT,
            id: plan.id.clone(),
            target: plan.target,
            model_type: plan.model_type,
            behavior_version: plan.version,
            image_history_pipeline: plan.image_history_pipeline,
            frame_skip: plan.frame_skip,
            sources: sources.into_iter().map(|source| source.record).collect(),
            tool: made.tool,
            tinygrad: TinygradRecord {
                version: made.tinygrad,
                commit: made.commit,
                python: made.python,
                interpreter: self.workshop.python.clone(),
                abi: Some(AbiRecord::of(&made.abi)),
            },
            devices: made.devices,
            kernels: made.kernels,
            environment: made.environment,
            seconds: self.seconds.clone(),
            proof: ProofRecord { seeds: SEEDS, tolerance: plan.tolerance, checks: made.checks },
            artifact,
        }
    }
}

/// What the maker did not say of its jits is read from the file.
fn add_jit_facts(made: &mut Made, verdict: &Verdict) {
    for (name, jit) in verdict.inspection.content.jits() {
        made.devices.entry(name.to_owned()).or_insert_with(|| jit.devices.iter().cloned().collect());
        made.kernels.entry(name.to_owned()).or_insert(jit.kernels.len() as u64);
    }
}
