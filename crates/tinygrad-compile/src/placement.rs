//! Several files that appear together or not at all.

use std::collections::BTreeMap;

use camino::{Utf8Path, Utf8PathBuf};
use durable_fs::{Journal, JournalError, Step};

/// The journal, directly in the output directory.
const JOURNAL: &str = ".models-placing.json";

/// Finishes a placement that a kill had interrupted. Must be done before leftovers are swept: the files may be among them.
///
/// # Errors
/// [`JournalError`] says what stands in the way.
pub fn recover(dir: &Utf8Path) -> Result<(), JournalError> {
    Journal::new(dir, JOURNAL).recover().map(drop)
}

/// Moves `files` (name in `dir` to present path below `dir`) and writes `texts` (name to content), replacing what is there.
/// A kill in between is finished by [`recover`].
///
/// # Errors
/// [`JournalError`]; where the plan was refused, the files are as they were.
pub fn place_together(
    dir: &Utf8Path,
    files: &BTreeMap<String, Utf8PathBuf>,
    texts: &BTreeMap<String, String>,
) -> Result<(), JournalError> {
    let relative = |path: &Utf8Path| path.strip_prefix(dir).unwrap_or(path).to_owned();
    let replaced = files.keys().filter(|name| dir.join(name).is_file());
    let removals = replaced.map(|name| Step::Remove { path: name.into(), sha256: None });
    let renames = files.iter().map(|(name, from)| Step::Rename { from: relative(from), to: name.into() });
    let writes =
        texts.iter().map(|(name, content)| Step::Write { path: name.into(), content: content.clone() });
    let steps: Vec<Step> = removals.chain(renames).chain(writes).collect();
    Journal::new(dir, JOURNAL).apply(&steps)
}

#[cfg(test)]
mod tests {
    use durable_fs::write_atomic;

    use super::*;

    #[test]
    fn files_replace_older_ones_together() {
        let guard = tempfile::tempdir().unwrap();
        let dir = Utf8Path::from_path(guard.path()).unwrap();
        std::fs::create_dir(dir.join("work")).unwrap();
        for (name, text) in [("a", "old a"), ("work/1", "new a"), ("work/2", "new b"), ("other", "kept")] {
            write_atomic(dir.join(name), text.as_bytes()).unwrap();
        }
        let files =
            BTreeMap::from([("a".to_owned(), dir.join("work/1")), ("b".to_owned(), dir.join("work/2"))]);
        let texts = BTreeMap::from([("record.json".to_owned(), "{}".to_owned())]);
        place_together(dir, &files, &texts).unwrap();
        let read = |name: &str| std::fs::read_to_string(dir.join(name)).unwrap();
        assert_eq!(
            (read("a"), read("b"), read("other"), read("record.json")),
            ("new a".into(), "new b".into(), "kept".into(), "{}".into())
        );
        // A file that is not there is refused before anything is changed.
        let files =
            BTreeMap::from([("a".to_owned(), dir.join("work/1")), ("other".to_owned(), dir.join("b"))]);
        place_together(dir, &files, &BTreeMap::new()).unwrap_err();
        assert_eq!((read("a"), read("b"), read("other")), ("new a".into(), "new b".into(), "kept".into()));
        recover(dir).unwrap();
    }
}
