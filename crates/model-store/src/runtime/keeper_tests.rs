use model_catalog::ModelId;

use super::*;
use crate::{Param, Selection};

fn device() -> (tempfile::TempDir, ParamStore) {
    let dir = tempfile::tempdir().unwrap();
    let root = Utf8Path::from_path(dir.path()).unwrap();
    fs::create_dir_all(root.join("params/d")).unwrap();
    let params = ParamStore::new(root.join("params/d"), root.join("shm/d"));
    params.put(Param::Model, b"mine3").unwrap();
    (dir, params)
}

fn other() -> Selection {
    Selection { id: ModelId::new("other3").unwrap(), version: None, name: "Other".to_owned() }
}

#[test]
fn an_error_and_a_panic_put_the_selection_back() {
    let (_dir, params) = device();
    let before = params.snapshot().unwrap();
    let keeper = Keeper::begin(&params, None).unwrap();
    params.select(&other()).unwrap();
    drop(keeper);
    assert_eq!(params.snapshot().unwrap(), before);
    let panicked = std::panic::catch_unwind(|| {
        let _keeper = Keeper::begin(&params, None).unwrap();
        params.select(&other()).unwrap();
        panic!("planted");
    });
    assert!(panicked.is_err());
    assert_eq!(params.snapshot().unwrap(), before);
    assert!(!params.beside(FILE).exists());
}

#[test]
fn what_a_killed_job_left_is_put_back_at_the_next_start() {
    let (_dir, params) = device();
    let before = params.snapshot().unwrap();
    let keeper = Keeper::begin(&params, None).unwrap();
    params.select(&other()).unwrap();
    assert!(restore_left_behind(&params).unwrap().is_none(), "its owner lives");
    // A kill runs no destructor, and releases the lock.
    let text = fs::read(params.beside(FILE)).unwrap();
    drop(keeper);
    params.select(&other()).unwrap();
    durable_fs::write_atomic(params.beside(FILE), &text).unwrap();
    let restored = restore_left_behind(&params).unwrap().unwrap();
    assert_eq!(restored.id().unwrap(), "mine3");
    assert_eq!(params.snapshot().unwrap(), before);
    assert!(restore_left_behind(&params).unwrap().is_none());
}

#[test]
fn the_next_verification_puts_back_first() {
    let (_dir, params) = device();
    let keeper = Keeper::begin(&params, None).unwrap();
    let text = fs::read(params.beside(FILE)).unwrap();
    drop(keeper);
    params.select(&other()).unwrap();
    durable_fs::write_atomic(params.beside(FILE), &text).unwrap();
    let keeper = Keeper::begin(&params, None).unwrap();
    assert_eq!(keeper.snapshot().id().unwrap(), "mine3", "not what the killed one had selected");
}

#[test]
fn two_verifications_exclude_each_other() {
    let (_dir, params) = device();
    let _keeper = Keeper::begin(&params, None).unwrap();
    let refused = Keeper::begin(&params, None).unwrap_err();
    assert!(matches!(&refused, KeepError::Busy(_)), "{refused}");
}

#[test]
fn what_was_started_is_ended_with_the_selection() {
    use std::os::unix::process::CommandExt;
    let (_dir, params) = device();
    let mut child = Command::new("sleep").arg("600").process_group(0).spawn().unwrap();
    let mut keeper = Keeper::begin(&params, None).unwrap();
    keeper.note_process(child.id()).unwrap();
    let text = fs::read(params.beside(FILE)).unwrap();
    drop(keeper);
    durable_fs::write_atomic(params.beside(FILE), &text).unwrap();
    restore_left_behind(&params).unwrap().unwrap();
    assert!(!child.wait().unwrap().success());
}

#[test]
fn a_guard_acts_when_its_input_ends() {
    let (_dir, params) = device();
    let keeper = Keeper::begin(&params, None).unwrap();
    let text = fs::read(params.beside(FILE)).unwrap();
    drop(keeper);
    params.select(&other()).unwrap();
    durable_fs::write_atomic(params.beside(FILE), &text).unwrap();
    guard(&params, io::empty()).unwrap();
    assert_eq!(params.text(Param::Model).unwrap().unwrap(), "mine3");
}
