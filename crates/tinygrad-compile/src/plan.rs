//! What will be compiled, decided before anything is.

use camino::{Utf8Path, Utf8PathBuf};
use durable_fs::FsError;
use model_catalog::{
    BehaviorVersion, CAMERAS, Camera, Component, ImageHistoryPipeline, InputFormat, ModelId, ModelMetadata,
    ModelType, PolicyKey, Target,
};

use crate::staged::{SourceSet, StagedFile};

/// The behaviour version of a supercombo that nothing else is known of.
const SUPERCOMBO_VERSION: BehaviorVersion = BehaviorVersion::from_number(15);
/// Steps of 20 Hz between two steps of context at 5 Hz.
const FRAME_SKIP: u32 = 4;

/// Why a model cannot be compiled as it is.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// Policies whose inputs differ: they are fed the same tensors.
    #[error(
        "model {id}: {first} and {second} take different inputs ({difference}); both policies must be of one export"
    )]
    PolicyShapes {
        /// The model.
        id: ModelId,
        /// File of the primary policy.
        first: Utf8PathBuf,
        /// File of the secondary policy.
        second: Utf8PathBuf,
        /// The first input that differs.
        difference: String,
    },
    /// The vision model does not hand on its features.
    #[error("{path} has no output slice hidden_state, which the policy is fed from; is it the vision model?")]
    NoHiddenState {
        /// The ONNX file.
        path: Utf8PathBuf,
    },
    /// The cache of behaviour versions cannot be read; a wrong version makes a model drive on the wrong contract.
    #[error(
        "cannot take the behaviour version of {id} from {path}: {why}; correct the file or give --version"
    )]
    VersionCache {
        /// The model.
        id: ModelId,
        /// The cache.
        path: Utf8PathBuf,
        /// What is wrong.
        why: String,
    },
}

/// One model of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedModel {
    /// The key under which it stands in the artifact.
    pub key: PolicyKey,
    /// Its file.
    pub file: StagedFile,
}

/// Everything that decides the artifact.
#[derive(Debug, Clone, PartialEq)]
pub struct CompilePlan {
    /// The model.
    pub id: ModelId,
    /// The artifact's type.
    pub model_type: ModelType,
    /// The models, in the artifact's order.
    pub models: Vec<PlannedModel>,
    /// Behaviour version, where known.
    pub version: Option<BehaviorVersion>,
    /// Where the artifact keeps its image history.
    pub image_history_pipeline: ImageHistoryPipeline,
    /// What is compiled for.
    pub target: Target,
    /// Camera resolutions that get a warp.
    pub cameras: Vec<Camera>,
    /// Steps of 20 Hz between two steps of context.
    pub frame_skip: u32,
    /// Largest accepted difference between a replay and the first run; 0 is exact.
    pub tolerance: f64,
}

/// What a person chooses.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PlanOptions {
    /// Behaviour version, where given.
    pub version: Option<BehaviorVersion>,
    /// Where the artifact keeps its image history.
    pub image_history_pipeline: ImageHistoryPipeline,
    /// What is compiled for.
    pub target: Target,
    /// Largest accepted difference between a replay and the first run; 0 is exact.
    pub tolerance: f64,
}

impl CompilePlan {
    /// Gives each file its key: the primary policy of a model with an off-policy is `on_policy` whatever its file is named,
    /// and `policy` without one.
    pub fn new(sources: &SourceSet, options: PlanOptions) -> Self {
        let has = |component| sources.files.iter().any(|file| file.component == component);
        let model_type = match sources.format {
            InputFormat::Supercombo => ModelType::Supercombo,
            InputFormat::Split if has(Component::OffPolicy) => ModelType::VisionMultiPolicy,
            InputFormat::Split => ModelType::VisionPolicy,
        };
        let models = sources
            .files
            .iter()
            .map(|file| PlannedModel { key: key_of(model_type, file), file: file.clone() });
        let mut models: Vec<_> = models.collect();
        models.sort_by_key(|model| model_type.metadata_keys().iter().position(|key| *key == model.key));
        let inferred = (model_type == ModelType::Supercombo).then_some(SUPERCOMBO_VERSION);
        Self {
            id: sources.id.clone(),
            model_type,
            models,
            version: options.version.or(inferred),
            image_history_pipeline: options.image_history_pipeline,
            target: options.target,
            cameras: CAMERAS.to_vec(),
            frame_skip: FRAME_SKIP,
            tolerance: options.tolerance,
        }
    }

