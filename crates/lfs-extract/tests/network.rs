//! LFS objects over HTTP, from a server that misbehaves on request.
#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests write their inputs directly and panic on failure"
)]

#[path = "../../verified-download/tests/fault_server/mod.rs"]
mod fault_server;
mod repository;

use std::{
    collections::BTreeMap,
    fs,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use camino::{Utf8Path, Utf8PathBuf};
use durable_fs::{NoProgress, Progress, Sha256};
use fault_server::{Answer, FaultServer, Seen};
use lfs_extract::{
    ByteSource, CredentialSources, ErrorClass, ExtractError, ExtractedFile, FetchOptions, ModelPlan, Preview,
    SourceClone, Sources, SourcesOptions, UserGitConfig, Watch,
};
use model_catalog::{ModelId, SourceEntry};
use repository::{
    OLD_DIR, Repository, git_in, id, names, noise, object_path, split, supercombo, write_object,
};
use verified_download::{HttpOptions, HttpUrl, Netrc};

/// The objects of a server, by ID.
type Objects = BTreeMap<String, Vec<u8>>;

fn objects(contents: &[&[u8]]) -> Objects {
    contents.iter().map(|content| (Sha256::digest(content).to_string(), content.to_vec())).collect()
}

/// What a correct LFS server answers.
fn lfs(seen: &Seen, objects: &Objects) -> Answer {
    if seen.path.ends_with("/objects/batch") {
        assert_eq!(seen.header("accept"), Some("application/vnd.git-lfs+json"));
        let host = seen.header("host").unwrap();
        return batch(seen, |oid| {
            if objects.contains_key(oid) {
                format!(r#""actions":{{"download":{{"href":"http://{host}/o/{oid}"}}}}"#)
            } else {
                r#""error":{"code":404,"message":"not here"}"#.to_owned()
            }
        });
    }
    match seen.path.strip_prefix("/o/").and_then(|oid| objects.get(oid)) {
        Some(content) => Answer::serve(seen, content),
        None => Answer::new(404, ""),
    }
}

fn batch(seen: &Seen, of: impl Fn(&str) -> String) -> Answer {
    let question: serde_json::Value = serde_json::from_slice(&seen.body).unwrap();
    assert_eq!(question["operation"], "download");
    let answers: Vec<String> = question["objects"]
        .as_array()
        .unwrap()
        .iter()
        .map(|object| {
            let oid = object["oid"].as_str().unwrap();
            format!(r#"{{"oid":"{oid}","size":{},{}}}"#, object["size"], of(oid))
        })
        .collect();
    Answer::new(200, format!(r#"{{"transfer":"basic","objects":[{}]}}"#, answers.join(",")))
        .header("Content-Type", "application/vnd.git-lfs+json")
}

fn fetch_options() -> FetchOptions {
    FetchOptions {
        http: HttpOptions {
            stall_timeout: Duration::from_millis(500),
            backoff: Duration::from_millis(5),
            attempts: 3,
            longest_wait: Duration::from_secs(2),
            ..HttpOptions::default()
        },
        ..FetchOptions::default()
    }
}

struct Workspace {
    repository: Repository,
    cache: Utf8PathBuf,
}

impl Workspace {
    fn new() -> Self {
        let repository = Repository::new();
        Self { cache: repository.root.join("cache"), repository }
    }

    fn sources_of(&self, clone: &Utf8Path, fetch: Option<FetchOptions>) -> Sources {
        let options = SourcesOptions {
            clone: clone.to_owned(),
            user_config: UserGitConfig::default(),
            cache: Some(self.cache.clone()),
            upstreams: Vec::new(),
            fetch,
        };
        Sources::open(options).unwrap()
    }

    fn extract(&self, models: &[(&str, SourceEntry)]) -> Vec<Result<Vec<ExtractedFile>, ExtractError>> {
        self.extract_with(models, fetch_options())
    }

    fn extract_with(
        &self,
        models: &[(&str, SourceEntry)],
        fetch: FetchOptions,
    ) -> Vec<Result<Vec<ExtractedFile>, ExtractError>> {
        run(&mut self.sources_of(&self.repository.path, Some(fetch)), models, &self.repository)
    }

    fn failure(&self, git_ref: &str) -> ExtractError {
        let error = self.extract(&[("m", supercombo(git_ref))]).remove(0).unwrap_err();
        assert!(
            !self.repository.root.join("out-m").exists()
                || names(&self.repository.root.join("out-m")).is_empty()
        );
        error
    }
}

fn run(
    sources: &mut Sources,
    models: &[(&str, SourceEntry)],
    repository: &Repository,
) -> Vec<Result<Vec<ExtractedFile>, ExtractError>> {
    let models: Vec<(ModelId, SourceEntry)> =
        models.iter().map(|(name, entry)| (id(name), entry.clone())).collect();
    let plans: Vec<ModelPlan> =
        sources.plan(&models, &Watch::nobody()).into_iter().map(|plan| plan.unwrap()).collect();
    let fetched = sources.fetch(plans, &Watch::nobody());
    fetched
        .into_iter()
        .map(|plan| {
            let plan = plan?;
            let destination = repository.destination(&format!("out-{}", plan.id));
            sources.extract(&plan, &destination, &|_, _| Ok(()), &Watch::nobody())
        })
        .collect()
}

const FILE: &str = "selfdrive/modeld/models/driving_supercombo.onnx";

/// A commit whose supercombo is a pointer without a cached object, and whose `.lfsconfig` names `url`.
fn pointer_commit(repository: &Repository, content: &[u8], url: &str) -> String {
    repository.write_lfs(FILE, content, false);
    repository.write(".lfsconfig", format!("[lfs]\n\turl = {url}\n\tlocksverify = false\n").as_bytes());
    repository.commit("pointer")
}

#[test]
fn objects_are_fetched_once_and_kept() {
    require_git!("objects_are_fetched_once_and_kept");
    let workspace = Workspace::new();
    let repository = &workspace.repository;
    let (vision, first, second) = (noise(1, 400_000), noise(2, 50_000), noise(3, 60_000));
    let held = objects(&[&vision, &first, &second]);
    let server = FaultServer::start(move |seen, _| lfs(seen, &held));
    repository.write(".lfsconfig", format!("[lfs]\nurl = {}\n", server.url("/x.git/info/lfs")).as_bytes());
    repository.write_lfs(&format!("{OLD_DIR}/driving_vision.onnx"), &vision, false);
    repository.write_lfs(&format!("{OLD_DIR}/driving_policy.onnx"), &first, false);
    let one = repository.commit("one");
    repository.write_lfs(&format!("{OLD_DIR}/driving_policy.onnx"), &second, false);
    let two = repository.commit("two");
    let config = fs::read(repository.path.join(".git/config")).unwrap();

    let models = [("a", split(&one)), ("b", split(&two))];
    let mut dry = workspace.sources_of(&repository.path, Some(fetch_options()));
    let plan = dry.plan(&[(id("a"), split(&one))], &Watch::nobody()).remove(0).unwrap();
    assert_eq!(plan.remote_size(), 450_000);
    assert!(plan.files[0].source.to_string().contains(&server.address), "{}", plan.files[0].source);
    assert!(server.seen().is_empty() && !workspace.cache.exists(), "planning asks nobody and writes nothing");

    for extracted in workspace.extract(&models) {
        let files = extracted.unwrap();
        assert!(matches!(&files[0].source, ByteSource::LfsFetched { url, .. } if url.contains("/o/")));
    }
    assert_eq!(fs::read(repository.root.join("out-b/b_driving_vision.onnx")).unwrap(), vision);
    assert_eq!(fs::read(repository.root.join("out-a/a_driving_policy.onnx")).unwrap(), first);
    // One batch, and each object once although both models have the same vision.
    let paths: Vec<_> = server.seen().iter().map(|seen| seen.method.clone()).collect();
    assert_eq!((paths.iter().filter(|method| *method == "POST").count(), paths.len()), (1, 4));
    let files = workspace.extract(&models).remove(1).unwrap();
    assert!(matches!(&files[0].source, ByteSource::LfsCache { path } if path.starts_with(&workspace.cache)));
    assert_eq!(server.seen().len(), 4, "the second run asks nobody");
    assert_eq!(fs::read(repository.path.join(".git/config")).unwrap(), config);
}

#[test]
fn the_endpoint_is_a_property_of_the_commit() {
    require_git!("the_endpoint_is_a_property_of_the_commit");
    let workspace = Workspace::new();
    let repository = &workspace.repository;
    let (old, new) = (noise(4, 9_000), noise(5, 9_000));
    let (old_held, new_held) = (objects(&[&old]), objects(&[&new]));
    let old_host = FaultServer::start(move |seen, _| lfs(seen, &old_held));
    let new_host = FaultServer::start(move |seen, _| lfs(seen, &new_held));
    let first = pointer_commit(repository, &old, &old_host.url("/old"));
    let second = pointer_commit(repository, &new, &new_host.url("/new"));
    // Neither a mirror without a working tree nor an empty working tree changes that.
    git_in(&repository.root, &["clone", "-q", "--mirror", repository.path.as_str(), "mirror.git"]);
    git_in(&repository.root, &["clone", "-q", "--no-checkout", repository.path.as_str(), "empty"]);
    for clone in ["clone", "mirror.git", "empty"] {
        if workspace.cache.exists() {
            fs::remove_dir_all(&workspace.cache).unwrap();
        }
        let mut sources = workspace.sources_of(&repository.root.join(clone), Some(fetch_options()));
        let models = [("a", supercombo(&first)), ("b", supercombo(&second))];
        for extracted in run(&mut sources, &models, repository) {
            extracted.unwrap_or_else(|error| panic!("{clone}: {error}"));
        }
    }
    assert_eq!((old_host.seen().len(), new_host.seen().len()), (6, 6));
}

#[test]
fn a_clone_without_the_commits_lfsconfig_learns_its_server() {
    require_git!("a_clone_without_the_commits_lfsconfig_learns_its_server");
    let workspace = Workspace::new();
    let (repository, root) = (&workspace.repository, &workspace.repository.root);
    let content = noise(12, 9_000);
    let held = objects(&[&content]);
    let server = FaultServer::start(move |seen, _| lfs(seen, &held));
    let first = pointer_commit(repository, &content, &server.url("/lfs"));
    // Later commits have neither, so that a shallow clone lacks both.
    repository.git(&["rm", "-q", ".lfsconfig", FILE]);
    repository.commit("later");
    repository.git(&["config", "uploadpack.allowFilter", "true"]);
    repository.git(&["config", "uploadpack.allowAnySHA1InWant", "true"]);
    let upstream = format!("file://{}", repository.path);
    for (clone, option) in [("partial", "--filter=blob:none"), ("shallow", "--depth=1")] {
        git_in(root, &["clone", "-q", "--no-checkout", option, &upstream, clone]);
        let options = SourcesOptions {
            clone: root.join(clone),
            user_config: UserGitConfig::default(),
            cache: Some(root.join(format!("cache-{clone}"))),
            upstreams: vec![upstream.clone()],
            fetch: Some(fetch_options()),
        };
        let (cache, asked) = (root.join(format!("cache-{clone}")), server.seen().len());
        let models = [(id("m"), supercombo(&first))];
        let missing = match Sources::open(options.clone()).unwrap().preview(&models).remove(0).unwrap() {
            Preview::Fetch(missing) => missing.into_iter().map(|one| one.what).collect::<Vec<_>>(),
            planned => panic!("{clone}: {planned:?}"),
        };
        let expected = if clone == "partial" { vec![FILE, ".lfsconfig"] } else { vec!["the commit"] };
        assert_eq!(missing, expected, "{clone}");
        assert!(server.seen().len() == asked && !cache.exists(), "a preview asks nobody and writes nothing");
        let mut sources = Sources::open(options).unwrap();
        let files = run(&mut sources, &[("m", supercombo(&first))], repository).remove(0);
        let files = files.unwrap_or_else(|error| panic!("{clone}: {error}"));
        assert!(files[0].source.to_string().contains(&server.address), "{clone}");
        // What git fetched is known to the next preview.
        let again = sources.preview(&models).remove(0).unwrap();
        assert!(matches!(again, Preview::Planned(plan) if plan.remote_size() == 0), "{clone}");
    }
}

#[test]
fn servers_are_asked_in_order_until_one_has_it() {
    require_git!("servers_are_asked_in_order_until_one_has_it");
    let workspace = Workspace::new();
    let repository = &workspace.repository;
    let content = noise(6, 30_000);
    let held = objects(&[&content]);
    let configured = FaultServer::start(|_, _| Answer::new(503, ""));
    let of_commit = FaultServer::start(|seen, _| lfs(seen, &Objects::new()));
    let mirror = FaultServer::start(move |seen, _| lfs(seen, &held));
    let commit = pointer_commit(repository, &content, &of_commit.url("/c"));
    repository.git(&["config", "lfs.url", &configured.url("/a")]);
    let mirrors = vec![HttpUrl::parse(&mirror.url("/m")).unwrap()];
    let fetch = FetchOptions { mirrors, ..fetch_options() };
    let extracted = workspace.extract_with(&[("m", supercombo(&commit))], fetch).remove(0).unwrap();
    assert!(extracted[0].source.to_string().contains(&mirror.address));
    // 503 is asked again as often as allowed, "not here" is final.
    assert_eq!((configured.seen().len(), of_commit.seen().len()), (3, 1));
}

#[test]
fn each_failure_has_its_class() {
    require_git!("each_failure_has_its_class");
    let content = noise(7, 30_000);
    let budget = r#"{"message":"This repository exceeded its LFS budget."}"#;
    type Handler = Box<dyn Fn(&Seen, usize) -> Answer + Send + Sync>;
    let with_object = |serve: fn(&Seen, usize, &[u8]) -> Answer| -> Handler {
        let (held, content) = (objects(&[&content]), content.clone());
        Box::new(
            move |seen, before| {
                if seen.method == "POST" { lfs(seen, &held) } else { serve(seen, before, &content) }
            },
        )
    };
    let cases: Vec<(Handler, ErrorClass, &str)> = vec![
        (Box::new(|seen, _| lfs(seen, &Objects::new())), ErrorClass::GoneAtServer, "not here"),
        (Box::new(|_, _| Answer::new(404, "")), ErrorClass::GoneAtServer, "404"),
        (Box::new(move |_, _| Answer::new(403, budget)), ErrorClass::Quota, "exceeded its LFS budget"),
        (Box::new(|_, _| Answer::new(401, "")), ErrorClass::Auth, "git credential helper"),
        (Box::new(|_, _| Answer::new(502, "<html>")), ErrorClass::Network, "502"),
        (Box::new(|_, _| Answer::new(200, "<html>hello")), ErrorClass::Network, "batch answer is not valid"),
        (Box::new(|_, _| Answer::new(429, "").header("Retry-After", 9999)), ErrorClass::Network, "429"),
        (
            with_object(|_, _, content| Answer::new(200, vec![0; content.len()])),
            ErrorClass::CorruptAtServer,
            "SHA-256",
        ),
        (
            with_object(|_, _, content| Answer::new(200, &content[1..])),
            ErrorClass::CorruptAtServer,
            "29999 bytes",
        ),
        (
            with_object(|_, before, content| Answer::new(200, vec![before as u8; content.len()])),
            ErrorClass::CorruptInTransit,
            "SHA-256",
        ),
        (with_object(|_, _, content| Answer::new(200, content).cut(9)), ErrorClass::Network, "object"),
    ];
    for (handler, class, words) in cases {
        let workspace = Workspace::new();
        let server = FaultServer::start(handler);
        let commit = pointer_commit(&workspace.repository, &content, &server.url("/lfs"));
        let error = workspace.failure(&commit);
        assert_eq!(error.class(), class, "{error}");
        let text = error.to_string();
        assert!(
            text.contains(words) && text.contains(&server.address) && text.contains(".git/lfs/objects"),
            "{text}"
        );
    }
    let workspace = Workspace::new();
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let commit = pointer_commit(&workspace.repository, &content, &format!("http://{nobody}/lfs"));
    assert_eq!(workspace.failure(&commit).class(), ErrorClass::Network);
    workspace.repository.write(".lfsconfig", b"[core]\nnothing = 1\n");
    let commit = workspace.repository.commit("no server");
    let error = workspace.failure(&commit);
    assert_eq!(error.class(), ErrorClass::NotFoundAnywhere, "{error}");
}

#[test]
fn credentials_come_from_helpers_netrc_and_addresses_and_stay_at_home() {
    require_git!("credentials_come_from_helpers_netrc_and_addresses_and_stay_at_home");
    let content = noise(8, 20_000);
    for way in ["helper", "netrc", "address"] {
        let workspace = Workspace::new();
        let repository = &workspace.repository;
        let held = objects(&[&content]);
        let storage = FaultServer::start({
            let content = content.clone();
            move |seen, _| Answer::serve(seen, &content)
        });
        let href = storage.url("/signed?token=1");
        // "user:right" in base64.
        let server = FaultServer::start(move |seen, _| {
            if seen.header("authorization") != Some("Basic dXNlcjpyaWdodA==") {
                return Answer::new(401, "").header("LFS-Authenticate", "Basic");
            }
            batch(seen, |oid| {
                assert!(held.contains_key(oid));
                format!(r#""actions":{{"download":{{"href":"{href}","header":{{"X-Token":"t"}}}}}}"#)
            })
        });
        let log = repository.root.join("helper-log");
        let helper = format!(
            "!f() {{ cat >> {log}; echo \"op=$1\" >> {log}; test \"$1\" = get && printf 'username=user\\npassword=right\\n'; }}; f"
        );
        let mut fetch = fetch_options();
        let address = match way {
            "address" => server.url("/lfs").replace("http://", "http://user:right@"),
            _ => server.url("/lfs"),
        };
        if way == "netrc" {
            fetch.credentials.netrc = Netrc::parse("machine 127.0.0.1 login user password right");
        } else if way == "helper" {
            repository.git(&["config", "credential.helper", &helper]);
            fetch.credentials =
                CredentialSources { git_in: Some(repository.path.clone()), ..Default::default() };
        }
        let commit = pointer_commit(repository, &content, &address);
        let files = workspace.extract_with(&[("m", supercombo(&commit))], fetch).remove(0);
        let files = files.unwrap_or_else(|error| panic!("{way}: {error}"));
        let source = files[0].source.to_string();
        assert!(!source.contains("right") && !source.contains("token"), "{source}");
        let seen = &storage.seen()[0];
        assert_eq!((seen.header("authorization"), seen.header("x-token")), (None, Some("t")), "{way}");
        if way == "helper" {
            let log = fs::read_to_string(&log).unwrap();
            assert!(log.contains("op=get") && log.contains("op=store"), "{log}");
        }
    }
}

#[test]
fn wrong_credentials_are_rejected_once() {
    require_git!("wrong_credentials_are_rejected_once");
    let workspace = Workspace::new();
    let repository = &workspace.repository;
    let server = FaultServer::start(|_, _| Answer::new(401, ""));
    let log = repository.root.join("helper-log");
    let helper = format!(
        "!f() {{ echo \"op=$1\" >> {log}; test \"$1\" = get && printf 'username=u\\npassword=wrong\\n'; }}; f"
    );
    repository.git(&["config", "credential.helper", &helper]);
    let commit = pointer_commit(repository, &noise(9, 100), &server.url("/lfs"));
    let mut fetch = fetch_options();
    fetch.credentials.git_in = Some(repository.path.clone());
    let error = workspace.extract_with(&[("m", supercombo(&commit))], fetch).remove(0).unwrap_err();
    assert_eq!(error.class(), ErrorClass::Auth, "{error}");
    assert_eq!(fs::read_to_string(&log).unwrap(), "op=get\nop=erase\n");
    assert_eq!(server.seen().len(), 2);
}

#[test]
fn an_expired_address_is_asked_for_again() {
    require_git!("an_expired_address_is_asked_for_again");
    let workspace = Workspace::new();
    let content = noise(10, 20_000);
    let held = objects(&[&content]);
    let server = FaultServer::start(move |seen, before| {
        if seen.method == "GET" && before < 2 { Answer::new(403, "expired") } else { lfs(seen, &held) }
    });
    let commit = pointer_commit(&workspace.repository, &content, &server.url("/lfs"));
    workspace.extract(&[("m", supercombo(&commit))]).remove(0).unwrap();
    let methods: Vec<_> = server.seen().iter().map(|seen| seen.method.clone()).collect();
    assert_eq!(methods, ["POST", "GET", "POST", "GET"]);
}

#[test]
fn a_damaged_object_of_the_clone_is_fetched_anew() {
    require_git!("a_damaged_object_of_the_clone_is_fetched_anew");
    for damage in ["flipped", "cut"] {
        let workspace = Workspace::new();
        let repository = &workspace.repository;
        let content = noise(11, 20_000);
        let held = objects(&[&content]);
        let server = FaultServer::start(move |seen, _| lfs(seen, &held));
        let pointer = repository.write_lfs(FILE, &content, true);
        repository.write(".lfsconfig", format!("[lfs]\nurl = {}\n", server.url("/lfs")).as_bytes());
        let commit = repository.commit("pointer");
        let cached = object_path(&repository.path.join(".git/lfs/objects"), &pointer);
        let mut damaged = content.clone();
        damaged[5] ^= 1;
        fs::write(&cached, if damage == "cut" { &content[..7] } else { &damaged[..] }).unwrap();
        let before = fs::read(&cached).unwrap();
        let offline =
            run(&mut workspace.sources_of(&repository.path, None), &[("m", supercombo(&commit))], repository);
        assert_eq!(offline.into_iter().next().unwrap().unwrap_err().class(), ErrorClass::Corrupt);
        let files = workspace.extract(&[("m", supercombo(&commit))]).remove(0).unwrap();
        assert!(matches!(files[0].source, ByteSource::LfsFetched { .. }), "{damage}");
        assert_eq!(fs::read(repository.root.join("out-m/m_driving_supercombo.onnx")).unwrap(), content);
        assert_eq!(fs::read(&cached).unwrap(), before, "the clone is not repaired behind its owner's back");
        // What was fetched serves from then on, without the server too.
        let asked = server.seen().len();
        workspace.extract(&[("m", supercombo(&commit))]).remove(0).unwrap();
        let offline = &mut workspace.sources_of(&repository.path, None);
        let files = run(offline, &[("m", supercombo(&commit))], repository).remove(0).unwrap();
        assert!(
            matches!(&files[0].source, ByteSource::LfsCache { path } if path.starts_with(&workspace.cache))
        );
        assert_eq!(server.seen().len(), asked, "{damage}: the good copy is used");
    }
}

#[test]
fn every_damaged_object_of_a_model_is_replaced() {
    require_git!("every_damaged_object_of_a_model_is_replaced");
    let workspace = Workspace::new();
    let repository = &workspace.repository;
    let contents = [noise(13, 20_000), noise(14, 10_000), noise(15, 5_000)];
    let held = objects(&contents.iter().map(Vec::as_slice).collect::<Vec<_>>());
    let server = FaultServer::start(move |seen, _| lfs(seen, &held));
    repository.write(".lfsconfig", format!("[lfs]\nurl = {}\n", server.url("/lfs")).as_bytes());
    for (component, content) in ["vision", "on_policy", "off_policy"].iter().zip(&contents) {
        let pointer = repository.write_lfs(&format!("{OLD_DIR}/driving_{component}.onnx"), content, true);
        // Right in size, wrong in content: in the clone and in the workspace.
        for dir in [repository.path.join(".git/lfs/objects"), workspace.cache.join("lfs/objects")] {
            write_object(&dir, &pointer, &vec![0; content.len()]);
        }
    }
    let commit = repository.commit("pointers");
    let offline = &mut workspace.sources_of(&repository.path, None);
    let error = run(offline, &[("m", split(&commit))], repository).remove(0).unwrap_err();
    assert_eq!(error.class(), ErrorClass::Corrupt, "{error}");
    for extracted in workspace.extract(&[("m", split(&commit))]).remove(0).unwrap() {
        assert!(matches!(extracted.source, ByteSource::LfsFetched { .. }), "{}", extracted.source);
    }
    for (component, content) in ["vision", "on_policy", "off_policy"].iter().zip(&contents) {
        let file = repository.root.join(format!("out-m/m_driving_{component}.onnx"));
        assert!(fs::read(file).unwrap() == *content, "{component}");
    }
}

#[test]
fn several_objects_come_at_a_time() {
    require_git!("several_objects_come_at_a_time");
    let workspace = Workspace::new();
    let repository = &workspace.repository;
    let contents: Vec<Vec<u8>> = (20..28).map(|seed| noise(seed, 8_000)).collect();
    let held = objects(&contents.iter().map(Vec::as_slice).collect::<Vec<_>>());
    static NOW: AtomicUsize = AtomicUsize::new(0);
    static MOST: AtomicUsize = AtomicUsize::new(0);
    let server = FaultServer::start(move |seen, _| {
        if seen.method == "GET" {
            MOST.fetch_max(NOW.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(60));
            NOW.fetch_sub(1, Ordering::SeqCst);
        }
        lfs(seen, &held)
    });
    let mut models = Vec::new();
    for (index, content) in contents.iter().enumerate() {
        models.push((format!("m{index}"), pointer_commit(repository, content, &server.url("/lfs"))));
    }
    let models: Vec<(&str, SourceEntry)> =
        models.iter().map(|(name, commit)| (name.as_str(), supercombo(commit))).collect();
    for extracted in workspace.extract_with(&models, FetchOptions { jobs: 4, ..fetch_options() }) {
        extracted.unwrap();
    }
    let most = MOST.load(Ordering::SeqCst);
    assert!((2..=4).contains(&most), "{most} at a time");
}

/// A user's configuration file, read by `sources_of`.
fn user_config(repository: &Repository, text: &str) -> UserGitConfig {
    let home = repository.root.join("home");
    fs::create_dir_all(&home).unwrap();
    let file = home.join(".gitconfig");
    fs::write(&file, text).unwrap();
    UserGitConfig { files: vec![home.join("absent"), file], home: Some(home), overrides: Vec::new() }
}

fn endpoints(repository: &Repository, user: &UserGitConfig, commit: &str) -> Vec<String> {
    let clone = SourceClone::open_with(&repository.path, user).unwrap();
    let commit = clone.resolve(commit).unwrap();
    clone.lfs_endpoints(commit, &[]).unwrap().into_iter().map(|endpoint| endpoint.url.to_string()).collect()
}

#[test]
fn the_users_configuration_counts_below_the_clones_own() {
    require_git!("the_users_configuration_counts_below_the_clones_own");
    let repository = Repository::new();
    repository.git(&["remote", "add", "origin", "gh:a/b.git"]);
    repository.write(".lfsconfig", b"[lfs]\n\turl = gh:from/commit\n");
    let commit = repository.commit("one");
    let text = "[lfs]\n\turl = gh:from/user\n\tstorage = /moved\n[include]\n\tpath = ~/more\n\
                [includeIf \"gitdir:~/elsewhere/\"]\n\tpath = ~/never\n\
                [remote \"origin\"]\n\tlfsurl = https://remote.example/lfs\n";
    let mut user = user_config(&repository, text);
    let home = user.home.clone().unwrap();
    fs::write(home.join("more"), "[url \"https://hub.example/\"]\n\tinsteadOf = gh:\n").unwrap();
    fs::write(home.join("never"), "[lfs]\n\turl = https://never.example/\n").unwrap();
    let before = snapshot(&home);
    let rest = ["https://remote.example/lfs", "https://hub.example/from/commit"];
    let beside = "https://hub.example/a/b.git/info/lfs";
    let with = |first: &str| vec![first.to_owned(), rest[0].into(), rest[1].into(), beside.into()];
    assert_eq!(endpoints(&repository, &user, &commit), with("https://hub.example/from/user"));
    let clone = SourceClone::open_with(&repository.path, &user).unwrap();
    assert_eq!(clone.lfs_object_dirs()[0], "/moved/objects");
    // Without being handed over, nothing of it is read.
    let nothing = endpoints(&repository, &UserGitConfig::default(), &commit);
    assert!(nothing.iter().all(|url| !url.contains("hub.example") && !url.contains("user")), "{nothing:?}");

    repository.git(&["config", "lfs.url", "https://own.example/"]);
    repository.git(&["config", "lfs.storage", "own"]);
    assert_eq!(endpoints(&repository, &user, &commit), with("https://own.example/"));
    let clone = SourceClone::open_with(&repository.path, &user).unwrap();
    assert_eq!(clone.lfs_object_dirs()[0], repository.path.join(".git/own/objects"));
    user.overrides.push(("lfs.url".to_owned(), "gh:now".to_owned()));
    assert_eq!(endpoints(&repository, &user, &commit), with("https://hub.example/now"));
    assert_eq!(snapshot(&home), before);

    fs::write(home.join(".gitconfig"), "[lfs\n").unwrap();
    let error = SourceClone::open_with(&repository.path, &user).unwrap_err().to_string();
    assert!(error.contains("home/.gitconfig") && error.contains("correct it"), "{error}");
}

fn snapshot(dir: &Utf8Path) -> Vec<(String, Vec<u8>)> {
    names(dir).into_iter().map(|name| (name.clone(), fs::read(dir.join(name)).unwrap())).collect()
}

#[test]
fn other_names_of_addresses_hold_for_objects_and_for_missing_commits() {
    require_git!("other_names_of_addresses_hold_for_objects_and_for_missing_commits");
    let workspace = Workspace::new();
    let (repository, root) = (&workspace.repository, &workspace.repository.root);
    let content = noise(31, 9_000);
    let held = objects(&[&content]);
    let server = FaultServer::start(move |seen, _| lfs(seen, &held));
    let first = pointer_commit(repository, &content, "lfs-host:models");
    repository.git(&["rm", "-q", ".lfsconfig", FILE]);
    repository.commit("later");
    repository.git(&["config", "uploadpack.allowAnySHA1InWant", "true"]);
    let upstream = format!("file://{}", repository.path);
    git_in(root, &["clone", "-q", "--depth=1", &upstream, "shallow"]);
    // One name stands in the user's file, one in the clone itself, which the fetching git does not run in.
    git_in(&root.join("shallow"), &["config", &format!("url.file://{root}/.insteadOf"), "up:"]);
    let user_config =
        user_config(repository, &format!("[url \"{}\"]\n\tinsteadOf = lfs-host:\n", server.url("/")));
    let options = SourcesOptions {
        clone: root.join("shallow"),
        user_config,
        cache: Some(workspace.cache.clone()),
        upstreams: vec!["up:clone".to_owned()],
        fetch: Some(fetch_options()),
    };
    let models = [("m", supercombo(&first))];
    let files = run(&mut Sources::open(options).unwrap(), &models, repository).remove(0).unwrap();
    assert_eq!(fs::read(root.join("out-m/m_driving_supercombo.onnx")).unwrap(), content);
    assert!(files[0].source.to_string().contains(&server.address), "{}", files[0].source);
    assert_eq!(server.seen()[0].path, "/models/objects/batch");
}

#[test]
fn a_helper_that_never_answers_is_ended_and_named() {
    require_git!("a_helper_that_never_answers_is_ended_and_named");
    let workspace = Workspace::new();
    let repository = &workspace.repository;
    let server = FaultServer::start(|_, _| Answer::new(401, ""));
    let pids = repository.root.join("pids");
    let helper = format!("!f() {{ echo $$ >> {pids}; sleep 600; }}; f");
    repository.git(&["config", "credential.helper", &helper]);
    let commit = pointer_commit(repository, &noise(32, 100), &server.url("/lfs"));
    let mut fetch = fetch_options();
    fetch.credentials.git_in = Some(repository.path.clone());
    fetch.credentials.helper_limit = Duration::from_secs(2);
    let begun = Instant::now();
    let error = workspace.extract_with(&[("m", supercombo(&commit))], fetch.clone()).remove(0).unwrap_err();
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    assert_eq!(error.class(), ErrorClass::Auth, "{error}");
    let text = error.to_string();
    for words in ["credential helper `!f()", "no answer within 2 s", "git credential fill", ".netrc"] {
        assert!(text.contains(words), "{words} is not in: {text}");
    }
    let helpers = fs::read_to_string(&pids).unwrap();
    assert_eq!(helpers.lines().count(), 1, "it is asked once for an origin");
    for pid in helpers.lines() {
        wait_until(|| has_ended(pid), "the helper runs on");
    }

    // A stop does not wait for the limit.
    fetch.credentials.helper_limit = Duration::from_secs(600);
    let mut sources = workspace.sources_of(&repository.path, Some(fetch));
    let stop = AtomicBool::new(false);
    let watch = Watch::new(&NoProgress, &stop);
    let plans = sources.plan(&[(id("m"), supercombo(&commit))], &watch);
    let plans = plans.into_iter().map(Result::unwrap).collect();
    let error = std::thread::scope(|scope| {
        scope.spawn(|| {
            wait_until(|| fs::read_to_string(&pids).is_ok_and(|all| all.lines().count() == 2), "it starts");
            stop.store(true, Ordering::Relaxed);
        });
        sources.fetch(plans, &watch).remove(0).unwrap_err()
    });
    assert_eq!(error.class(), ErrorClass::Interrupted, "{error}");
    let last = fs::read_to_string(&pids).unwrap();
    wait_until(|| has_ended(last.lines().last().unwrap()), "the helper runs on after a stop");
}

fn wait_until(is: impl Fn() -> bool, what: &str) {
    let begun = Instant::now();
    while !is() {
        assert!(begun.elapsed() < Duration::from_secs(30), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Whether a process is gone, or a zombie that its new parent has not reaped yet.
fn has_ended(pid: &str) -> bool {
    let state = std::process::Command::new("ps").args(["-o", "state=", "-p", pid]).output().unwrap();
    let state = String::from_utf8(state.stdout).unwrap();
    state.trim().is_empty() || state.trim().starts_with('Z')
}

/// Adds up what is reported.
#[derive(Default)]
struct Sum {
    total: AtomicU64,
    done: AtomicU64,
    most: AtomicU64,
}

impl Progress for Sum {
    fn begin(&self, _label: &str, total: Option<u64>) {
        self.total.store(total.unwrap_or(0), Ordering::Relaxed);
        self.done.store(0, Ordering::Relaxed);
    }

    fn advance(&self, amount: u64) {
        let done = self.done.fetch_add(amount, Ordering::Relaxed) + amount;
        self.most.fetch_max(done, Ordering::Relaxed);
    }

    fn end(&self) {}
}

#[test]
fn bytes_that_are_downloaded_again_count_once() {
    require_git!("bytes_that_are_downloaded_again_count_once");
    let workspace = Workspace::new();
    let repository = &workspace.repository;
    let content = noise(33, 200_000);
    let held = objects(&[&content]);
    // The first server breaks off and then refuses, which makes its address be asked for again; the second has damaged bytes and
    // more of them; the third continues what is there.
    let (cut, body) = (held.clone(), content.clone());
    let refusing = FaultServer::start(move |seen, before| match (seen.method.as_str(), before) {
        ("POST", _) => lfs(seen, &cut),
        (_, 1) => Answer::serve(seen, &body).cut(150_000),
        _ => Answer::new(403, "expired"),
    });
    let (known, long) = (held.clone(), [content.clone(), noise(34, 90_000)].concat());
    let damaged = FaultServer::start(move |seen, _| match seen.method.as_str() {
        "POST" => lfs(seen, &known),
        _ => Answer::new(200, long.clone()),
    });
    let whole = FaultServer::start(move |seen, _| lfs(seen, &held));
    repository.git(&["config", "lfs.url", &refusing.url("/a")]);
    repository.git(&["remote", "add", "one", "/nowhere"]);
    repository.git(&["config", "remote.one.lfsurl", &damaged.url("/b")]);
    let commit = pointer_commit(repository, &content, &whole.url("/c"));
    let sum = Sum::default();
    let watch = Watch::new(&sum, &NEVER);
    let mut sources = workspace.sources_of(&repository.path, Some(fetch_options()));
    let plan = sources.plan(&[(id("m"), supercombo(&commit))], &watch).remove(0).unwrap();
    sources.fetch(vec![plan], &watch).remove(0).unwrap();
    let gets = |server: &FaultServer| server.seen().iter().filter(|seen| seen.method == "GET").count();
    assert!(gets(&refusing) >= 2 && gets(&damaged) >= 1 && gets(&whole) >= 1);
    assert_eq!(sum.total.load(Ordering::Relaxed), 200_000);
    assert_eq!(sum.most.load(Ordering::Relaxed), 200_000, "the bar reaches its end and stays there");
}

static NEVER: AtomicBool = AtomicBool::new(false);

#[test]
fn a_host_that_asks_to_wait_is_left_alone_by_batches_and_transfers() {
    require_git!("a_host_that_asks_to_wait_is_left_alone_by_batches_and_transfers");
    let workspace = Workspace::new();
    let repository = &workspace.repository;
    let contents: Vec<Vec<u8>> = (40..48).map(|seed| noise(seed, 60_000)).collect();
    let held = objects(&contents.iter().map(Vec::as_slice).collect::<Vec<_>>());
    let refusals = Mutex::new(Vec::new());
    let refusals = std::sync::Arc::new(refusals);
    let (noted, posts, gets) = (refusals.clone(), AtomicUsize::new(0), AtomicUsize::new(0));
    // The first question is refused, and so is the third transfer, while others are on their way.
    let server = FaultServer::start(move |seen, _| {
        let refused = if seen.method == "POST" {
            posts.fetch_add(1, Ordering::Relaxed) == 0
        } else {
            gets.fetch_add(1, Ordering::Relaxed) == 2
        };
        if refused {
            noted.lock().unwrap().push(Instant::now());
            return Answer::new(429, "").header("Retry-After", 1);
        }
        if seen.method == "GET" {
            // So that the transfers follow each other all through the second.
            std::thread::sleep(Duration::from_millis(150));
        }
        lfs(seen, &held)
    });
    repository.write(".lfsconfig", format!("[lfs]\nurl = {}\n", server.url("/lfs")).as_bytes());
    let mut models = Vec::new();
    for (index, content) in contents.iter().enumerate() {
        repository.write_lfs(FILE, content, false);
        models.push((format!("m{index}"), supercombo(&repository.commit("one more"))));
    }
    let models: Vec<(&str, SourceEntry)> =
        models.iter().map(|(name, entry)| (name.as_str(), entry.clone())).collect();
    let fetch = FetchOptions { jobs: 3, ..fetch_options() };
    for extracted in workspace.extract_with(&models, fetch) {
        extracted.unwrap();
    }
    let refusals = refusals.lock().unwrap().clone();
    assert_eq!(refusals.len(), 2);
    let seen = server.seen();
    for refused in refusals {
        // What had been sent already may still arrive; after that there is silence for the second that was asked for.
        let early = seen.iter().filter(|seen| {
            let after = seen.at.saturating_duration_since(refused);
            after > Duration::from_millis(250) && after < Duration::from_millis(900)
        });
        assert_eq!(early.count(), 0, "requests within the second");
        assert!(seen.iter().any(|seen| seen.at > refused + Duration::from_millis(900)), "it went on");
    }
    let methods = |method: &str| seen.iter().filter(|seen| seen.method == method).count();
    assert_eq!((methods("POST"), methods("GET")), (2, 9), "only what was refused was asked again");
}
