//! Going back to the release before.

use camino::Utf8Path;
use serde::Serialize;

use super::{PublishError, PublishEvent, Remote, git::Git, push::TRAILER};

/// What was rolled back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RolledBack {
    /// The new commit.
    pub commit: String,
    /// Files that got their earlier content, or went.
    pub files: Vec<String>,
}

/// One commit of a branch's history.
struct Logged {
    commit: String,
    parent: Option<String>,
    release: Option<String>,
}

/// Undoes the newest release on the branch: one more commit, in which every file that the release changed is what it was
/// before, unless somebody has changed it since. History is kept.
///
/// # Errors
/// [`PublishError::NothingToRollBack`] where the branch has no release of this tool; otherwise as publishing.
pub fn rollback(
    repository: &Utf8Path,
    remotes: &[Remote],
    branch: &str,
    seconds: i64,
    on_event: &mut dyn FnMut(PublishEvent),
) -> Result<RolledBack, PublishError> {
    let git = Git::new(repository);
    let nothing = || PublishError::NothingToRollBack { branch: branch.to_owned() };
    let mut tips = Vec::new();
    for remote in remotes {
        tips.push(git.remote_tip(&remote.name, branch)?.ok_or_else(nothing)?);
    }
    let tip = tips.first().cloned().ok_or_else(nothing)?;
    let (newest, before) = release_span(&git, &tip)?.ok_or_else(nothing)?;
    let old = before.as_deref().map_or_else(|| Ok(Default::default()), |before| git.tree(before))?;
    let new = git.tree(&newest)?;
    let mut tree = git.tree(&tip)?;
    let mut files = Vec::new();
    for name in new.keys().chain(old.keys().filter(|name| !new.contains_key(*name))) {
        if old.get(name) == new.get(name) || tree.get(name) != new.get(name) {
            continue;
        }
        match old.get(name) {
            Some(entry) => tree.insert(name.clone(), entry.clone()),
            None => tree.remove(name),
        };
        files.push(name.clone());
    }
    if files.is_empty() {
        return Err(nothing());
    }
    let subject = format!("Roll back the release {newest:.12}");
    let commit = git.commit(&tree, Some(&tip), &format!("{subject}\n"), seconds)?;
    on_event(PublishEvent::Committed { commit: commit.clone(), subject, files: files.len(), bytes: 0 });
    for (remote, old) in remotes.iter().zip(&tips) {
        if !git.push(&remote.name, branch, Some(old), &commit)? {
            return Err(PublishError::Moving { branch: branch.to_owned(), remote: remote.name.clone() });
        }
        on_event(PublishEvent::Pushed { remote: remote.name.clone(), commit: commit.clone() });
    }
    Ok(RolledBack { commit, files })
}

/// The newest release's last commit, and the commit before its first.
fn release_span(git: &Git, tip: &str) -> Result<Option<(String, Option<String>)>, PublishError> {
    let format = format!("--format=%H %P|%(trailers:key={TRAILER},valueonly,separator=%x2C)");
    let log = git.run(&["log", "--first-parent", "--max-count=1000", &format, tip])?;
    let mut commits = log.lines().filter_map(parse_line).skip_while(|logged| logged.release.is_none());
    let Some(newest) = commits.next() else { return Ok(None) };
    // Commits of others may lie between those of the release.
    let mut before = newest.parent.clone();
    for logged in commits {
        match &logged.release {
            Some(_) if logged.release == newest.release => before = logged.parent.clone(),
            Some(_) => break,
            None => {}
        }
    }
    Ok(Some((newest.commit, before)))
}

fn parse_line(line: &str) -> Option<Logged> {
    let (commits, release) = line.split_once('|')?;
    let mut commits = commits.split_whitespace();
    Some(Logged {
        commit: commits.next()?.to_owned(),
        parent: commits.next().map(str::to_owned),
        release: Some(release.trim().to_owned()).filter(|release| !release.is_empty()),
    })
}
