//! The files that one model is compiled from.

use camino::{Utf8Path, Utf8PathBuf};
use model_catalog::{Component, ComponentFile, InputFormat, ModelId, Target, Variant, near_matches};

use super::{Place, StagedError, StagedModel, StagedSources};

/// What `--input-format` asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FormatChoice {
    /// Supercombo where a supercombo file is present, else split.
    #[default]
    Auto,
    /// This format and no other.
    Exactly(InputFormat),
}

/// One source file of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StagedFile {
    /// The component that it is compiled as.
    pub component: Component,
    /// Its size variant.
    pub variant: Variant,
    /// Where it lies.
    pub path: Utf8PathBuf,
}

/// The source files of one model, complete for its format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceSet {
    /// The ID under which the model is compiled.
    pub id: ModelId,
    /// Split or supercombo.
    pub format: InputFormat,
    /// The files: the supercombo; or vision, primary policy and, where present, off-policy.
    pub files: Vec<StagedFile>,
    /// What a person should know: files that were left aside, a name that differs from the ID.
    pub notes: Vec<String>,
}

impl SourceSet {
    /// The given files as the sources of `id`, complete for `format`; `dir` is where they lie, for messages. Nothing but
    /// the files of the model may be given.
    ///
    /// # Errors
    /// [`StagedError::Missing`] or [`StagedError::TwoFiles`].
    pub fn complete(
        id: ModelId,
        format: InputFormat,
        files: Vec<StagedFile>,
        dir: &Utf8Path,
    ) -> Result<Self, StagedError> {
        let mut model = StagedModel::new(Place::Directory(id.clone()));
        for file in files {
            model.add(ComponentFile { component: file.component, variant: file.variant }, file.path);
        }
        let has_big = model.files.keys().any(|file| file.variant == Variant::ExternalGpu);
        let target = if has_big { Target::ExternalGpu } else { Target::Qcom };
        source_set(&id, &model, FormatChoice::Exactly(format), target, dir)
    }
}

impl StagedSources {
    /// The sources of model `id`, or of the only staged model where no ID is given.
    ///
    /// Files with the ID in their directory or name come first, then files without an ID, then the only staged model under
    /// whatever name.
    ///
    /// # Errors
    /// [`StagedError`] where the model is not staged, is staged twice, or lacks a component.
    pub fn select(
        &self,
        id: Option<&ModelId>,
        format: FormatChoice,
        target: Target,
    ) -> Result<SourceSet, StagedError> {
        if self.models.is_empty() {
            return Err(StagedError::Empty { dir: self.dir.clone() });
        }
        let (id, model) = match id {
            Some(id) => (id.clone(), self.find(id)?),
            None => self.only()?,
        };
        let mut set = source_set(&id, &model, format, target, &self.dir)?;
        if let Some(other) = model.place.id().filter(|other| **other != id) {
            set.notes.insert(0, format!("the only staged model is named {other}; it is compiled as {id}"));
        }
        Ok(set)
    }

    fn find(&self, id: &ModelId) -> Result<StagedModel, StagedError> {
        let directory = self.models.iter().find(|model| model.place == Place::Directory(id.clone()));
        let flat = self.flat_files(id);
        match (directory, flat) {
            (Some(directory), Some(flat)) if !directory.files.is_empty() => Err(StagedError::TwoPlaces {
                id: id.clone(),
                directory: self.dir.join(id.as_str()),
                flat: flat.files.into_values().flatten().next().unwrap_or_default(),
            }),
            (_, Some(flat)) => Ok(flat),
            (Some(directory), None) => Ok(directory.clone()),
            (None, None) => self.find_unnamed(id),
        }
    }

    fn find_unnamed(&self, id: &ModelId) -> Result<StagedModel, StagedError> {
        let unnamed = self.models.iter().find(|model| model.place == Place::Unnamed);
        match (unnamed, self.models.as_slice()) {
            (Some(model), _) | (None, [model]) => Ok(model.clone()),
            _ => {
                let staged = self.labels();
                let near = near_matches(id.as_str(), staged.iter().map(String::as_str));
                let near = near.into_iter().map(str::to_owned).collect();
                Err(StagedError::UnknownModel { id: id.clone(), dir: self.dir.clone(), staged, near })
            }
        }
    }

    fn only(&self) -> Result<(ModelId, StagedModel), StagedError> {
        match self.models.as_slice() {
            [model] if model.place.id().is_some() => {
                let id = model.place.id().cloned().unwrap_or_else(|| unreachable!("checked by the guard"));
                Ok((id, model.clone()))
            }
            _ => Err(StagedError::NoModelGiven { dir: self.dir.clone(), staged: self.labels() }),
        }
    }

