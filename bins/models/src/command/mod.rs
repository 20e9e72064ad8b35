//! One file a command.

pub mod about;
pub mod compile;
pub mod diff;
pub mod inspect;
pub mod job;
pub mod join;
pub mod list;
mod judged;
mod parts;
pub mod serve;
pub mod split;
mod stages;
pub mod verify;
