//! A device at the other end of an SSH connection.
//!
//! One connection carries everything: it is made to the checked address, kept by signs of life that a busy device may answer
//! late, and made again with growing pauses when it is lost. On it `models serve` speaks the frames of [`crate::link`], so
//! that transfers, looks at a job and requests share one channel, and nothing of a request passes through a remote shell.
//! No type of the SSH library or of its runtime leaves this module: what is seen from outside is blocking.
//!
//! What can go wrong: the host key is not the recorded one (refused before the login), the device turns out to have a
//! forbidden address (refused before anything is written), the connection is lost (the job goes on; transfers continue from
//! what has verifiably arrived), the device is silent for longer than a busy one would be (taken for lost).

mod bootstrap;
mod channel;
mod device;
mod error;
mod host_check;
mod login;
mod once;
mod options;
mod session;
mod transfer;

pub use self::{
    bootstrap::{BinaryFacts, BinaryProblem, VERSION_MARK, bootstrap, examine_binary},
    device::SshDevice,
    error::SshError,
    options::{Passphrases, RemotePath, SshOptions},
    session::presented_host_key,
};
