//! The subcommands: one file each, with its arguments and what it does.

pub mod checklist;
pub mod compile;
pub mod device;
pub mod dm;
pub mod doctor;
pub mod extract;
pub mod init;
pub mod manifest;
pub mod namespace;
mod plans;
pub mod publish;
pub mod reconcile;
pub mod report;
pub mod sources;
pub mod status;
pub mod validate;
pub mod verify;
pub mod verify_runtime;
