//! A StarPilot tree's own compiler makes an artifact; it is then replayed by our driver.

use super::{Made, Session};
use crate::{
    CompileError, CompilePlan,
    driver::{
        Program,
        request::{AbiRequest, AbiResult, ProbeRequest, ProbeResult},
    },
    environment::Environment,
    provenance::{ToolRecord, vendored_commit},
    scratch::Scratch,
    toolchain::Tree,
};

impl Session<'_> {
    /// Compiles with `tree`, and replays the result in fresh processes.
    pub(crate) fn make_with_tree(
        &mut self,
        plan: &CompilePlan,
        tree: &Tree,
        scratch: &Scratch,
        environment: Environment,
    ) -> Result<Made, CompileError> {
        let mut driver = self.workshop.driver(scratch.path(), plan.target, environment)?;
        tree.prepare(scratch.path(), &mut driver.environment)?;
        let artifact = scratch.path().join("artifact.pkl");
        let command = tree.compile_modeld(&driver.python, plan, &artifact, &driver.environment)?;
        self.own_stage("compile", |session| {
            let program = Program {
                op: "compile",
                command,
                scratch: &driver.scratch,
                log: &driver.log,
                quiet_limit: driver.quiet_limit,
                cpu: driver.cpu,
            };
            program.run(session.cancel)?;
            if artifact.is_file() {
                Ok(())
            } else {
                Err(CompileError::NoOutput { file: artifact.clone(), log: driver.log.clone() })
            }
        })?;
        let probe: ProbeResult = self.operate(&driver, "probe", &ProbeRequest::default())?;
        let AbiResult(abi) = self.operate(&driver, "abi", &AbiRequest::default())?;
        let checks = self.replay(plan, &driver, &artifact, scratch.path())?;
        Ok(Made {
            file: artifact,
            tool: self.tree_record(tree),
            tinygrad: probe.tinygrad,
            commit: self.workshop.root.as_deref().and_then(vendored_commit).or(probe.tinygrad_commit),
            python: probe.python,
            abi,
            devices: Default::default(),
            kernels: Default::default(),
            checks,
            environment: driver.environment.recorded(),
        })
    }

    /// The record of a tree's compilers.
    pub(crate) fn tree_record(&self, tree: &Tree) -> ToolRecord {
        ToolRecord {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            toolchain: "tree".to_owned(),
            driver_sha256: tree.digest(),
            program_sha256: self.workshop.program_sha256,
        }
    }
}
