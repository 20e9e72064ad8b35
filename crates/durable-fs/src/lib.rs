//! The one way for bytes: every file of the project is written through this crate.
//!
//! A file is written under a temporary name in its own directory while its SHA-256 is computed, is checked against the
//! size and digest that are expected, synced, renamed, and its directory synced. What can go wrong: a kill leaves a
//! temporary name (swept by [`sweep_temporaries`]) and never half a file; a full disk, a read-only directory and a
//! filesystem without fsync each have their own answer; macOS sidecar files never count as files ([`is_apple_double`]).
#![cfg_attr(test, expect(clippy::disallowed_methods, reason = "tests make files the plain way"))]

mod apple_double;
mod atomic_file;
mod copy;
mod error;
mod hash;
mod journal;
mod lock;
mod progress;
mod sync;

pub use apple_double::{
    APPLE_DOUBLE_MAGIC, is_apple_double, is_apple_double_name, list_apple_doubles, list_dir,
    remove_apple_doubles,
};
pub use atomic_file::{
    AtomicFile, Expected, StagedFile, Written, place_file, sweep_temporaries, write_atomic, write_json,
};
pub use copy::{copy_file, copy_hashed, hash_file};
pub use error::{FsError, FsErrorKind};
pub use hash::{HashingReader, HashingWriter, Sha256, ThreadedHasher};
pub use journal::{Journal, JournalError, Step};
pub use lock::{FileLock, LockError, LockHolder, is_process_alive};
pub use progress::{NoProgress, Progress, ProgressOnce, ProgressReader};
pub use sync::{Durability, sync_dir, sync_file};

/// Block size of streaming copies, in bytes. Blocks of 64 to 256 KiB stay in the cache of small cores; 1 MiB was two to
/// three times slower.
pub const BLOCK: usize = 128 * 1024;
