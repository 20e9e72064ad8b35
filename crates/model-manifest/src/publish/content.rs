//! What a release puts into the repository: an allow-list of names with the bytes that each must have.

use std::collections::{BTreeMap, BTreeSet};

use artifact_parts::{ListedArtifact, PartList, checksum_name, checksum_text};
use camino::{Utf8Path, Utf8PathBuf};
use durable_fs::Sha256;
use model_catalog::{ArtifactFile, ModelId, Sha256Digest};

use super::{
    PublishError, Signer,
    git::{Git, Tree},
};
use crate::{Folder, VerifiedRelease};

/// One file of the release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReleaseFile {
    pub name: String,
    pub size: u64,
    pub sha256: Sha256Digest,
}

/// The files of one artifact, in the order in which they are committed: the checksum last, so that it never stands beside
/// parts that are not its own.
#[derive(Debug, Clone)]
pub(crate) struct ArtifactFiles {
    pub id: ModelId,
    pub files: Vec<ReleaseFile>,
}

/// Everything that is published.
#[derive(Debug, Clone)]
pub(crate) struct Content {
    pub artifacts: Vec<ArtifactFiles>,
    /// The texts of the manifest, the part list and its signature, in this order.
    pub texts: Vec<(String, String)>,
    ready: Utf8PathBuf,
}

impl Content {
    pub fn of(
        release: &VerifiedRelease,
        root: &Utf8Path,
        signer: Option<&Signer>,
    ) -> Result<Self, PublishError> {
        let version = release.version();
        let listed = release.artifacts().iter().map(|artifact| ListedArtifact {
            id: artifact.id.clone(),
            filename: artifact.filename.clone(),
            size: artifact.size,
            sha256: artifact.sha256,
            parts: artifact.parts.clone(),
        });
        let list = PartList::new(version, listed.collect());
        let list_text = list.to_json().map_err(|error| PublishError::Sign { why: error.to_string() })?;
        let list_name = PartList::file_name(version);
        let mut texts = vec![
            (format!("model_names_{version}.json"), release.manifest().to_json()),
            (list_name.clone(), list_text.clone()),
        ];
        if let Some(signer) = signer {
            texts.push((PartList::signature_name(version), signer.sign(&list_name, &list_text)?));
        }
        let artifacts = list.artifacts.iter().map(artifact_files).collect();
        Ok(Self { artifacts, texts, ready: root.join(Folder::Ready.as_str()) })
    }

    /// Takes the signature that is on the branch, where it is one of this key for this list: two signatures of one list differ,
    /// and a release that is there already must not be pushed again.
    pub fn keep_signature(&mut self, git: &Git, tree: &Tree, signer: &Signer) -> Result<(), PublishError> {
        let Some(entry) = tree.get(&self.signature_name()) else { return Ok(()) };
        let present = git.text(&entry.id)?;
        if self.texts.len() == 3 && signer.verifies(&self.texts[1].1, &present) {
            self.texts[2].1 = present;
        }
        Ok(())
    }

    pub fn path(&self, name: &str) -> Utf8PathBuf {
        self.ready.join(name)
    }

    /// The manifest's file name.
    pub fn manifest_name(&self) -> &str {
        &self.texts[0].0
    }

    pub fn files(&self) -> impl Iterator<Item = &ReleaseFile> {
        self.artifacts.iter().flat_map(|artifact| &artifact.files)
    }

    /// Every name that the commits may change: the release's files, and files of the same artifacts that they replace.
    pub fn may_change(&self, name: &str) -> bool {
        let ids: BTreeSet<&ModelId> = self.artifacts.iter().map(|artifact| &artifact.id).collect();
        self.is_text(name) || ArtifactFile::parse(name).is_some_and(|file| ids.contains(file.artifact().id()))
    }

    pub fn is_text(&self, name: &str) -> bool {
        self.texts.iter().any(|(text, _)| text == name) || name == self.signature_name()
    }

    /// The signature's name, whether this release has one or not: an old one must not stay beside a new list.
    pub fn signature_name(&self) -> String {
        format!("{}.minisig", self.texts[1].0)
    }

    /// Files of an artifact in a tree that the release does not have: parts of a longer split, the whole of one that is now
    /// in parts, or the other way round.
    pub fn stale<'t>(&self, artifact: &ArtifactFiles, tree: &'t Tree) -> Vec<&'t str> {
        let wanted: BTreeSet<&str> = artifact.files.iter().map(|file| file.name.as_str()).collect();
        let of_artifact = |name: &&String| {
            ArtifactFile::parse(name).is_some_and(|file| *file.artifact().id() == artifact.id)
        };
        tree.keys().filter(of_artifact).map(String::as_str).filter(|name| !wanted.contains(name)).collect()
    }

    /// Digest of every file, for the last look before a push.
    pub fn digests(&self) -> BTreeMap<String, Sha256Digest> {
        let texts = self.texts.iter().map(|(name, text)| (name.clone(), Sha256::digest(text.as_bytes())));
        self.files().map(|file| (file.name.clone(), file.sha256)).chain(texts).collect()
    }

    /// A name for the release in its commits.
    pub fn release_id(&self) -> String {
        let mut hash = Sha256::new();
        for (_, text) in &self.texts[..2] {
            hash.update(text.as_bytes());
        }
        hash.finish().to_string()[..16].to_owned()
    }
}

fn artifact_files(artifact: &ListedArtifact) -> ArtifactFiles {
    let part = |part: &artifact_parts::Part| {
        // The gate computes every part's digest.
        part.sha256.map(|sha256| ReleaseFile { name: part.name.clone(), size: part.size, sha256 })
    };
    let mut files: Vec<ReleaseFile> = artifact.parts.iter().filter_map(part).collect();
    if files.is_empty() {
        let name = artifact.filename.clone();
        files.push(ReleaseFile { name, size: artifact.size, sha256: artifact.sha256 });
    } else {
        let text = checksum_text(&artifact.filename, artifact.sha256);
        let name = checksum_name(&artifact.filename);
        files.push(ReleaseFile { name, size: text.len() as u64, sha256: Sha256::digest(text.as_bytes()) });
    }
    ArtifactFiles { id: artifact.id.clone(), files }
}
