//! The artifacts of the store, looked at without loading any.

use std::collections::BTreeMap;

use artifact_pickle::{AbiDescription, Content, Expectations, InspectOptions, verify};
use camino::Utf8Path;
use durable_fs::{FsError, list_dir};
use model_catalog::{ArtifactName, ModelId, Target};

use crate::{Inspected, StoreCatalog, StoreError};

/// What a model is compiled for: a tagged one for the external GPU, every other one for what the device has.
pub const fn target_of(uses_external_gpu: bool, normal: Target) -> Target {
    if uses_external_gpu { Target::ExternalGpu } else { normal }
}

/// Looks at one file as an artifact for `target`. `known` is a tinygrad that may have compiled it besides those that are built in.
pub fn inspect_file(path: &Utf8Path, target: Target, known: Option<&AbiDescription>) -> Inspected {
    let expected = Expectations::driving(Some(target), None);
    let options = InspectOptions { also: known.cloned().into_iter().collect(), ..InspectOptions::default() };
    let verdict = match verify(path, &options, &expected) {
        Ok(verdict) => verdict,
        Err(error) => return Inspected::Refused { why: error.to_string() },
    };
    if let Some(finding) = verdict.errors().next() {
        return Inspected::Refused { why: finding.to_string() };
    }
    let Content::Driving(view) = &verdict.inspection.content else {
        return Inspected::Refused { why: "it is no driving artifact".to_owned() };
    };
    match view.behavior_version.as_ref().map(|text| text.parse()).transpose() {
        Ok(version) => Inspected::Good { version },
        Err(error) => Inspected::Refused { why: error.to_string() },
    }
}

/// Looks at every artifact in `store`; `normal` is what untagged models are compiled for, `known` a tinygrad that may have compiled
/// them besides those that are built in.
///
/// # Errors
/// [`StoreError::Fs`] where the store cannot be listed.
pub fn installed(
    store: &Utf8Path,
    catalog: &StoreCatalog,
    normal: Target,
    known: Option<&AbiDescription>,
) -> Result<BTreeMap<ModelId, Inspected>, StoreError> {
    let names = match list_dir(store) {
        Err(FsError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        names => names?,
    };
    let ids = names.iter().filter_map(|name| Some(ArtifactName::parse(name)?.ok()?.id().clone()));
    Ok(ids
        .map(|id| {
            let tagged = catalog.models.get(&id).is_some_and(|model| model.uses_external_gpu);
            let path = store.join(ArtifactName::new(id.clone()).to_string());
            let inspected = inspect_file(&path, target_of(tagged, normal), known);
            (id, inspected)
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use camino::Utf8PathBuf;

    use super::*;

    #[test]
    fn an_artifact_of_a_foreign_tinygrad_needs_its_description() {
        let keep = tempfile::tempdir().unwrap();
        let store = Utf8PathBuf::from_path_buf(keep.path().to_owned()).unwrap();
        let fixture =
            Utf8Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/pickles/driving-0.14.0.pkl");
        // One field has another name in that tinygrad.
        let mut bytes = std::fs::read(fixture).unwrap();
        let at = bytes.windows(6).position(|window| window == b"\x8c\x04slot").unwrap();
        bytes[at + 2..at + 6].copy_from_slice(b"port");
        durable_fs::write_atomic(store.join("a_driving_tinygrad.pkl"), &bytes).unwrap();
        let mut abi = AbiDescription::known_as("0.14.0").unwrap();
        let class = abi.classes.get_mut("tinygrad.uop.ops:ParamArg").unwrap();
        class.fields.as_mut().unwrap()[0] = "port".to_owned();
        (abi.tinygrad, abi.digest) = ("0.99.0".to_owned(), None);

        let id = ModelId::new("a").unwrap();
        let catalog = StoreCatalog { models: BTreeMap::new() };
        let look = |known| installed(&store, &catalog, Target::Cpu, known).unwrap().remove(&id).unwrap();
        let Inspected::Refused { why } = look(None) else { panic!("it is taken") };
        assert!(why.contains("known tinygrad"), "{why}");
        assert_eq!(look(Some(&abi)), Inspected::Good { version: Some("v12".parse().unwrap()) });
    }
}
