//! Whether a plan can be carried out, asked before anything is changed.

use std::{collections::BTreeMap, os::unix::fs::MetadataExt};

use camino::{Utf8Component, Utf8Path};

use super::{Journal, JournalError, Step};

/// The form in which names are compared: two names that differ only in case are one on exFAT and APFS.
fn folded(path: &Utf8Path) -> String {
    path.as_str().to_lowercase()
}

fn refused(why: String) -> JournalError {
    JournalError::Refused { why }
}

impl Journal {
    pub(super) fn check(&self, steps: &[Step]) -> Result<(), JournalError> {
        let mut left = BTreeMap::new();
        let mut made = BTreeMap::new();
        for (index, step) in steps.iter().enumerate() {
            let (gone, new) = match step {
                Step::Rename { from, to } => (Some(from), Some(to)),
                Step::Write { path, .. } => (None, Some(path)),
                Step::Remove { path, .. } => (Some(path), None),
            };
            for path in gone.into_iter().chain(new) {
                self.check_path(path)?;
            }
            if let Some(path) = gone {
                self.check_leaving(index, path)?;
                if left.insert(folded(path), path.as_path()).is_some() {
                    return Err(refused(format!("{path} would be moved or removed twice")));
                }
            }
            if let Some(path) = new {
                self.check_parent(path)?;
                if let Some(other) = made.insert(folded(path), path) {
                    return Err(refused(format!(
                        "two steps would write {path} and {other}, which are one name"
                    )));
                }
            }
        }
        for step in steps {
            match step {
                Step::Rename { to, .. } => self.check_free(to, &left)?,
                Step::Remove { path, sha256 } => self.check_digest(&self.root.join(path), *sha256)?,
                Step::Write { .. } => {}
            }
        }
        Ok(())
    }

    fn check_path(&self, path: &Utf8Path) -> Result<(), JournalError> {
        let plain = !path.as_str().is_empty()
            && path.components().all(|part| matches!(part, Utf8Component::Normal(_)));
        if plain && self.root.join(path) != self.file {
            return Ok(());
        }
        Err(refused(format!("{path} is not a path below {} that a plan may change", self.root)))
    }

    fn check_leaving(&self, index: usize, path: &Utf8Path) -> Result<(), JournalError> {
        if !self.root.join(path).is_file() {
            return Err(refused(format!("{path} is not an existing file")));
        }
        let private = self.private(index, path);
        if private.exists() {
            return Err(refused(format!(
                "{private} is left of an earlier plan whose journal is gone; give it its name back or remove it"
            )));
        }
        Ok(())
    }

    fn check_parent(&self, path: &Utf8Path) -> Result<(), JournalError> {
        let path = self.root.join(path);
        match path.parent() {
            Some(parent) if parent.is_dir() && !path.is_dir() => Ok(()),
            _ => Err(refused(format!(
                "{path} cannot be a file: its directory is missing, or it is one itself"
            ))),
        }
    }

    /// A name is free where nothing has it, or where what has it leaves. On a filesystem that ignores case the file that
    /// leaves may be spelled differently: then it is the same file.
    fn check_free(&self, to: &Utf8Path, left: &BTreeMap<String, &Utf8Path>) -> Result<(), JournalError> {
        let Ok(present) = self.root.join(to).symlink_metadata() else { return Ok(()) };
        let identity = |meta: std::fs::Metadata| (meta.dev(), meta.ino());
        let leaves = left.get(&folded(to)).is_some_and(|&leaving| {
            leaving == to
                || self
                    .root
                    .join(leaving)
                    .symlink_metadata()
                    .is_ok_and(|meta| identity(meta) == identity(present))
        });
        if leaves {
            return Ok(());
        }
        Err(refused(format!("{to} already exists and would be overwritten")))
    }
}
