//! Staged sources: which ONNX files lie in an input directory, of which model, as which component.
//!
//! Three forms are found: a directory of its own (`<input>/<id>/*.onnx`), flat names (`<input>/<id>_<component>.onnx`) and
//! names without an ID directly in the input directory. What can go wrong is a file taken for what it is not: two files for
//! one component, two places for one model, or an ID that contains a component's word. Each is refused or told apart here.

mod select;
mod stem;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use camino::{Utf8Path, Utf8PathBuf};
use durable_fs::FsError;
use model_catalog::{Component, ComponentFile, InputFormat, ModelId};

pub use select::{FormatChoice, SourceSet, StagedFile};

/// Why staged sources were refused.
#[derive(Debug, thiserror::Error)]
pub enum StagedError {
    /// The input directory cannot be read.
    #[error(transparent)]
    Fs(#[from] FsError),
    /// The input directory does not exist.
    #[error(
        "the input directory {dir} does not exist; stage the ONNX files there or name another with --input-dir"
    )]
    NoDirectory {
        /// The directory.
        dir: Utf8PathBuf,
    },
    /// No source is staged at all.
    #[error(
        "no ONNX source is staged in {dir}; put <id>_driving_vision.onnx and <id>_driving_policy.onnx, or <id>_driving_supercombo.onnx, there"
    )]
    Empty {
        /// The directory.
        dir: Utf8PathBuf,
    },
    /// The model that was asked for is not staged.
    #[error("model {id} is not staged in {dir}; staged: {}{}", join(staged), suggestion(near))]
    UnknownModel {
        /// The ID that was asked for.
        id: ModelId,
        /// The directory.
        dir: Utf8PathBuf,
        /// The IDs that are staged.
        staged: Vec<String>,
        /// Those that look alike.
        near: Vec<String>,
    },
    /// No ID was given, and more than one model (or one without an ID) is staged.
    #[error("which model? {dir} holds {}; name one with --model ID", join(staged))]
    NoModelGiven {
        /// The directory.
        dir: Utf8PathBuf,
        /// The IDs that are staged.
        staged: Vec<String>,
    },
    /// Two files for one component.
    #[error("model {id} has two files for {}: {first} and {second}; remove one of them", component.repository_name())]
    TwoFiles {
        /// The model.
        id: ModelId,
        /// The component that both files claim to be.
        component: ComponentFile,
        /// The first file.
        first: Utf8PathBuf,
        /// The second file.
        second: Utf8PathBuf,
    },
    /// One model lies in a directory of its own and beside it.
    #[error("model {id} is staged twice: in {directory} and as {flat}; remove one of them")]
    TwoPlaces {
        /// The model.
        id: ModelId,
        /// Its directory.
        directory: Utf8PathBuf,
        /// One of the flat files.
        flat: Utf8PathBuf,
    },
    /// A component that the format needs is not there.
    #[error("model {id}: a {format} model needs {missing}; found in {dir}: {}", join(found))]
    Missing {
        /// The model.
        id: ModelId,
        /// The input format.
        format: InputFormat,
        /// What is missing, as file names.
        missing: String,
        /// Where was looked.
        dir: Utf8PathBuf,
        /// File names that were found.
        found: Vec<String>,
    },
}

fn join(names: &[String]) -> String {
    if names.is_empty() { "nothing".to_owned() } else { names.join(", ") }
}

fn suggestion(near: &[String]) -> String {
    near.first().map(|best| format!("; did you mean {best}?")).unwrap_or_default()
}

/// Where the files of a model lie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// In a directory named after the model.
    Directory(ModelId),
    /// Beside the others, with the model's ID in each name.
    Flat(ModelId),
    /// In the input directory, without an ID in their names.
    Unnamed,
}

impl Place {
    /// The ID that the place is named after.
    pub fn id(&self) -> Option<&ModelId> {
        match self {
            Self::Directory(id) | Self::Flat(id) => Some(id),
            Self::Unnamed => None,
        }
    }
}

/// The files of one model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StagedModel {
    /// Where they lie.
    pub place: Place,
    /// Component to files; more than one file for a component is refused when the model is selected.
    pub files: BTreeMap<ComponentFile, Vec<Utf8PathBuf>>,
    /// ONNX files beside them that are no component.
    pub unrecognised: Vec<Utf8PathBuf>,
}

impl StagedModel {
    fn new(place: Place) -> Self {
        Self { place, files: BTreeMap::new(), unrecognised: Vec::new() }
    }

    fn add(&mut self, file: ComponentFile, path: Utf8PathBuf) {
        self.files.entry(file).or_default().push(path);
    }

    /// The name for messages: the ID, or a word for files without one.
    pub fn label(&self) -> String {
        self.place.id().map_or_else(|| "(files without an ID)".to_owned(), ToString::to_string)
    }

