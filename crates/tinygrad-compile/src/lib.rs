//! From staged ONNX sources to a proven artifact.
//!
//! [`staged`] finds a model's files, [`CompilePlan`] decides what they become, [`compile_model`] reads them, runs the Python
//! driver that lives beside tinygrad, has a second process prove the finished file, and puts it in place. [`job`] is the same
//! behind a directory of request, event and result files, for callers that may lose their connection.
//!
//! What can go wrong is in [`CompileError`]; each error says who is at fault and what to do next. Nothing here prints or
//! reads the environment: callers pass both in.

mod compile;
pub mod driver;
mod environment;
mod error;
pub mod job;
mod plan;
mod provenance;
mod scratch;
pub mod staged;

pub use compile::{CompileEvent, Compiled, Workshop, compile_model};
pub use environment::{Environment, EnvironmentError, QCOM_DEVICE, check_target};
pub use error::{CompileError, FaultClass};
pub use plan::{CompilePlan, PlanError, PlanOptions, PlannedModel, cached_version};
pub use provenance::{
    BUILD_RECORD_FORMAT, BuildRecord, FileRecord, ProofRecord, SourceRecord, TinygradRecord, ToolRecord,
    build_record_name, vendored_commit,
};
