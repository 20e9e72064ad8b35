//! What a user's environment says of the way to the network. The library does not look: a program hands it over.

use std::fs;

use camino::Utf8Path;
use durable_fs::FsError;

use crate::HttpOptions;

const PROXY: [&str; 4] = ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"];
const NO_PROXY: [&str; 2] = ["NO_PROXY", "no_proxy"];
const CERTIFICATES: &str = "SSL_CERT_FILE";

impl HttpOptions {
    /// The usual options with the proxy and the certificates that these variables name. `variable` is given a name.
    ///
    /// # Errors
    /// [`FsError`] where the file of certificates cannot be read: trusting others instead would be no answer.
    pub fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Result<Self, FsError> {
        let set = |name: &&str| variable(name).filter(|value| !value.is_empty());
        let root_certificates = match set(&CERTIFICATES) {
            None => None,
            Some(path) => {
                let path = Utf8Path::new(&path);
                Some(
                    fs::read_to_string(path)
                        .map_err(FsError::io("read the certificates of SSL_CERT_FILE,", path))?,
                )
            }
        };
        Ok(Self {
            proxy: PROXY.iter().find_map(set),
            no_proxy: NO_PROXY.iter().find_map(set),
            root_certificates,
            ..Self::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_name_a_proxy_and_certificates() {
        let none = HttpOptions::from_variables(|_| None).unwrap();
        assert_eq!((none.proxy, none.no_proxy, none.root_certificates), (None, None, None));
        let dir = tempfile::tempdir().unwrap();
        let file = Utf8Path::from_path(dir.path()).unwrap().join("authorities.pem");
        let variable = |name: &str| match name {
            "HTTPS_PROXY" => Some(String::new()),
            "all_proxy" => Some("http://proxy:3128".to_owned()),
            "NO_PROXY" => Some("localhost".to_owned()),
            "SSL_CERT_FILE" => Some(file.to_string()),
            _ => None,
        };
        let refused = HttpOptions::from_variables(variable).unwrap_err().to_string();
        assert!(refused.contains("SSL_CERT_FILE") && refused.contains("authorities.pem"), "{refused}");
        durable_fs::write_atomic(&file, b"PEM").unwrap();
        let options = HttpOptions::from_variables(variable).unwrap();
        assert_eq!(options.proxy.as_deref(), Some("http://proxy:3128"));
        assert_eq!(options.no_proxy.as_deref(), Some("localhost"));
        assert_eq!(options.root_certificates.as_deref(), Some("PEM"));
    }
}
