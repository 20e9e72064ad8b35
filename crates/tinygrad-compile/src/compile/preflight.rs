//! Sources are read and hashed before anything is compiled.

use camino::Utf8Path;
use durable_fs::{Expected, FsError, NoProgress, hash_file};
use model_catalog::{ModelMetadata, PolicyKey};
use onnx_source::OnnxModel;

use super::Session;
use crate::{
    CompileError, CompilePlan, driver::request::ModelRequest, provenance::SourceRecord, staged::StagedFile,
};

/// A source that passed the preflight.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    pub(crate) record: SourceRecord,
    pub(crate) metadata: ModelMetadata,
}

/// Reads one source; `expected` is what it must be, where that is known.
pub(crate) fn read_source(file: &StagedFile, expected: Option<&Expected>) -> Result<Source, CompileError> {
    let path = &file.path;
    let metadata = OnnxModel::open(path)?.metadata()?;
    let (sha256, size) = hash_file(path, &NoProgress)?;
    if let Some(expected) = expected {
        expected.check(path, size, sha256)?;
    }
    let record = SourceRecord {
        component: file.component.to_string(),
        variant: file.variant,
        file: path.file_name().unwrap_or_default().to_owned(),
        size,
        sha256,
        model_checkpoint: metadata.model_checkpoint.clone(),
    };
    Ok(Source { record, metadata })
}

impl Source {
    /// The source in the form of a request; `path` is where it lies.
    pub(crate) fn request(&self, key: PolicyKey, path: &Utf8Path) -> Result<ModelRequest, CompileError> {
        // The driver's working directory is another.
        let onnx = path.canonicalize_utf8().map_err(FsError::io("find", path))?;
        Ok(ModelRequest { key, onnx, sha256: self.record.sha256, metadata: (&self.metadata).into() })
    }
}

impl Session<'_> {
    /// Reads every source of `plan` and checks them against each other.
    pub(crate) fn preflight(&mut self, plan: &CompilePlan) -> Result<Vec<Source>, CompileError> {
        let mut sources = Vec::new();
        for model in &plan.models {
            self.check_cancelled()?;
            sources.push(read_source(&model.file, self.workshop.expected.get(&model.file.path))?);
        }
        let metadata: Vec<_> = sources.iter().map(|source| source.metadata.clone()).collect();
        plan.check(&metadata)?;
        Ok(sources)
    }
}

/// The models of a request, in the plan's order.
pub(crate) fn model_requests(
    plan: &CompilePlan,
    sources: &[Source],
) -> Result<Vec<ModelRequest>, CompileError> {
    plan.models
        .iter()
        .zip(sources)
        .map(|(model, source)| source.request(model.key, &model.file.path))
        .collect()
}
