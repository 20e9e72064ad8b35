//! Namespace and reconciliation of whole workspaces.
#![expect(clippy::unwrap_used, reason = "tests")]

mod support;

use model_catalog::{Manifest, SourceMap, Target};
use model_manifest::{ManifestWorkError, Note, Problem, SelectionFate};
use support::{Bench, id, listed, manifest, pkl};

/// The base manifest of the catalog's awkward corner, with recovered models and two equal artifacts.
const IDS: [&str; 7] = ["tr1422", "deeprl3", "deeprl33", "deeprl3v2", "op16d", "op16dv2", "sc2"];

fn filled() -> Bench {
    let bench = Bench::new();
    bench.artifact("tr1422", "tr1422's content", None);
    bench.artifact("deeprl3", "deeprl3, split", Some(5));
    bench.artifact("deeprl33", "deeprl33, split smaller", Some(4));
    bench.artifact("deeprl3v2", "deeprl3v2", None);
    // Two models of one commit: equal bytes.
    bench.artifact("op16d", "the same", Some(3));
    bench.artifact("op16dv2", "the same", Some(3));
    bench.artifact("rdf2", "recovered, not in the base manifest", None);
    bench
}

#[test]
fn the_namespace_renames_files_checksums_lists_and_records() {
    let bench = filled();
    let plan = bench.namespace(&manifest(&IDS));
    assert!(plan.problems.is_empty(), "{plan}");
    bench.apply(&plan);

    let compiled = bench.wholes("compiled");
    for (old, new) in
        [("tr1422", "tr14223"), ("deeprl3v2", "deeprl3v23"), ("op16d", "op16d3"), ("op16dv2", "op16dv23")]
    {
        assert!(compiled.contains_key(new) && !compiled.contains_key(old), "{old}");
    }
    assert_eq!(compiled["deeprl3v23_"], "deeprl3, split\n");
    assert_eq!(compiled["deeprl333"], "deeprl33, split smaller\n");
    assert!(compiled.contains_key("rdf2"), "not in the base manifest: left to reconciliation");

    let checksum = bench.read("ready-for-resources/deeprl333_driving_tinygrad.pkl.sha256");
    assert!(checksum.ends_with("  deeprl333_driving_tinygrad.pkl\n"), "{checksum}");
    let known = artifact_parts::KnownParts::default();
    artifact_parts::verify(&bench.workspace.ready_dir(), &pkl("deeprl333"), known, &durable_fs::NoProgress)
        .unwrap();
    artifact_parts::verify(&bench.workspace.ready_dir(), &pkl("deeprl3v23_"), known, &durable_fs::NoProgress)
        .unwrap();
    let multipart = bench.read("ready-for-resources/multipart.json");
    assert!(
        multipart.contains(r#""id": "deeprl333""#)
            && multipart.contains("deeprl3v23__driving_tinygrad.pkl.p02")
    );
    assert!(!multipart.contains("deeprl33_driving"), "{multipart}");

    let record = bench.artifact_record("deeprl33");
    assert_eq!((record.id.as_str(), record.release_id), ("deeprl33", Some(id("deeprl333"))));
    assert!(record.path.ends_with("compiled/deeprl333_driving_tinygrad.pkl"), "{}", record.path);
    assert_eq!(record.extra["note"], "kept");

    let v23 = bench.read("manifests/model_names_v23.json");
    assert_eq!(
        listed(&v23),
        ["tr14223", "deeprl3v23_", "deeprl333", "deeprl3v23", "op16d3", "op16dv23", "sc23"]
    );
    assert!(v23.contains("Model tr1422 👀") && v23.ends_with("}\n"), "{v23}");
    assert!(bench.read("source-maps/model_id_namespace_v23.json").contains(r#""deeprl3": "deeprl3v23_""#));
    assert!(plan.notes.contains(&Note::Missing { ids: vec![id("sc23")] }), "{plan}");
    assert!(plan.notes.contains(&Note::Unlisted { ids: vec![id("rdf2")] }), "{plan}");
}

#[test]
fn reconciling_maps_everything_in_one_pass() {
    let bench = filled();
    bench.apply(&bench.namespace(&manifest(&IDS)));
    bench.put("compiled/._deeprl3v23__driving_tinygrad.pkl", "sidecar");
    let plan = bench.reconcile();
    assert!(plan.problems.is_empty(), "{plan}");
    bench.apply(&plan);
    let compiled = bench.wholes("compiled");
    assert_eq!(
        compiled.keys().map(String::as_str).collect::<Vec<_>>(),
        ["deeprl33", "deeprl333", "deeprl3v23", "op16d3", "op16dv23", "rdf23", "tr14223"]
    );
    assert_eq!(compiled["deeprl33"], "deeprl3, split\n");
    assert_eq!(compiled["deeprl333"], "deeprl33, split smaller\n");
    let v23 = bench.read("manifests/model_names_v23.json");
    assert_eq!(
        listed(&v23),
        ["tr14223", "deeprl33", "deeprl333", "deeprl3v23", "op16d3", "op16dv23", "sc23", "rdf23"]
    );
    assert_eq!(bench.artifact_record("deeprl3").release_id, Some(id("deeprl33")));
    assert_eq!(bench.artifact_record("rdf2").release_id, Some(id("rdf23")));
    assert!(
        bench
            .read("ready-for-resources/deeprl33_driving_tinygrad.pkl.sha256")
            .ends_with("  deeprl33_driving_tinygrad.pkl\n")
    );
    // The stored selection of the old deeprl33 now means another model: said, not hidden.
    let stored = |stored: &str| plan.selections.iter().find(|selection| selection.stored == stored).unwrap();
    assert_eq!(
        stored("deeprl33").fate,
        SelectionFate::Other { id: id("deeprl33"), is: id("deeprl3"), meant: id("deeprl333") }
    );
    assert_eq!(stored("deeprl3").fate, SelectionFate::Same { id: id("deeprl33") });
}

#[test]
fn running_again_changes_nothing_in_any_order() {
    let bench = filled();
    let base = manifest(&IDS);
    bench.apply(&bench.namespace(&base));
    assert!(bench.namespace(&base).is_empty(), "{}", bench.namespace(&base));
    bench.apply(&bench.reconcile());
    let files = bench.files();
    for plan in [bench.reconcile(), bench.namespace(&base), bench.reconcile()] {
        assert!(plan.is_empty() && plan.problems.is_empty(), "{plan}");
        bench.apply(&plan);
    }
    assert_eq!(bench.files(), files);
}

#[test]
fn unrecorded_files_are_taken_by_their_names_once() {
    let bench = Bench::new();
    // A recovered workspace without records or namespace: source names only, both in one pass.
    for (name, content) in [("deeprl3", "one"), ("deeprl33", "two"), ("karnbir", "three")] {
        bench.put(&format!("compiled/{}", pkl(name)), content);
        bench.ready(name, content, Some(2));
    }
    bench.put("manifests/model_names_v23.json", manifest(&["deeprl33", "deeprl333", "karnbir3"]).to_json());
    bench.apply(&bench.reconcile());
    let expected = [("deeprl33", "one\n"), ("deeprl333", "two\n"), ("karnbir3", "three\n")];
    let compiled = bench.wholes("compiled");
    assert_eq!(compiled.iter().map(|(id, text)| (id.as_str(), text.as_str())).collect::<Vec<_>>(), expected);
    let again = bench.reconcile();
    assert!(again.is_empty(), "{again}");
    // A recorded file keeps its identity whatever its name.
    std::fs::rename(
        bench.path(&format!("compiled/{}", pkl("karnbir3"))),
        bench.path(&format!("compiled/{}", pkl("drl"))),
    )
    .unwrap();
    bench.apply(&bench.reconcile());
    assert!(bench.wholes("compiled").contains_key("karnbir3"));
}

#[test]
fn a_conflict_is_refused_before_anything_changes_and_an_equal_file_is_not_one() {
    let bench = filled();
    bench.put(&format!("compiled/{}", pkl("tr14223")), "another build");
    let before = bench.files();
    let plan = bench.namespace(&manifest(&IDS));
    assert!(
        matches!(&plan.problems[..], [Problem::Conflict { from, to, .. }] if *from == id("tr1422") && *to == id("tr14223")),
        "{plan}"
    );
    let refused = plan.apply(&bench.workspace).unwrap_err();
    assert!(matches!(refused, ManifestWorkError::Problems { .. }));
    assert!(refused.to_string().contains("remove the one"), "{refused}");
    assert_eq!(bench.files(), before);

    bench.put(&format!("compiled/{}", pkl("tr14223")), "tr1422's content");
    let plan = bench.namespace(&manifest(&IDS));
    assert!(
        plan.problems.is_empty() && plan.notes.iter().any(|note| matches!(note, Note::Duplicate { .. })),
        "{plan}"
    );
    bench.apply(&plan);
    assert!(!bench.wholes("compiled").contains_key("tr1422"));
    assert_eq!(bench.artifact_record("tr1422").release_id, Some(id("tr14223")));
}

#[test]
fn completed_ids_restrict_the_files_but_not_the_manifest() {
    let bench = filled();
    let base = manifest(&IDS);
    let plan = bench.try_namespace(&base, Some(&[id("deeprl3"), id("tr1422")])).unwrap();
    bench.apply(&plan);
    let compiled = bench.wholes("compiled");
    assert!(
        compiled.contains_key("deeprl3v23_")
            && compiled.contains_key("deeprl33")
            && compiled.contains_key("op16d")
    );
    assert_eq!(listed(&bench.read("manifests/model_names_v23.json")).len(), IDS.len());
    let plan = bench.try_namespace(&base, Some(&[id("sc2")])).unwrap();
    assert_eq!(plan.problems, [Problem::NotCompiled { ids: vec![id("sc2")] }]);
    let refused = bench.try_namespace(&base, Some(&[id("nope")])).unwrap_err();
    assert!(matches!(refused, ManifestWorkError::UnknownCompleted { .. }), "{refused}");
    bench.apply(&bench.namespace(&base));
    assert_eq!(bench.wholes("compiled")["deeprl333"], "deeprl33, split smaller\n");
}

#[test]
fn disagreements_with_source_map_and_artifacts_are_problems() {
    let mut bench = filled();
    let tagged = r#"{"tr1422": {"ref": "main", "input_format": "split", "uses_external_gpu": true}}"#;
    bench.sources = SourceMap::from_json(tagged).unwrap();
    let plan = bench.namespace(&manifest(&IDS));
    assert!(
        plan.problems.contains(&Problem::GpuTag { id: id("tr1422"), manifest: false, source_map: true }),
        "{plan}"
    );
    // The base manifest takes the tag over; the artifact is still a normal one.
    let plan = bench.base(&manifest(&IDS));
    let wrong = Problem::Target { id: id("tr1422"), artifact: Target::Qcom, expected: Target::ExternalGpu };
    assert_eq!(plan.problems, [wrong]);

    let bench = filled();
    bench.put("rebuild.toml", "target = \"cpu\"\n");
    let plan = bench.namespace(&manifest(&IDS));
    assert!(
        matches!(plan.problems[0], Problem::Target { artifact: Target::Qcom, expected: Target::Cpu, .. }),
        "{plan}"
    );

    let bench = Bench::new();
    let plan = bench.namespace(&manifest(&["a", "A"]));
    assert_eq!(plan.problems, [Problem::SameId { first: id("a3"), second: id("A3") }]);
    assert!(plan.problems[0].to_string().contains("but for case"), "{}", plan.problems[0]);
}

#[test]
fn parts_without_their_checksum_are_refused() {
    let bench = filled();
    std::fs::remove_file(bench.path("ready-for-resources/deeprl3_driving_tinygrad.pkl.sha256")).unwrap();
    let plan = bench.namespace(&manifest(&IDS));
    assert!(plan.problems.iter().any(|problem| matches!(problem, Problem::BrokenSet { .. })), "{plan}");
}

#[test]
fn the_base_manifest_loses_what_described_artifacts() {
    let bench = Bench::new();
    let text = r#"{"models": [{"id": "a", "artifact_url": "x", "name": "A", "artifact_size": 1, "artifact_format": "f",
        "artifact_sha256": "s", "artifact_urls": ["x"], "community_favorite": true}], "note": "kept"}"#;
    let base = Manifest::from_json(text).unwrap();
    let plan = bench.base(&base);
    assert_eq!(plan.notes, [Note::Added { id: id("deeprl3v2") }]);
    bench.apply(&plan);
    let written = bench.read("manifests/model_names_v22.json");
    assert!(written.starts_with("{\n  \"models\": [\n    {\n      \"id\": \"a\",\n      \"name\": \"A\",\n      \"community_favorite\": true\n    },"), "{written}");
    assert!(
        written.contains("Deep RL 3 V2 👀📡") && written.ends_with("  ],\n  \"note\": \"kept\"\n}\n"),
        "{written}"
    );
    assert!(bench.base(&base).is_empty());
}

