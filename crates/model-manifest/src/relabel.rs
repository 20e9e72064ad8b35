//! Giving artifacts other IDs: their files, the names inside checksums, the multipart list, records and recorded identities.

use std::collections::{BTreeMap, BTreeSet};

use camino::Utf8PathBuf;
use durable_fs::{Sha256, Step};
use model_catalog::{ArtifactFile, ArtifactName, ManifestVersion, ModelId};
use rebuild_workspace::{ArtifactRecord, MultipartList};
use serde::Serialize;

use crate::{ArtifactSet, Folder, Identities, Identity, Note, Plan, Problem, Selection, Snapshot};

/// One artifact that gets another ID in its names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Move {
    pub folder: Folder,
    pub from: ModelId,
    pub to: ModelId,
    /// Which model it is.
    pub source: ModelId,
}

/// A plan in the making: copies of what is there, changed, and compared with it in the end.
pub(crate) struct Draft<'a> {
    snapshot: &'a Snapshot,
    version: ManifestVersion,
    pub moves: Vec<Move>,
    pub problems: Vec<Problem>,
    pub notes: Vec<Note>,
    steps: Vec<Step>,
    writes: Vec<Step>,
    records: BTreeMap<ModelId, ArtifactRecord>,
    identities: Identities,
    multipart: MultipartList,
    /// The IDs in the file names of each folder, as they will be.
    names: BTreeMap<Folder, BTreeSet<ModelId>>,
}

/// JSON as it stands in the workspace's files.
pub(crate) fn json_text(value: &impl Serialize) -> String {
    let mut text = serde_json::to_string_pretty(value)
        .unwrap_or_else(|_| unreachable!("maps with text keys always serialise"));
    text.push('\n');
    text
}

impl<'a> Draft<'a> {
    pub fn new(snapshot: &'a Snapshot, version: ManifestVersion) -> Self {
        let names =
            Folder::ALL.map(|folder| (folder, snapshot.sets(folder).map(|(id, _)| id.clone()).collect()));
        Self {
            snapshot,
            version,
            moves: Vec::new(),
            problems: Vec::new(),
            notes: Vec::new(),
            steps: Vec::new(),
            writes: Vec::new(),
            records: snapshot.records.clone(),
            identities: snapshot.identities.clone(),
            multipart: snapshot.multipart.clone(),
            names: names.into(),
        }
    }

    /// The IDs in the file names of a folder, as they will be.
    pub fn names(&self, folder: Folder) -> impl Iterator<Item = &ModelId> {
        self.names.get(&folder).into_iter().flatten()
    }

    /// Removes a file that nobody needs.
    pub fn remove(&mut self, path: Utf8PathBuf) {
        self.steps.push(Step::Remove { path, sha256: None });
    }

    /// Plans to write a file, unless it has this text.
    pub fn write_if_changed(&mut self, path: &str, text: &str, present: Option<&str>) {
        if present != Some(text) {
            self.writes.push(Step::Write { path: path.into(), content: text.to_owned() });
        }
    }

    /// Records an artifact that stands under its release ID, where its content shows that it is the recorded model's.
    pub fn adopt(&mut self, folder: Folder, source: &ModelId, release: &ModelId, set: &ArtifactSet) {
        let Some(sha256) = set.digest(release) else { return };
        let recorded = self.snapshot.records.get(source).is_some_and(|record| record.sha256 == sha256);
        if recorded || self.snapshot.identities.with_content(sha256).any(|known| known.source == *source) {
            self.settle(folder, source, release, set);
        }
    }

    /// Records an artifact that has its release ID already. A record that still tells another place follows, where that place
    /// is empty and the content shows that this is the recorded artifact.
    pub fn settle(&mut self, folder: Folder, source: &ModelId, release: &ModelId, set: &ArtifactSet) {
        self.record(folder, source, release, release, set);
        let Some(record) = self.snapshot.records.get(source).filter(|_| folder == Folder::Compiled) else {
            return;
        };
        let elsewhere =
            record.artifact_id() != release && self.snapshot.set(folder, record.artifact_id()).is_none();
        if elsewhere && set.digest(release) == Some(record.sha256) {
            let from = record.artifact_id().clone();
            self.repoint(&from, release);
        }
    }

    /// Records what the artifact with the ID `named` in its names is.
    fn record(
        &mut self,
        folder: Folder,
        source: &ModelId,
        release: &ModelId,
        named: &ModelId,
        set: &ArtifactSet,
    ) {
        let Some(sha256) = set.digest(named) else { return };
        let stamp = set.whole.map(|whole| whole.stamp);
        self.identities.insert(Identity {
            source: source.clone(),
            release: release.clone(),
            folder,
            sha256,
            stamp,
        });
    }

    /// Turns the moves into steps; conflicts become problems.
    pub fn relabel(&mut self) {
        let mut moves = std::mem::take(&mut self.moves);
        moves.retain(|step| step.from != step.to);
        let leaving: BTreeSet<(Folder, ModelId)> =
            moves.iter().map(|step| (step.folder, step.from.clone())).collect();
        let mut taken: BTreeMap<(Folder, ModelId), ModelId> = BTreeMap::new();
        let mut done = Vec::new();
        for step in moves {
            let Some(set) = self.snapshot.set(step.folder, &step.from) else { continue };
            let place = (step.folder, step.to.clone());
            let standing = match taken.get(&place) {
                Some(first) => self.snapshot.set(step.folder, first).map(|set| (first.clone(), set)),
                None if leaving.contains(&place) => None,
                None => self.snapshot.set(step.folder, &step.to).map(|set| (step.to.clone(), set)),
            };
            match standing {
                None => {
                    taken.insert(place, step.from.clone());
                    self.rename(&step, set);
                    done.push(step);
                }
                Some((id, other)) => self.meet(&step, set, &id, other),
            }
        }
        self.follow(&done);
    }

