//! Recording a trusted device in `rebuild.toml`, with everything else in the file as it was.

use std::{fmt::Write as _, fs, io};

use durable_fs::{FsError, write_atomic};

use crate::{TrustedDevice, Workspace, WorkspaceError, config::Config};

const HEADER: &str = "[[devices]]";

impl Workspace {
    /// Records `device`, in place of what was recorded under its name.
    ///
    /// # Errors
    /// [`WorkspaceError`] where the file cannot be read or written, or would not be valid.
    pub fn trust_device(&self, device: &TrustedDevice) -> Result<(), WorkspaceError> {
        let path = self.root().join(crate::layout::CONFIG_NAME);
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            text => text.map_err(FsError::io("read", &path))?,
        };
        let text = with_device(&text, device);
        Config::parse(&text, &path)?;
        write_atomic(&path, text.as_bytes())?;
        Ok(())
    }
}

/// The text with the device's table at its end; a table can stand nowhere better, and comments stay where they are.
fn with_device(text: &str, device: &TrustedDevice) -> String {
    let mut kept = String::new();
    let mut table: Option<String> = None;
    for line in text.split_inclusive('\n') {
        if line.trim_start().starts_with('[') {
            kept.extend(table.take().filter(|old| !names(old, device)));
            if line.trim() == HEADER {
                table = Some(line.to_owned());
                continue;
            }
        }
        table.as_mut().unwrap_or(&mut kept).push_str(line);
    }
    kept.extend(table.filter(|old| !names(old, device)));
    if !kept.is_empty() && !kept.ends_with('\n') {
        kept.push('\n');
    }
    let keys: Vec<String> = device.host_keys.iter().map(|key| format!("{key:?}")).collect();
    let _ = write!(kept, "\n{HEADER}\nname = {:?}\nhost_keys = [{}]\n", device.name, keys.join(", "));
    kept
}

/// Whether a table of the file is about the device.
fn names(table: &str, device: &TrustedDevice) -> bool {
    let parsed: Option<toml::Table> = table.parse().ok();
    let first = parsed.as_ref().and_then(|table| table.get("devices")?.get(0)?.get("name")?.as_str());
    first == Some(device.name.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(name: &str, key: &str) -> TrustedDevice {
        TrustedDevice { name: name.to_owned(), host_keys: vec![key.to_owned()] }
    }

    #[test]
    fn a_device_is_added_and_replaced_and_the_rest_stays() {
        let first = with_device("# mine\ntarget = \"cpu\"", &device("comma@10.0.0.5", "SHA256:a"));
        let second = with_device(&first, &device("comma@10.0.0.6", "SHA256:b"));
        let third = with_device(&second, &device("comma@10.0.0.5", "SHA256:c"));
        assert!(third.starts_with("# mine\ntarget = \"cpu\"\n"));
        let config = Config::parse(&third, "rebuild.toml".into()).unwrap();
        assert_eq!(
            config.devices,
            [device("comma@10.0.0.6", "SHA256:b"), device("comma@10.0.0.5", "SHA256:c")]
        );
        assert_eq!(with_device(&third, &device("comma@10.0.0.5", "SHA256:c")).matches(HEADER).count(), 2);
    }
}
