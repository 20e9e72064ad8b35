//! A model's complete set of files, staged, checked and placed.

use std::{
    fs::{self, File},
    io::{Read, Write},
};

use camino::{Utf8Path, Utf8PathBuf};
use durable_fs::{BLOCK, Durability, Expected, FsError, Sha256, StagedFile, ThreadedHasher, sync_dir};
use model_catalog::{Component, ComponentFile, RelPath, Sha256Digest, Variant};

use crate::{
    ByteSource, ExtractError, GitId, ModelPlan, PlannedFile, Pointer, PointerError, SourceClone, Watch,
    background_sync::BackgroundSync,
};

/// A file that was extracted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExtractedFile {
    /// Component and variant.
    pub file: ComponentFile,
    /// The path in the commit's tree.
    pub git_path: RelPath,
    /// The blob: the ONNX or its pointer.
    pub blob: GitId,
    /// Where the bytes came from.
    pub source: ByteSource,
    /// The file's name in the destination.
    pub file_name: String,
    /// Size in bytes.
    pub size: u64,
    /// SHA-256 of the bytes as they were written.
    pub sha256: Sha256Digest,
    /// Whether the filesystem confirmed that the bytes are on disk.
    pub durability: Durability,
}

/// A check of a staged file before any file of the set is placed, such as an ONNX preflight: gets the component and the
/// temporary path and says why it refuses.
pub type StagedCheck<'a> = &'a (dyn Fn(ComponentFile, &Utf8Path) -> Result<(), String> + Sync);

impl SourceClone {
    /// Puts the plan's complete set into `destination`, which must exist, as `<id>_<component>.onnx` files, and removes the
    /// components of an earlier set that this one lacks.
    ///
    /// Every file is written under a temporary name, checked (object ID or size and SHA-256, then `check`) and synced before
    /// the first one is placed. A kill at any moment leaves the earlier set, or a set without the component that every set
    /// needs (which is removed first and placed last), or the new set: never old and new files together. The caller makes
    /// sure that one process at a time extracts into a directory.
    ///
    /// # Errors
    /// [`ExtractError`]; the earlier set is then as it was, unless placing itself failed.
    pub fn extract_model(
        &self,
        plan: &ModelPlan,
        destination: &Utf8Path,
        check: StagedCheck<'_>,
        watch: &Watch<'_>,
    ) -> Result<Vec<ExtractedFile>, ExtractError> {
        let mut staged = Vec::new();
        for planned in &plan.files {
            watch.progress.begin(planned.git_path.as_str(), Some(planned.size));
            let outcome = self.stage(plan, planned, destination, watch);
            watch.progress.end();
            let (file, extracted) = outcome?;
            check(planned.file, file.temporary_path()).map_err(|why| ExtractError::Refused {
                git_path: planned.git_path.clone(),
                commit: plan.commit.to_string(),
                why,
            })?;
            staged.push((file, extracted));
        }
        watch.check()?;
        place(plan, staged, destination)
    }

    fn stage(
        &self,
        plan: &ModelPlan,
        planned: &PlannedFile,
        destination: &Utf8Path,
        watch: &Watch<'_>,
    ) -> Result<(StagedFile, ExtractedFile), ExtractError> {
        let file_name = planned.file.workspace_name(&plan.id);
        let mut file = StagedFile::create(destination.join(&file_name))?;
        let mut hash = ThreadedHasher::new();
        let mut ahead = BackgroundSync::new();
        let mut write = |file: &mut StagedFile, block: &[u8]| -> Result<(), ExtractError> {
            file.write_all(block).map_err(FsError::io("write", file.destination()))?;
            hash.update(block);
            ahead.grew(file, block.len());
            Ok(())
        };
        let mut first = true;
        match &planned.source {
            ByteSource::GitBlob { .. } => self
                .open_blob(planned.blob.0, planned.git_path.as_str())?
                .copy_to(destination, watch, |block| {
                    if first && Pointer::is_detected(block) {
                        return Err(overlong_pointer(planned, block));
                    }
                    first = false;
                    write(&mut file, block)
                })?,
            ByteSource::LfsCache { path } | ByteSource::LfsFetched { path, .. } => {
                copy_blocks(path, watch, |block| write(&mut file, block))?;
            }
            ByteSource::LfsServer { looked_in, damaged, .. } => {
                return Err(unfetched(plan, planned, looked_in, damaged));
            }
        }
        drop(ahead);
        let size = hash.len();
        let sha256 = hash.finish();
        if let ByteSource::LfsCache { path } | ByteSource::LfsFetched { path, .. } = &planned.source {
            Expected { size: Some(planned.size), sha256: planned.sha256 }.check(path, size, sha256).map_err(
                |source| ExtractError::LfsObjectDamaged { git_path: planned.git_path.clone(), source },
            )?;
        }
        let durability = sync(&mut file, size, sha256)?;
        let extracted = ExtractedFile {
            file: planned.file,
            git_path: planned.git_path.clone(),
            blob: planned.blob,
            source: planned.source.clone(),
            file_name,
            size,
            sha256,
            durability,
        };
        Ok((file, extracted))
    }
}

