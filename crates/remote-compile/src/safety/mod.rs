//! Which device may be contacted.
//!
//! One device on the network must never be touched, and a build device is a computer in a car: nothing is sent to an address
//! before a [`DeviceAddress`] exists, and only [`check_device`] makes one. It follows the SSH configuration and every jump
//! host, resolves every name, takes all answers, reads addresses in every spelling that some program understands, and
//! compares them with a set that can grow and never shrink. What can go wrong: a name that leads elsewhere later (the
//! connection is made to the checked address), a port that leads to another machine (host keys, and the device's own list of
//! addresses after the login), a directive that this check does not understand (refused by name).

mod address;
mod check;
mod destination;
mod forbidden;
mod host_key;
mod known_hosts;
mod literal;
mod refusal;
mod resolver;
mod ssh_config;
#[cfg(test)]
mod tests;

pub(crate) use self::address::CheckedHost;
pub use self::{
    address::DeviceAddress,
    check::{DEFAULT_DEVICE, Policy, RecordedDevice, check_device},
    destination::Destination,
    forbidden::{FORBIDDEN_DEVICE, ForbiddenSet},
    host_key::HostKey,
    known_hosts::{KnownHosts, Verdict},
    refusal::Refusal,
    resolver::{Resolver, SystemResolver},
    ssh_config::{HostSettings, LocalUser, SshConfig},
};
