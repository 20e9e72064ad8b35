//! What the end-to-end tests, the demo and the benchmarks share.
//!
//! Nothing here uses the project's own crates: the tests look at the binaries from outside, with their own idea of what
//! a pointer, a part or a digest is. Everything that a test makes lies in a temporary directory; what is slow to make (the
//! binaries, the Python environment, generated ONNX files) lies under the build's target directory and is reused.

mod binaries;
mod digest;
mod environment;
mod exfat;
mod fault_proxy;
mod history;
mod measure;
mod nginx;
mod onnx;
mod outcome;
mod processes;
mod resources;
mod scenario;
mod skip;
mod sshd;

pub use binaries::{Binaries, repository_root, target_directory, xtask};
pub use digest::{sha256_bytes, sha256_file};
pub use environment::PythonEnvironment;
pub use exfat::ExFat;
pub use fault_proxy::FaultProxy;
pub use history::{Blob, History};
pub use measure::{Measured, Measurer};
pub use nginx::{Nginx, find_nginx};
pub use nix::sys::signal::Signal;
pub use onnx::{OnnxKind, OnnxRequest, onnx_fixture};
pub use outcome::{Outcome, run};
pub use processes::{processes_with, send_signal, wait_for};
pub use resources::Resources;
pub use scenario::{ModelSource, Scenario, ScenarioModel};
pub use skip::{is_root, report_skip, thorough};
pub use sshd::{Sshd, find_sshd};
