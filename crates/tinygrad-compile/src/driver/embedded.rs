//! The Python driver, carried in the binary.

use std::{fs::OpenOptions, io::Write};

use camino::{Utf8Path, Utf8PathBuf};
use durable_fs::{FsError, Sha256};
use model_catalog::Sha256Digest;

/// File name and text of each module, sorted by name.
pub const FILES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/driver_files.rs"));

/// The file that is run.
pub const ENTRY: &str = "driver.py";

/// SHA-256 over names and texts: the identity of the driver in build records and fingerprints.
pub fn digest() -> Sha256Digest {
    let mut hash = Sha256::new();
    for (name, text) in FILES {
        hash.update(format!("{name} {}\n", text.len()).as_bytes());
        hash.update(text.as_bytes());
    }
    hash.finish()
}

/// Writes the driver into the private directory `dir`, which must hold none yet, and returns the file to run.
///
/// # Errors
/// [`FsError::Io`] where a file cannot be written.
pub fn unpack(dir: &Utf8Path) -> Result<Utf8PathBuf, FsError> {
    for (name, text) in FILES {
        let path = dir.join(name);
        // Private and gone after the run: nobody else reads these files, so they need neither rename nor fsync.
        OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&path)
            .and_then(|mut file| file.write_all(text.as_bytes()))
            .map_err(FsError::io("unpack the driver to", &path))?;
    }
    Ok(dir.join(ENTRY))
}

/// Runs a tree's own compiler. It has no part in what the compiler makes, so it is no part of the driver's identity.
const SUPERVISOR: &str = include_str!("../../supervisor/supervise.py");

/// Writes the supervisor into the private directory `dir`, which may hold it already, and returns the file to run.
///
/// # Errors
/// [`FsError::Io`] where it cannot be written.
pub(crate) fn unpack_supervisor(dir: &Utf8Path) -> Result<Utf8PathBuf, FsError> {
    let path = dir.join("supervise-program.py");
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .open(&path)
        .and_then(|mut file| file.write_all(SUPERVISOR.as_bytes()))
        .map_err(FsError::io("unpack the supervisor to", &path))?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_driver_is_complete_when_unpacked() {
        let dir = tempfile::tempdir().unwrap();
        let entry = unpack(Utf8Path::from_path(dir.path()).unwrap()).unwrap();
        let text = std::fs::read_to_string(entry).unwrap();
        assert!(text.contains("def main"));
        assert_eq!(
            durable_fs::list_dir(Utf8Path::from_path(dir.path()).unwrap()).unwrap().len(),
            FILES.len()
        );
    }
}
