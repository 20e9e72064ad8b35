//! What publishing would do, computed before anything is pushed.

use std::fmt;

use serde::Serialize;

use super::{
    PublishError, PublishRequest,
    content::{ArtifactFiles, Content},
    git::{Git, Tree},
    pieces::check_push_limits,
};

/// One commit of artifacts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Batch {
    /// Files that it brings, in order.
    pub adds: Vec<String>,
    /// Files that it removes.
    pub removes: Vec<String>,
    /// Bytes that it brings.
    pub bytes: u64,
}

/// Where a remote's branch stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RemoteTip {
    /// The remote.
    pub remote: String,
    /// The commit; `None` where the branch does not exist yet.
    pub tip: Option<String>,
}

/// What publishing would do.
#[derive(Debug, Clone, Serialize)]
pub struct PublishPlan {
    /// The branch.
    pub branch: String,
    /// The remotes.
    pub remotes: Vec<RemoteTip>,
    /// The commit that the release is put on; `None` for a new branch.
    pub base: Option<String>,
    /// The commits of artifacts.
    pub batches: Vec<Batch>,
    /// Artifact files that are on the branch already.
    pub unchanged: usize,
    /// The files of the last commit that change: manifest, part list, signature.
    pub manifest_changes: Vec<String>,
    #[serde(skip)]
    pub(crate) content: Content,
    #[serde(skip)]
    pub(crate) tree: Tree,
}

impl PublishPlan {
    /// Whether the branch has the release already, on every remote.
    pub fn is_empty(&self) -> bool {
        let up_to_date = self.remotes.iter().all(|remote| remote.tip == self.base);
        self.batches.is_empty() && self.manifest_changes.is_empty() && up_to_date
    }
}

impl fmt::Display for PublishPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "publish to {} on {}", self.branch, self.base.as_deref().unwrap_or("a new branch"))?;
        for remote in &self.remotes {
            writeln!(f, "  remote {} at {}", remote.remote, remote.tip.as_deref().unwrap_or("(no branch)"))?;
        }
        for (number, batch) in self.batches.iter().enumerate() {
            writeln!(f, "  commit {}: {} files, {} bytes", number + 1, batch.adds.len(), batch.bytes)?;
            batch.adds.iter().try_for_each(|name| writeln!(f, "    add {name}"))?;
            batch.removes.iter().try_for_each(|name| writeln!(f, "    remove {name}"))?;
        }
        writeln!(f, "  {} files are there already", self.unchanged)?;
        if self.manifest_changes.is_empty() {
            return writeln!(f, "  the manifest is there already");
        }
        writeln!(f, "  last commit: {}", self.manifest_changes.join(", "))
    }
}

/// Computes what publishing would do. The branch's tips are fetched into the clone; nothing else is written.
///
/// # Errors
/// [`PublishError`] of git, and where the remotes contradict each other.
pub fn plan_publish(request: &PublishRequest<'_>) -> Result<PublishPlan, PublishError> {
    let git = Git::new(request.route.repository);
    let mut content = Content::of(request.release, request.workspace, request.signer)?;
    let mut remotes = Vec::new();
    for remote in request.route.remotes {
        let tip = git.remote_tip(&remote.name, request.route.branch)?;
        remotes.push(RemoteTip { remote: remote.name.clone(), tip });
    }
    let base = common_base(&git, request.route.branch, &remotes)?;
    let tree = base.as_deref().map_or_else(|| Ok(Tree::new()), |base| git.tree(base))?;
    if let Some(signer) = request.signer {
        content.keep_signature(&git, &tree, signer)?;
    }
    let mut plan = PublishPlan {
        branch: request.route.branch.to_owned(),
        remotes,
        base,
        batches: Vec::new(),
        unchanged: 0,
        manifest_changes: Vec::new(),
        content,
        tree,
    };
    batches(&git, request, &mut plan)?;
    plan.manifest_changes = manifest_changes(&git, &plan)?;
    Ok(plan)
}

