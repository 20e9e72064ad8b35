//! Going back to the release before.
//!
//! What can go wrong: the remotes stand at different commits (one that was left behind is brought up, others are a person's
//! affair, and nothing is pushed), a kill between two remotes (rolling back again finishes the other one), somebody else's
//! work since the release (it stays, and the new commit is on top of it).

use std::time::{Duration, Instant};

use serde::Serialize;

use super::{
    PublishError, PublishEvent, PublishRoute,
    confirm::{Served, confirm_files, is_served},
    git::{Git, Tree},
    pieces::clear_incoming,
    plan::{RemoteTip, common_base},
    push::{TRAILER, bring_up, check_route, check_stop, move_branch},
};

/// What was rolled back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RolledBack {
    /// The commit that every remote's branch stands at.
    pub commit: String,
    /// Files that have their earlier content, or are gone.
    pub files: Vec<String>,
    /// Files that were fetched again and found right.
    pub confirmed: usize,
    /// What the hosts say of the files that are gone from the branch.
    pub removed: Removed,
}

/// Whether hosts still serve files that were taken away. It is only told: a host may keep copies for a while, and whoever has
/// the earlier manifest does not ask for them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Removed {
    /// Addresses that are no longer served.
    pub gone: Vec<String>,
    /// Addresses that still are.
    pub served: Vec<String>,
    /// Addresses of which the host said neither within the time for it.
    pub unknown: Vec<String>,
}

/// All files that are gone are looked at within this time.
const LOOK_LIMIT: Duration = Duration::from_secs(30);

/// The trailer that names the release's last commit in the commit that rolls it back.
const ROLLBACK_TRAILER: &str = "Rolls-Back";
/// How far back a release is looked for.
const HISTORY: &str = "--max-count=1000";

/// One commit of a branch's history.
struct Logged {
    commit: String,
    parent: Option<String>,
    release: Option<String>,
    rolls_back: Option<String>,
}

/// The newest release of a branch.
struct Span {
    /// Its last commit.
    newest: String,
    /// The commit before its first.
    before: Option<String>,
    /// Whether it was rolled back already.
    is_rolled_back: bool,
}

