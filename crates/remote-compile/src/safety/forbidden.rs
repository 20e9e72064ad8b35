//! The devices that must never be contacted.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr},
};

use super::{HostKey, literal::embedded_v4};

/// The device that is forbidden whatever the configuration says.
pub const FORBIDDEN_DEVICE: Ipv4Addr = Ipv4Addr::new(192, 168, 3, 110);

/// Addresses and host keys that are never contacted. It can be extended and never shrunk.
#[derive(Debug, Clone)]
pub struct ForbiddenSet {
    addresses: BTreeSet<IpAddr>,
    host_keys: BTreeSet<String>,
}

impl Default for ForbiddenSet {
    fn default() -> Self {
        Self { addresses: BTreeSet::from([IpAddr::V4(FORBIDDEN_DEVICE)]), host_keys: BTreeSet::new() }
    }
}

impl ForbiddenSet {
    /// Forbids one more address.
    pub fn forbid_address(&mut self, address: IpAddr) {
        self.addresses.insert(address.to_canonical());
    }

    /// Forbids a host key by its fingerprint, `SHA256:...`.
    pub fn forbid_host_key(&mut self, fingerprint: impl Into<String>) {
        self.host_keys.insert(fingerprint.into());
    }

    /// The forbidden address that `address` is or carries.
    pub fn find(&self, address: IpAddr) -> Option<IpAddr> {
        let canonical = address.to_canonical();
        if self.addresses.contains(&canonical) {
            return Some(canonical);
        }
        match canonical {
            IpAddr::V4(_) => None,
            IpAddr::V6(v6) => {
                embedded_v4(v6).into_iter().map(IpAddr::V4).find(|inner| self.addresses.contains(inner))
            }
        }
    }

    /// Whether this host key is forbidden.
    pub fn has_host_key(&self, key: &HostKey) -> bool {
        self.host_keys.contains(&key.fingerprint())
    }
}
