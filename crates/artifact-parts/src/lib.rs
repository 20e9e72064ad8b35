//! Artifacts over a repository's file limit, as numbered parts and a checksum.
//!
//! A file `<name>` over the limit is stored as `<name>.p00 .. .p99` of equal size (the last one may be shorter) and
//! `<name>.sha256`, which holds `<64 hex>  <name>\n`. A reader finds the parts by name, puts them together in a temporary
//! file, compares the SHA-256 and renames.
//!
//! What can go wrong, and what defends against it:
//! - a kill while splitting: parts are written and synced under temporary names; the old checksum goes before the first new
//!   part gets its name and the new one comes last, so a checksum never stands beside parts that are not its own;
//! - a source that changes or is not the recorded one: its size and digest are compared before any part gets its name;
//! - a set with a gap, a surplus, a wrong size or order, a damaged part, or a checksum that is missing or another file's:
//!   each has its own error, and the target of a join stays as it was;
//! - a filesystem without fsync: what was written is read back and hashed before it gets its name.

mod checksum;
mod chunk;
mod error;
mod join;
mod list;
mod pump;
mod reader;
mod set;
mod split;
mod stretch;

pub use checksum::{checksum_name, checksum_text, parse_checksum};
pub use chunk::{ChunkSize, PartLimit};
pub use error::PartsError;
pub use join::{join, verify};
pub use list::{ListedArtifact, PartList, PartListError};
pub use reader::PartsReader;
pub use set::{KnownParts, Part, PartSet, find_parts, remove_set, sets_in};
pub use split::{SplitRequest, split};
