//! Extraction from clones on this machine, made by the real git.
#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests write their inputs directly and panic on failure"
)]

mod repository;

use std::fs;

use camino::Utf8Path;
use durable_fs::Sha256;
use lfs_extract::{ByteSource, ErrorClass, ExtractError, ExtractedFile, SourceClone, Watch};
use model_catalog::{Component, InputFormat, SourceEntry, Variant};
use repository::{
    NEW_DIR, OLD_DIR, Repository, entry, git_in, id, names, noise, object_path, split, supercombo,
    write_object,
};

fn extract(
    clone: &Utf8Path,
    name: &str,
    entry: &SourceEntry,
    destination: &Utf8Path,
) -> Result<Vec<ExtractedFile>, ExtractError> {
    let clone = SourceClone::open(clone)?;
    let plan = clone.plan_model(&id(name), entry)?;
    clone.extract_model(&plan, destination, &|_, _| Ok(()), &Watch::nobody())
}

fn split_commit(repository: &Repository, dir: &str, seed: u64, len: usize) -> (Vec<u8>, Vec<u8>) {
    let (vision, policy) = (noise(seed, len), noise(seed + 1, len / 2));
    repository.write(&format!("{dir}/driving_vision.onnx"), &vision);
    repository.write(&format!("{dir}/driving_policy.onnx"), &policy);
    (vision, policy)
}

#[test]
fn loose_packed_and_delta_blobs_are_extracted_bit_for_bit() {
    require_git!("loose_packed_and_delta_blobs_are_extracted_bit_for_bit");
    let repository = Repository::new();
    let (mut vision, _) = split_commit(&repository, OLD_DIR, 1, 700_001);
    let first = repository.commit("first");
    // A near copy, which git stores as a delta.
    vision[350_000] ^= 1;
    vision.extend_from_slice(b"tail");
    repository.write(&format!("{OLD_DIR}/driving_vision.onnx"), &vision);
    let second = repository.commit("second");
    for packed in [false, true] {
        let mut deltas = 0;
        for commit in [&first, &second] {
            let destination = repository.destination(&format!("{commit}-{packed}"));
            let files = extract(&repository.path, "wmi", &split(commit), &destination).unwrap();
            assert_eq!(names(&destination), ["wmi_driving_policy.onnx", "wmi_driving_vision.onnx"]);
            for file in files {
                let expected =
                    git_in(&repository.path, &["rev-parse", &format!("{commit}:{}", file.git_path)]);
                assert_eq!(file.blob.to_string(), expected);
                let bytes = fs::read(destination.join(&file.file_name)).unwrap();
                assert_eq!((file.size, file.sha256), (bytes.len() as u64, Sha256::digest(&bytes)));
                let path = destination.join(&file.file_name);
                assert_eq!(
                    git_in(&repository.path, &["hash-object", "--no-filters", path.as_str()]),
                    expected
                );
                deltas += usize::from(matches!(file.source, ByteSource::GitBlob { delta: true, .. }));
            }
        }
        assert_eq!(deltas, usize::from(packed), "packed: {packed}");
        repository.repack();
    }
}

