//! Release IDs against the documented examples and an independent slow model.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;

use model_catalog::{ManifestVersion, ModelId};
use model_manifest::{IdMap, NamespaceError, SelectionFate, selections};
use proptest::prelude::*;

fn id(text: &str) -> ModelId {
    ModelId::new(text).unwrap()
}

fn map(ids: &[&str], version: u32, suffix: &str) -> Vec<(String, String)> {
    let ids: Vec<ModelId> = ids.iter().map(|text| id(text)).collect();
    let map = IdMap::new(&ids, ManifestVersion::from_number(version), suffix).unwrap();
    map.iter().map(|(old, new)| (old.to_string(), new.to_string())).collect()
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|&(old, new)| (old.to_owned(), new.to_owned())).collect()
}

#[test]
fn the_documented_examples_hold_in_any_order() {
    let expected = [
        ("tr1422", "tr14223"),
        ("deeprl3v2", "deeprl3v23"),
        ("deeprl33", "deeprl333"),
        ("deeprl3", "deeprl3v23_"),
    ];
    for start in 0..4 {
        let order: Vec<&str> = (0..4).map(|at| expected[(start + at) % 4].0).collect();
        for ids in [order.clone(), order.iter().rev().copied().collect()] {
            let given = map(&ids, 23, "3");
            for pair in pairs(&expected) {
                assert!(given.contains(&pair), "{ids:?}: {given:?}");
            }
        }
    }
}

#[test]
fn a_chain_of_suffixes_does_not_cascade() {
    assert_eq!(map(&["a", "a3", "a33"], 23, "3"), pairs(&[("a", "av23"), ("a3", "a3v23"), ("a33", "a333")]));
    assert_eq!(map(&["a", "a4"], 24, "4"), pairs(&[("a", "av24"), ("a4", "a44")]));
}

#[test]
fn suffixes_that_make_no_id_are_refused() {
    let ids = [id("a")];
    let v23 = ManifestVersion::from_number(23);
    assert_eq!(IdMap::new(&ids, v23, ""), Err(NamespaceError::EmptySuffix));
    assert!(matches!(IdMap::new(&ids, v23, "/3"), Err(NamespaceError::Invalid { .. })));
    assert!(matches!(IdMap::new(&[id(&"x".repeat(64))], v23, "3"), Err(NamespaceError::Invalid { .. })));
}

#[test]
fn stored_selections_end_where_the_report_says() {
    let ids = [id("tr1422"), id("deeprl3"), id("deeprl33"), id("sc2"), id("deeprl3v2")];
    let releases = IdMap::new(&ids, ManifestVersion::from_number(23), "3").unwrap();
    let catalog: Vec<ModelId> = releases.iter().map(|(_, new)| new.clone()).collect();
    let fates = selections(&releases, &catalog);
    let fate = |stored: &str| &fates.iter().find(|selection| selection.stored == stored).unwrap().fate;
    assert_eq!(fate("tr1422"), &SelectionFate::Same { id: id("tr14223") });
    assert_eq!(fate("sc"), &SelectionFate::Same { id: id("sc23") });
    // Before reconciliation devices do not find it; afterwards the old deeprl33 means another model.
    assert_eq!(fate("deeprl3"), &SelectionFate::Lost { meant: id("deeprl3v23_") });
    assert_eq!(fate("deeprl33"), &SelectionFate::Same { id: id("deeprl333") });
}

/// The rule, written down once more and slowly: no state, each ID for itself.
fn slow(ids: &[String], id: &str, version: &str, suffix: &str) -> String {
    let is_source = |text: &str| ids.iter().any(|other| other == text);
    let free = |other: &String| !is_source(&format!("{other}{suffix}"));
    let plain = format!("{id}{suffix}");
    if !is_source(&plain) {
        return plain;
    }
    let given: Vec<String> =
        ids.iter().filter(|other| free(other)).map(|other| format!("{other}{suffix}")).collect();
    (0..)
        .map(|underscores| format!("{id}{version}{}", "_".repeat(underscores)))
        .find(|candidate| !given.contains(candidate))
        .unwrap()
}

/// IDs that collide on purpose: few stems, repeated suffixes, versions, underscores, case.
fn ids() -> impl Strategy<Value = Vec<String>> {
    let stem = prop::sample::select(vec!["a", "A", "b", "deeprl", "av23", "a3"]);
    let tail = prop::collection::vec(prop::sample::select(vec!["3", "33", "v2", "v23", "_", "4", "x"]), 0..4);
    prop::collection::btree_set(
        (stem, tail).prop_map(|(stem, tail)| format!("{stem}{}", tail.concat())),
        1..40,
    )
    .prop_map(|set| set.into_iter().collect::<Vec<_>>())
    .prop_shuffle()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn any_namespace_is_one_to_one_and_equals_the_slow_model(
        ids in ids(),
        suffix in prop::sample::select(vec!["3", "4", "v2", "_", "v23", "33"]),
    ) {
        let version = ManifestVersion::from_number(23);
        let sources: Vec<ModelId> = ids.iter().map(|text| id(text)).collect();
        let map = IdMap::new(&sources, version, suffix).unwrap();
        let order: Vec<String> = map.iter().map(|(old, _)| old.to_string()).collect();
        prop_assert_eq!(&order, &ids, "the map keeps the manifest's order");
        let given: BTreeSet<&ModelId> = map.iter().map(|(_, new)| new).collect();
        prop_assert_eq!(given.len(), ids.len(), "one to one");
        for (old, new) in map.iter() {
            prop_assert_eq!(new.as_str(), slow(&ids, old.as_str(), "v23", suffix));
            prop_assert_eq!(map.source_of(new), Some(old));
        }
    }
}
