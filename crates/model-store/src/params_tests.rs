#![expect(clippy::disallowed_methods, reason = "tests make files the plain way")]

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use model_catalog::ModelId;

use super::*;
use crate::{SELECTION, Selection};

fn store() -> (tempfile::TempDir, ParamStore) {
    let dir = tempfile::tempdir().unwrap();
    let root = Utf8Path::from_path(dir.path()).unwrap();
    // As a device has it: `d` is a link to a directory beside it.
    fs::create_dir_all(root.join("params/.tmp_abc")).unwrap();
    std::os::unix::fs::symlink(".tmp_abc", root.join("params/d")).unwrap();
    fs::create_dir_all(root.join("shm/d")).unwrap();
    let store = ParamStore::new(root.join("params/d"), root.join("shm/d"));
    (dir, store)
}

fn selection(id: &str) -> Selection {
    Selection {
        id: ModelId::new(id).unwrap(),
        version: Some("v11".parse().unwrap()),
        name: format!("{id} 👀"),
    }
}

#[test]
fn a_value_is_put_read_and_removed() {
    let (_dir, store) = store();
    assert_eq!(store.get(Param::Model).unwrap(), None);
    store.put(Param::Model, b"tr14223\0").unwrap();
    assert_eq!(store.text(Param::Model).unwrap().unwrap(), "tr14223");
    assert_eq!(store.get(Param::Model).unwrap().unwrap(), b"tr14223\0");
    store.put(Param::ModelToDownload, b"x").unwrap();
    assert!(store.file(Param::ModelToDownload).as_str().contains("/shm/"));
    store.remove(Param::Model).unwrap();
    store.remove(Param::Model).unwrap();
    assert_eq!(store.get(Param::Model).unwrap(), None);
    let names: Vec<_> = durable_fs::list_dir(store.file(Param::Model).parent().unwrap()).unwrap();
    assert!(names.is_empty(), "nothing but keys may stand in the directory: {names:?}");
}

#[test]
fn every_mirror_of_a_selection_is_written_and_restored_byte_for_byte() {
    let (_dir, store) = store();
    store.put(Param::Model, b"rdf").unwrap();
    store.put(Param::DrivingModelName, &[0xff, 0]).unwrap();
    let before = store.snapshot().unwrap();
    store.select(&selection("tr14223")).unwrap();
    for (param, value) in [
        (Param::Model, "tr14223"),
        (Param::DrivingModel, "tr14223"),
        (Param::ModelVersion, "v11"),
        (Param::DrivingModelVersion, "v11"),
        (Param::DrivingModelName, "tr14223 👀"),
    ] {
        assert_eq!(store.text(param).unwrap().unwrap(), value, "{param}");
    }
    store.restore(&before).unwrap();
    assert_eq!(store.snapshot().unwrap(), before);
    assert!(!store.file(Param::DrivingModel).exists(), "what was not set is not set again");
    let text = serde_json::to_string(&before).unwrap();
    assert_eq!(serde_json::from_str::<crate::Snapshot>(&text).unwrap(), before);
}

#[test]
fn a_lock_that_is_never_released_is_an_error_and_a_short_one_is_waited_for() {
    let (dir, store) = store();
    let lock = Utf8Path::from_path(dir.path()).unwrap().join("params/.lock");
    let held = FileLock::acquire(&lock, "another program").unwrap();
    let refused = store.clone().with_patience(Duration::from_millis(50)).put(Param::Model, b"x").unwrap_err();
    assert!(
        refused.to_string().contains("Model was not changed")
            && refused.to_string().contains("another program")
    );
    assert_eq!(store.get(Param::Model).unwrap(), None);
    let waiter = std::thread::spawn({
        let store = store.clone();
        move || store.put(Param::Model, b"x")
    });
    sleep(Duration::from_millis(60));
    drop(held);
    waiter.join().unwrap().unwrap();
    assert_eq!(store.get(Param::Model).unwrap().unwrap(), b"x");
    let left: Vec<_> =
        fs::read_dir(dir.path().join("params")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 3, "{left:?}");
}

#[test]
fn a_reader_never_sees_half_a_value() {
    let (_dir, store) = store();
    let values = ["a".repeat(30_000), "b".repeat(50_000)];
    store.put(Param::AvailableModels, values[0].as_bytes()).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let reader = std::thread::spawn({
        let (store, stop, values) = (store.clone(), stop.clone(), values.clone());
        move || {
            let mut reads = 0;
            while !stop.load(Ordering::Relaxed) {
                let value = store.text(Param::AvailableModels).unwrap().unwrap();
                assert!(values.contains(&value), "{} bytes", value.len());
                reads += 1;
            }
            reads
        }
    });
    for turn in 0..60 {
        store.put(Param::AvailableModels, values[turn % 2].as_bytes()).unwrap();
    }
    stop.store(true, Ordering::Relaxed);
    assert!(reader.join().unwrap() > 0);
}

#[test]
fn what_is_no_parameter_is_refused() {
    let (dir, store) = store();
    fs::write(store.file(Param::Model), vec![b'x'; (1 << 20) + 1]).unwrap();
    assert!(matches!(store.get(Param::Model), Err(StoreError::TooLarge { .. })));
    fs::write(store.file(Param::Model), [0xc3]).unwrap();
    assert!(matches!(store.text(Param::Model), Err(StoreError::NotText { .. })));
    let nowhere = ParamStore::new(Utf8Path::from_path(dir.path()).unwrap().join("no/d"), "/nowhere");
    assert!(matches!(nowhere.check(), Err(StoreError::NoParams { .. })));
    assert!(matches!(nowhere.put(Param::Model, b"x"), Err(StoreError::NoParams { .. })));
}

#[test]
fn the_road_is_seen_in_either_place() {
    let (_dir, store) = store();
    assert!(!store.is_on_road());
    fs::write(store.file(Param::IsOnroad), "0").unwrap();
    assert!(!store.is_on_road());
    fs::write(store.file(Param::IsOnroad), "1").unwrap();
    assert!(store.is_on_road());
    fs::remove_file(store.file(Param::IsOnroad)).unwrap();
    fs::write(store.file(Param::ModelToDownload).with_file_name("IsOnroad"), "1\n").unwrap();
    assert!(store.is_on_road());
}

#[test]
fn the_selection_names_every_mirror_once() {
    let mut all = SELECTION.to_vec();
    all.dedup();
    assert_eq!(all.len(), 5);
    assert_eq!(SELECTION[3..], [Param::Model, Param::DrivingModel]);
    for param in Param::ALL {
        assert_eq!(serde_json::to_value(param).unwrap(), param.as_str());
    }
}