#[test]
fn deltas_upon_deltas_of_large_blobs_are_put_together() {
    require_git!("deltas_upon_deltas_of_large_blobs_are_put_together");
    let repository = Repository::new();
    // Larger than what is held in memory, with insertions, removals and copies.
    let mut model = noise(21, 6_000_000);
    let mut commits = Vec::new();
    for version in 0..5u64 {
        let at = 1_000_000 * (version as usize + 1);
        model.splice(at..at + 1_000, noise(30 + version, 3_000 + version as usize));
        let moved = model[..70_000].to_vec();
        model.extend_from_slice(&moved);
        repository.write(&format!("{OLD_DIR}/driving_supercombo.onnx"), &model);
        commits.push((repository.commit(&format!("version {version}")), model.clone()));
    }
    repository.repack();
    let mut deltas = 0;
    let destination = repository.destination("out");
    for (commit, expected) in &commits {
        let files = extract(&repository.path, "m", &supercombo(commit), &destination).unwrap();
        assert!(fs::read(destination.join("m_driving_supercombo.onnx")).unwrap() == *expected, "{commit}");
        assert_eq!(names(&destination), ["m_driving_supercombo.onnx"]);
        deltas += usize::from(matches!(files[0].source, ByteSource::GitBlob { delta: true, .. }));
    }
    assert_eq!(deltas, 4);
    // A damaged base is damage of every object that is made of it.
    let pack = repository.path.join(".git/objects/pack").read_dir_utf8().unwrap();
    let pack =
        pack.map(|entry| entry.unwrap().into_path()).find(|path| path.extension() == Some("pack")).unwrap();
    let mut bytes = fs::read(&pack).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    make_writable(&pack);
    fs::write(&pack, &bytes).unwrap();
    for (commit, _) in &commits {
        let refused =
            extract(&repository.path, "m", &supercombo(commit), &repository.destination("none")).unwrap_err();
        assert_eq!(refused.class(), ErrorClass::Corrupt, "{refused}");
    }
}

#[test]
fn every_kind_of_ref_and_layout_finds_the_commit() {
    require_git!("every_kind_of_ref_and_layout_finds_the_commit");
    let repository = Repository::new();
    let (vision, _) = split_commit(&repository, NEW_DIR, 3, 5_000);
    let commit = repository.commit("models");
    repository.git(&["tag", "-a", "v1", "-m", "annotated"]);
    repository.git(&["tag", "light"]);
    repository.git(&["branch", "feature/x"]);
    repository.git(&["checkout", "-q", "--orphan", "empty"]);
    repository.git(&["rm", "-rfq", "."]);
    repository.commit("nothing");
    let root = &repository.root;
    git_in(root, &["clone", "-q", repository.path.as_str(), "copy"]);
    git_in(root, &["clone", "-q", "--bare", repository.path.as_str(), "bare.git"]);
    git_in(root, &["clone", "-q", "--shared", "--no-checkout", "copy", "shared"]);
    git_in(
        root,
        &["clone", "-q", "--depth=1", "-b", "feature/x", &format!("file://{}", repository.path), "shallow"],
    );
    repository.git(&["worktree", "add", "-q", root.join("tree").as_str(), "main"]);
    let cases = [
        ("clone", vec!["main", "v1", "light", "feature/x", &commit, &commit[..10]]),
        ("tree", vec!["main", "feature/x", &commit[..8]]),
        ("copy", vec!["origin/main", "origin/feature/x", "v1", &commit]),
        ("bare.git", vec!["main", "v1", &commit]),
        ("shared", vec![commit.as_str(), &commit[..12]]),
        ("shallow", vec![commit.as_str(), "feature/x", "origin/feature/x"]),
    ];
    for (clone, refs) in cases {
        for git_ref in refs {
            let destination = repository.destination("out");
            let files = extract(&root.join(clone), "m", &split(git_ref), &destination)
                .unwrap_or_else(|error| panic!("{clone} {git_ref}: {error}"));
            assert_eq!(files[0].file.component, Component::Vision);
            assert_eq!(fs::read(destination.join("m_driving_vision.onnx")).unwrap(), vision);
        }
    }
}

#[test]
fn pointers_are_followed_into_every_cache() {
    require_git!("pointers_are_followed_into_every_cache");
    let repository = Repository::new();
    let content = noise(7, 300_000);
    let pointer = repository.write_lfs(&format!("{OLD_DIR}/driving_supercombo.onnx"), &content, true);
    let commit = repository.commit("pointer");
    let root = &repository.root;
    repository.git(&["worktree", "add", "-q", root.join("tree").as_str(), &commit]);
    git_in(root, &["clone", "-q", "--shared", repository.path.as_str(), "shared"]);
    git_in(root, &["clone", "-q", "--bare", repository.path.as_str(), "bare.git"]);
    write_object(&root.join("bare.git/lfs/objects"), &pointer, &content);
    git_in(root, &["clone", "-q", repository.path.as_str(), "moved"]);
    git_in(&root.join("moved"), &["config", "lfs.storage", root.join("storage").as_str()]);
    write_object(&root.join("storage/objects"), &pointer, &content);
    for clone in ["clone", "tree", "shared", "bare.git", "moved"] {
        let destination = repository.destination("out");
        let files = extract(&root.join(clone), "rdf2", &supercombo(&commit), &destination)
            .unwrap_or_else(|error| panic!("{clone}: {error}"));
        assert_eq!((files[0].size, files[0].sha256), (pointer.size, pointer.oid), "{clone}");
        assert!(matches!(&files[0].source, ByteSource::LfsCache { .. }));
        assert_eq!(fs::read(destination.join("rdf2_driving_supercombo.onnx")).unwrap(), content);
    }
}

