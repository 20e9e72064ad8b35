//! The driver of this project makes and proves an artifact.

use std::collections::BTreeMap;

use camino::Utf8Path;
use durable_fs::FsError;

use super::{
    Made, Session,
    preflight::{Source, model_requests},
};
use crate::{
    Cache, CompileError, CompileEvent, CompilePlan, Workshop,
    driver::{
        DriverError, DriverEvent, FailureKind, embedded,
        request::{CompileRequest, CompileResult, ProofFiles},
    },
    environment::Environment,
    provenance::{ToolRecord, vendored_commit},
    scratch::Scratch,
};

/// The request for one model whose files go into `dir`, which is made.
pub(crate) fn compile_request(
    plan: &CompilePlan,
    sources: &[Source],
    dir: &Utf8Path,
    workshop: &Workshop,
) -> Result<CompileRequest, CompileError> {
    let files = ProofFiles { artifact: dir.join("artifact.pkl"), handover: dir.join("handover") };
    std::fs::create_dir_all(&files.handover).map_err(FsError::io("make the directory", &files.handover))?;
    let mut request = CompileRequest::new(plan, model_requests(plan, sources)?, &files);
    request.keep_warps(workshop.cache.as_ref());
    Ok(request)
}

/// The record of this project's driver.
pub(crate) fn tool_record(workshop: &Workshop) -> ToolRecord {
    ToolRecord {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        toolchain: "embedded".to_owned(),
        driver_sha256: embedded::digest(),
        program_sha256: workshop.program_sha256,
    }
}

/// What the driver's result says of `request`'s artifact. A result without a proof is an error of ours, not a success.
pub(crate) fn made_by_driver(
    request: &CompileRequest,
    result: CompileResult,
    workshop: &Workshop,
    environment: BTreeMap<String, String>,
) -> Result<Made, CompileError> {
    let jits = request.cameras.len() + 1;
    if result.checks.len() != jits * request.seeds.len() {
        return Err(DriverError::Unproven {
            expected: jits * request.seeds.len(),
            found: result.checks.len(),
        }
        .into());
    }
    Ok(Made {
        file: request.artifact.clone(),
        tool: tool_record(workshop),
        tinygrad: result.tinygrad,
        commit: workshop.root.as_deref().and_then(vendored_commit),
        python: result.python,
        abi: result.abi,
        devices: result.devices,
        kernels: result.kernels,
        checks: result.checks,
        environment,
    })
}

/// Whether a refused proof may be the fault of a kept warp. The proof is what decides, so trying once more without any kept
/// warp loses nothing but time.
pub(crate) fn is_cache_suspect(error: &CompileError, workshop: &Workshop) -> bool {
    let kind = match error {
        CompileError::Driver(DriverError::Failed { kind, .. }) => *kind,
        _ => return false,
    };
    workshop.cache.is_some() && kind == FailureKind::RoundTripMismatch
}

impl Session<'_> {
    /// Empties the warp cache and says why.
    fn forget_warps(&mut self, error: &CompileError) -> Result<(), CompileError> {
        let message = format!("{error}; the kept camera warps are made anew");
        (self.on_event)(&CompileEvent { op: "compile", event: DriverEvent::Note { message } });
        Ok(self.workshop.cache.as_ref().map_or(Ok(()), Cache::forget_warps)?)
    }

    /// Compiles and proves with the embedded driver.
    pub(crate) fn make_embedded(
        &mut self,
        plan: &CompilePlan,
        sources: &[Source],
        scratch: &Scratch,
        environment: Environment,
    ) -> Result<Made, CompileError> {
        let driver = self.workshop.driver(scratch.path(), plan.target, environment)?;
        let request = compile_request(plan, sources, scratch.path(), self.workshop)?;
        let result: CompileResult = match self.operate(&driver, "compile", &request) {
            Err(error) if is_cache_suspect(&error, self.workshop) => {
                self.forget_warps(&error)?;
                self.operate(&driver, "compile", &request)?
            }
            result => result?,
        };
        made_by_driver(&request, result, self.workshop, driver.environment.recorded())
    }
}
