//! Which files of a commit a model is made of: reads of tree objects, no subprocess.

use std::collections::BTreeMap;

use gix::{bstr::ByteSlice, objs::tree::EntryKind};
use model_catalog::{COMPONENT_DIRECTORIES, Component, ComponentFile, InputFormat, RelPath, Variant};

use crate::{ExtractError, GitId, MissingComponents, SourceClone};

/// One component's file in a commit's tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceBlob {
    /// Component and variant.
    pub file: ComponentFile,
    /// Its path in the tree.
    pub git_path: RelPath,
    /// Its blob.
    pub blob: GitId,
}

/// The component files of one directory, by name.
type Listing = BTreeMap<String, (EntryKind, gix::ObjectId)>;

/// A component, the index of its directory, and its tree entry.
type Found = (ComponentFile, usize, EntryKind, gix::ObjectId);

/// Which components a format needs (each group needs at least one) and which it takes where present.
const SPLIT: (&[&[Component]], &[Component]) =
    (&[&[Component::Vision], &[Component::OnPolicy, Component::Policy]], &[Component::OffPolicy]);
const SUPERCOMBO: (&[&[Component]], &[Component]) = (&[&[Component::Supercombo]], &[]);

fn needs(format: InputFormat) -> (&'static [&'static [Component]], &'static [Component]) {
    match format {
        InputFormat::Split => SPLIT,
        InputFormat::Supercombo => SUPERCOMBO,
    }
}

/// The components of one model among `listings`, one per candidate directory: all from the first directory that holds a
/// complete set, so that two generations in one tree are never mixed. Where no directory is complete, each component comes
/// from the first that has it.
fn choose(
    listings: &[(usize, Listing)],
    format: InputFormat,
    variant: Variant,
) -> Result<Vec<Found>, Vec<String>> {
    let complete = listings
        .iter()
        .position(|listing| missing_in(std::slice::from_ref(listing), format, variant).is_empty());
    let usable = complete.map_or(listings, |index| std::slice::from_ref(&listings[index]));
    let missing = missing_in(usable, format, variant);
    if !missing.is_empty() {
        return Err(missing);
    }
    let (groups, optional) = needs(format);
    let wanted = groups.iter().copied().flatten().chain(optional);
    Ok(wanted.filter_map(|&component| find(usable, ComponentFile { component, variant })).collect())
}

fn find(listings: &[(usize, Listing)], file: ComponentFile) -> Option<Found> {
    let name = file.repository_name();
    listings.iter().find_map(|(directory, listing)| {
        let &(kind, id) = listing.get(&name)?;
        Some((file, *directory, kind, id))
    })
}

fn missing_in(listings: &[(usize, Listing)], format: InputFormat, variant: Variant) -> Vec<String> {
    let name = |component: &Component| ComponentFile { component: *component, variant }.repository_name();
    let lacks = |group: &&&[Component]| {
        group.iter().all(|&component| find(listings, ComponentFile { component, variant }).is_none())
    };
    let words = |group: &&[Component]| group.iter().map(name).collect::<Vec<_>>().join(" or ");
    needs(format).0.iter().filter(lacks).map(words).collect()
}

impl SourceClone {
    /// The files of one model at `commit`, in the order vision (or supercombo), policies.
    ///
    /// # Errors
    /// [`ExtractError::MissingComponents`] says what is missing where, and whether only the other variant is there;
    /// [`ExtractError::NotAFile`] where a component is a symbolic link, a directory or a submodule.
    pub fn find_sources(
        &self,
        commit: GitId,
        format: InputFormat,
        variant: Variant,
    ) -> Result<Vec<SourceBlob>, ExtractError> {
        let listings = self.component_listings(commit)?;
        let chosen = choose(&listings, format, variant)
            .map_err(|missing| missing_components(&listings, commit, format, variant, missing))?;
        chosen
            .into_iter()
            .map(|(file, directory, kind, id)| {
                let git_path = path_in(directory, &file.repository_name());
                match kind {
                    EntryKind::Blob | EntryKind::BlobExecutable => {
                        Ok(SourceBlob { file, git_path, blob: GitId(id) })
                    }
                    other => Err(ExtractError::NotAFile {
                        git_path,
                        commit: commit.to_string(),
                        kind: kind_word(other),
                    }),
                }
            })
            .collect()
    }

