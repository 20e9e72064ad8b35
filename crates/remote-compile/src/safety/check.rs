//! The check that makes a [`DeviceAddress`].

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
};

use super::{
    Destination, DeviceAddress, ForbiddenSet, HostSettings, LocalUser, Refusal, Resolver, SshConfig,
    address::CheckedHost,
    literal::{Literal, read_literal},
};

/// The one supported build device.
pub const DEFAULT_DEVICE: &str = "comma@192.168.3.109";
const DEFAULT_ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 168, 3, 109);
const MAX_HOPS: usize = 8;

/// A device that the user has recorded in the workspace's configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedDevice {
    /// As it was named.
    pub device: String,
    /// Fingerprints of the host keys it may present; none where the known hosts decide.
    pub host_keys: Vec<String>,
}

/// What is forbidden and what has been allowed.
#[derive(Debug, Clone, Default)]
pub struct Policy {
    /// Never contacted.
    pub forbidden: ForbiddenSet,
    /// Devices that the configuration records.
    pub recorded: Vec<RecordedDevice>,
    /// Devices that this run allows (`--allow-device`).
    pub allowed: Vec<String>,
}

/// Checks `device` and every host on the way to it. Nothing is sent to any of them; names are resolved.
///
/// # Errors
/// A [`Refusal`] that names the rule.
pub fn check_device(
    device: &str,
    policy: &Policy,
    config: &SshConfig,
    resolver: &dyn Resolver,
    local: &LocalUser,
) -> Result<DeviceAddress, Refusal> {
    let check = Check { asked: device, policy, config, resolver, local };
    let destination = Destination::parse(device)?;
    let mut hops = Vec::new();
    check.add_hops(&destination, &mut hops, MAX_HOPS)?;
    let recorded = policy.recorded.iter().find(|recorded| same(&destination, &recorded.device));
    if recorded.is_none() && !check.is_allowed(&destination, &hops) {
        return Err(Refusal::NotAllowed { asked: device.to_owned() });
    }
    check.bind(recorded, &mut hops);
    Ok(DeviceAddress::new(device.to_owned(), hops, Arc::new(policy.forbidden.clone())))
}

struct Check<'a> {
    asked: &'a str,
    policy: &'a Policy,
    config: &'a SshConfig,
    resolver: &'a dyn Resolver,
    local: &'a LocalUser,
}

