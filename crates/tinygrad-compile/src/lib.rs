//! From staged ONNX sources to a proven artifact.
//!
//! [`staged`] finds a model's files, [`CompilePlan`] decides what they become, [`compile_model`] reads them, runs the Python
//! driver that lives beside tinygrad, has a second process prove the finished file, and puts it in place. [`job`] is the same
//! behind a directory of request, event and result files, for callers that may lose their connection.
//!
//! What can go wrong is in [`CompileError`]; each error says who is at fault and what to do next. Nothing here prints or
//! reads the environment: callers pass both in.

mod c_compiler;
mod cache;
mod compile;
mod dm;
pub mod driver;
mod environment;
mod error;
pub mod external_gpu;
pub mod job;
pub mod kernel_log;
pub mod local_model;
mod placement;
mod plan;
mod provenance;
mod scratch;
pub mod staged;
pub mod toolchain;
mod workshop;

pub use c_compiler::find_clang;
pub use cache::{Cache, WARP_CACHE_MIB};
pub use compile::{CompileEvent, Compiled, OnModel, compile_batch, compile_model};
pub use dm::{CompiledDm, DM_SOURCES, DmError, DmPlan, compile_dm, find_dm_source};
pub use environment::{Environment, EnvironmentError, QCOM_DEVICE, check_target};
pub use error::{CompileError, FaultClass};
pub use placement::{place_together, recover as recover_placement};
pub use plan::{CompilePlan, PlanError, PlanOptions, PlannedModel, cached_version};
pub use provenance::{
    BUILD_RECORD_FORMAT, BuildRecord, DM_BUILD_RECORD, DmBuildRecord, FileRecord, ProofRecord, SourceRecord,
    TinygradRecord, ToolRecord, build_record_name, vendored_commit,
};
pub use workshop::Workshop;
