//! What may be kept from one compile to the next: captured camera warps and compiled kernels.
//!
//! Neither changes an artifact's bytes. A kernel cache is of one architecture and one compiler: a changed clang gets a file of
//! its own, so kernels of the old one are not taken.

use camino::{Utf8Path, Utf8PathBuf};
use durable_fs::{FsError, Sha256};

/// The default bound of the warp cache, in MiB; an entry has a few.
pub const WARP_CACHE_MIB: u64 = 256;

/// A directory for both caches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cache {
    dir: Utf8PathBuf,
    /// Bound of the warps in MiB; the oldest go first.
    pub limit_mib: u64,
}

impl Cache {
    /// The cache in `dir`, made where it is missing.
    ///
    /// # Errors
    /// [`FsError::Io`] where the directory cannot be made.
    pub fn open(dir: impl Into<Utf8PathBuf>, limit_mib: u64) -> Result<Self, FsError> {
        let dir = dir.into();
        let warps = dir.join("warps");
        std::fs::create_dir_all(&warps).map_err(FsError::io("make the cache directory", &warps))?;
        let dir = dir.canonicalize_utf8().map_err(FsError::io("find", &dir))?;
        Ok(Self { dir, limit_mib })
    }

    /// Where warps are kept.
    pub fn warps(&self) -> Utf8PathBuf {
        self.dir.join("warps")
    }

    /// Forgets all captured warps.
    ///
    /// # Errors
    /// [`FsError::Io`] where they cannot be removed.
    pub fn forget_warps(&self) -> Result<(), FsError> {
        let warps = self.warps();
        std::fs::remove_dir_all(&warps).map_err(FsError::io("clear the cache", &warps))?;
        std::fs::create_dir_all(&warps).map_err(FsError::io("make the cache directory", &warps))
    }

    /// Where kernels that `compiler` made are kept.
    pub fn kernels(&self, compiler: Option<&Utf8Path>) -> Utf8PathBuf {
        let identity = compiler.map_or_else(|| "none".to_owned(), identity);
        let digest = Sha256::digest(identity.as_bytes()).to_string();
        self.dir.join(format!("kernels-{}-{}.db", std::env::consts::ARCH, &digest[..12]))
    }
}

/// Path, size and time of the compiler that a name leads to: what changes when it is updated.
fn identity(compiler: &Utf8Path) -> String {
    let real = compiler.canonicalize_utf8().unwrap_or_else(|_| compiler.to_owned());
    let facts = real.metadata().map(|metadata| (metadata.len(), metadata.modified().ok()));
    format!("{real} {facts:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_compiler_has_other_kernels() {
        let guard = tempfile::tempdir().unwrap();
        let dir = Utf8Path::from_path(guard.path()).unwrap();
        let cache = Cache::open(dir.join("new"), 1).unwrap();
        durable_fs::write_atomic(cache.warps().join("x.warp"), b"").unwrap();
        cache.forget_warps().unwrap();
        assert!(cache.warps().is_dir() && !cache.warps().join("x.warp").exists());
        let clang = dir.join("clang");
        durable_fs::write_atomic(&clang, b"one").unwrap();
        let first = cache.kernels(Some(&clang));
        assert_eq!(cache.kernels(Some(&clang)), first);
        durable_fs::write_atomic(&clang, b"another").unwrap();
        assert_ne!(cache.kernels(Some(&clang)), first);
        assert_ne!(cache.kernels(None), first);
    }
}