impl Check<'_> {
    /// Appends the hosts on the way to `to`, the one that is dialled first in front, and `to` itself.
    fn add_hops(&self, to: &Destination, hops: &mut Vec<CheckedHost>, budget: usize) -> Result<(), Refusal> {
        if budget == 0 || hops.len() >= MAX_HOPS {
            return Err(Refusal::TooManyHops { asked: self.asked.to_owned(), limit: MAX_HOPS });
        }
        // A forbidden spelling is refused wherever it stands, also where the configuration would lead it elsewhere.
        self.refuse_spelling(&to.host)?;
        let settings = self.config.lookup(&to.host, to.user.as_deref(), to.port, self.local)?;
        for (index, jump) in settings.jumps.iter().enumerate() {
            let jump = Destination::parse(jump)?;
            if index == 0 {
                self.add_hops(&jump, hops, budget - 1)?;
            } else {
                // As with `ssh -J a,b`, b is reached through a, whatever the configuration says of b's own way.
                self.refuse_spelling(&jump.host)?;
                let settings = self.config.lookup(&jump.host, jump.user.as_deref(), jump.port, self.local)?;
                hops.push(self.checked(settings)?);
            }
        }
        hops.push(self.checked(settings)?);
        Ok(())
    }

    fn refuse_spelling(&self, host: &str) -> Result<(), Refusal> {
        match read_literal(host) {
            Some(Literal::Canonical(address, _)) => self.refuse_address(address, host),
            Some(Literal::Unusual(readings)) => {
                readings.into_iter().try_for_each(|address| self.refuse_address(address, host))
            }
            Some(Literal::Numeric) | None => Ok(()),
        }
    }

    fn checked(&self, settings: HostSettings) -> Result<CheckedHost, Refusal> {
        // The name out of a configuration has to be one that a command line could hold.
        let name = Destination::parse(&settings.host_name)?;
        if name.user.is_some() || name.port.is_some() || settings.user.is_empty() {
            return Err(Refusal::Malformed { asked: settings.host_name, why: "HostName is a host alone" });
        }
        Destination::parse(&format!("{}@h", settings.user))?;
        let mut addresses = self.addresses(&name.host)?;
        match settings.address_family {
            Some(4) => addresses.retain(SocketAddr::is_ipv4),
            Some(6) => addresses.retain(SocketAddr::is_ipv6),
            _ => {}
        }
        if addresses.is_empty() {
            let why = "it has no address of the wanted family".to_owned();
            return Err(Refusal::Unresolved { name: name.host, why });
        }
        addresses.iter_mut().for_each(|address| address.set_port(settings.port));
        Ok(CheckedHost { name: plain_name(&name.host), addresses, settings, host_keys: Vec::new() })
    }

    fn addresses(&self, host: &str) -> Result<Vec<SocketAddr>, Refusal> {
        let ambiguous = || Refusal::AmbiguousAddress { asked: host.to_owned() };
        let found = match read_literal(host) {
            Some(Literal::Unusual(readings)) => {
                for address in readings {
                    self.refuse_address(address, host)?;
                }
                return Err(ambiguous());
            }
            Some(Literal::Numeric) => return Err(ambiguous()),
            Some(Literal::Canonical(address, None)) => vec![SocketAddr::new(address, 0)],
            Some(Literal::Canonical(address, Some(zone))) => self.zoned(address, &zone, host)?,
            None => self.resolve(host)?,
        };
        for address in &found {
            self.refuse_address(address.ip(), host)?;
        }
        Ok(found)
    }

    /// The number of a zone is known to the resolver alone; it must not answer with another address.
    fn zoned(&self, address: IpAddr, zone: &str, host: &str) -> Result<Vec<SocketAddr>, Refusal> {
        self.refuse_address(address, host)?;
        let answers = self.resolve(&format!("{address}%{zone}"))?;
        if answers.iter().any(|answer| answer.ip() != address) {
            return Err(Refusal::AmbiguousAddress { asked: host.to_owned() });
        }
        Ok(answers)
    }

    fn resolve(&self, name: &str) -> Result<Vec<SocketAddr>, Refusal> {
        let unresolved = |why: String| Refusal::Unresolved { name: name.to_owned(), why };
        let answers = self.resolver.resolve(name).map_err(|error| unresolved(error.to_string()))?;
        if answers.is_empty() {
            return Err(unresolved("no answer".to_owned()));
        }
        Ok(answers)
    }

    fn refuse_address(&self, address: IpAddr, named: &str) -> Result<(), Refusal> {
        if let Some(forbidden) = self.policy.forbidden.find(address) {
            let via = if named == self.asked { String::new() } else { format!(", through {named}") };
            return Err(Refusal::ForbiddenAddress {
                asked: self.asked.to_owned(),
                address: forbidden.to_string(),
                via,
            });
        }
        let canonical = address.to_canonical();
        if canonical.is_unspecified()
            || canonical.is_multicast()
            || canonical == IpAddr::V4(Ipv4Addr::BROADCAST)
        {
            return Err(Refusal::NotAHost { asked: named.to_owned(), address: address.to_string() });
        }
        Ok(())
    }

    fn is_allowed(&self, destination: &Destination, hops: &[CheckedHost]) -> bool {
        is_default(hops) || self.policy.allowed.iter().any(|allowed| same(destination, allowed))
    }

    /// Binds every host on the way to the keys of the recorded devices that it is, whatever it is called here: a recorded
    /// device has to present its key under another name, at another port and as a jump host too.
    fn bind(&self, named: Option<&RecordedDevice>, hops: &mut [CheckedHost]) {
        let recorded: Vec<(&RecordedDevice, Vec<SocketAddr>)> = self
            .policy
            .recorded
            .iter()
            .filter(|recorded| !recorded.host_keys.is_empty())
            .map(|recorded| (recorded, self.recorded_addresses(&recorded.device)))
            .collect();
        let last = hops.len().saturating_sub(1);
        for (index, hop) in hops.iter_mut().enumerate() {
            hop.host_keys = match named.filter(|named| index == last && !named.host_keys.is_empty()) {
                Some(named) => named.host_keys.clone(),
                None => keys_of(&recorded, &hop.addresses),
            };
        }
    }

    /// Where a recorded device is, by its name; nowhere where that cannot be said now or is forbidden.
    fn recorded_addresses(&self, device: &str) -> Vec<SocketAddr> {
        let find = || {
            let to = Destination::parse(device)?;
            let settings = self.config.lookup(&to.host, to.user.as_deref(), to.port, self.local)?;
            Ok::<_, Refusal>(self.checked(settings)?.addresses)
        };
        find().unwrap_or_default()
    }
}

/// Whether a text names this destination.
fn same(destination: &Destination, text: &str) -> bool {
    Destination::parse(text).is_ok_and(|other| {
        (&other.user, &other.host, other.port) == (&destination.user, &destination.host, destination.port)
    })
}

/// The keys of the recorded devices that are at one of `addresses`. A device at the very port comes first; at another port it is
/// still the same machine, except on this machine's own addresses, where each port may lead somewhere else.
fn keys_of(recorded: &[(&RecordedDevice, Vec<SocketAddr>)], addresses: &[SocketAddr]) -> Vec<String> {
    let key = |address: &SocketAddr| (address.ip().to_canonical(), address.port());
    let is_at = |places: &[SocketAddr], with_port: bool| {
        places.iter().any(|place| {
            addresses.iter().any(|address| {
                let ((place, place_port), (address, port)) = (key(place), key(address));
                place == address && if with_port { place_port == port } else { !place.is_loopback() }
            })
        })
    };
    let keys = |with_port: bool| -> Vec<String> {
        let found = recorded.iter().filter(|(_, places)| is_at(places, with_port));
        found.flat_map(|(recorded, _)| recorded.host_keys.iter().cloned()).collect()
    };
    let exact = keys(true);
    if exact.is_empty() { keys(false) } else { exact }
}

/// Whether the way leads to the supported device, directly.
fn is_default(hops: &[CheckedHost]) -> bool {
    let [only] = hops else { return false };
    only.settings.user == "comma" && only.addresses == [SocketAddr::new(DEFAULT_ADDRESS.into(), 22)]
}

/// A host name as known_hosts files write it.
fn plain_name(host: &str) -> String {
    let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    bare.trim_end_matches('.').to_ascii_lowercase()
}
