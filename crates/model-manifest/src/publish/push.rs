//! Carrying a publication out.

use std::{collections::BTreeSet, sync::atomic::Ordering};

use serde::Serialize;

use super::{
    PublishError, PublishEvent, PublishPlan, PublishRequest, PublishRoute, Remote,
    confirm::{confirm_artifacts, confirm_texts},
    git::{Git, Tree, TreeEntry},
    pieces::{bring_ahead, clear_incoming},
    plan::plan_publish,
};

/// How often the commits are made anew because somebody else pushed.
const ATTEMPTS: u32 = 3;

/// What was published.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Published {
    /// The commit that every remote's branch stands at.
    pub commit: String,
    /// Commits that were made and pushed; 0 where the branch had the release already.
    pub commits: usize,
    /// Files that were fetched again and found right.
    pub confirmed: usize,
}

/// A set of commits that were made in the clone.
struct Made {
    /// The commits of artifacts, oldest first.
    artifacts: Vec<String>,
    /// The commit of the manifest.
    manifest: Option<String>,
}

/// How a try ended.
enum Outcome {
    Done(Published),
    /// A remote's branch was not where it was expected.
    Moved {
        remote: String,
    },
}

/// Publishes a release: artifacts, a look at them over the devices' route, the manifest, a look at it.
///
/// # Errors
/// [`PublishError`]; its message says whether the manifest was switched. Publishing again goes on.
pub fn publish(
    request: &PublishRequest<'_>,
    on_event: &mut dyn FnMut(PublishEvent),
) -> Result<Published, PublishError> {
    check_route(&request.route)?;
    let git = Git::new(request.route.repository);
    let first = plan_publish(request)?;
    let manifest_name = first.content.manifest_name().to_owned();
    let manifest_before = first.tree.get(&manifest_name).cloned();
    let mut plan = first;
    let mut moving = String::new();
    for _ in 0..ATTEMPTS {
        match attempt(&git, request, &plan, on_event)? {
            Outcome::Done(published) => return Ok(published),
            Outcome::Moved { remote } => {
                on_event(PublishEvent::Rebased { remote: remote.clone() });
                moving = remote;
                plan = plan_publish(request)?;
                let now = plan.tree.get(&manifest_name);
                let ours = plan.manifest_changes.is_empty();
                if now != manifest_before.as_ref() && !ours {
                    return Err(PublishError::ManifestMoved {
                        file: manifest_name,
                        branch: request.route.branch.to_owned(),
                    });
                }
            }
        }
    }
    Err(PublishError::Moving { branch: request.route.branch.to_owned(), remote: moving })
}

fn attempt(
    git: &Git,
    request: &PublishRequest<'_>,
    plan: &PublishPlan,
    on_event: &mut dyn FnMut(PublishEvent),
) -> Result<Outcome, PublishError> {
    check_stop(&request.route)?;
    let made = make_commits(git, request, plan, on_event)?;
    let last = made.manifest.as_ref().or(made.artifacts.last()).or(plan.base.as_ref());
    let Some(last) = last.cloned() else {
        // An empty release on a new branch: there is nothing to push or to confirm.
        return Ok(Outcome::Done(Published { commit: String::new(), commits: 0, confirmed: 0 }));
    };
    scan(git, request, plan, &last)?;
    let route = &request.route;
    let mut tips: Vec<Option<String>> = plan.remotes.iter().map(|remote| remote.tip.clone()).collect();
    // A remote that was left behind comes up to the base first, then all go on together.
    for (remote, tip) in route.remotes.iter().zip(&mut tips) {
        if let Some(base) = &plan.base
            && !bring_up(git, route, remote, tip, base, on_event)?
        {
            return Ok(Outcome::Moved { remote: remote.name.clone() });
        }
    }
    for commit in &made.artifacts {
        for (remote, tip) in route.remotes.iter().zip(&mut tips) {
            if !move_branch(git, route, remote, tip, commit, on_event)? {
                return Ok(Outcome::Moved { remote: remote.name.clone() });
            }
        }
    }
    let mut confirmed = confirm_artifacts(route, &plan.content, on_event)?;
    if let Some(commit) = &made.manifest {
        check_stop(route)?;
        for (remote, tip) in route.remotes.iter().zip(&mut tips) {
            if !move_branch(git, route, remote, tip, commit, on_event)? {
                return Ok(Outcome::Moved { remote: remote.name.clone() });
            }
        }
    }
    clear_incoming(git, route)?;
    confirmed += confirm_texts(route, &plan.content, on_event)?;
    let commits = made.artifacts.len() + usize::from(made.manifest.is_some());
    Ok(Outcome::Done(Published { commit: last, commits, confirmed }))
}