#[test]
fn big_and_small_are_never_confused() {
    require_git!("big_and_small_are_never_confused");
    let repository = Repository::new();
    repository.write(&format!("{OLD_DIR}/driving_supercombo.onnx"), b"small model, long enough");
    let only_small = repository.commit("small");
    repository.write(&format!("{OLD_DIR}/big_driving_supercombo.onnx"), b"big model");
    let both = repository.commit("both");
    let destination = repository.destination("out");
    let big = entry(&both, InputFormat::Supercombo, true);
    let files = extract(&repository.path, "rdf2", &big, &destination).unwrap();
    assert_eq!(files[0].file.variant, Variant::ExternalGpu);
    assert_eq!(names(&destination), ["rdf2_big_driving_supercombo.onnx"]);
    assert_eq!(fs::read(destination.join("rdf2_big_driving_supercombo.onnx")).unwrap(), b"big model");
    // The other variant replaces it: a directory holds one set.
    extract(&repository.path, "rdf2", &supercombo(&both), &destination).unwrap();
    assert_eq!(names(&destination), ["rdf2_driving_supercombo.onnx"]);
    let refused =
        extract(&repository.path, "rdf2", &entry(&only_small, InputFormat::Supercombo, true), &destination);
    let refused = refused.unwrap_err();
    assert_eq!(refused.class(), ErrorClass::MissingComponents);
    let words = refused.to_string();
    assert!(words.contains("only the other size is there"), "{words}");
    assert!(words.contains("selfdrive/modeld/models/driving_supercombo.onnx"), "{words}");
}

#[test]
fn a_smaller_set_replaces_a_larger_one_and_a_failed_one_changes_nothing() {
    require_git!("a_smaller_set_replaces_a_larger_one_and_a_failed_one_changes_nothing");
    let repository = Repository::new();
    for component in ["vision", "on_policy", "off_policy"] {
        repository.write(&format!("{OLD_DIR}/driving_{component}.onnx"), component.as_bytes());
    }
    let three = repository.commit("three");
    repository.git(&["rm", "-q", &format!("{OLD_DIR}/driving_off_policy.onnx")]);
    repository.write(&format!("{OLD_DIR}/driving_vision.onnx"), b"new vision");
    let two = repository.commit("two");
    repository.write_lfs(&format!("{OLD_DIR}/driving_on_policy.onnx"), b"not cached", false);
    let broken = repository.commit("broken");
    let destination = repository.destination("out");
    fs::write(destination.join("._m_driving_vision.onnx"), b"sidecar").unwrap();
    extract(&repository.path, "m", &split(&three), &destination).unwrap();
    assert_eq!(names(&destination).len(), 4);
    extract(&repository.path, "m", &split(&two), &destination).unwrap();
    let left = ["._m_driving_vision.onnx", "m_driving_on_policy.onnx", "m_driving_vision.onnx"];
    assert_eq!(names(&destination), left);
    assert_eq!(fs::read(destination.join("m_driving_vision.onnx")).unwrap(), b"new vision");

    let refused = extract(&repository.path, "m", &split(&broken), &destination).unwrap_err();
    assert_eq!(refused.class(), ErrorClass::NotFoundAnywhere);
    assert!(refused.to_string().contains(".git/lfs/objects"), "{refused}");
    let clone = SourceClone::open(&repository.path).unwrap();
    let plan = clone.plan_model(&id("m"), &split(&three)).unwrap();
    let second_is_bad = |file: model_catalog::ComponentFile, staged: &Utf8Path| {
        assert!(!fs::read(staged).unwrap().is_empty());
        if file.component == Component::Vision { Ok(()) } else { Err("no graph".to_owned()) }
    };
    let refused = clone.extract_model(&plan, &destination, &second_is_bad, &Watch::nobody()).unwrap_err();
    assert!(refused.to_string().contains("no graph"), "{refused}");
    assert_eq!(names(&destination), left);
    assert_eq!(fs::read(destination.join("m_driving_vision.onnx")).unwrap(), b"new vision");
}

