//! A device that the check has passed.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use super::{ForbiddenSet, HostKey, HostSettings, KnownHosts, Refusal, Verdict};

/// One host on the way, with every address that its name had when it was checked.
#[derive(Debug, Clone)]
pub(crate) struct CheckedHost {
    /// The name under which its key is recorded.
    pub(crate) name: String,
    /// Where it is dialled, and nowhere else.
    pub(crate) addresses: Vec<SocketAddr>,
    /// What the configuration says of it.
    pub(crate) settings: HostSettings,
    /// Fingerprints of the keys that are recorded for it; none where the known hosts decide.
    pub(crate) host_keys: Vec<String>,
}

/// A device that may be contacted. Only the check makes one, and a connection is made to the addresses that it holds, not to
/// a name again.
#[derive(Debug, Clone)]
pub struct DeviceAddress {
    asked: String,
    hops: Vec<CheckedHost>,
    forbidden: Arc<ForbiddenSet>,
}

impl DeviceAddress {
    pub(super) fn new(asked: String, hops: Vec<CheckedHost>, forbidden: Arc<ForbiddenSet>) -> Self {
        Self { asked, hops, forbidden }
    }

    /// The device as it was named.
    pub fn asked(&self) -> &str {
        &self.asked
    }

    /// The user and the addresses of the device itself, for messages.
    pub fn describe(&self) -> String {
        let hops: Vec<String> = self
            .hops
            .iter()
            .map(|hop| {
                format!(
                    "{}@{}",
                    hop.settings.user,
                    hop.addresses.first().map_or_else(String::new, ToString::to_string)
                )
            })
            .collect();
        hops.join(" -> ")
    }

    /// Directives of the SSH configuration that were ignored, as `file:line keyword`.
    pub fn ignored_directives(&self) -> Vec<String> {
        self.hops.iter().flat_map(|hop| hop.settings.ignored.iter().cloned()).collect()
    }

    /// The addresses of every hop, the device's own last.
    pub fn addresses(&self) -> Vec<Vec<SocketAddr>> {
        self.hops.iter().map(|hop| hop.addresses.clone()).collect()
    }

    /// Host key fingerprints that are recorded with the device.
    pub fn recorded_host_keys(&self) -> &[String] {
        self.hops.last().map_or(&[], |hop| &hop.host_keys)
    }

    pub(crate) fn hops(&self) -> &[CheckedHost] {
        &self.hops
    }

    /// Looks once more just before an address is dialled, at every reconnect too.
    pub(crate) fn confirm(&self, address: SocketAddr) -> Result<(), Refusal> {
        match self.forbidden.find(address.ip()) {
            None => Ok(()),
            Some(forbidden) => Err(Refusal::ForbiddenAddress {
                asked: self.asked.clone(),
                address: forbidden.to_string(),
                via: String::new(),
            }),
        }
    }

    /// Compares the addresses that the device itself says it has, after the login and before anything is written.
    ///
    /// # Errors
    /// [`Refusal::DeviceHasForbiddenAddress`].
    pub fn confirm_own_addresses(&self, addresses: &[IpAddr]) -> Result<(), Refusal> {
        match addresses.iter().find_map(|address| self.forbidden.find(*address)) {
            None => Ok(()),
            Some(address) => Err(Refusal::DeviceHasForbiddenAddress {
                asked: self.asked.clone(),
                address: address.to_string(),
            }),
        }
    }

    /// Judges the key that the host at `hop` presents. The keys that are recorded for a device bind it on every hop; where none
    /// is recorded the known hosts decide.
    ///
    /// # Errors
    /// A [`Refusal`] for a forbidden, revoked, changed or unknown key.
    pub fn judge_host_key(&self, hop: usize, known: &KnownHosts, key: &HostKey) -> Result<(), Refusal> {
        let (host, names, port) = self.host_names(hop);
        self.refuse_forbidden_key(&host, key)?;
        let verdict = known.judge(&names, port, key);
        if let Verdict::Revoked(at) = verdict {
            return Err(Refusal::HostKeyRevoked { host, fingerprint: key.fingerprint(), at });
        }
        if !self.hops[hop].host_keys.is_empty() {
            return self.judge_recorded(hop, host, key);
        }
        of_known(verdict, host, key)
    }

    /// Judges a certificate by the key that it certifies and the authority that signed it.
    pub(crate) fn judge_certificate(
        &self,
        hop: usize,
        known: &KnownHosts,
        key: &HostKey,
        authority: &HostKey,
    ) -> Result<(), Refusal> {
        let (host, names, port) = self.host_names(hop);
        self.refuse_forbidden_key(&host, key)?;
        self.refuse_forbidden_key(&host, authority)?;
        let as_plain = known.judge(&names, port, key);
        if let Verdict::Revoked(at) = as_plain {
            return Err(Refusal::HostKeyRevoked { host, fingerprint: key.fingerprint(), at });
        }
        if !self.hops[hop].host_keys.is_empty() {
            return self.judge_recorded(hop, host, key);
        }
        match known.judge_authority(&names, port, authority) {
            Verdict::Known => Ok(()),
            Verdict::Revoked(at) => {
                Err(Refusal::HostKeyRevoked { host, fingerprint: authority.fingerprint(), at })
            }
            // The authority is nobody's here: the key counts as if it had come without it, and one of a host whose key is
            // recorded has changed.
            _ => match as_plain {
                Verdict::Unknown => {
                    Err(Refusal::HostKeyUnknown { host, fingerprint: authority.fingerprint() })
                }
                verdict => of_known(verdict, host, key),
            },
        }
    }

    fn judge_recorded(&self, hop: usize, host: String, key: &HostKey) -> Result<(), Refusal> {
        let (actual, recorded) = (key.fingerprint(), &self.hops[hop].host_keys);
        if recorded.contains(&actual) {
            return Ok(());
        }
        let expected = recorded.join(", ");
        Err(Refusal::HostKeyChanged { host, expected, actual, at: " for this device".to_owned() })
    }

    fn refuse_forbidden_key(&self, host: &str, key: &HostKey) -> Result<(), Refusal> {
        if self.forbidden.has_host_key(key) {
            return Err(Refusal::ForbiddenHostKey { host: host.to_owned(), fingerprint: key.fingerprint() });
        }
        Ok(())
    }

    /// How messages call the host at `hop`, and the names and port under which its keys are looked for.
    pub(crate) fn host_names(&self, hop: usize) -> (String, Vec<String>, u16) {
        let host = &self.hops[hop];
        let mut names = vec![host.name.clone()];
        if let Some(address) = host.addresses.first().map(|address| address.ip().to_string())
            && host.addresses.len() == 1
            && address != host.name
        {
            names.push(address);
        }
        (host.name.clone(), names, host.settings.port)
    }
}

/// What the known hosts say of a key that comes without a certificate.
fn of_known(verdict: Verdict, host: String, key: &HostKey) -> Result<(), Refusal> {
    match verdict {
        Verdict::Known => Ok(()),
        Verdict::Changed(expected, at) => Err(Refusal::HostKeyChanged {
            host,
            expected: expected.join(", "),
            actual: key.fingerprint(),
            at: format!(" in {at}"),
        }),
        Verdict::Revoked(at) => Err(Refusal::HostKeyRevoked { host, fingerprint: key.fingerprint(), at }),
        Verdict::Unknown => Err(Refusal::HostKeyUnknown { host, fingerprint: key.fingerprint() }),
    }
}
