//! The C compiler of tinygrad's CPU backend.

use std::collections::BTreeMap;

use camino::{Utf8Path, Utf8PathBuf};

/// Debian's versioned names, newest first; 14 is the oldest that tinygrad is known to work with.
const VERSIONS: std::ops::RangeInclusive<u32> = 14..=24;

/// The clang to use: the caller's `CC` where it names a clang that exists, else `clang` or the newest `clang-NN` of the
/// search path. tinygrad itself would take any `CC`, but its flags are those of clang.
pub fn find_clang(caller: &BTreeMap<String, String>) -> Option<Utf8PathBuf> {
    let path = caller.get("PATH").map(String::as_str).unwrap_or_default();
    let own = caller
        .get("CC")
        .filter(|cc| Utf8Path::new(cc).file_name().is_some_and(|name| name.starts_with("clang")));
    let versioned = VERSIONS.rev().map(|version| format!("clang-{version}"));
    own.cloned().into_iter().chain(["clang".to_owned()]).chain(versioned).find_map(|name| find(&name, path))
}

fn find(name: &str, path: &str) -> Option<Utf8PathBuf> {
    if name.contains('/') {
        return Some(Utf8PathBuf::from(name)).filter(|file| file.is_file());
    }
    path.split(':')
        .filter(|dir| !dir.is_empty())
        .map(|dir| Utf8Path::new(dir).join(name))
        .find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clang_is_found_under_its_names() {
        let dir = tempfile::tempdir().unwrap();
        let dir = Utf8Path::from_path(dir.path()).unwrap();
        let caller = |cc: &str| {
            BTreeMap::from([("PATH".to_owned(), format!(":/none:{dir}")), ("CC".to_owned(), cc.to_owned())])
        };
        assert_eq!(find_clang(&caller("gcc")), None);
        durable_fs::write_atomic(dir.join("clang-14"), b"").unwrap();
        durable_fs::write_atomic(dir.join("clang-19"), b"").unwrap();
        assert_eq!(find_clang(&caller("gcc")), Some(dir.join("clang-19")));
        assert_eq!(find_clang(&caller("clang-14")), Some(dir.join("clang-14")));
        durable_fs::write_atomic(dir.join("clang"), b"").unwrap();
        assert_eq!(find_clang(&caller("")), Some(dir.join("clang")));
        assert_eq!(find_clang(&caller("/no/such/clang")), Some(dir.join("clang")));
    }
}