/// Undoes the newest release on the branch: one more commit, in which every file that the release changed is what it was
/// before, unless somebody has changed it since. History is kept: every push goes forward.
///
/// # Errors
/// [`PublishError::NothingToRollBack`] where the branch has no release of this tool; [`PublishError::Diverged`] where the
/// remotes contradict each other; otherwise as publishing.
pub fn rollback(
    route: &PublishRoute<'_>,
    seconds: i64,
    on_event: &mut dyn FnMut(PublishEvent),
) -> Result<RolledBack, PublishError> {
    check_route(route)?;
    let git = Git::new(route.repository);
    let nothing = || PublishError::NothingToRollBack { branch: route.branch.to_owned() };
    let mut tips = Vec::new();
    for remote in route.remotes {
        let tip = git.remote_tip(&remote.name, route.branch)?.ok_or_else(nothing)?;
        tips.push(RemoteTip { remote: remote.name.clone(), tip: Some(tip) });
    }
    let base = common_base(&git, route.branch, &tips)?.ok_or_else(nothing)?;
    let span = release_span(&git, &base)?.ok_or_else(nothing)?;
    let old = span.before.as_deref().map_or_else(|| Ok(Tree::new()), |before| git.tree(before))?;
    let new = git.tree(&span.newest)?;
    let mut tree = git.tree(&base)?;
    let released = new.keys().chain(old.keys().filter(|name| !new.contains_key(*name)));
    let released: Vec<&String> = released.filter(|name| old.get(*name) != new.get(*name)).collect();
    let changed: Vec<&String> =
        released.iter().copied().filter(|name| tree.get(*name) == new.get(*name)).collect();
    let target = if changed.is_empty() {
        if !span.is_rolled_back {
            return Err(nothing());
        }
        // An earlier run was stopped before every remote had it, or before it was looked at.
        base.clone()
    } else {
        for &name in &changed {
            match old.get(name) {
                Some(entry) => tree.insert(name.clone(), entry.clone()),
                None => tree.remove(name),
            };
        }
        let subject = format!("Roll back the release {:.12}", span.newest);
        let message = format!("{subject}\n\n{ROLLBACK_TRAILER}: {}\n", span.newest);
        let commit = git.commit(&tree, Some(&base), &message, seconds)?;
        let files = changed.len();
        on_event(PublishEvent::Committed { commit: commit.clone(), subject, files, bytes: 0 });
        commit
    };
    for (remote, at) in route.remotes.iter().zip(&mut tips) {
        let moved = bring_up(&git, route, remote, &mut at.tip, &base, on_event)?
            && move_branch(&git, route, remote, &mut at.tip, &target, on_event)?;
        if !moved {
            let (branch, remote) = (route.branch.to_owned(), remote.name.clone());
            return Err(PublishError::Moving { branch, remote });
        }
    }
    clear_incoming(&git, route)?;
    let mut files = Vec::new();
    for name in released.iter().filter(|name| tree.get(**name) == old.get(**name)) {
        if let Some(entry) = old.get(*name) {
            files.push(((*name).clone(), git.size(&entry.id)?, git.digest(&entry.id)?));
        }
    }
    let confirmed = confirm_files(route, &files, on_event)?;
    let gone = released.iter().filter(|name| !tree.contains_key(**name) && !old.contains_key(**name));
    let removed = look_at_removed(route, gone.map(|name| name.as_str()))?;
    let names = if changed.is_empty() { &released } else { &changed };
    let files = names.iter().map(|name| (*name).clone()).collect();
    Ok(RolledBack { commit: target, files, confirmed, removed })
}

/// Asks every host that has an address once for each file that is gone.
fn look_at_removed<'n>(
    route: &PublishRoute<'_>,
    names: impl Iterator<Item = &'n str> + Clone,
) -> Result<Removed, PublishError> {
    let deadline = Instant::now() + LOOK_LIMIT;
    let mut removed = Removed::default();
    for base in route.remotes.iter().filter_map(|remote| remote.raw_base.as_deref()) {
        for name in names.clone() {
            let url = format!("{}/{}/{name}", base.trim_end_matches('/'), route.branch);
            check_stop(route)?;
            let served = if Instant::now() < deadline { is_served(route, &url) } else { Served::Unknown };
            match served {
                Served::No => removed.gone.push(url),
                Served::Yes => removed.served.push(url),
                Served::Unknown => removed.unknown.push(url),
            }
        }
    }
    Ok(removed)
}

/// The newest release's last commit, and the commit before its first.
fn release_span(git: &Git, tip: &str) -> Result<Option<Span>, PublishError> {
    let trailer = |key: &str| format!("%(trailers:key={key},valueonly,separator=%x2C)");
    let format = format!("--format=%H %P|{}|{}", trailer(TRAILER), trailer(ROLLBACK_TRAILER));
    let log = git.run(&["log", "--first-parent", HISTORY, &format, tip])?;
    let mut rolled_back = Vec::new();
    let mut commits = log.lines().filter_map(parse_line).skip_while(|logged| {
        rolled_back.extend(logged.rolls_back.clone());
        logged.release.is_none()
    });
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
    let is_rolled_back = rolled_back.contains(&newest.commit);
    Ok(Some(Span { newest: newest.commit, before, is_rolled_back }))
}

fn parse_line(line: &str) -> Option<Logged> {
    let mut fields = line.splitn(3, '|');
    let mut commits = fields.next()?.split_whitespace();
    let mut field = || fields.next().map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
    Some(Logged {
        commit: commits.next()?.to_owned(),
        parent: commits.next().map(str::to_owned),
        release: field(),
        rolls_back: field(),
    })
}
