//! A journal of file changes that is finished after a kill by whoever comes next.
//!
//! A plan of steps is written (durably) before the first of them is done; its end is the removal of the journal. Renames go
//! through private names in two passes, so that a plan may contain chains and swaps (`a` to `a3` while `a3` goes to `a33`)
//! without one step seeing the result of another: in the first pass every file leaves its old name, in the second every file
//! arrives under its new one. Which pass is running stands in the journal itself, which is replaced in one step between the
//! two: a file that has arrived under a name which another file left is never taken for one that has yet to leave.
//!
//! What can go wrong: a kill or power cut at any point (the next run continues), a file that appears under a new name in the
//! meantime (never overwritten; reported), a private name left by a plan whose journal somebody removed (refused before
//! anything is changed).

mod check;
#[cfg(test)]
mod tests;

use std::{collections::BTreeSet, fmt, fs, io, sync::Arc};

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

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rename { from, to } => write!(f, "rename {from} to {to}"),
            Self::Write { path, .. } => write!(f, "write {path}"),
            Self::Remove { path, .. } => write!(f, "remove {path}"),
        }
    }
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
    /// Somebody changed the files while the plan was being carried out; nothing of theirs was touched.
    #[error("the plan of {journal} stopped in the middle: {why}; then run again to go on")]
    Disturbed {
        /// The journal file.
        journal: Utf8PathBuf,
        /// What was found and what to do.
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

/// Which of the two passes over the steps is running.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Pass {
    /// Files leave their old names and are removed.
    #[default]
    Leave,
    /// Files arrive under their new names and are written.
    Arrive,
}

#[derive(Debug, Serialize, Deserialize)]
struct Recorded {
    format: u32,
    #[serde(default)]
    pass: Pass,
    steps: Vec<Step>,
}

type Gate = dyn Fn(&str) -> io::Result<()> + Send + Sync;

/// A journal at a fixed place below a root directory. It takes no lock: the caller holds the one of the directory.
#[derive(Clone)]
pub struct Journal {
    root: Utf8PathBuf,
    file: Utf8PathBuf,
    gate: Option<Arc<Gate>>,
}

impl fmt::Debug for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Journal").field("root", &self.root).field("file", &self.file).finish_non_exhaustive()
    }
}

impl Journal {
    /// The journal `name` directly below `root`, to which all steps are relative.
    pub fn new(root: impl Into<Utf8PathBuf>, name: &str) -> Self {
        let root = root.into();
        Self { file: root.join(name), root, gate: None }
    }

    /// Asks `gate` before every change to the disk, with a word on what comes. An error stops there and leaves exactly what a
    /// kill at that point would leave: how a cancelled run stops between two changes, and how tests stop at each of them.
    #[must_use]
    pub fn with_gate(mut self, gate: impl Fn(&str) -> io::Result<()> + Send + Sync + 'static) -> Self {
        self.gate = Some(Arc::new(gate));
        self
    }

    /// The journal file; it exists while a plan is unfinished.
    pub fn path(&self) -> &Utf8Path {
        &self.file
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
        let value: serde_json::Value = serde_json::from_str(&text).map_err(json)?;
        let found = value["format"].as_u64().map_or(0, |format| u32::try_from(format).unwrap_or(u32::MAX));
        if found > FORMAT {
            return Err(JournalError::Newer { path: self.file.clone(), found });
        }
        let recorded: Recorded = serde_json::from_value(value).map_err(json)?;
        self.carry_out(&recorded.steps, recorded.pass)?;
        Ok(Some(recorded.steps))
    }

    /// Checks `steps` against the disk, records them and carries them out. An unfinished earlier plan is finished first.
    ///
    /// # Errors
    /// [`JournalError::Refused`] before anything is changed; another error where it stopped in the middle, and
    /// [`Self::recover`] continues.
    pub fn apply(&self, steps: &[Step]) -> Result<(), JournalError> {
        self.recover()?;
        if steps.is_empty() {
            return Ok(());
        }
        self.check(steps)?;
        self.record(steps, Pass::Leave)?;
        self.carry_out(steps, Pass::Leave)
    }

