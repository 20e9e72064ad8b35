//! A journal of file changes that is finished or undone after a kill.
//!
//! A plan of steps is written (durably) before the first of them is done; its end is the removal of the journal. Every step
//! can be told from the disk to be done or not, so applying a journal again after a kill continues where it stopped.
//! Renames go through private names in a first pass, so that a plan may contain chains and swaps (`a` to `a3` while `a3`
//! goes to `a33`) without one step seeing the result of another.

use std::{fs, io};

use camino::{Utf8Path, Utf8PathBuf};
use model_catalog::Sha256Digest;
use serde::{Deserialize, Serialize};

use crate::{Expected, FsError, NoProgress, hash_file, sync_dir, write_atomic, write_json};

/// The version of the journal's file format.
const FORMAT: u32 = 1;

/// One change to a file below the journal's root. Paths are relative to the root.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "step", rename_all = "snake_case")]
pub enum Step {
    /// Renames a file to a name that is free, or that another step of the plan frees.
    Rename {
        /// The present name.
        from: Utf8PathBuf,
        /// The new name.
        to: Utf8PathBuf,
    },
    /// Replaces the content of a small text file.
    Write {
        /// The file.
        path: Utf8PathBuf,
        /// Its new content.
        content: String,
    },
    /// Removes a file that is known by its digest; a file with other content is left and reported.
    Remove {
        /// The file.
        path: Utf8PathBuf,
        /// SHA-256 that it must have, where given.
        sha256: Option<Sha256Digest>,
    },
}

/// Why a plan could not be applied.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The plan itself cannot be carried out; nothing was changed.
    #[error("the plan is refused before anything is changed: {why}")]
    Refused {
        /// What is wrong with it.
        why: String,
    },
    /// The journal was written by a newer version.
    #[error(
        "{path} has journal format {found}; this version understands {FORMAT}: finish it with the version that wrote it"
    )]
    Newer {
        /// The journal file.
        path: Utf8PathBuf,
        /// Its format.
        found: u32,
    },
    /// A file operation failed; running again continues.
    #[error(transparent)]
    Fs(#[from] FsError),
}

#[derive(Debug, Serialize, Deserialize)]
struct Recorded {
    format: u32,
    steps: Vec<Step>,
}

/// A journal at a fixed place below a root directory.
#[derive(Debug, Clone)]
pub struct Journal {
    root: Utf8PathBuf,
    file: Utf8PathBuf,
}

impl Journal {
    /// The journal `name` directly below `root`, to which all steps are relative.
    pub fn new(root: impl Into<Utf8PathBuf>, name: &str) -> Self {
        let root = root.into();
        Self { file: root.join(name), root }
    }

    /// Whether an earlier run was stopped in the middle.
    pub fn is_pending(&self) -> bool {
        self.file.exists()
    }

    /// Finishes what an earlier run began; returns its steps, or `None` where nothing was pending.
    ///
    /// # Errors
    /// [`JournalError`]; calling again continues.
    pub fn recover(&self) -> Result<Option<Vec<Step>>, JournalError> {
        let text = match fs::read_to_string(&self.file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            text => text.map_err(FsError::io("read the journal", &self.file))?,
        };
        let json = |source| FsError::Json { path: self.file.clone(), source };
        let header: serde_json::Value = serde_json::from_str(&text).map_err(json)?;
        let found = header["format"].as_u64().unwrap_or(0) as u32;
        if found > FORMAT {
            return Err(JournalError::Newer { path: self.file.clone(), found });
        }
        let recorded: Recorded = serde_json::from_value(header).map_err(json)?;
        self.carry_out(&recorded.steps)?;
        Ok(Some(recorded.steps))
    }

    /// Checks `steps` against the disk, records them and carries them out. An unfinished earlier plan is finished first.
    ///
    /// # Errors
    /// [`JournalError::Refused`] before anything is changed; [`JournalError::Fs`] where it stopped in the middle, and
    /// [`Self::recover`] continues.
    pub fn apply(&self, steps: &[Step]) -> Result<(), JournalError> {
        self.recover()?;
        if steps.is_empty() {
            return Ok(());
        }
        self.check(steps)?;
        // Left by a kill between the two removals that end a plan; with a new journal it would mean a finished first pass.
        let marker = self.marker();
        if marker.exists() {
            fs::remove_file(&marker).map_err(FsError::io("remove the old marker", &marker))?;
            let _ = sync_dir(&self.root)?;
        }
        write_json(&self.file, &Recorded { format: FORMAT, steps: steps.to_vec() })?;
        self.carry_out(steps)
    }