    /// The format that the files have: supercombo where a supercombo file is present.
    pub fn format(&self) -> InputFormat {
        let supercombo = self.files.keys().any(|file| file.component == Component::Supercombo);
        if supercombo { InputFormat::Supercombo } else { InputFormat::Split }
    }
}

/// Everything that is staged in an input directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StagedSources {
    dir: Utf8PathBuf,
    /// The models, those with an ID first, by ID.
    pub models: Vec<StagedModel>,
    /// The files directly in the directory, for IDs that are only known when one is asked for.
    root: Vec<Utf8PathBuf>,
}

impl StagedSources {
    /// Looks through `dir` and the directories directly in it.
    ///
    /// # Errors
    /// [`StagedError::NoDirectory`], or [`StagedError::Fs`] where something cannot be read.
    pub fn scan(dir: &Utf8Path) -> Result<Self, StagedError> {
        if !dir.is_dir() {
            return Err(StagedError::NoDirectory { dir: dir.to_owned() });
        }
        let root = onnx_files(dir)?;
        let mut models = directories(dir)?;
        models.extend(root_models(&root));
        models.sort_by_key(|model| (model.place.id().is_none(), model.place.id().cloned()));
        Ok(Self { dir: dir.to_owned(), models, root })
    }

    /// The directory that was looked through.
    pub fn dir(&self) -> &Utf8Path {
        &self.dir
    }

    /// The IDs that are staged.
    pub fn ids(&self) -> Vec<ModelId> {
        let mut ids: Vec<_> = self.models.iter().filter_map(|model| model.place.id().cloned()).collect();
        ids.dedup();
        ids
    }

    /// The flat files of `id`, by their exact names.
    fn flat_files(&self, id: &ModelId) -> Option<StagedModel> {
        let mut model = StagedModel::new(Place::Flat(id.clone()));
        for path in &self.root {
            if let Some(file) = stem::of_model(stem_of(path), id) {
                model.add(file, path.clone());
            }
        }
        (!model.files.is_empty()).then_some(model)
    }
}

fn stem_of(path: &Utf8Path) -> &str {
    path.file_stem().unwrap_or_default()
}

/// The ONNX files in `dir`, sorted, without macOS sidecars (by name, and by content where one was copied). A link to a file
/// counts as the file.
fn onnx_files(dir: &Utf8Path) -> Result<Vec<Utf8PathBuf>, FsError> {
    let mut paths = Vec::new();
    for entry in dir.read_dir_utf8().map_err(FsError::io("list", dir))? {
        // A name that is not UTF-8 is that of no model.
        let Ok(entry) = entry else { continue };
        let (name, path) = (entry.file_name(), entry.path());
        let is_onnx = path.extension() == Some("onnx") && !name.starts_with('.') && path.is_file();
        if is_onnx && !durable_fs::is_apple_double(path)? {
            paths.push(path.to_owned());
        }
    }
    paths.sort();
    Ok(paths)
}

fn directories(dir: &Utf8Path) -> Result<Vec<StagedModel>, StagedError> {
    let mut models = Vec::new();
    for entry in dir.read_dir_utf8().map_err(FsError::io("list", dir))? {
        // A name that is not UTF-8 cannot be an ID.
        let Ok(entry) = entry else { continue };
        let (Ok(id), true) = (ModelId::new(entry.file_name()), entry.path().is_dir()) else { continue };
        let mut model = StagedModel::new(Place::Directory(id.clone()));
        for path in onnx_files(entry.path())? {
            match stem::in_directory(stem_of(&path), &id) {
                Some(file) => model.add(file, path),
                None => model.unrecognised.push(path),
            }
        }
        if !model.files.is_empty() || !model.unrecognised.is_empty() {
            models.push(model);
        }
    }
    Ok(models)
}

fn root_models(root: &[Utf8PathBuf]) -> Vec<StagedModel> {
    let mut flat: BTreeMap<ModelId, StagedModel> = BTreeMap::new();
    let mut unnamed = StagedModel::new(Place::Unnamed);
    for path in root {
        let stem = stem_of(path);
        if stem::DM_STEMS.contains(&stem) {
            continue;
        }
        if let Some(file) = stem::exact(stem) {
            unnamed.add(file, path.clone());
        } else if let Some((id, file)) = stem::flat(stem) {
            let model = flat.entry(id.clone()).or_insert_with(|| StagedModel::new(Place::Flat(id)));
            model.add(file, path.clone());
        } else if let Some(file) = stem::loose(stem) {
            unnamed.add(file, path.clone());
        } else {
            unnamed.unrecognised.push(path.clone());
        }
    }
    let unnamed = (!unnamed.files.is_empty()).then_some(unnamed);
    flat.into_values().chain(unnamed).collect()
}