/// The tip that contains all others. A remote that was left behind by an earlier, stopped publication is brought up.
pub(super) fn common_base(
    git: &Git,
    branch: &str,
    remotes: &[RemoteTip],
) -> Result<Option<String>, PublishError> {
    let mut base: Option<&RemoteTip> = None;
    for remote in remotes {
        let Some(tip) = &remote.tip else { continue };
        match base.and_then(|base| base.tip.as_ref().map(|old| (base, old))) {
            None => base = Some(remote),
            Some((_, old)) if git.is_ancestor(tip, old)? => {}
            Some((_, old)) if git.is_ancestor(old, tip)? => base = Some(remote),
            Some((base, _)) => {
                return Err(PublishError::Diverged {
                    branch: branch.to_owned(),
                    first: base.remote.clone(),
                    second: remote.remote.clone(),
                });
            }
        }
    }
    Ok(base.and_then(|base| base.tip.clone()))
}

/// Groups the artifacts that are not on the branch into commits of about the wanted size.
fn batches(git: &Git, request: &PublishRequest<'_>, plan: &mut PublishPlan) -> Result<(), PublishError> {
    let most = request.route.commit_bytes();
    let mut batch = Batch::empty();
    for artifact in &plan.content.artifacts {
        let missing = missing_files(git, &plan.content, artifact, &plan.tree)?;
        let mut removes: Vec<String> =
            plan.content.stale(artifact, &plan.tree).into_iter().map(str::to_owned).collect();
        plan.unchanged += artifact.files.len() - missing.len();
        if missing.is_empty() && removes.is_empty() {
            continue;
        }
        check_push_limits(&request.route, missing.iter().map(|(name, size)| (name.as_str(), *size)))?;
        let bytes: u64 = missing.iter().map(|(_, size)| size).sum();
        if !batch.is_empty() && batch.bytes + bytes > most {
            plan.batches.push(std::mem::replace(&mut batch, Batch::empty()));
        }
        // An artifact larger than a push takes several: its old checksum goes with the first of them, the new one comes
        // with the last, and readers refuse parts without a checksum.
        if bytes > most {
            removes.extend(
                artifact
                    .files
                    .last()
                    .map(|file| file.name.clone())
                    .filter(|name| plan.tree.contains_key(name)),
            );
        }
        batch.removes.append(&mut removes);
        for (name, size) in missing {
            if batch.bytes > 0 && batch.bytes + size > most {
                plan.batches.push(std::mem::replace(&mut batch, Batch::empty()));
            }
            batch.bytes += size;
            batch.adds.push(name);
        }
    }
    if !batch.is_empty() {
        plan.batches.push(batch);
    }
    Ok(())
}

impl Batch {
    fn empty() -> Self {
        Self { adds: Vec::new(), removes: Vec::new(), bytes: 0 }
    }

    fn is_empty(&self) -> bool {
        self.adds.is_empty() && self.removes.is_empty()
    }
}

fn missing_files(
    git: &Git,
    content: &Content,
    artifact: &ArtifactFiles,
    tree: &Tree,
) -> Result<Vec<(String, u64)>, PublishError> {
    let paths: Vec<_> = artifact.files.iter().map(|file| content.path(&file.name)).collect();
    let known = artifact.files.iter().any(|file| tree.contains_key(&file.name));
    // Hashing is only worth while where the branch has something to compare with.
    let ids = if known { git.hash_files(&paths, false)? } else { Vec::new() };
    let is_there =
        |at: usize, name: &str| tree.get(name).zip(ids.get(at)).is_some_and(|(entry, id)| entry.id == *id);
    let missing = artifact.files.iter().enumerate().filter(|(at, file)| !is_there(*at, &file.name));
    Ok(missing.map(|(_, file)| (file.name.clone(), file.size)).collect())
}

fn manifest_changes(git: &Git, plan: &PublishPlan) -> Result<Vec<String>, PublishError> {
    let mut changes = Vec::new();
    for (name, text) in &plan.content.texts {
        let same = match plan.tree.get(name) {
            Some(entry) => git.text(&entry.id)? == *text,
            None => false,
        };
        if !same {
            changes.push(name.clone());
        }
    }
    let signature = plan.content.signature_name();
    if plan.content.texts.len() < 3 && plan.tree.contains_key(&signature) {
        changes.push(signature);
    }
    Ok(changes)
}
