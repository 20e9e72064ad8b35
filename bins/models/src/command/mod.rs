//! One file a command.

pub mod about;
pub mod compile;
pub mod job;
pub mod join;
pub mod list;
pub mod serve;
mod parts;
pub mod split;
mod stages;
