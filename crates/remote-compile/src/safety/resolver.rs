//! Names to addresses.

use std::{
    io,
    net::{SocketAddr, ToSocketAddrs},
};

/// Answers which addresses a name has: all of them.
pub trait Resolver: Send + Sync {
    /// Every address of `name`, with port 0. An IPv6 address with a zone (`fe80::1%eth0`) is also asked for, to learn the
    /// number of the zone.
    ///
    /// # Errors
    /// What the system says where there is no answer.
    fn resolve(&self, name: &str) -> io::Result<Vec<SocketAddr>>;
}

/// The system's resolver.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemResolver;

impl Resolver for SystemResolver {
    fn resolve(&self, name: &str) -> io::Result<Vec<SocketAddr>> {
        (name, 0_u16).to_socket_addrs().map(Iterator::collect)
    }
}