    fn record(&self, steps: &[Step], pass: Pass) -> Result<(), FsError> {
        self.ask("record the plan", &self.file)?;
        write_json(&self.file, &Recorded { format: FORMAT, pass, steps: steps.to_vec() }).map(drop)
    }

    fn ask(&self, action: &'static str, path: &Utf8Path) -> Result<(), FsError> {
        self.gate.as_ref().map_or(Ok(()), |gate| gate(action).map_err(FsError::io(action, path)))
    }

    /// The name that a file has between the two passes.
    fn private(&self, index: usize, from: &Utf8Path) -> Utf8PathBuf {
        let name = format!(".moving-{index:05}-{}", from.file_name().unwrap_or_default());
        self.root.join(from).with_file_name(name)
    }

    fn carry_out(&self, steps: &[Step], pass: Pass) -> Result<(), JournalError> {
        if pass == Pass::Leave {
            let mut dirs = BTreeSet::new();
            for (index, step) in steps.iter().enumerate() {
                self.leave(index, step, &mut dirs)?;
            }
            // What left must be known to have left before the journal says so.
            dirs.iter().try_for_each(|dir| sync_dir(dir).map(drop))?;
            self.record(steps, Pass::Arrive)?;
        }
        let mut dirs = BTreeSet::new();
        for (index, step) in steps.iter().enumerate() {
            self.arrive(index, step, &mut dirs)?;
        }
        dirs.iter().try_for_each(|dir| sync_dir(dir).map(drop))?;
        self.ask("close the journal", &self.file)?;
        fs::remove_file(&self.file).map_err(FsError::io("close the journal", &self.file))?;
        let _ = sync_dir(&self.root)?;
        Ok(())
    }

    fn leave(&self, index: usize, step: &Step, dirs: &mut BTreeSet<Utf8PathBuf>) -> Result<(), JournalError> {
        match step {
            Step::Rename { from, .. } => {
                let (old, private) = (self.root.join(from), self.private(index, from));
                if !private.exists() {
                    self.ask("move", &old)?;
                    fs::rename(&old, &private).map_err(FsError::io("move", &old))?;
                }
                dirs.extend(old.parent().map(Utf8Path::to_owned));
            }
            Step::Remove { path, sha256 } => {
                let path = self.root.join(path);
                if path.exists() {
                    self.check_digest(&path, *sha256)?;
                    self.ask("remove", &path)?;
                    fs::remove_file(&path).map_err(FsError::io("remove", &path))?;
                }
                dirs.extend(path.parent().map(Utf8Path::to_owned));
            }
            Step::Write { .. } => {}
        }
        Ok(())
    }

    fn arrive(
        &self,
        index: usize,
        step: &Step,
        dirs: &mut BTreeSet<Utf8PathBuf>,
    ) -> Result<(), JournalError> {
        match step {
            Step::Rename { from, to } => {
                let (private, new) = (self.private(index, from), self.root.join(to));
                match (private.exists(), new.exists()) {
                    (true, false) => {
                        self.ask("rename to", &new)?;
                        fs::rename(&private, &new).map_err(FsError::io("rename to", &new))?;
                    }
                    // It arrived before an earlier run was stopped.
                    (false, true) => {}
                    (true, true) => {
                        return Err(self.disturbed(format!("{new} appeared in the meantime; move it away")));
                    }
                    (false, false) => {
                        return Err(self.disturbed(format!(
                            "{from} vanished on its way to {to}; put the file back under that name"
                        )));
                    }
                }
                dirs.extend(
                    [&private, &new].into_iter().filter_map(|path| path.parent()).map(Utf8Path::to_owned),
                );
            }
            Step::Write { path, content } => {
                let path = self.root.join(path);
                self.ask("write", &path)?;
                write_atomic(&path, content.as_bytes())?;
            }
            Step::Remove { .. } => {}
        }
        Ok(())
    }

    fn disturbed(&self, why: String) -> JournalError {
        JournalError::Disturbed { journal: self.file.clone(), why }
    }

    fn check_digest(&self, path: &Utf8Path, sha256: Option<Sha256Digest>) -> Result<(), FsError> {
        if sha256.is_none() {
            return Ok(());
        }
        let (actual, size) = hash_file(path, &NoProgress)?;
        Expected { size: None, sha256 }.check(path, size, actual)
    }
}