/// What begins like a pointer but is longer than one: no model, and no pointer either.
fn overlong_pointer(planned: &PlannedFile, block: &[u8]) -> ExtractError {
    let line = block.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let source = PointerError {
        line: 1,
        text: String::from_utf8_lossy(&line[..line.len().min(120)]).into_owned(),
        why: "the blob begins like a pointer but is longer than 1024 bytes",
    };
    ExtractError::Pointer { git_path: planned.git_path.clone(), source }
}

/// The object is not on this machine, and nobody fetched it.
fn unfetched(
    plan: &ModelPlan,
    planned: &PlannedFile,
    looked_in: &[Utf8PathBuf],
    damaged: &Option<Utf8PathBuf>,
) -> ExtractError {
    let git_path = planned.git_path.clone();
    if let Some(path) = damaged {
        let actual = path.metadata().map_or(0, |found| found.len());
        let source = FsError::Size { path: path.clone(), expected: planned.size, actual };
        return ExtractError::LfsObjectDamaged { git_path, source };
    }
    ExtractError::LfsObjectMissing {
        oid: planned.sha256.unwrap_or_else(|| unreachable!("a pointer says its object's digest")),
        size: planned.size,
        git_path,
        commit: plan.commit.to_string(),
        looked_in: looked_in.to_vec(),
    }
}

fn copy_blocks(
    path: &Utf8Path,
    watch: &Watch<'_>,
    mut sink: impl FnMut(&[u8]) -> Result<(), ExtractError>,
) -> Result<(), ExtractError> {
    let mut source = File::open(path).map_err(FsError::io("open", path))?;
    let mut block = vec![0; BLOCK];
    loop {
        watch.check()?;
        match source.read(&mut block) {
            Ok(0) => return Ok(()),
            Ok(read) => {
                sink(&block[..read])?;
                watch.progress.advance(read as u64);
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(FsError::io("read", path)(error).into()),
        }
    }
}

/// Syncs a staged file; where the filesystem knows no fsync, reads it back and compares.
fn sync(file: &mut StagedFile, size: u64, sha256: Sha256Digest) -> Result<Durability, ExtractError> {
    let durability = file.sync()?;
    if durability == Durability::Unsupported {
        let mut hash = Sha256::new();
        let read = file.read_back(&mut hash)?;
        Expected::exactly(size, sha256).check(file.destination(), read, hash.finish())?;
    }
    Ok(durability)
}

/// Whether a set cannot do without the component: it is the mark by which a set counts as complete.
fn is_mark(component: Component) -> bool {
    matches!(component, Component::Vision | Component::Supercombo)
}

fn place(
    plan: &ModelPlan,
    staged: Vec<(StagedFile, ExtractedFile)>,
    destination: &Utf8Path,
) -> Result<Vec<ExtractedFile>, ExtractError> {
    let names: Vec<String> = staged.iter().map(|(_, extracted)| extracted.file_name.clone()).collect();
    let (mut earlier_marks, earlier_rest) = earlier_files(plan, destination);
    if names.len() == 1 && earlier_rest.is_empty() {
        // A set of one file replaces its predecessor in one step.
        earlier_marks.retain(|name| !names.contains(name));
    }
    remove(destination, &earlier_marks)?;
    remove(destination, &earlier_rest)?;
    let (marks, rest): (Vec<_>, Vec<_>) =
        staged.into_iter().partition(|(_, new)| is_mark(new.file.component));
    let mut placed = Vec::new();
    for group in [rest, marks] {
        let any = !group.is_empty();
        for (file, extracted) in group {
            file.place()?;
            placed.push(extracted);
        }
        if any {
            let _ = sync_dir(destination)?;
        }
    }
    placed.sort_by_key(|extracted| names.iter().position(|name| *name == extracted.file_name));
    Ok(placed)
}

/// The components of an earlier set, split into marks and others.
fn earlier_files(plan: &ModelPlan, destination: &Utf8Path) -> (Vec<String>, Vec<String>) {
    let all = [Variant::Standard, Variant::ExternalGpu]
        .into_iter()
        .flat_map(|variant| Component::ALL.map(|component| ComponentFile { component, variant }));
    let there = all.filter(|file| destination.join(file.workspace_name(&plan.id)).exists());
    let (marks, rest): (Vec<_>, Vec<_>) = there.partition(|file| is_mark(file.component));
    let names =
        |files: Vec<ComponentFile>| files.into_iter().map(|file| file.workspace_name(&plan.id)).collect();
    (names(marks), names(rest))
}

fn remove(destination: &Utf8Path, names: &[String]) -> Result<(), ExtractError> {
    for name in names {
        let path = destination.join(name);
        fs::remove_file(&path).map_err(FsError::io("remove the earlier", &path))?;
    }
    if !names.is_empty() {
        let _ = sync_dir(destination)?;
    }
    Ok(())
}