/// Whether what is pushed can be looked at, or nobody wants that.
pub(super) fn check_route(route: &PublishRoute<'_>) -> Result<(), PublishError> {
    let has_address = route.remotes.iter().any(|remote| remote.raw_base.is_some());
    if has_address || route.unconfirmed { Ok(()) } else { Err(PublishError::NoAddress) }
}

pub(super) fn check_stop(route: &PublishRoute<'_>) -> Result<(), PublishError> {
    if route.stop.load(Ordering::Relaxed) { Err(PublishError::Interrupted) } else { Ok(()) }
}

/// Brings a remote's branch, which was left behind or does not exist, up to `base` in pushes of limited size. What others have
/// put there is not judged by its name; a file that is too large for the remote is found before the first push.
pub(super) fn bring_up(
    git: &Git,
    route: &PublishRoute<'_>,
    remote: &Remote,
    tip: &mut Option<String>,
    base: &str,
    on_event: &mut dyn FnMut(PublishEvent),
) -> Result<bool, PublishError> {
    if tip.as_deref() == Some(base) {
        return Ok(true);
    }
    let limit = route.part_limit.bytes();
    let too_large = |(_, _, size): &(String, String, u64)| *size > limit;
    if let Some((name, _, size)) = git.blobs_between(tip.as_deref(), base)?.into_iter().find(too_large) {
        return Err(PublishError::OverLimit { name, size, limit });
    }
    let (mut before, mut bytes) = (tip.clone(), 0);
    let mut waiting: Option<String> = None;
    for commit in git.commits_between(tip.as_deref(), base)? {
        let brings: u64 =
            git.blobs_between(before.as_deref(), &commit)?.iter().map(|(_, _, size)| size).sum();
        if let Some(commit) = waiting.take_if(|_| bytes + brings > route.push_bytes(remote)) {
            bytes = 0;
            if !move_branch(git, route, remote, tip, &commit, on_event)? {
                return Ok(false);
            }
        }
        bytes += brings;
        before = Some(commit.clone());
        waiting = Some(commit);
    }
    move_branch(git, route, remote, tip, base, on_event)
}

/// Moves a remote's branch to a commit, unless it contains it already. False where somebody else moved it.
pub(super) fn move_branch(
    git: &Git,
    route: &PublishRoute<'_>,
    remote: &Remote,
    tip: &mut Option<String>,
    commit: &str,
    on_event: &mut dyn FnMut(PublishEvent),
) -> Result<bool, PublishError> {
    if tip.as_deref() == Some(commit) {
        return Ok(true);
    }
    check_stop(route)?;
    bring_ahead(git, route, remote, tip.as_deref(), commit, on_event)?;
    if !git.push(&remote.name, route.branch, tip.as_deref(), commit)? {
        return Ok(false);
    }
    *tip = Some(commit.to_owned());
    on_event(PublishEvent::Pushed { remote: remote.name.clone(), commit: commit.to_owned() });
    Ok(true)
}

