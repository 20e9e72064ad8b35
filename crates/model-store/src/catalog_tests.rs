#![expect(clippy::disallowed_methods, reason = "tests make files the plain way")]

use super::*;

fn device(lists: &[(Param, &str)]) -> (tempfile::TempDir, ParamStore) {
    let dir = tempfile::tempdir().unwrap();
    let root = Utf8Path::from_path(dir.path()).unwrap();
    std::fs::create_dir_all(root.join("params/d")).unwrap();
    let params = ParamStore::new(root.join("params/d"), root.join("shm/d"));
    for (param, value) in lists {
        params.put(*param, value.as_bytes()).unwrap();
    }
    (dir, params)
}

#[test]
fn lists_and_caches_make_one_catalog() {
    let (dir, params) = device(&[
        (Param::AvailableModels, "tr14223,big3"),
        (Param::AvailableModelNames, "Tomb Raider,Big"),
        (Param::ModelVersions, "v8,v15"),
    ]);
    let store = Utf8Path::from_path(dir.path()).unwrap();
    std::fs::write(store.join(".model_versions.json"), r#"{"local-mine": "v12", "gone3": "v9"}"#).unwrap();
    std::fs::write(
        store.join(".model_artifacts.json"),
        r#"{"big3": {"uses_external_gpu": true}, "local-mine": {}}"#,
    )
    .unwrap();
    let catalog = StoreCatalog::of_device(&params, store).unwrap();
    let names: Vec<_> = catalog.models.keys().map(ModelId::as_str).collect();
    assert_eq!(names, ["big3", "local-mine", "tr14223"]);
    let (_, big) = catalog.resolve("big").unwrap();
    assert!(big.uses_external_gpu && big.name == "Big" && big.version == Some("v15".parse().unwrap()));
    let (_, local) = catalog.resolve("local-mine").unwrap();
    assert_eq!(local.version, Some("v12".parse().unwrap()));
    assert_eq!(StoreCatalog::of_device(&device(&[]).1, store).unwrap().models.len(), 1);
}

#[test]
fn lists_that_do_not_belong_together_are_refused() {
    let (dir, params) = device(&[(Param::AvailableModels, "a,b"), (Param::ModelVersions, "v8")]);
    let store = Utf8Path::from_path(dir.path()).unwrap();
    let refused = StoreCatalog::of_device(&params, store).unwrap_err().to_string();
    assert!(refused.contains("ModelVersions has 1 entries for 2 models"), "{refused}");
    params.put(Param::ModelVersions, b"v8,nine").unwrap();
    assert!(StoreCatalog::of_device(&params, store).unwrap_err().to_string().contains("nine"));
    params.put(Param::ModelVersions, b"v8,v9").unwrap();
    std::fs::write(store.join(".model_versions.json"), "{").unwrap();
    assert!(matches!(StoreCatalog::of_device(&params, store), Err(StoreError::Fs(FsError::Json { .. }))));
}