    fn check(&self, steps: &[Step]) -> Result<(), JournalError> {
        let refused = |why: String| JournalError::Refused { why };
        let mut left = std::collections::BTreeSet::new();
        let mut made = std::collections::BTreeSet::new();
        for step in steps {
            let (gone, new) = match step {
                Step::Rename { from, to } => (Some(from), Some(to)),
                Step::Write { path, .. } => (None, Some(path)),
                Step::Remove { path, .. } => (Some(path), None),
            };
            for path in gone.into_iter().chain(new) {
                let plain = path.components().all(|part| matches!(part, camino::Utf8Component::Normal(_)));
                if !plain {
                    return Err(refused(format!("{path} is not a path below {}", self.root)));
                }
            }
            if let Some(path) = gone {
                if !self.root.join(path).is_file() {
                    return Err(refused(format!("{path} does not exist")));
                }
                if !left.insert(path) {
                    return Err(refused(format!("{path} would be moved or removed twice")));
                }
            }
            if let Some(path) = new.filter(|path| !made.insert(*path)) {
                return Err(refused(format!("two steps would write {path}")));
            }
        }
        for step in steps {
            if let Step::Remove { path, sha256: sha256 @ Some(_) } = step {
                let path = self.root.join(path);
                let (actual, size) = hash_file(&path, &NoProgress)?;
                Expected { size: None, sha256: *sha256 }.check(&path, size, actual)?;
            }
        }
        let taken = steps.iter().find_map(|step| match step {
            Step::Rename { to, .. } if !left.contains(to) && self.root.join(to).exists() => Some(to),
            _ => None,
        });
        taken.map_or(Ok(()), |path| Err(refused(format!("{path} already exists and would be overwritten"))))
    }

    /// Stands where the first pass of the plan in the journal is complete.
    fn marker(&self) -> Utf8PathBuf {
        self.file.with_extension("placed")
    }

    /// The name that a file has between the two passes.
    fn private(&self, index: usize, from: &Utf8Path) -> Utf8PathBuf {
        let name = format!(".moving-{index:05}-{}", from.file_name().unwrap_or_default());
        self.root.join(from).with_file_name(name)
    }

    fn carry_out(&self, steps: &[Step]) -> Result<(), JournalError> {
        let mut dirs = std::collections::BTreeSet::new();
        // First pass: everything leaves its old name. It ends with a marker, so that a rerun does not take the result of
        // the second pass (a file that arrived under a name which another file left) for a file that has yet to leave.
        let marker = self.marker();
        if !marker.exists() {
            for (index, step) in steps.iter().enumerate() {
                match step {
                    Step::Rename { from, .. } => {
                        let (old, private) = (self.root.join(from), self.private(index, from));
                        if !private.exists() {
                            fs::rename(&old, &private).map_err(FsError::io("move", &old))?;
                        }
                        dirs.extend(old.parent().map(Utf8Path::to_owned));
                    }
                    Step::Remove { path, sha256 } => self.remove(path, *sha256)?,
                    Step::Write { .. } => {}
                }
            }
            dirs.iter().try_for_each(|dir| sync_dir(dir).map(drop))?;
            write_atomic(&marker, b"")?;
        }
        for (index, step) in steps.iter().enumerate() {
            match step {
                Step::Rename { from, to } => {
                    let (private, new) = (self.private(index, from), self.root.join(to));
                    dirs.extend(private.parent().map(Utf8Path::to_owned));
                    dirs.extend(new.parent().map(Utf8Path::to_owned));
                    if private.exists() {
                        fs::rename(&private, &new).map_err(FsError::io("rename to", &new))?;
                    } else if !new.exists() {
                        return Err(JournalError::Refused {
                            why: format!("{from} vanished while it was being renamed to {to}"),
                        });
                    }
                }
                Step::Write { path, content } => {
                    write_atomic(self.root.join(path), content.as_bytes())?;
                }
                Step::Remove { .. } => {}
            }
        }
        dirs.iter().try_for_each(|dir| sync_dir(dir).map(drop))?;
        // The journal goes first: a marker without a journal means nothing and is removed by the next plan.
        for path in [&self.file, &marker] {
            fs::remove_file(path).map_err(FsError::io("close the journal", path))?;
        }
        let _ = sync_dir(&self.root)?;
        Ok(())
    }

    fn remove(&self, path: &Utf8Path, sha256: Option<Sha256Digest>) -> Result<(), FsError> {
        let path = self.root.join(path);
        if !path.exists() {
            return Ok(());
        }
        if sha256.is_some() {
            let (actual, size) = hash_file(&path, &NoProgress)?;
            Expected { size: None, sha256 }.check(&path, size, actual)?;
        }
        fs::remove_file(&path).map_err(FsError::io("remove", &path))
    }
}
