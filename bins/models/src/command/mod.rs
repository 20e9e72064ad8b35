//! One file a command.

pub mod about;
pub mod batch;
pub mod compile;
pub mod diff;
pub mod dm;
pub mod fetch;
pub mod inspect;
mod install;
pub mod job;
pub mod join;
mod judged;
pub use judged::AbiChoice;
pub mod list;
mod parts;
pub mod rehearse;
pub mod restore_selection;
pub mod serve;
mod setting;
pub mod split;
mod stages;
pub mod verify;
