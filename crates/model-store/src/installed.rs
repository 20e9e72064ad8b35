//! The artifacts of the store, looked at without loading any.

use std::collections::BTreeMap;

use artifact_pickle::{Content, Expectations, InspectOptions, verify};
use camino::Utf8Path;
use durable_fs::{FsError, list_dir};
use model_catalog::{ArtifactName, ModelId, Target};

use crate::{Inspected, StoreCatalog, StoreError};

/// What a model is compiled for: a tagged one for the external GPU, every other one for what the device has.
pub const fn target_of(uses_external_gpu: bool, normal: Target) -> Target {
    if uses_external_gpu { Target::ExternalGpu } else { normal }
}

/// Looks at one file as an artifact for `target`.
pub fn inspect_file(path: &Utf8Path, target: Target) -> Inspected {
    let expected = Expectations::driving(Some(target), None);
    let verdict = match verify(path, &InspectOptions::default(), &expected) {
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

/// Looks at every artifact in `store`; `normal` is what untagged models are compiled for.
///
/// # Errors
/// [`StoreError::Fs`] where the store cannot be listed.
pub fn installed(
    store: &Utf8Path,
    catalog: &StoreCatalog,
    normal: Target,
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
            let inspected = inspect_file(&path, target_of(tagged, normal));
            (id, inspected)
        })
        .collect())
}