    /// The blob of a file at the root of the commit's tree.
    pub(crate) fn root_blob(&self, commit: GitId, name: &str) -> Result<Option<gix::ObjectId>, ExtractError> {
        let root = self.root_tree(commit)?;
        let data = self.tree_data(root)?;
        let entry = gix::objs::TreeRefIter::from_bytes(&data, root.kind())
            .filter_map(Result::ok)
            .find(|entry| entry.filename == name.as_bytes() && entry.mode.is_blob());
        Ok(entry.map(|entry| entry.oid.to_owned()))
    }

    fn root_tree(&self, commit: GitId) -> Result<gix::ObjectId, ExtractError> {
        let found =
            self.reader().repository.find_commit(commit.0).and_then(|commit| Ok(commit.tree_id()?.detach()));
        found.map_err(|error| ExtractError::Corrupt {
            what: format!("commit {commit}"),
            path: self.path().to_owned(),
            why: error.to_string(),
        })
    }

    fn component_listings(&self, commit: GitId) -> Result<Vec<(usize, Listing)>, ExtractError> {
        let root = self.root_tree(commit)?;
        let mut listings = Vec::new();
        for (index, directory) in COMPONENT_DIRECTORIES.iter().enumerate() {
            if let Some(tree) = self.subtree(root, directory)? {
                listings.push((index, self.onnx_files(tree)?));
            }
        }
        Ok(listings)
    }

    /// The tree at `directory` below `root`; `None` where there is none (a symbolic link is no tree).
    fn subtree(&self, root: gix::ObjectId, directory: &str) -> Result<Option<gix::ObjectId>, ExtractError> {
        let mut tree = root;
        for name in directory.split('/') {
            let data = self.tree_data(tree)?;
            let entry = gix::objs::TreeRefIter::from_bytes(&data, tree.kind())
                .filter_map(Result::ok)
                .find(|entry| entry.filename == name.as_bytes());
            match entry {
                Some(entry) if entry.mode.is_tree() => tree = entry.oid.to_owned(),
                _ => return Ok(None),
            }
        }
        Ok(Some(tree))
    }

    fn onnx_files(&self, tree: gix::ObjectId) -> Result<Listing, ExtractError> {
        let data = self.tree_data(tree)?;
        let mut listing = Listing::new();
        for entry in gix::objs::TreeRefIter::from_bytes(&data, tree.kind()) {
            let entry = entry.map_err(|error| ExtractError::Corrupt {
                what: format!("tree {tree}"),
                path: self.path().to_owned(),
                why: error.to_string(),
            })?;
            if let (Ok(name), true) = (entry.filename.to_str(), entry.filename.ends_with(b".onnx")) {
                listing.insert(name.to_owned(), (entry.mode.kind(), entry.oid.to_owned()));
            }
        }
        Ok(listing)
    }

    fn tree_data(&self, id: gix::ObjectId) -> Result<Vec<u8>, ExtractError> {
        let found = self.reader().repository.try_find_object(id).map_err(|error| ExtractError::Corrupt {
            what: format!("tree {id}"),
            path: self.path().to_owned(),
            why: error.to_string(),
        })?;
        let object = found.ok_or_else(|| ExtractError::ObjectMissing {
            id: id.to_string(),
            what: "a directory".to_owned(),
            looked_in: self.objects().dirs().to_vec(),
        })?;
        Ok(object.detach().data)
    }
}

fn path_in(directory: usize, name: &str) -> RelPath {
    RelPath::new(format!("{}/{name}", COMPONENT_DIRECTORIES[directory]))
        .unwrap_or_else(|_| unreachable!("the directories and names are plain relative paths"))
}

fn kind_word(kind: EntryKind) -> &'static str {
    match kind {
        EntryKind::Tree => "directory",
        EntryKind::Link => "symbolic link",
        EntryKind::Commit => "submodule",
        EntryKind::Blob | EntryKind::BlobExecutable => "file",
    }
}

fn missing_components(
    listings: &[(usize, Listing)],
    commit: GitId,
    format: InputFormat,
    variant: Variant,
    missing: Vec<String>,
) -> ExtractError {
    let present = |variant: Variant| {
        let (groups, optional) = needs(format);
        let all = groups.iter().copied().flatten().chain(optional);
        all.filter_map(|&component| find(listings, ComponentFile { component, variant }))
            .map(|(file, directory, ..)| path_in(directory, &file.repository_name()))
            .collect()
    };
    let other = match variant {
        Variant::Standard => Variant::ExternalGpu,
        Variant::ExternalGpu => Variant::Standard,
    };
    ExtractError::MissingComponents(Box::new(MissingComponents {
        commit: commit.to_string(),
        format,
        variant,
        missing,
        looked_in: COMPONENT_DIRECTORIES.map(str::to_owned).to_vec(),
        found: present(variant),
        other_variant: present(other),
    }))
}
