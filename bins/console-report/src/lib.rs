//! How the project's binaries speak.
//!
//! Results go to stdout, everything else to stderr. On a terminal progress is drawn as bars, elsewhere as plain lines, and
//! with `--json` both streams carry one JSON object a line. What can go wrong here must never change what a command does:
//! a closed pipe (`models --list | head`) is ignored, and a failure is a value that reaches `main` and becomes an exit code.

mod console;
pub mod exit;
mod failure;
mod interrupt;
mod progress;
mod text;

pub use console::{Console, Mode};
pub use exit::Exit;
pub use failure::Failure;
pub use interrupt::interrupt_flag;
pub use text::{seconds_text, size_text, table};
