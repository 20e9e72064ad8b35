//! Compiling on a device: which device may be asked, how it is reached, and a catalog's way through it.
//!
//! A [`device::Device`] is a machine that holds jobs: this one ([`device::LocalDevice`]) or one at the other end of a
//! connection. What can go wrong: a job outlives the host that started it (the next host takes it over by its name), a
//! device loses its power, a transfer is cut (each file is whole or absent), two hosts want one device (it is reserved).

pub mod adopt;
pub mod catalog;
pub mod device;
pub mod home;
pub mod link;
pub mod monitoring;
#[cfg(feature = "ssh")]
pub mod safety;
pub mod serve;
#[cfg(feature = "ssh")]
pub mod ssh;
pub mod supervise;