    fn labels(&self) -> Vec<String> {
        let mut labels: Vec<_> = self.models.iter().map(StagedModel::label).collect();
        labels.dedup();
        labels
    }
}

/// Which of both sizes is compiled. Where both are present the target decides; one is never taken in place of the other for
/// a single component.
fn choose_variant(model: &StagedModel, format: InputFormat, target: Target) -> Variant {
    let of_format = |file: &&ComponentFile| {
        (file.component == Component::Supercombo) == (format == InputFormat::Supercombo)
    };
    let has = |variant| model.files.keys().filter(of_format).any(|file| file.variant == variant);
    match (has(Variant::Standard), has(Variant::ExternalGpu)) {
        (true, true) => Variant::for_external_gpu(target == Target::ExternalGpu),
        (false, true) => Variant::ExternalGpu,
        _ => Variant::Standard,
    }
}

struct Chooser<'m> {
    id: &'m ModelId,
    model: &'m StagedModel,
    variant: Variant,
}

impl Chooser<'_> {
    fn take(&self, component: Component) -> Result<Option<StagedFile>, StagedError> {
        let file = ComponentFile { component, variant: self.variant };
        match self.model.files.get(&file).map(Vec::as_slice) {
            None | Some([]) => Ok(None),
            Some([path]) => Ok(Some(StagedFile { component, variant: self.variant, path: path.clone() })),
            Some([first, second, ..]) => Err(StagedError::TwoFiles {
                id: self.id.clone(),
                component: file,
                first: first.clone(),
                second: second.clone(),
            }),
        }
    }

    fn name(&self, component: Component) -> String {
        ComponentFile { component, variant: self.variant }.repository_name()
    }
}

fn source_set(
    id: &ModelId,
    model: &StagedModel,
    format: FormatChoice,
    target: Target,
    dir: &Utf8Path,
) -> Result<SourceSet, StagedError> {
    let format = match format {
        FormatChoice::Auto => model.format(),
        FormatChoice::Exactly(format) => format,
    };
    let chooser = Chooser { id, model, variant: choose_variant(model, format, target) };
    let missing = |missing: String| StagedError::Missing {
        id: id.clone(),
        format,
        missing,
        dir: dir.to_owned(),
        found: found(model),
    };
    let files = match format {
        InputFormat::Supercombo => {
            let file = chooser.take(Component::Supercombo)?;
            vec![file.ok_or_else(|| missing(chooser.name(Component::Supercombo)))?]
        }
        InputFormat::Split => split_files(&chooser, missing)?,
    };
    let notes = left_aside(model, &files);
    Ok(SourceSet { id: id.clone(), format, files, notes })
}

fn split_files(
    chooser: &Chooser<'_>,
    missing: impl Fn(String) -> StagedError,
) -> Result<Vec<StagedFile>, StagedError> {
    let vision = chooser.take(Component::Vision)?;
    // The primary policy is the on-policy file, else the policy file.
    let primary = match chooser.take(Component::OnPolicy)? {
        Some(file) => Some(file),
        None => chooser.take(Component::Policy)?,
    };
    let policies = || format!("{} or {}", chooser.name(Component::Policy), chooser.name(Component::OnPolicy));
    match (vision, primary) {
        (Some(vision), Some(primary)) => {
            Ok([vision, primary].into_iter().chain(chooser.take(Component::OffPolicy)?).collect())
        }
        (None, Some(_)) => Err(missing(chooser.name(Component::Vision))),
        (Some(_), None) => Err(missing(policies())),
        (None, None) => Err(missing(format!("{} and {}", chooser.name(Component::Vision), policies()))),
    }
}

fn file_name(path: &Utf8Path) -> String {
    path.file_name().unwrap_or_default().to_owned()
}

fn found(model: &StagedModel) -> Vec<String> {
    model.files.values().flatten().chain(&model.unrecognised).map(|path| file_name(path)).collect()
}

fn left_aside(model: &StagedModel, used: &[StagedFile]) -> Vec<String> {
    let unused = model.files.values().flatten().filter(|path| used.iter().all(|file| file.path != **path));
    unused
        .map(|path| format!("{} is not used", file_name(path)))
        .chain(
            model
                .unrecognised
                .iter()
                .map(|path| format!("{} is no known component and is not used", file_name(path))),
        )
        .collect()
}
