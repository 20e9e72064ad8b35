//! Signing the part list in minisign's format.

use std::io::Cursor;

use base64::{Engine, engine::general_purpose::STANDARD as BASE64};
use minisign::{KeyPair, PublicKey, SecretKey, SecretKeyBox, SignatureBox};

use super::PublishError;

/// A secret key that signs part lists.
pub struct Signer {
    secret: SecretKey,
    public: PublicKey,
}

impl std::fmt::Debug for Signer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Signer").field("public", &self.public.to_base64()).finish_non_exhaustive()
    }
}

impl Signer {
    /// The key in the text of a minisign secret key file, decrypted with `password` where it is encrypted.
    ///
    /// # Errors
    /// [`PublishError::Sign`] where the text is no key or the password is wrong.
    pub fn from_key_file(text: &str, password: Option<String>) -> Result<Self, PublishError> {
        let secret = match password {
            Some(password) => SecretKeyBox::from_string(text)
                .and_then(|key| key.into_secret_key(Some(password)))
                .map_err(refused)?,
            None => unencrypted(text)?,
        };
        let public = PublicKey::from_secret_key(&secret).map_err(refused)?;
        let signer = Self { secret, public };
        // A damaged key signs, but nobody could verify it.
        let trial = signer.sign("trial", "trial")?;
        if signer.verifies("trial", &trial) { Ok(signer) } else { Err(sign_error("the key is damaged")) }
    }

    /// A new key, not kept anywhere: for tests and first steps.
    ///
    /// # Errors
    /// [`PublishError::Sign`] where the system has no randomness.
    pub fn generate() -> Result<Self, PublishError> {
        let KeyPair { pk, sk } = KeyPair::generate_unencrypted_keypair().map_err(refused)?;
        Ok(Self { secret: sk, public: pk })
    }

    /// The public key as devices are given it: one line of base64.
    pub fn public_key(&self) -> String {
        self.public.to_base64()
    }

    /// The text of the signature file. Its trusted comment names the file and its SHA-256, and no time.
    pub(crate) fn sign(&self, name: &str, text: &str) -> Result<String, PublishError> {
        let comment = format!("file:{name}\tsha256:{}", durable_fs::Sha256::digest(text.as_bytes()));
        let untrusted = Some("signature of a part list");
        minisign::sign(
            Some(&self.public),
            &self.secret,
            Cursor::new(text.as_bytes()),
            Some(&comment),
            untrusted,
        )
        .map(|signature| signature.into_string())
        .map_err(refused)
    }

    /// Whether a signature file is one of this key for the text.
    pub(crate) fn verifies(&self, text: &str, signature: &str) -> bool {
        SignatureBox::from_string(signature).is_ok_and(|signature| {
            minisign::verify(&self.public, &signature, Cursor::new(text.as_bytes()), true, false, false)
                .is_ok()
        })
    }
}

fn sign_error(why: impl Into<String>) -> PublishError {
    PublishError::Sign { why: why.into() }
}

fn refused(error: minisign::PError) -> PublishError {
    sign_error(error.to_string())
}

/// Reads a key that is not encrypted. minisign leaves the checksum of such a key empty, so it is not compared.
fn unencrypted(text: &str) -> Result<SecretKey, PublishError> {
    let line = text.lines().nth(1).unwrap_or_default().trim();
    let bytes = BASE64.decode(line).map_err(|_| sign_error("the key file is not one of minisign"))?;
    let secret = SecretKey::from_bytes(&bytes).map_err(refused)?;
    if secret.is_encrypted() {
        Err(sign_error("the key is encrypted; give its password"))
    } else {
        Ok(secret)
    }
}
