//! Logging in: keys of the agent, then key files.

use std::sync::{Arc, PoisonError};

use camino::{Utf8Path, Utf8PathBuf};
use russh::{
    client::Handle,
    keys::{
        Error as KeyError, HashAlg, PrivateKey, PrivateKeyWithHashAlg, PublicKey,
        agent::{AgentIdentity, client::AgentClient},
        decode_secret_key, load_public_key,
    },
};

use super::{SshError, SshOptions, host_check::HostCheck};
use crate::safety::CheckedHost;

/// Keys that are offered at most: a server ends the connection after six.
const MAX_OFFERS: usize = 5;
const DEFAULT_FILES: [&str; 4] = ["id_ed25519", "id_ecdsa", "id_rsa", "id_ed25519_sk"];

struct Login<'a> {
    handle: &'a mut Handle<HostCheck>,
    host: &'a CheckedHost,
    options: &'a SshOptions,
    tried: Vec<String>,
    offers: usize,
}

/// Logs in to the host that `handle` leads to.
pub(super) async fn log_in(
    handle: &mut Handle<HostCheck>,
    host: &CheckedHost,
    options: &SshOptions,
) -> Result<(), SshError> {
    let mut login = Login { handle, host, options, tried: Vec::new(), offers: 0 };
    if login.with_agent().await? || login.with_files().await? {
        return Ok(());
    }
    let tried = if login.tried.is_empty() { "there are none".to_owned() } else { login.tried.join("; ") };
    Err(SshError::Login { host: host.name.clone(), user: host.settings.user.clone(), tried })
}

impl Login<'_> {
    fn files(&self) -> Vec<Utf8PathBuf> {
        let named = &self.host.settings.identity_files;
        if named.is_empty() {
            let dir = self.options.local.home.join(".ssh");
            DEFAULT_FILES.iter().map(|name| dir.join(name)).filter(|file| file.exists()).collect()
        } else {
            named.iter().map(Utf8PathBuf::from).collect()
        }
    }

    fn lost(&self, error: impl ToString) -> SshError {
        SshError::lost(&self.host.name, error)
    }

    async fn rsa_hash(&self, is_rsa: bool) -> Result<Option<HashAlg>, SshError> {
        if !is_rsa {
            return Ok(None);
        }
        let best = self.handle.best_supported_rsa_hash().await.map_err(|error| self.lost(error))?;
        Ok(best.flatten().or(Some(HashAlg::Sha512)))
    }

    /// Offers the agent's keys: those that the configuration names first, and no others where it says so.
    async fn with_agent(&mut self) -> Result<bool, SshError> {
        let Some(socket) = self.agent_socket() else { return Ok(false) };
        let mut agent = match AgentClient::connect_uds(socket.as_std_path()).await {
            Ok(agent) => agent,
            Err(error) => {
                self.tried.push(format!("the agent at {socket}: {error}"));
                return Ok(false);
            }
        };
        let identities = match agent.request_identities().await {
            Ok(identities) => identities,
            Err(error) => {
                self.tried.push(format!("the agent at {socket}: {error}"));
                return Ok(false);
            }
        };
        let wanted: Vec<PublicKey> = self.files().iter().filter_map(|file| public_key(file)).collect();
        let mut keys: Vec<PublicKey> = identities
            .into_iter()
            .filter_map(|identity| match identity {
                AgentIdentity::PublicKey { key, .. } => Some(key),
                AgentIdentity::Certificate { .. } => None,
            })
            .collect();
        let is_wanted = |key: &PublicKey| wanted.iter().any(|wanted| wanted.key_data() == key.key_data());
        if self.host.settings.identities_only {
            keys.retain(is_wanted);
        }
        keys.sort_by_key(|key| !is_wanted(key));
        for key in keys {
            if self.offers == MAX_OFFERS {
                break;
            }
            self.offers += 1;
            let hash = self.rsa_hash(key.algorithm().is_rsa()).await?;
            let user = self.host.settings.user.clone();
            let name = key.fingerprint(HashAlg::Sha256).to_string();
            match self.handle.authenticate_publickey_with(user, key, hash, &mut agent).await {
                Ok(result) if result.success() => return Ok(true),
                Ok(_) => self.tried.push(format!("{name} of the agent")),
                Err(error) if self.handle.is_closed() => return Err(self.lost(error)),
                Err(error) => self.tried.push(format!("{name} of the agent: {error}")),
            }
        }
        Ok(false)
    }

    fn agent_socket(&self) -> Option<Utf8PathBuf> {
        match self.host.settings.identity_agent.as_deref() {
            None | Some("SSH_AUTH_SOCK") => self.options.agent.clone(),
            Some(none) if none.eq_ignore_ascii_case("none") => None,
            Some(socket) => Some(socket.into()),
        }
    }

    async fn with_files(&mut self) -> Result<bool, SshError> {
        for file in self.files() {
            if self.offers == MAX_OFFERS {
                self.tried.push(format!("{file}: not offered, {MAX_OFFERS} keys were refused"));
                continue;
            }
            let key = match self.load(&file) {
                Ok(key) => key,
                Err(why) => {
                    self.tried.push(format!("{file}: {why}"));
                    continue;
                }
            };
            self.offers += 1;
            let hash = self.rsa_hash(key.algorithm().is_rsa()).await?;
            let key = PrivateKeyWithHashAlg::new(Arc::new(key), hash);
            let answer = self.handle.authenticate_publickey(self.host.settings.user.clone(), key).await;
            if answer.map_err(|error| self.lost(error))?.success() {
                return Ok(true);
            }
            self.tried.push(file.into_string());
        }
        Ok(false)
    }

    fn load(&self, file: &Utf8Path) -> Result<PrivateKey, String> {
        let text = std::fs::read_to_string(file).map_err(|error| error.to_string())?;
        match decode_secret_key(&text, None) {
            Ok(key) => Ok(key),
            Err(KeyError::KeyIsEncrypted) => {
                let mut unlocked = self.options.unlocked.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(key) = unlocked.get(file) {
                    return Ok(key.clone());
                }
                let ask = self.options.passphrases.as_ref();
                let passphrase = ask.and_then(|ask| ask(file));
                let passphrase = passphrase.ok_or("it is encrypted; load it into the agent (ssh-add)")?;
                let key =
                    decode_secret_key(&text, Some(&passphrase)).map_err(|_| "the passphrase is wrong")?;
                unlocked.insert(file.to_owned(), key.clone());
                Ok(key)
            }
            Err(error) => Err(error.to_string()),
        }
    }
}

fn public_key(file: &Utf8Path) -> Option<PublicKey> {
    load_public_key(format!("{file}.pub")).ok()
}
