//! The interpreter that runs the driver.

use camino::{Utf8Path, Utf8PathBuf};

/// The interpreter of a device.
pub const DEVICE_PYTHON: &str = "/usr/local/venv/bin/python3";

/// Where an interpreter may be; the caller fills in what it was told.
#[derive(Debug, Clone, Default)]
pub struct PythonChoices {
    /// Named on the command line or in a request.
    pub explicit: Option<Utf8PathBuf>,
    /// Named by the caller's environment.
    pub environment: Option<Utf8PathBuf>,
    /// Others to try where those above are not given, in order; the first that exists is taken.
    pub fallbacks: Vec<Utf8PathBuf>,
}

impl PythonChoices {
    /// The interpreter to use: the explicit one, that of the environment, the device's own, the first fallback that exists,
    /// or `python3` from the search path.
    pub fn resolve(&self, device_python: &Utf8Path) -> Utf8PathBuf {
        let named = self.explicit.as_ref().or(self.environment.as_ref());
        let found = || {
            [device_python]
                .into_iter()
                .chain(self.fallbacks.iter().map(Utf8PathBuf::as_path))
                .find(|p| p.exists())
        };
        named.cloned().or_else(|| found().map(Utf8Path::to_owned)).unwrap_or_else(|| "python3".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_named_comes_first() {
        let here = Utf8PathBuf::from("/");
        let missing = Utf8Path::new("/no/such/python");
        let mut choices =
            PythonChoices { fallbacks: vec!["/no/such/other".into(), here.clone()], ..Default::default() };
        assert_eq!(choices.resolve(missing), here);
        assert_eq!(PythonChoices::default().resolve(missing), "python3");
        choices.environment = Some("/env/python".into());
        assert_eq!(choices.resolve(missing), "/env/python");
        choices.explicit = Some("/explicit/python".into());
        assert_eq!(choices.resolve(&here), "/explicit/python");
    }
}