#[test]
fn a_directory_with_a_complete_set_wins_over_a_mixture() {
    require_git!("a_directory_with_a_complete_set_wins_over_a_mixture");
    let repository = Repository::new();
    repository.write(&format!("{NEW_DIR}/driving_vision.onnx"), b"new vision alone");
    split_commit(&repository, OLD_DIR, 11, 1_000);
    repository.write("frogpilot/tinygrad_modeld/models/driving_off_policy.onnx", b"of another generation");
    let commit = repository.commit("three places");
    let files = extract(&repository.path, "m", &split(&commit), &repository.destination("out")).unwrap();
    let paths: Vec<&str> = files.iter().map(|file| file.git_path.as_str()).collect();
    let expected = [format!("{OLD_DIR}/driving_vision.onnx"), format!("{OLD_DIR}/driving_policy.onnx")];
    assert_eq!(paths, expected);
}

#[test]
fn each_failure_has_its_own_class_and_words() {
    require_git!("each_failure_has_its_own_class_and_words");
    let repository = Repository::new();
    split_commit(&repository, OLD_DIR, 5, 1_000);
    let good = repository.commit("good");
    repository.git(&["rm", "-q", &format!("{OLD_DIR}/driving_policy.onnx")]);
    let no_policy = repository.commit("no policy");
    repository.write(
        &format!("{OLD_DIR}/driving_policy.onnx"),
        b"version https://git-lfs.github.com/spec/v1\r\noid",
    );
    let malformed = repository.commit("malformed pointer");
    fs::remove_file(repository.path.join(format!("{OLD_DIR}/driving_policy.onnx"))).unwrap();
    #[cfg(unix)]
    std::os::unix::fs::symlink(
        "driving_vision.onnx",
        repository.path.join(format!("{OLD_DIR}/driving_policy.onnx")),
    )
    .unwrap();
    let link = repository.commit("symbolic link");
    let tree = repository.git(&["rev-parse", &format!("{good}^{{tree}}")]);
    let plain = repository.destination("plain");
    let destination = repository.destination("out");
    let path = &repository.path;
    let absent = "0123456789012345678901234567890123456789";
    for (clone, git_ref, class, words) in [
        (&repository.root.join("none"), good.as_str(), ErrorClass::Clone, "there is no clone at"),
        (&plain, &good, ErrorClass::Clone, "is not a git repository"),
        (path, "no-such-branch", ErrorClass::RefNotFound, "no-such-branch"),
        (path, "-x --upload-pack=evil", ErrorClass::RefNotFound, "upload-pack"),
        (path, absent, ErrorClass::RefNotFound, "lacks the commit"),
        (path, &tree, ErrorClass::RefNotFound, "is a tree and not a commit"),
        (
            path,
            &no_policy,
            ErrorClass::MissingComponents,
            "driving_on_policy.onnx or driving_policy.onnx not found under openpilot/selfdrive",
        ),
        (path, &malformed, ErrorClass::MalformedPointer, "line 1"),
        (path, &link, ErrorClass::MissingComponents, "is a symbolic link"),
    ] {
        let refused = extract(clone, "m", &split(git_ref), &destination).unwrap_err();
        assert_eq!(refused.class(), class, "{refused}");
        assert!(refused.to_string().contains(words), "{refused}");
        assert_eq!(names(&destination), Vec::<String>::new(), "{refused}");
    }
    let refused = extract(path, "m", &split(&good), &repository.root.join("missing/out")).unwrap_err();
    assert!(refused.to_string().contains("missing/out"), "{refused}");
}

