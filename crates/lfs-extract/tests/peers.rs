//! Sources from real servers: git daemon for commits and blobs, git-lfs and giftless for LFS objects.
#![expect(clippy::unwrap_used, reason = "tests panic on failure")]

mod repository;

use std::{
    fs,
    net::{TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use camino::{Utf8Path, Utf8PathBuf};
use lfs_extract::{
    ByteSource, ErrorClass, ExtractError, ExtractedFile, FetchOptions, SourceClone, Sources, SourcesOptions,
    UserGitConfig, Watch,
};
use model_catalog::SourceEntry;
use repository::{OLD_DIR, Repository, git_in, id, noise, split, supercombo};

/// A server process that ends with the test.
struct Server {
    child: Child,
    port: u16,
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn wait_until_it_listens(port: u16) {
    let begun = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(begun.elapsed() < Duration::from_secs(20), "the server on port {port} does not listen");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// `git daemon` over everything below `root`.
fn git_daemon(root: &Utf8Path) -> Server {
    let port = free_port();
    let child = Command::new(exec_path().join("git-daemon"))
        .args(["--export-all", "--reuseaddr", "--listen=127.0.0.1"])
        .args([format!("--port={port}"), format!("--base-path={root}"), root.to_string()])
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_SYSTEM", "/dev/null")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let server = Server { child, port };
    wait_until_it_listens(port);
    server
}

fn exec_path() -> Utf8PathBuf {
    let output = Command::new("git").arg("--exec-path").output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().into()
}

fn extract(
    clone: &Utf8Path,
    cache: &Utf8Path,
    upstreams: &[String],
    entry: SourceEntry,
    destination: &Utf8Path,
) -> Result<Vec<ExtractedFile>, ExtractError> {
    let options = SourcesOptions {
        clone: clone.to_owned(),
        user_config: UserGitConfig::default(),
        cache: Some(cache.to_owned()),
        upstreams: upstreams.to_vec(),
        fetch: Some(FetchOptions::default()),
    };
    let mut sources = Sources::open(options)?;
    let plan = sources.plan(&[(id("m"), entry)], &Watch::nobody()).remove(0)?;
    let plan = sources.fetch(vec![plan], &Watch::nobody()).remove(0)?;
    sources.extract(&plan, destination, &|_, _| Ok(()), &Watch::nobody())
}

/// Everything below `dir`, with contents.
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

#[test]
fn missing_commits_and_blobs_are_fetched_into_the_workspace() {
    require_git!("missing_commits_and_blobs_are_fetched_into_the_workspace");
    if !exec_path().join("git-daemon").is_file() {
        println!(
            "skipped: missing_commits_and_blobs_are_fetched_into_the_workspace: git daemon is not installed"
        );
        return;
    }
    let upstream = Repository::new();
    let vision = noise(1, 300_000);
    for index in 0..40 {
        upstream.write(&format!("other/{index}.bin"), &noise(100 + index, 20_000));
    }
    upstream.write(&format!("{OLD_DIR}/driving_vision.onnx"), &vision);
    upstream.write(&format!("{OLD_DIR}/driving_policy.onnx"), b"policy one");
    let first = upstream.commit("first");
    upstream.write(&format!("{OLD_DIR}/driving_policy.onnx"), b"policy two");
    let second = upstream.commit("second");
    let root = upstream.root.clone();
    let daemon = git_daemon(&root);
    let url = |name: &str| format!("git://127.0.0.1:{}/{name}", daemon.port);
    for filtered in ["true", "false"] {
        upstream.git(&["config", "uploadpack.allowFilter", filtered]);
        // A clone that ends before the wanted commit, a shallow one, and three partial ones.
        let old = format!("old-{filtered}");
        git_in(&root, &["clone", "-q", &url("clone"), &old]);
        git_in(&root.join(&old), &["reset", "-q", "--hard", &first]);
        let gone = ["update-ref", "-d", "refs/remotes/origin/main"];
        git_in(&root.join(&old), &gone);
        git_in(&root.join(&old), &["symbolic-ref", "-d", "refs/remotes/origin/HEAD"]);
        git_in(&root.join(&old), &["reflog", "expire", "--expire=now", "--all"]);
        git_in(&root.join(&old), &["gc", "-q", "--prune=now"]);
        let shallow = format!("shallow-{filtered}");
        git_in(&root, &["clone", "-q", "--depth=1", &url("clone"), &shallow]);
        let mut cases = vec![(old, second.clone(), "policy two"), (shallow, first.clone(), "policy one")];
        if filtered == "true" {
            for filter in ["blob:none", "tree:0"] {
                let name = format!("partial-{}", &filter[..4]);
                git_in(
                    &root,
                    &["clone", "-q", "--no-checkout", &format!("--filter={filter}"), &url("clone"), &name],
                );
                cases.push((name.clone(), first.clone(), "policy one"));
                cases.push((name, "origin/main".to_owned(), "policy two"));
            }
        }
        for (index, (clone, git_ref, policy)) in cases.into_iter().enumerate() {
            let before = snapshot(&root.join(&clone));
            let cache = root.join(format!("cache-{filtered}-{index}"));
            let destination = upstream.destination(&format!("out-{filtered}-{index}"));
            let files = extract(&root.join(&clone), &cache, &[url("clone")], split(&git_ref), &destination)
                .unwrap_or_else(|error| panic!("{clone} {git_ref}: {error}"));
            assert!(matches!(files[0].source, ByteSource::GitBlob { .. }));
            assert_eq!(fs::read(destination.join("m_driving_vision.onnx")).unwrap(), vision, "{clone}");
            assert_eq!(
                fs::read_to_string(destination.join("m_driving_policy.onnx")).unwrap(),
                policy,
                "{clone}"
            );
            assert!(snapshot(&root.join(&clone)) == before, "{clone} was written");
            if filtered == "true" {
                // 40 other files of the same commit were not asked for.
                let fetched: u64 = snapshot(&cache).iter().map(|(_, content)| content.len() as u64).sum();
                assert!(fetched < 500_000, "{clone}: {fetched} bytes were fetched");
            }
            // What was fetched serves the next run without the server.
            extract(
                &root.join(&clone),
                &cache,
                &["git://127.0.0.1:1/none".to_owned()],
                split(&git_ref),
                &destination,
            )
            .unwrap_or_else(|error| panic!("again {clone} {git_ref}: {error}"));
        }
    }
    let destination = upstream.destination("out");
    let absent = "0123456789012345678901234567890123456789";
    let cache = root.join("cache-absent");
    let error = extract(&upstream.path, &cache, &[url("clone")], split(absent), &destination).unwrap_err();
    assert_eq!(error.class(), ErrorClass::GoneAtServer, "{error}");
    let error = extract(&upstream.path, &cache, &[url("none")], split(absent), &destination).unwrap_err();
    assert!(matches!(error.class(), ErrorClass::GoneAtServer | ErrorClass::Network), "{error}");
    let error =
        extract(&upstream.path, &cache, &["git://127.0.0.1:1/x".to_owned()], split(absent), &destination);
    assert_eq!(error.unwrap_err().class(), ErrorClass::Network);
    let hostile = ["--upload-pack=touch /tmp/x".to_owned()];
    let error = extract(&upstream.path, &cache, &hostile, split(absent), &destination).unwrap_err();
    assert!(error.to_string().contains("this is no address"), "{error}");
}

/// The Python environment with giftless that `cargo xtask setup --tests` makes.
fn giftless_python() -> Option<Utf8PathBuf> {
    let target = std::env::current_exe().ok()?.ancestors().nth(3)?.to_owned();
    let python = Utf8PathBuf::from_path_buf(target).ok()?.join("giftless-venv/bin/python");
    python.is_file().then_some(python)
}

/// giftless with a local store, on loopback, open to everybody.
fn giftless(python: &Utf8Path, storage: &Utf8Path) -> Server {
    let port = free_port();
    let script = format!(
        "from giftless.app import init_app\n\
         from werkzeug.serving import run_simple\n\
         storage = dict(storage_class='giftless.storage.local_storage:LocalStorage', storage_options=dict(path={storage:?}))\n\
         basic = dict(factory='giftless.transfer.basic_streaming:factory', options=storage)\n\
         config = dict(AUTH_PROVIDERS=['giftless.auth.allow_anon:read_write'], TRANSFER_ADAPTERS=dict(basic=basic))\n\
         run_simple('127.0.0.1', {port}, init_app(additional_config=config), threaded=True)\n",
        storage = storage.as_str(),
    );
    let child = Command::new(python)
        .args(["-c", &script])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let server = Server { child, port };
    wait_until_it_listens(port);
    server
}

#[test]
fn what_git_lfs_pushed_to_a_real_server_is_extracted() {
    require_git!("what_git_lfs_pushed_to_a_real_server_is_extracted");
    let name = "what_git_lfs_pushed_to_a_real_server_is_extracted";
    let Some(python) = giftless_python() else {
        println!("skipped: {name}: giftless is not installed; `cargo xtask setup --tests` installs it");
        return;
    };
    if !Command::new("git").args(["lfs", "version"]).output().is_ok_and(|output| output.status.success()) {
        println!("skipped: {name}: git-lfs is not installed");
        return;
    }
    let repository = Repository::new();
    let root = &repository.root;
    let server = giftless(&python, &root.join("giftless"));
    let endpoint = format!("http://127.0.0.1:{}/org/models.git/info/lfs", server.port);
    repository.git(&["lfs", "install", "--local", "--skip-smudge"]);
    repository.git(&["lfs", "track", "*.onnx"]);
    repository.git(&["config", "-f", ".lfsconfig", "lfs.url", &endpoint]);
    let contents = [noise(1, 3_000_000), noise(2, 200_000), noise(3, 5_000_000)];
    repository.write(&format!("{OLD_DIR}/driving_vision.onnx"), &contents[0]);
    repository.write(&format!("{OLD_DIR}/driving_policy.onnx"), &contents[1]);
    let of_split = repository.commit("split");
    repository.write(&format!("{OLD_DIR}/driving_supercombo.onnx"), &contents[2]);
    let of_supercombo = repository.commit("supercombo");
    git_in(root, &["init", "-q", "--bare", "upstream.git"]);
    repository.git(&["remote", "add", "origin", root.join("upstream.git").as_str()]);
    repository.git(&["push", "-q", "origin", "main"]);
    git_in(root, &["clone", "-q", "--no-checkout", root.join("upstream.git").as_str(), "fresh"]);
    let (fresh, cache) = (root.join("fresh"), root.join("cache"));
    for (entry, expected) in [
        (split(&of_split), vec![("m_driving_vision.onnx", 0), ("m_driving_policy.onnx", 1)]),
        (supercombo(&of_supercombo), vec![("m_driving_supercombo.onnx", 2)]),
    ] {
        let destination = repository.destination("out");
        let files = extract(&fresh, &cache, &[], entry, &destination).unwrap();
        assert!(matches!(&files[0].source, ByteSource::LfsFetched { url, .. } if url.contains("127.0.0.1")));
        for (name, index) in expected {
            assert!(fs::read(destination.join(name)).unwrap() == contents[index], "{name}");
        }
    }
    assert!(!fresh.join(".git/lfs").exists(), "the clone's own cache is not filled");
    // Clones without the blobs (the commit's .lfsconfig is one of them), or without the commit.
    git_in(root, &["-C", "upstream.git", "config", "uploadpack.allowFilter", "true"]);
    git_in(root, &["-C", "upstream.git", "config", "uploadpack.allowAnySHA1InWant", "true"]);
    let upstream = format!("file://{}", root.join("upstream.git"));
    for (clone, option) in [("partial", "--filter=blob:none"), ("shallow", "--depth=1")] {
        git_in(root, &["clone", "-q", "--no-checkout", option, &upstream, clone]);
        let before = snapshot(&root.join(clone));
        let (cache, destination) =
            (root.join(format!("cache-{clone}")), repository.destination(&format!("out-{clone}")));
        let files = extract(
            &root.join(clone),
            &cache,
            std::slice::from_ref(&upstream),
            split(&of_split),
            &destination,
        )
        .unwrap_or_else(|error| panic!("{clone}: {error}"));
        assert!(matches!(files[0].source, ByteSource::LfsFetched { .. }), "{clone}");
        assert!(fs::read(destination.join("m_driving_vision.onnx")).unwrap() == contents[0], "{clone}");
        assert!(snapshot(&root.join(clone)) == before, "{clone} was written");
    }
    // An object that the server never had.
    repository.git(&["rm", "-qf", ".gitattributes"]);
    let absent = repository.write_lfs(&format!("{OLD_DIR}/driving_supercombo.onnx"), b"never pushed", false);
    let commit = repository.commit("dangling pointer");
    let error = extract(&repository.path, &cache, &[], supercombo(&commit), &repository.destination("none"));
    let error = error.unwrap_err();
    assert_eq!(error.class(), ErrorClass::GoneAtServer, "{error}");
    assert!(error.to_string().contains(&absent.oid.to_string()), "{error}");
}

/// Endpoint and object directory as git-lfs sees them with one global configuration.
fn git_lfs_env(clone: &Utf8Path, global: &Utf8Path) -> (String, String) {
    let output = Command::new("git")
        .args(["lfs", "env"])
        .current_dir(clone)
        .env("GIT_CONFIG_GLOBAL", global)
        .env("GIT_CONFIG_SYSTEM", "/dev/null")
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default().trim();
    let endpoint = value("Endpoint=").split(" (").next().unwrap_or_default().to_owned();
    (endpoint, value("LocalMediaDir=").to_owned())
}

#[test]
fn the_users_configuration_means_what_it_means_to_git_lfs() {
    require_git!("the_users_configuration_means_what_it_means_to_git_lfs");
    let has_lfs = Command::new("git").args(["lfs", "version"]).output().is_ok_and(|out| out.status.success());
    if !has_lfs {
        println!("skipped: the_users_configuration_means_what_it_means_to_git_lfs: git-lfs is not installed");
        return;
    }
    let hub = "[url \"https://hub.example/\"]\n\tinsteadOf = gh:\n";
    let longer = "[url \"https://other.example/x/\"]\n\tinsteadOf = gh:a/\n";
    for (global, own, commit) in [
        ("", "", ""),
        (hub, "", ""),
        (&format!("{hub}{longer}"), "", ""),
        (&format!("{hub}[lfs]\n\turl = gh:from/user\n"), "", ""),
        (&format!("{hub}[lfs]\n\turl = gh:from/user\n"), "[lfs]\n\turl = https://own.example/lfs\n", ""),
        (&format!("{hub}[lfs]\n\turl = gh:from/user\n"), "", "[lfs]\n\turl = gh:from/commit\n"),
        (hub, "", "[lfs]\n\turl = gh:from/commit\n"),
        (&format!("{hub}[remote \"origin\"]\n\tlfsurl = gh:for/remote\n"), "", ""),
        ("[lfs]\n\tstorage = /srv/lfs\n", "", ""),
        ("[lfs]\n\tstorage = beside\n", "", ""),
        ("[lfs]\n\tstorage = /srv/lfs\n", "[lfs]\n\tstorage = own\n", ""),
        (hub, "[url \"https://own.example/\"]\n\tinsteadOf = gh:a/b\n", ""),
    ] {
        let repository = Repository::new();
        let origin = if global.is_empty() { "https://plain.example/a/b.git" } else { "gh:a/b.git" };
        // git-lfs knows no server for an address that is a path to it.
        let origin = if global.contains("[url") { origin } else { "https://plain.example/a/b.git" };
        repository.git(&["remote", "add", "origin", origin]);
        if !commit.is_empty() {
            repository.write(".lfsconfig", commit.as_bytes());
        }
        let head = repository.commit("one");
        let config = repository.path.join(".git/config");
        let text = fs::read_to_string(&config).unwrap() + own;
        durable_fs::write_atomic(&config, text.as_bytes()).unwrap();
        let file = repository.root.join("global");
        durable_fs::write_atomic(&file, global.as_bytes()).unwrap();
        let user = UserGitConfig { files: vec![file.clone()], ..UserGitConfig::default() };
        let clone = SourceClone::open_with(&repository.path, &user).unwrap();
        let endpoints = clone.lfs_endpoints(clone.resolve(&head).unwrap(), &[]).unwrap();
        let ours = (endpoints[0].url.to_string(), clone.lfs_object_dirs()[0].to_string());
        assert_eq!(ours, git_lfs_env(&repository.path, &file), "{global}{own}{commit}");
    }
}
