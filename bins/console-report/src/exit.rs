//! The published exit codes of `rebuild` and `models`.

use std::process::ExitCode;

/// Everything that was asked for is done.
pub const GOOD: u8 = 0;
/// A model, check or comparison failed; each failed model has its record.
pub const FAILED: u8 = 1;
/// The command line is wrong, or an ID is unknown.
pub const USAGE: u8 = 2;
/// A safety rule forbids it.
pub const REFUSED: u8 = 3;
/// Interrupted by Ctrl-C or SIGTERM; what is on disk is consistent, and running again goes on.
pub const INTERRUPTED: u8 = 4;
/// The environment lacks something: a tool, a clone, disk space, permission to write.
pub const ENVIRONMENT: u8 = 5;

/// Why a command did not do what was asked for. Each reason has its exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Exit {
    /// [`FAILED`].
    Failed,
    /// [`USAGE`].
    Usage,
    /// [`REFUSED`].
    Refused,
    /// [`INTERRUPTED`].
    Interrupted,
    /// [`ENVIRONMENT`].
    Environment,
}

impl Exit {
    /// The exit code.
    pub const fn code(self) -> u8 {
        match self {
            Self::Failed => FAILED,
            Self::Usage => USAGE,
            Self::Refused => REFUSED,
            Self::Interrupted => INTERRUPTED,
            Self::Environment => ENVIRONMENT,
        }
    }

    /// The name in JSON lines.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Usage => "usage",
            Self::Refused => "refused",
            Self::Interrupted => "interrupted",
            Self::Environment => "environment",
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}
