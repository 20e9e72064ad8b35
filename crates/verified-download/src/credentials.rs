//! Name and secret for a server. Never printed.

use std::fmt;

use base64::{Engine as _, engine::general_purpose::STANDARD};

/// A user name and its secret, sent as HTTP basic authentication.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    user: String,
    secret: String,
}

impl Credentials {
    /// Credentials of `user`.
    pub fn new(user: impl Into<String>, secret: impl Into<String>) -> Self {
        Self { user: user.into(), secret: secret.into() }
    }

    /// The user name.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// The secret, for handing it to the program that gave it.
    pub fn secret(&self) -> &str {
        &self.secret
    }

    /// The value of an `Authorization` header.
    pub(crate) fn basic(&self) -> String {
        format!("Basic {}", STANDARD.encode(format!("{}:{}", self.user, self.secret)))
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("user", &self.user).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_secret_is_sent_and_not_shown() {
        let credentials = Credentials::new("Aladdin", "open sesame");
        assert_eq!(credentials.basic(), "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
        assert!(!format!("{credentials:?}").contains("sesame"));
    }
}
