//! macOS sidecar files (`._name`), which appear beside real files on exFAT and must never be taken for them.

use std::{
    fs::{self, File},
    io::Read,
};

use camino::{Utf8Path, Utf8PathBuf};

use crate::FsError;

/// First four bytes of an AppleDouble file, big-endian (RFC 1740, appendix B).
pub const APPLE_DOUBLE_MAGIC: [u8; 4] = [0x00, 0x05, 0x16, 0x07];

/// Whether a file name has the form of a sidecar.
pub fn is_apple_double_name(file_name: &str) -> bool {
    file_name.starts_with("._")
}

/// Whether `path` is a sidecar: by its name, or by its first bytes where a tool copied one under another name.
///
/// # Errors
/// [`FsError::Io`] where the file cannot be read.
pub fn is_apple_double(path: &Utf8Path) -> Result<bool, FsError> {
    if path.file_name().is_some_and(is_apple_double_name) {
        return Ok(true);
    }
    let mut first = Vec::with_capacity(4);
    File::open(path)
        .and_then(|file| file.take(4).read_to_end(&mut first))
        .map_err(FsError::io("read", path))?;
    Ok(first == APPLE_DOUBLE_MAGIC)
}

/// Names of the regular files in `dir`, sorted, without sidecars (by name), temporary files of ours and names that are not
/// UTF-8. A missing directory has no files.
///
/// # Errors
/// [`FsError::Io`] where the directory cannot be listed.
pub fn list_dir(dir: &Utf8Path) -> Result<Vec<String>, FsError> {
    let mut names: Vec<String> = all_names(dir)?
        .into_iter()
        .filter(|name| !is_apple_double_name(name) && !crate::atomic_file::is_temporary_name(name))
        .collect();
    names.sort();
    Ok(names)
}

/// Names of all regular files in `dir`.
pub(crate) fn all_names(dir: &Utf8Path) -> Result<Vec<String>, FsError> {
    let list = match fs::read_dir(dir) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        list => list.map_err(FsError::io("list", dir))?,
    };
    let mut names = Vec::new();
    for entry in list {
        let entry = entry.map_err(FsError::io("list", dir))?;
        let is_file = entry.file_type().map_err(FsError::io("list", dir))?.is_file();
        if let (true, Ok(name)) = (is_file, entry.file_name().into_string()) {
            names.push(name);
        }
    }
    Ok(names)
}

/// Names of the sidecars in `dir` (by name), sorted. A missing directory has none.
///
/// # Errors
/// [`FsError::Io`] where the directory cannot be listed.
pub fn list_apple_doubles(dir: &Utf8Path) -> Result<Vec<String>, FsError> {
    let mut names = all_names(dir)?;
    names.retain(|name| is_apple_double_name(name));
    names.sort();
    Ok(names)
}

/// Removes the sidecars in `dir` (by name) and returns what was removed.
///
/// # Errors
/// [`FsError::Io`] where the directory cannot be listed or a sidecar cannot be removed.
pub fn remove_apple_doubles(dir: &Utf8Path) -> Result<Vec<Utf8PathBuf>, FsError> {
    let mut removed = Vec::new();
    for name in list_apple_doubles(dir)? {
        let path = dir.join(name);
        fs::remove_file(&path).map_err(FsError::io("remove the sidecar", &path))?;
        removed.push(path);
    }
    removed.sort();
    Ok(removed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sidecars_are_known_by_name_and_magic() {
        let dir = tempfile::tempdir().unwrap();
        let dir = Utf8Path::from_path(dir.path()).unwrap();
        for (name, content) in [
            ("._a.onnx", &b"x"[..]),
            ("copied", &[0, 5, 0x16, 7, 0, 2]),
            ("a.onnx", b"\x08\x07"),
            ("short", b"\0"),
        ] {
            fs::write(dir.join(name), content).unwrap();
        }
        assert!(is_apple_double(&dir.join("._a.onnx")).unwrap());
        assert!(is_apple_double(&dir.join("copied")).unwrap());
        assert!(!is_apple_double(&dir.join("a.onnx")).unwrap());
        assert!(!is_apple_double(&dir.join("short")).unwrap());
        assert_eq!(list_dir(dir).unwrap(), ["a.onnx", "copied", "short"]);
        assert_eq!(list_apple_doubles(dir).unwrap(), ["._a.onnx"]);
        assert_eq!(remove_apple_doubles(dir).unwrap(), [dir.join("._a.onnx")]);
        assert!(list_dir(&dir.join("missing")).unwrap().is_empty());
    }
}