#[test]
fn newer_manifests_are_read_and_not_rewritten() {
    let bench = filled();
    let newer = manifest(&["tr14223"]).to_json().replacen('{', "{\n  \"schema_version\": 2,", 1);
    bench.put("manifests/model_names_v23.json", &newer);
    let plan = bench.reconcile();
    assert!(plan.problems.iter().any(|problem| matches!(problem, Problem::Newer { found: 2, .. })), "{plan}");
    plan.apply(&bench.workspace).unwrap_err();
    assert_eq!(bench.read("manifests/model_names_v23.json"), newer);
}

#[test]
fn reconciling_without_a_manifest_says_what_comes_first() {
    let bench = Bench::new();
    let additions = model_manifest::Additions::embedded().unwrap();
    let request = model_manifest::ReconcileRequest {
        version: support::V23,
        releases: &bench.releases,
        additions: &additions,
    };
    let refused =
        model_manifest::plan_reconcile(&bench.snapshot(support::V23), &request).unwrap_err().to_string();
    assert!(refused.contains("rebuild namespace"), "{refused}");
}

#[test]
fn a_plan_prints_what_it_does() {
    let bench = Bench::new();
    bench.artifact("a", "content", Some(4));
    let plan = bench.namespace(&manifest(&["a"])).to_string();
    for line in [
        "namespace v23: ",
        "  rename compiled/a_driving_tinygrad.pkl to compiled/a3_driving_tinygrad.pkl\n",
        "  rename ready-for-resources/a_driving_tinygrad.pkl.p01 to ready-for-resources/a3_driving_tinygrad.pkl.p01\n",
        "  write manifests/model_names_v23.json\n",
        "stored selections that stay the same model: a as a3\n",
    ] {
        assert!(plan.contains(line), "{plan}");
    }
    bench.apply(&bench.namespace(&manifest(&["a"])));
    let again = bench.namespace(&manifest(&["a"])).to_string();
    assert!(again.starts_with("namespace v23: nothing to do\n") && again.contains("a as a3"), "{again}");
}