    /// The format of the sources.
    pub fn format(&self) -> InputFormat {
        match self.model_type {
            ModelType::Supercombo => InputFormat::Supercombo,
            ModelType::VisionPolicy | ModelType::VisionMultiPolicy => InputFormat::Split,
        }
    }

    /// Checks what was read from the files against each other: the vision model has the features that the policy is fed,
    /// and policies take equal inputs. `metadata` is in the order of [`Self::models`].
    ///
    /// # Errors
    /// [`PlanError`] at the first that does not fit.
    pub fn check(&self, metadata: &[ModelMetadata]) -> Result<(), PlanError> {
        for (model, metadata) in self.models.iter().zip(metadata) {
            let feeds_features = matches!(model.key, PolicyKey::Vision | PolicyKey::Model);
            if feeds_features && !metadata.output_slices.contains_key("hidden_state") {
                return Err(PlanError::NoHiddenState { path: model.file.path.clone() });
            }
        }
        self.check_policies(metadata)
    }

    fn check_policies(&self, metadata: &[ModelMetadata]) -> Result<(), PlanError> {
        let mut policies = self.models.iter().zip(metadata).filter(|(model, _)| {
            matches!(model.key, PolicyKey::Policy | PolicyKey::OnPolicy | PolicyKey::OffPolicy)
        });
        let Some((first, first_metadata)) = policies.next() else { return Ok(()) };
        for (second, second_metadata) in policies {
            if let Some(difference) = first_difference(first_metadata, second_metadata) {
                return Err(PlanError::PolicyShapes {
                    id: self.id.clone(),
                    first: first.file.path.clone(),
                    second: second.file.path.clone(),
                    difference,
                });
            }
        }
        Ok(())
    }
}

fn key_of(model_type: ModelType, file: &StagedFile) -> PolicyKey {
    match (file.component, model_type) {
        (Component::Supercombo, _) => PolicyKey::Model,
        (Component::Vision, _) => PolicyKey::Vision,
        (Component::OffPolicy, _) => PolicyKey::OffPolicy,
        (Component::Policy | Component::OnPolicy, ModelType::VisionMultiPolicy) => PolicyKey::OnPolicy,
        (Component::Policy | Component::OnPolicy, _) => PolicyKey::Policy,
    }
}

fn first_difference(first: &ModelMetadata, second: &ModelMetadata) -> Option<String> {
    let shape =
        |shape: Option<&Vec<u64>>| shape.map_or_else(|| "absent".to_owned(), |shape| format!("{shape:?}"));
    let names = first.input_shapes.keys().chain(second.input_shapes.keys());
    names
        .map(|name| (name, first.input_shapes.get(name), second.input_shapes.get(name)))
        .find(|(_, a, b)| a != b)
        .map(|(name, a, b)| format!("{name} is {} and {}", shape(a), shape(b)))
}

/// The behaviour version of `id` in the device's cache of versions (`{id: version}`); a missing file knows none.
///
/// # Errors
/// [`PlanError::VersionCache`] where the file exists and cannot be read, or has something else than `vN` for the model.
pub fn cached_version(path: &Utf8Path, id: &ModelId) -> Result<Option<BehaviorVersion>, PlanError> {
    let refused = |why: String| PlanError::VersionCache { id: id.clone(), path: path.to_owned(), why };
    let text = match std::fs::read_to_string(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        text => text.map_err(|error| refused(FsError::io("read", path)(error).to_string()))?,
    };
    let cache: serde_json::Map<String, serde_json::Value> =
        serde_json::from_str(&text).map_err(|error| refused(error.to_string()))?;
    match cache.get(id.as_str()) {
        None | Some(serde_json::Value::Null) => Ok(None),
        Some(serde_json::Value::String(version)) if version.is_empty() => Ok(None),
        Some(serde_json::Value::String(version)) => {
            version.parse().map(Some).map_err(|error| refused(format!("{error}")))
        }
        Some(other) => Err(refused(format!("{other} is not a behaviour version"))),
    }
}

#[cfg(test)]
mod tests {
    use model_catalog::{SliceSpec, Variant};

    use super::*;

    fn file(component: Component) -> StagedFile {
        StagedFile { component, variant: Variant::Standard, path: format!("{component}.onnx").into() }
    }