#[test]
fn damage_is_found_before_anything_gets_a_name() {
    require_git!("damage_is_found_before_anything_gets_a_name");
    let repository = Repository::new();
    let content = noise(9, 200_000);
    let pointer = repository.write_lfs(&format!("{OLD_DIR}/driving_supercombo.onnx"), &content, true);
    let cached = repository.commit("pointer");
    repository.write(&format!("{OLD_DIR}/driving_supercombo.onnx"), &content);
    let plain = repository.commit("plain");
    let destination = repository.destination("out");
    let expect = |git_ref: &str, words: &str| {
        let refused = extract(&repository.path, "m", &supercombo(git_ref), &destination).unwrap_err();
        assert_eq!(refused.class(), ErrorClass::Corrupt, "{refused}");
        assert!(refused.to_string().contains(words), "{refused}");
        assert_eq!(names(&destination), Vec::<String>::new());
    };
    let object = object_path(&repository.path.join(".git/lfs/objects"), &pointer);
    fs::write(&object, &content[..100]).unwrap();
    expect(&cached, "has 100 bytes; 200000 were expected");
    let mut flipped = content.clone();
    flipped[150_000] ^= 0x40;
    fs::write(&object, &flipped).unwrap();
    expect(&cached, "has SHA-256");

    let blob = repository.git(&["rev-parse", &format!("{plain}:{OLD_DIR}/driving_supercombo.onnx")]);
    let loose = repository.path.join(".git/objects").join(&blob[..2]).join(&blob[2..]);
    let original = fs::read(&loose).unwrap();
    make_writable(&loose);
    fs::write(&loose, &original[..original.len() / 2]).unwrap();
    expect(&plain, "cut off");
    let mut flipped = original.clone();
    flipped[original.len() / 2] ^= 1;
    fs::write(&loose, &flipped).unwrap();
    expect(&plain, "is damaged");
    fs::write(&loose, &original).unwrap();
    extract(&repository.path, "m", &supercombo(&plain), &repository.destination("good")).unwrap();
}

fn make_writable(path: &Utf8Path) {
    let mut permissions = fs::metadata(path).unwrap().permissions();
    #[expect(clippy::permissions_set_readonly_false, reason = "git makes its objects read-only")]
    permissions.set_readonly(false);
    fs::set_permissions(path, permissions).unwrap();
}

#[test]
fn a_stop_leaves_nothing() {
    require_git!("a_stop_leaves_nothing");
    let repository = Repository::new();
    split_commit(&repository, OLD_DIR, 5, 500_000);
    let commit = repository.commit("good");
    let clone = SourceClone::open(&repository.path).unwrap();
    let plan = clone.plan_model(&id("m"), &split(&commit)).unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    let destination = repository.destination("out");
    let stop_after_first = |_, _: &Utf8Path| {
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        Ok(())
    };
    let watch = Watch::new(&durable_fs::NoProgress, &stop);
    let stopped = clone.extract_model(&plan, &destination, &stop_after_first, &watch).unwrap_err();
    assert_eq!(stopped.class(), ErrorClass::Interrupted);
    assert_eq!(names(&destination), Vec::<String>::new());
}

#[test]
fn the_clone_is_never_written() {
    require_git!("the_clone_is_never_written");
    let repository = Repository::new();
    split_commit(&repository, OLD_DIR, 5, 1_000);
    let commit = repository.commit("good");
    repository.git(&["gc", "-q"]);
    let before = snapshot(&repository.path);
    extract(&repository.path, "m", &split(&commit), &repository.destination("out")).unwrap();
    assert_eq!(snapshot(&repository.path), before);
}

fn snapshot(dir: &Utf8Path) -> Vec<(String, Vec<u8>)> {
    let mut files = Vec::new();
    for entry in dir.read_dir_utf8().unwrap() {
        let path = entry.unwrap().into_path();
        if path.is_dir() {
            files.extend(snapshot(&path));
        } else {
            files.push((path.to_string(), fs::read(&path).unwrap()));
        }
    }
    files.sort();
    files
}
