//! Why a device is not contacted.

/// A refusal: nothing was sent to anybody. [`Refusal::rule`] is the name of the rule, for people and for programs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// An address of the forbidden set, in whatever form.
    #[error("{asked} leads to {address}, which must never be contacted{via}; name another device")]
    ForbiddenAddress {
        /// What the user or the configuration named.
        asked: String,
        /// The forbidden address.
        address: String,
        /// How it was reached, empty or starting with `, through`.
        via: String,
    },
    /// A host key of the forbidden set.
    #[error("{host} presents the forbidden host key {fingerprint}; this device must never be used")]
    ForbiddenHostKey {
        /// Who presented it.
        host: String,
        /// Its fingerprint.
        fingerprint: String,
    },
    /// A device that nobody has allowed.
    #[error(
        "{asked} is not the supported device and has not been allowed; pass --allow-device {asked} or record it with `rebuild device trust`"
    )]
    NotAllowed {
        /// The device that was asked for.
        asked: String,
    },
    /// Text that programs read in different ways.
    #[error(
        "{asked} is not the usual spelling of an address; write it as a.b.c.d or in the usual form of IPv6"
    )]
    AmbiguousAddress {
        /// The text.
        asked: String,
    },
    /// Text that is neither a host name nor an address.
    #[error("{asked:?} is not a device: {why}; write user@host or user@host:port")]
    Malformed {
        /// The text.
        asked: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// An address that belongs to no single host.
    #[error("{asked} leads to {address}, which is not the address of one host")]
    NotAHost {
        /// What was named.
        asked: String,
        /// The address.
        address: String,
    },
    /// A name without an answer. Nothing behind it can be checked, not even through a jump host.
    #[error("the name {name} cannot be resolved here ({why}); name the device by its address")]
    Unresolved {
        /// The name.
        name: String,
        /// What the resolver said.
        why: String,
    },
    /// A directive of the SSH configuration that changes the route or the trust and is not supported.
    #[error(
        "{file} line {line}: {directive} would change how {host} is reached and is not supported; remove it for this host"
    )]
    UnsupportedDirective {
        /// The configuration file.
        file: String,
        /// Its line.
        line: usize,
        /// The directive.
        directive: String,
        /// The host it applies to.
        host: String,
    },
    /// An SSH configuration that cannot be read.
    #[error("{file} line {line}: {why}; mend the SSH configuration")]
    BadConfig {
        /// The configuration file.
        file: String,
        /// Its line, 0 for the whole file.
        line: usize,
        /// What is wrong.
        why: String,
    },
    /// Jump hosts that lead to each other, or too many of them.
    #[error("the way to {asked} has more than {limit} jump hosts or goes round in a circle")]
    TooManyHops {
        /// The device.
        asked: String,
        /// The limit.
        limit: usize,
    },
    /// The host key is not the recorded one.
    #[error(
        "{host} presents the host key {actual}, but {expected} is recorded{at}; if the device was reflashed, compare both with the device and run `rebuild device trust`"
    )]
    HostKeyChanged {
        /// Who presented it.
        host: String,
        /// The recorded fingerprints.
        expected: String,
        /// The fingerprint that was presented.
        actual: String,
        /// Where it is recorded, empty or starting with a space.
        at: String,
    },
    /// The host key is marked as revoked.
    #[error(
        "{host} presents the revoked host key {fingerprint} ({at}); do not use this device before you know why"
    )]
    HostKeyRevoked {
        /// Who presented it.
        host: String,
        /// Its fingerprint.
        fingerprint: String,
        /// Where it is revoked.
        at: String,
    },
    /// Nobody has said that this host key is right.
    #[error(
        "the host key {fingerprint} of {host} is not known; compare it with the device and run `rebuild device trust`"
    )]
    HostKeyUnknown {
        /// Who presented it.
        host: String,
        /// Its fingerprint.
        fingerprint: String,
    },
    /// The device says itself that it has a forbidden address.
    #[error(
        "the device behind {asked} has the address {address} itself, which must never be contacted; nothing was written to it"
    )]
    DeviceHasForbiddenAddress {
        /// What was named.
        asked: String,
        /// The forbidden address that the device has.
        address: String,
    },
    /// The device is driving.
    #[error(
        "the device {asked} is on the road (its IsOnroad parameter is set); wait, or insist with --while-driving"
    )]
    OnRoad {
        /// The device.
        asked: String,
    },
}

impl Refusal {
    /// The name of the rule that refused.
    pub fn rule(&self) -> &'static str {
        match self {
            Self::ForbiddenAddress { .. } => "forbidden-address",
            Self::ForbiddenHostKey { .. } => "forbidden-host-key",
            Self::NotAllowed { .. } => "not-allowed",
            Self::AmbiguousAddress { .. } => "ambiguous-address",
            Self::Malformed { .. } => "malformed-device",
            Self::NotAHost { .. } => "not-a-host",
            Self::Unresolved { .. } => "unresolved-name",
            Self::UnsupportedDirective { .. } => "unsupported-directive",
            Self::BadConfig { .. } => "bad-ssh-config",
            Self::TooManyHops { .. } => "too-many-hops",
            Self::HostKeyChanged { .. } => "host-key-changed",
            Self::HostKeyRevoked { .. } => "host-key-revoked",
            Self::HostKeyUnknown { .. } => "host-key-unknown",
            Self::DeviceHasForbiddenAddress { .. } => "device-has-forbidden-address",
            Self::OnRoad { .. } => "on-road",
        }
    }
}
