//! Git object IDs, and refs resolved to commits.

use std::fmt;

use gix::bstr::{BStr, ByteSlice};

use crate::{ExtractError, SourceClone};

/// The ID of a git object.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GitId(pub(crate) gix::ObjectId);

impl fmt::Display for GitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for GitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GitId({})", self.0)
    }
}

/// Whether a ref is a whole object ID, which may be asked of a server as it is.
pub(crate) fn full_id(git_ref: &str) -> Option<gix::ObjectId> {
    gix::ObjectId::from_hex(git_ref.as_bytes()).ok()
}

impl SourceClone {
    /// The commit that `git_ref` names: 40 digits, a branch, a tag, a remote's branch such as `origin/x`, a short hash, or
    /// any other expression that git itself would resolve to a commit.
    ///
    /// # Errors
    /// [`ExtractError::RefNotFound`] where nothing has that name, [`ExtractError::CommitMissing`] where it is an object ID
    /// that the clone does not have, [`ExtractError::NotACommit`] where it names something else.
    pub fn resolve(&self, git_ref: &str) -> Result<GitId, ExtractError> {
        if let Some(id) = full_id(git_ref) {
            return self.peel_to_commit(id, git_ref);
        }
        let spec: &BStr = git_ref.as_bytes().as_bstr();
        let found = self.repository().rev_parse_single(spec).map_err(|error| ExtractError::RefNotFound {
            git_ref: git_ref.to_owned(),
            clone: self.path().to_owned(),
            why: error.to_string(),
        })?;
        self.peel_to_commit(found.detach(), git_ref)
    }

    fn peel_to_commit(&self, id: gix::ObjectId, git_ref: &str) -> Result<GitId, ExtractError> {
        let repository = &self.reader().repository;
        let object = repository.try_find_object(id).map_err(|error| ExtractError::Corrupt {
            what: format!("object {id}"),
            path: self.path().to_owned(),
            why: error.to_string(),
        })?;
        let missing =
            || ExtractError::CommitMissing { git_ref: git_ref.to_owned(), clone: self.path().to_owned() };
        let object = object.ok_or_else(missing)?;
        let kind = object.kind;
        let commit =
            object.peel_to_kind(gix::object::Kind::Commit).map_err(|_| ExtractError::NotACommit {
                git_ref: git_ref.to_owned(),
                kind: kind.to_string(),
                clone: self.path().to_owned(),
            })?;
        Ok(GitId(commit.id))
    }
}
