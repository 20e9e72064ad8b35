//! Host keys as bytes: enough to compare, name and record them.

use base64::{
    Engine,
    engine::general_purpose::{STANDARD, STANDARD_NO_PAD},
};
use durable_fs::Sha256;

/// A host key in its wire form.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostKey {
    algorithm: String,
    blob: Vec<u8>,
}

impl HostKey {
    /// Takes the wire form; `None` where it does not begin with the name of an algorithm.
    pub fn from_blob(blob: &[u8]) -> Option<Self> {
        let length = u32::from_be_bytes(blob.get(..4)?.try_into().ok()?) as usize;
        let name = blob.get(4..4_usize.checked_add(length)?)?;
        let algorithm = std::str::from_utf8(name).ok()?.to_owned();
        Some(Self { algorithm, blob: blob.to_owned() })
    }

    /// Takes the form of known_hosts and `.pub` files.
    pub fn from_base64(text: &str) -> Option<Self> {
        Self::from_blob(&STANDARD.decode(text).ok()?)
    }

    /// The algorithm, such as `ssh-ed25519`.
    pub fn algorithm(&self) -> &str {
        &self.algorithm
    }

    /// The fingerprint as `ssh-keygen -l` prints it: `SHA256:` and unpadded base64.
    pub fn fingerprint(&self) -> String {
        format!("SHA256:{}", STANDARD_NO_PAD.encode(Sha256::digest(&self.blob).as_bytes()))
    }

    /// The line of a known_hosts file, without the host.
    pub fn to_line(&self) -> String {
        format!("{} {}", self.algorithm, STANDARD.encode(&self.blob))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fingerprint_is_that_of_ssh_keygen() {
        let key =
            HostKey::from_base64("AAAAC3NzaC1lZDI1NTE5AAAAIJdD7y3aLq454yWBdwLWbieU1ebz9/cu7/QEXn9OIeZJ")
                .unwrap();
        assert_eq!(key.algorithm(), "ssh-ed25519");
        assert_eq!(key.fingerprint(), "SHA256:T7SvZ2cslqpPj6nKzitCBHHlpVF3r3MvLwmFL0fk0IE");
        assert!(HostKey::from_blob(b"\0\0\0\xffshort").is_none());
    }
}
