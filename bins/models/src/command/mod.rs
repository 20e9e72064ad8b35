//! One file a command.

pub mod about;
pub mod compile;
pub mod job;
pub mod join;
pub mod list;
mod parts;
pub mod serve;
pub mod split;
mod stages;