fn make_commits(
    git: &Git,
    request: &PublishRequest<'_>,
    plan: &PublishPlan,
    on_event: &mut dyn FnMut(PublishEvent),
) -> Result<Made, PublishError> {
    let mut tree = plan.tree.clone();
    let mut parent = plan.base.clone();
    let release = plan.content.release_id();
    let version = request.release.version();
    let mut artifacts = Vec::new();
    for (number, batch) in plan.batches.iter().enumerate() {
        check_stop(&request.route)?;
        for name in &batch.removes {
            tree.remove(name);
        }
        let paths: Vec<_> = batch.adds.iter().map(|name| plan.content.path(name)).collect();
        let ids = git.hash_files(&paths, true)?;
        if ids.len() != paths.len() {
            return Err(PublishError::Changed { path: plan.content.path(&batch.adds[0]) });
        }
        for (name, id) in batch.adds.iter().zip(&ids) {
            tree.insert(name.clone(), TreeEntry::file(id));
        }
        let subject =
            format!("Add artifacts of the models {version} ({} of {})", number + 1, plan.batches.len());
        let commit = git.commit(&tree, parent.as_deref(), &message(&subject, &release), request.seconds)?;
        on_event(PublishEvent::Committed {
            commit: commit.clone(),
            subject,
            files: batch.adds.len(),
            bytes: batch.bytes,
        });
        parent = Some(commit.clone());
        artifacts.push(commit);
    }
    let manifest = match plan.manifest_changes.is_empty() {
        true => None,
        false => Some(commit_manifest(git, request, plan, &mut tree, parent.as_deref(), &release, on_event)?),
    };
    Ok(Made { artifacts, manifest })
}

fn commit_manifest(
    git: &Git,
    request: &PublishRequest<'_>,
    plan: &PublishPlan,
    tree: &mut Tree,
    parent: Option<&str>,
    release: &str,
    on_event: &mut dyn FnMut(PublishEvent),
) -> Result<String, PublishError> {
    tree.remove(&plan.content.signature_name());
    let mut bytes = 0;
    for (name, text) in &plan.content.texts {
        tree.insert(name.clone(), TreeEntry::file(&git.write_text(text)?));
        bytes += text.len() as u64;
    }
    let subject = format!("Release the models {}", request.release.version());
    let commit = git.commit(tree, parent, &message(&subject, release), request.seconds)?;
    let files = plan.content.texts.len();
    on_event(PublishEvent::Committed { commit: commit.clone(), subject, files, bytes });
    Ok(commit)
}

/// The trailer by which the commits of one release are found again.
pub(super) const TRAILER: &str = "Release-Id";

fn message(subject: &str, release: &str) -> String {
    format!("{subject}\n\n{TRAILER}: {release}\n")
}

/// Looks at everything that would be pushed, as a whole: the name and size of every file in every commit, and the digest of
/// every file that would stand on the branch.
fn scan(git: &Git, request: &PublishRequest<'_>, plan: &PublishPlan, last: &str) -> Result<(), PublishError> {
    let limit = request.route.part_limit.bytes();
    for (name, _, size) in git.blobs_between(plan.base.as_deref(), last)? {
        if !plan.content.may_change(&name) {
            return Err(PublishError::NotAllowed { name });
        }
        if size > limit {
            return Err(PublishError::OverLimit { name, size, limit });
        }
    }
    let digests = plan.content.digests();
    let tree = git.tree(last)?;
    let names: BTreeSet<&String> = plan.tree.keys().chain(tree.keys()).collect();
    for name in names.into_iter().filter(|name| plan.tree.get(*name) != tree.get(*name)) {
        if !plan.content.may_change(name) {
            return Err(PublishError::NotAllowed { name: name.clone() });
        }
        let Some(entry) = tree.get(name) else { continue };
        match digests.get(name) {
            Some(&expected) if git.digest(&entry.id)? == expected => {}
            _ => return Err(PublishError::Changed { path: plan.content.path(name) }),
        }
    }
    Ok(())
}
