//! The host key, judged before the login.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{SystemTime, UNIX_EPOCH},
};

use russh::{
    client,
    keys::{HashAlg, PublicKey, PublicKeyBase64, PublicKeyOrCertificate, ssh_key::certificate::CertType},
};

use crate::safety::{DeviceAddress, HostKey, KnownHosts, Refusal};

/// What a connection learns of the host it reached.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) key: Option<HostKey>,
    pub(super) refusal: Option<Refusal>,
}

/// Judges the key of one hop.
pub(super) struct HostCheck {
    pub(super) address: Arc<DeviceAddress>,
    pub(super) hop: usize,
    pub(super) known: Arc<KnownHosts>,
    pub(super) seen: Arc<Mutex<Seen>>,
}

impl client::Handler for HostCheck {
    type Error = russh::Error;

    async fn check_server_key(&mut self, presented: &PublicKeyOrCertificate) -> Result<bool, russh::Error> {
        let key = presented.public_key();
        let Some(host_key) = HostKey::from_blob(&key.public_key_bytes()) else { return Ok(false) };
        let verdict = match presented {
            PublicKeyOrCertificate::PublicKey { .. } => {
                self.address.judge_host_key(self.hop, &self.known, &host_key)
            }
            PublicKeyOrCertificate::Certificate(_) => self.judge_certificate(presented, &host_key),
        };
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.key = Some(host_key);
        seen.refusal = verdict.err();
        Ok(seen.refusal.is_none())
    }
}

impl HostCheck {
    fn judge_certificate(&self, presented: &PublicKeyOrCertificate, key: &HostKey) -> Result<(), Refusal> {
        let (host, names, _) = self.address.host_names(self.hop);
        let unknown = || Refusal::HostKeyUnknown { host: host.clone(), fingerprint: key.fingerprint() };
        let certificate = presented.certificate().ok_or_else(unknown)?;
        let authority = PublicKey::new(certificate.signature_key().clone(), "");
        let authority_key = HostKey::from_blob(&authority.public_key_bytes()).ok_or_else(unknown)?;
        self.address.judge_certificate(self.hop, &self.known, key, &authority_key)?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let named = certificate.valid_principals();
        let is_for_host = named.iter().any(|principal| names.contains(&principal.to_ascii_lowercase()));
        let fingerprint = authority.fingerprint(HashAlg::Sha256);
        if certificate.cert_type() == CertType::Host
            && is_for_host
            && certificate.validate_at(now, [&fingerprint]).is_ok()
        {
            Ok(())
        } else {
            Err(unknown())
        }
    }
}