    fn plan(components: &[Component], version: Option<u32>) -> CompilePlan {
        let supercombo = components == [Component::Supercombo];
        let format = if supercombo { InputFormat::Supercombo } else { InputFormat::Split };
        let files = components.iter().copied().map(file).collect();
        let sources = SourceSet { id: ModelId::new("m").unwrap(), format, files, notes: Vec::new() };
        let options = PlanOptions {
            version: version.map(BehaviorVersion::from_number),
            image_history_pipeline: ImageHistoryPipeline::Policy,
            target: Target::Cpu,
            tolerance: 0.0,
        };
        CompilePlan::new(&sources, options)
    }

    fn keys(plan: &CompilePlan) -> Vec<PolicyKey> {
        plan.models.iter().map(|model| model.key).collect()
    }

    #[test]
    fn keys_follow_the_model_and_not_the_file() {
        use Component::{OffPolicy, OnPolicy, Policy, Supercombo, Vision};
        for primary in [Policy, OnPolicy] {
            let single = plan(&[Vision, primary], None);
            assert_eq!(single.model_type, ModelType::VisionPolicy);
            assert_eq!(keys(&single), [PolicyKey::Vision, PolicyKey::Policy]);
            let multi = plan(&[OffPolicy, primary, Vision], None);
            assert_eq!(multi.model_type, ModelType::VisionMultiPolicy);
            assert_eq!(keys(&multi), [PolicyKey::Vision, PolicyKey::OnPolicy, PolicyKey::OffPolicy]);
        }
        assert_eq!(keys(&plan(&[Supercombo], None)), [PolicyKey::Model]);
    }

    #[test]
    fn only_supercombos_have_a_version_by_themselves() {
        assert_eq!(plan(&[Component::Supercombo], None).version.unwrap().number(), 15);
        assert_eq!(plan(&[Component::Supercombo], Some(12)).version.unwrap().number(), 12);
        assert_eq!(plan(&[Component::Vision, Component::Policy], None).version, None);
    }

    fn metadata(inputs: &[(&str, &[u64])], slices: &[(&str, i64, i64)]) -> ModelMetadata {
        ModelMetadata {
            model_checkpoint: None,
            output_slices: slices
                .iter()
                .map(|(n, a, b)| ((*n).to_owned(), SliceSpec::new(Some(*a), Some(*b))))
                .collect(),
            input_shapes: inputs.iter().map(|(name, shape)| ((*name).to_owned(), shape.to_vec())).collect(),
            output_shapes: [("outputs".to_owned(), vec![1, 10])].into_iter().collect(),
        }
    }

    #[test]
    fn policies_must_take_equal_inputs() {
        let plan = plan(&[Component::Vision, Component::OnPolicy, Component::OffPolicy], None);
        let vision = metadata(&[], &[("hidden_state", 0, 10)]);
        let policy = metadata(&[("desire", &[1, 25, 8])], &[]);
        plan.check(&[vision.clone(), policy.clone(), policy.clone()]).unwrap();
        let other = metadata(&[("desire", &[1, 100, 8])], &[]);
        let refused = plan.check(&[vision, policy, other]).unwrap_err().to_string();
        assert!(refused.contains("desire is [1, 25, 8] and [1, 100, 8]"), "{refused}");
    }

    #[test]
    fn features_must_be_named() {
        let plan = plan(&[Component::Supercombo], None);
        plan.check(&[metadata(&[], &[("hidden_state", 0, 10)])]).unwrap();
        let refused = plan.check(&[metadata(&[], &[("plan", 0, 10)])]).unwrap_err();
        assert!(matches!(refused, PlanError::NoHiddenState { .. }), "{refused}");
    }

    #[test]
    fn the_version_cache_is_read_exactly() {
        let dir = tempfile::tempdir().unwrap();
        let path = Utf8Path::from_path(dir.path()).unwrap().join(".model_versions.json");
        let id = ModelId::new("rdf2").unwrap();
        assert_eq!(cached_version(&path, &id).unwrap(), None);
        durable_fs::write_atomic(&path, br#"{"rdf2": "v12", "other": 3}"#).unwrap();
        assert_eq!(cached_version(&path, &id).unwrap().unwrap().number(), 12);
        let other = ModelId::new("other").unwrap();
        assert!(cached_version(&path, &other).unwrap_err().to_string().contains("--version"));
        durable_fs::write_atomic(&path, b"{").unwrap();
        cached_version(&path, &id).unwrap_err();
    }
}
