//! Bringing a remote the files of commits in several pushes, where one push would be more than it takes.
//!
//! A commit cannot be cut: what one remote has taken must reach the other as it is. But a push leaves out what the remote says
//! it has. So the files of such a commit go ahead in pieces of the remote's size, named by a tag of their own, and the push of
//! the commit then brings the rest. The tag is taken away afterwards; one that a kill left behind is gone on from.

use std::collections::BTreeSet;

use super::{
    PublishError, PublishEvent, PublishRoute, Remote,
    git::{Git, Tree, TreeEntry},
    push::check_stop,
};

impl Remote {
    /// How many bytes of files one push to it may bring: a sixteenth of its limit is left for what git adds.
    pub(super) fn room(&self) -> Option<u64> {
        self.push_limit.map(|limit| limit - limit / 16)
    }
}

impl PublishRoute<'_> {
    /// How many bytes of files a commit may bring so that every remote takes it in one push.
    pub(super) fn commit_bytes(&self) -> u64 {
        let rooms = self.remotes.iter().filter_map(Remote::room);
        rooms.chain([self.batch_bytes]).min().unwrap_or(self.batch_bytes)
    }

    /// How many bytes of files one push to this remote may bring.
    pub(super) fn push_bytes(&self, remote: &Remote) -> u64 {
        remote.room().map_or(self.batch_bytes, |room| room.min(self.batch_bytes))
    }

    /// The tag that names what went ahead.
    fn incoming(&self) -> String {
        format!("refs/tags/rebuild-incoming/{}", self.branch)
    }
}

/// Refuses files that a remote would not take in any push.
pub(super) fn check_push_limits<'f>(
    route: &PublishRoute<'_>,
    files: impl Iterator<Item = (&'f str, u64)>,
) -> Result<(), PublishError> {
    for (name, size) in files {
        for remote in route.remotes {
            if let Some(limit) = remote.push_limit.filter(|limit| size > *limit) {
                let (remote, name) = (remote.name.clone(), name.to_owned());
                return Err(PublishError::OverPushLimit { remote, name, size, limit });
            }
        }
    }
    Ok(())
}

/// Brings `remote`, whose branch stands at `tip`, so many files of `commit` that one push of the commit is within its limit.
pub(super) fn bring_ahead(
    git: &Git,
    route: &PublishRoute<'_>,
    remote: &Remote,
    tip: Option<&str>,
    commit: &str,
    on_event: &mut dyn FnMut(PublishEvent),
) -> Result<(), PublishError> {
    let Some(room) = remote.room() else { return Ok(()) };
    let blobs = git.blobs_between(tip, commit)?;
    if blobs.iter().map(|(_, _, size)| size).sum::<u64>() <= room {
        return Ok(());
    }
    check_push_limits(route, blobs.iter().map(|(name, _, size)| (name.as_str(), *size)))?;
    let pieces = pieces(git, blobs, room)?;
    let reference = route.incoming();
    let there = git.remote_reference(&remote.name, &reference)?;
    let done = pieces.iter().rposition(|piece| Some(&piece.tree) == there.as_ref()).map_or(0, |at| at + 1);
    for piece in &pieces[done..] {
        check_stop(route)?;
        git.force_reference(&remote.name, &reference, Some(&piece.tree))?;
        on_event(PublishEvent::Ahead { remote: remote.name.clone(), files: piece.files, bytes: piece.bytes });
    }
    Ok(())
}

/// Takes the tags away from remotes that may have one.
pub(super) fn clear_incoming(git: &Git, route: &PublishRoute<'_>) -> Result<(), PublishError> {
    let reference = route.incoming();
    for remote in route.remotes.iter().filter(|remote| remote.push_limit.is_some()) {
        if git.remote_reference(&remote.name, &reference)?.is_some() {
            git.force_reference(&remote.name, &reference, None)?;
        }
    }
    Ok(())
}

/// A tree with the files of this piece and of those before it.
struct Piece {
    tree: String,
    files: usize,
    bytes: u64,
}

/// All pieces but the last, which comes with the commit. The same commit gives the same pieces each time.
fn pieces(git: &Git, blobs: Vec<(String, String, u64)>, room: u64) -> Result<Vec<Piece>, PublishError> {
    let (mut pieces, mut tree) = (Vec::new(), Tree::new());
    let (mut files, mut bytes) = (0, 0);
    let mut seen = BTreeSet::new();
    for (_, id, size) in blobs.into_iter().filter(|(_, id, _)| seen.insert(id.clone())) {
        if files > 0 && bytes + size > room {
            pieces.push(Piece { tree: git.make_tree(&tree)?, files, bytes });
            (files, bytes) = (0, 0);
        }
        tree.insert(id.clone(), TreeEntry::file(&id));
        files += 1;
        bytes += size;
    }
    Ok(pieces)
}