    /// Two artifacts for one name: equal content is one too many, other content is a conflict.
    fn meet(&mut self, step: &Move, set: &ArtifactSet, id: &ModelId, other: &ArtifactSet) {
        let (moving, standing) = (set.digest(&step.from), other.digest(id));
        if moving.is_none() || moving != standing {
            self.problems.push(Problem::Conflict {
                folder: step.folder,
                from: step.from.clone(),
                to: step.to.clone(),
                moving,
                standing,
            });
            return;
        }
        for name in set.file_names(&step.from) {
            let is_whole = matches!(ArtifactFile::parse(&name), Some(ArtifactFile::Whole(_)));
            let sha256 = moving.filter(|_| is_whole && set.whole.is_some());
            self.steps.push(Step::Remove { path: step.folder.file(name), sha256 });
        }
        if let Some(names) = self.names.get_mut(&step.folder) {
            names.remove(&step.from);
        }
        if step.folder == Folder::Ready {
            let gone = ArtifactName::new(step.from.clone()).to_string();
            self.multipart.remove(&gone);
        }
        self.record(step.folder, &step.source, &step.to, id, other);
        if step.folder == Folder::Compiled {
            self.repoint(&step.from, &step.to);
        }
        self.notes.push(Note::Duplicate { folder: step.folder, id: step.from.clone(), of: step.to.clone() });
    }

    fn rename(&mut self, step: &Move, set: &ArtifactSet) {
        let (old, new) = (ArtifactName::new(step.from.clone()), ArtifactName::new(step.to.clone()));
        let file = |name: String| step.folder.file(name);
        if set.whole.is_some() {
            self.steps.push(Step::Rename { from: file(old.to_string()), to: file(new.to_string()) });
        }
        for (from, to) in set.parts.iter().filter_map(|&part| old.part(part).zip(new.part(part))) {
            self.steps.push(Step::Rename { from: file(from.to_string()), to: file(to.to_string()) });
        }
        match (&set.checksum, set.checksum_digest(&step.from)) {
            (Some(text), Some(digest)) => {
                let sha256 = Some(Sha256::digest(text.as_bytes()));
                self.steps.push(Step::Remove { path: file(old.checksum_name()), sha256 });
                let content = artifact_parts::checksum_text(&new.to_string(), digest);
                self.steps.push(Step::Write { path: file(new.checksum_name()), content });
            }
            (None, _) if set.parts.is_empty() => {}
            _ => self.problems.push(Problem::BrokenSet { folder: step.folder, id: step.from.clone() }),
        }
        self.record(step.folder, &step.source, &step.to, &step.from, set);
    }

    /// What refers to the renamed files follows: all at once, so that no change sees the result of another.
    fn follow(&mut self, moves: &[Move]) {
        for folder in Folder::ALL {
            let renamed: BTreeMap<&ModelId, &ModelId> = moves
                .iter()
                .filter(|step| step.folder == folder)
                .map(|step| (&step.from, &step.to))
                .collect();
            if let Some(names) = self.names.get_mut(&folder) {
                *names = names.iter().map(|id| (*renamed.get(id).unwrap_or(&id)).clone()).collect();
            }
            if folder == Folder::Ready {
                follow_multipart(&mut self.multipart, &renamed);
            } else {
                renamed.iter().for_each(|(from, to)| self.repoint(from, to));
            }
        }
    }

    /// Points the record of the file with ID `from` to the one with ID `to`. Looked up in the snapshot, not in what was
    /// changed: another record may have got the ID `from` in the meantime.
    fn repoint(&mut self, from: &ModelId, to: &ModelId) {
        let Some(record) = self.snapshot.record_of_file(from).and_then(|old| self.records.get_mut(&old.id))
        else {
            return;
        };
        record.path = record.path.with_file_name(ArtifactName::new(to.clone()).to_string());
        record.release_id = Some(to.clone());
    }

    /// The plan: what was changed in the copies becomes writes.
    pub fn finish(mut self, title: String, selections: Vec<Selection>) -> Plan {
        for (id, record) in &self.records {
            if self.snapshot.records.get(id) != Some(record) {
                let path = Utf8PathBuf::from(format!("results/{id}_artifact.json"));
                self.steps.push(Step::Write { path, content: json_text(record) });
            }
        }
        if self.multipart != self.snapshot.multipart {
            let path = Folder::Ready.file("multipart.json");
            self.steps.push(Step::Write { path, content: json_text(&self.multipart) });
        }
        if self.identities != self.snapshot.identities {
            let path = Identities::file(self.version);
            self.steps.push(Step::Write { path, content: json_text(&self.identities) });
        }
        self.steps.append(&mut self.writes);
        Plan { title, steps: self.steps, problems: self.problems, notes: self.notes, selections }
    }
}

fn follow_multipart(list: &mut MultipartList, renamed: &BTreeMap<&ModelId, &ModelId>) {
    for entry in &mut list.entries {
        let Some(ArtifactFile::Whole(name)) = ArtifactFile::parse(&entry.filename) else { continue };
        let Some(&to) = renamed.get(name.id()) else { continue };
        for part in &mut entry.parts {
            if let Some(file) = ArtifactFile::parse(part).filter(|file| file.artifact() == &name) {
                *part = file.renamed(to.clone());
            }
        }
        entry.id = to.clone();
        entry.filename = ArtifactName::new(to.clone()).to_string();
    }
    list.entries.sort_by(|one, other| one.filename.cmp(&other.filename));
}
