//! Jobs: work that is asked for by a file and answered by a file, so that it outlives the connection of who asked.
//!
//! A job is a directory. The asker writes [`REQUEST_FILE`] and the inputs and starts `models job DIR`; the runner appends to
//! [`EVENTS_FILE`] and [`LOG_FILE`], says who it is in [`PID_FILE`], and at its very end writes [`RESULT_FILE`] in one step.
//! The result file is authoritative: a runner that was killed leaves none, and one that lost its terminal still leaves one.

mod run;
mod runtime;
#[cfg(test)]
mod tests;
mod types;

pub use run::{JobEnvironment, run_job};
pub use runtime::{
    RuntimeFinding, RuntimeHook, RuntimeJob, RuntimeProcess, RuntimeResult, RuntimeRunner, RuntimeSite,
    ServiceFacts,
};
pub use types::{
    CompileJob, DmJob, DmRunJob, DriveJob, JobError, JobEvent, JobKind, JobProcess, JobRequest, JobResult,
    JobSource, JobStatus, PROTOCOL, RunJob,
};

/// Written by the asker, complete before the runner starts.
pub const REQUEST_FILE: &str = "request.json";
/// One JSON object a line, appended while the job runs.
pub const EVENTS_FILE: &str = "events.jsonl";
/// What the driver prints.
pub const LOG_FILE: &str = "log.txt";
/// The runner's process.
pub const PID_FILE: &str = "pid.json";
/// Written last, atomically.
pub const RESULT_FILE: &str = "result.json";
/// Source files lie here.
pub const INPUT_DIR: &str = "input";
/// Artifacts and raw outputs appear here.
pub const OUTPUT_DIR: &str = "output";
/// Held while a runner works.
pub const LOCK_FILE: &str = "lock";
