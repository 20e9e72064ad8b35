use model_catalog::BehaviorVersion;
use proptest::prelude::*;

use super::*;
use crate::CatalogModel;

fn id(text: &str) -> ModelId {
    ModelId::new(text).unwrap()
}

fn version(number: u32) -> BehaviorVersion {
    BehaviorVersion::from_number(number)
}

fn catalog(models: &[(&str, Option<u32>, bool)]) -> StoreCatalog {
    let model = |(name, v, gpu): &(&str, Option<u32>, bool)| {
        let model =
            CatalogModel { name: (*name).to_owned(), version: v.map(version), uses_external_gpu: *gpu };
        (id(name), model)
    };
    StoreCatalog { models: models.iter().map(model).collect() }
}

fn good(v: Option<u32>) -> Inspected {
    Inspected::Good { version: v.map(version) }
}

fn with(
    selected: &str,
    catalog: &StoreCatalog,
    installed: &[(&str, Inspected)],
    has_external_gpu: bool,
) -> Decision {
    let installed = installed.iter().map(|(name, file)| (id(name), file.clone())).collect();
    decide(&Situation { selected: Some(selected), catalog, installed: &installed, has_external_gpu })
}

fn runs(text: &str) -> Decision {
    Decision::Artifact { id: id(text), version: Some(version(11)) }
}

#[test]
fn an_installed_sound_model_of_the_right_version_runs() {
    let catalog = catalog(&[("tr14223", Some(11), false)]);
    let file = [("tr14223", good(Some(11)))];
    for stored in ["tr14223", "tr1422", " tr14223\n"] {
        assert_eq!(with(stored, &catalog, &file, false), runs("tr14223"), "{stored:?}");
    }
}

#[test]
fn old_names_mean_the_release_where_the_catalog_has_it() {
    let catalog = catalog(&[
        ("sc23", Some(11), false),
        ("deeprl33", Some(11), false),
        ("deeprl333", Some(11), false),
        ("local-mine", Some(11), false),
    ]);
    let files: Vec<_> = ["sc23", "deeprl33", "deeprl333", "local-mine"].map(|name| (name, good(None))).into();
    for (stored, meant) in [
        ("sc", "sc23"),
        ("sc2", "sc23"),
        ("deeprl3", "deeprl33"),
        ("deeprl33", "deeprl33"),
        ("local-mine", "local-mine"),
    ] {
        assert_eq!(with(stored, &catalog, &files, false), runs(meant), "{stored}");
    }
    let unknown = with("local-min", &catalog, &files, false);
    assert_eq!(
        unknown,
        Decision::BuiltIn { because: BuiltInBecause::Unknown { id: "local-min".to_owned() } }
    );
}

#[test]
fn each_fault_has_its_own_answer() {
    let catalog = catalog(&[("small3", Some(11), false), ("big3", Some(15), true)]);
    let because = |decision| match decision {
        Decision::BuiltIn { because } => because,
        other => panic!("{other:?}"),
    };
    let refused = Inspected::Refused { why: "it is truncated".to_owned() };
    let small = |file| because(with("small3", &catalog, &[("small3", file)], true));
    assert_eq!(
        small(refused.clone()),
        BuiltInBecause::Refused { id: id("small3"), why: "it is truncated".to_owned() }
    );
    assert_eq!(
        small(good(Some(12))),
        BuiltInBecause::Version { id: id("small3"), catalog: version(11), file: version(12) }
    );
    assert_eq!(
        because(with("small3", &catalog, &[], false)),
        BuiltInBecause::NotInstalled { id: id("small3") }
    );
    assert_eq!(
        because(with("big3", &catalog, &[("big3", good(Some(15)))], false)),
        BuiltInBecause::NoExternalGpu { id: id("big3") }
    );
    assert_eq!(because(with("rdf", &catalog, &[], false)), BuiltInBecause::Selected);
    assert_eq!(because(with(" ", &catalog, &[], false)), BuiltInBecause::NothingSelected);
    assert!(!BuiltInBecause::Selected.is_fallback() && small(refused).is_fallback());
}

prop_compose! {
    fn any_world()(
        models in proptest::collection::btree_map("[ab]3?", (proptest::option::of(8u32..12), any::<bool>()), 0..4),
        files in proptest::collection::btree_map("[ab]3?", proptest::option::of(proptest::option::of(8u32..12)), 0..4),
    ) -> (StoreCatalog, BTreeMap<ModelId, Inspected>) {
        let catalog = models.iter().map(|(name, (v, gpu))| {
            (id(name), CatalogModel { name: name.clone(), version: v.map(version), uses_external_gpu: *gpu })
        });
        let files = files.iter().map(|(name, file)| {
            let refused = || Inspected::Refused { why: "bad".to_owned() };
            (id(name), file.map_or_else(refused, good))
        });
        (StoreCatalog { models: catalog.collect() }, files.collect())
    }
}

/// An independent table: the names that a stored ID may mean, the first that the catalog has, and every condition on it.
fn may_run(
    selected: &str,
    catalog: &StoreCatalog,
    files: &BTreeMap<ModelId, Inspected>,
    gpu: bool,
) -> Option<ModelId> {
    let meant = [selected.to_owned(), format!("{selected}3")]
        .into_iter()
        .find(|name| catalog.models.keys().any(|id| id.as_str() == name))?;
    let model = &catalog.models[&id(&meant)];
    let file_version = match files.get(&id(&meant))? {
        Inspected::Good { version } => *version,
        Inspected::Refused { .. } => return None,
    };
    let same = model.version.is_none() || file_version.is_none() || model.version == file_version;
    (same && (gpu || !model.uses_external_gpu)).then(|| id(&meant))
}

proptest! {
    #[test]
    fn the_decision_agrees_with_an_independent_table(
        (catalog, files) in any_world(), selected in "[abc]3?", gpu in any::<bool>()
    ) {
        let situation =
            Situation { selected: Some(&selected), catalog: &catalog, installed: &files, has_external_gpu: gpu };
        let expected = may_run(&selected, &catalog, &files, gpu);
        match decide(&situation) {
            Decision::Artifact { id, version } => {
                prop_assert_eq!(Some(&id), expected.as_ref());
                let model = &catalog.models[&id];
                prop_assert!(model.version.is_none() || version == model.version);
            }
            Decision::BuiltIn { because } => {
                prop_assert_eq!(expected, None);
                prop_assert!(because.is_fallback());
            }
        }
    }

    #[test]
    fn the_external_gpu_changes_nothing_for_a_model_without_the_tag(
        (mut catalog, files) in any_world(), selected in "[ab]3?"
    ) {
        catalog.models.values_mut().for_each(|model| model.uses_external_gpu = false);
        let [with, without] = [true, false].map(|has_external_gpu| {
            decide(&Situation { selected: Some(&selected), catalog: &catalog, installed: &files, has_external_gpu })
        });
        prop_assert_eq!(with, without);
    }

    #[test]
    fn any_text_is_decided((catalog, files) in any_world(), selected in ".{0,300}") {
        let situation =
            Situation { selected: Some(&selected), catalog: &catalog, installed: &files, has_external_gpu: true };
        if let Decision::Artifact { id, .. } = decide(&situation) {
            let is_sound = matches!(files.get(&id), Some(Inspected::Good { .. }));
            prop_assert!(is_sound);
        }
    }
}
