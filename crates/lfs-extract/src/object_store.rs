//! Where a git object's bytes are on disk: in a loose file, or at an offset of a pack.
//!
//! gix reads whole objects into memory. For the blobs of models this module finds the place instead, so that they can be
//! inflated from plain reads. Only the pack indexes are mapped; a look-up touches a few of their pages.

use std::fs;

use camino::{Utf8Path, Utf8PathBuf};
use durable_fs::{FsError, is_apple_double_name};

use crate::ExtractError;

/// The place of one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    /// A loose object file.
    Loose(Utf8PathBuf),
    /// An entry of a pack.
    Packed {
        /// The pack file.
        pack: Utf8PathBuf,
        /// Where the entry begins.
        offset: u64,
    },
}

struct Index {
    pack: Utf8PathBuf,
    index: gix::odb::pack::index::File<gix::odb::pack::MMap>,
}

/// The loose objects and packs of a repository and its alternates.
pub(crate) struct ObjectStore {
    dirs: Vec<Utf8PathBuf>,
    indexes: Vec<Index>,
}

impl ObjectStore {
    /// Lists the packs of `dirs`. Multi-pack indexes are not needed: git keeps each pack's own index beside them.
    pub(crate) fn open(dirs: Vec<Utf8PathBuf>) -> Result<Self, ExtractError> {
        let mut indexes = Vec::new();
        for dir in &dirs {
            for path in index_paths(&dir.join("pack"))? {
                let index = gix::odb::pack::index::File::at(path.as_std_path(), gix::hash::Kind::Sha1)
                    .map_err(|error| ExtractError::Corrupt {
                        what: "the pack index".to_owned(),
                        path: path.clone(),
                        why: error.to_string(),
                    })?;
                indexes.push(Index { pack: path.with_extension("pack"), index });
            }
        }
        Ok(Self { dirs, indexes })
    }

    /// The object directories, the clone's own first.
    pub(crate) fn dirs(&self) -> &[Utf8PathBuf] {
        &self.dirs
    }

    /// The place of `id`: packs first, as most objects of a clone are packed.
    pub(crate) fn find(&self, id: gix::ObjectId) -> Option<Place> {
        let packed = self.indexes.iter().find_map(|Index { pack, index }| {
            let offset = index.pack_offset_at_index(index.lookup(id)?);
            Some(Place::Packed { pack: pack.clone(), offset })
        });
        packed.or_else(|| self.loose(id))
    }

    /// The offset of `id` in one given pack: a delta's base stands in the same pack.
    pub(crate) fn offset_in(&self, pack: &Utf8Path, id: gix::ObjectId) -> Option<u64> {
        let Index { index, .. } = self.indexes.iter().find(|candidate| candidate.pack == pack)?;
        Some(index.pack_offset_at_index(index.lookup(id)?))
    }

    fn loose(&self, id: gix::ObjectId) -> Option<Place> {
        let hex = id.to_string();
        let path =
            self.dirs.iter().map(|dir| dir.join(&hex[..2]).join(&hex[2..])).find(|path| path.is_file())?;
        Some(Place::Loose(path))
    }
}

fn index_paths(dir: &Utf8Path) -> Result<Vec<Utf8PathBuf>, ExtractError> {
    let list = match fs::read_dir(dir) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        list => list.map_err(FsError::io("list", dir))?,
    };
    let mut paths = Vec::new();
    for entry in list {
        let entry = entry.map_err(FsError::io("list", dir))?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        // A Mac leaves sidecars named ._pack-*.idx on external disks; git trips over them, this does not.
        if name.ends_with(".idx") && !is_apple_double_name(&name) {
            paths.push(dir.join(name));
        }
    }
    paths.sort();
    Ok(paths)
}
