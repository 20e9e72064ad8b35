//! Downloads from a server that misbehaves on request.
#![expect(clippy::unwrap_used, reason = "tests panic on failure")]

mod fault_server;

use std::{
    fs,
    sync::atomic::AtomicBool,
    time::{Duration, Instant},
};

use camino::{Utf8Path, Utf8PathBuf};
use durable_fs::{Expected, NoProgress, Sha256};
use fault_server::{Answer, FaultServer, Seen};
use verified_download::{
    Credentials, Download, DownloadError, Fetched, HttpClient, HttpErrorClass, HttpOptions, HttpUrl, Origin,
    Request,
};

static GO: AtomicBool = AtomicBool::new(false);

fn options() -> HttpOptions {
    HttpOptions {
        stall_timeout: Duration::from_millis(400),
        backoff: Duration::from_millis(5),
        attempts: 4,
        longest_wait: Duration::from_secs(3),
        ..HttpOptions::default()
    }
}

fn content() -> Vec<u8> {
    (0..300_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

struct Place {
    _guard: tempfile::TempDir,
    dir: Utf8PathBuf,
}

impl Place {
    fn new() -> Self {
        let guard = tempfile::tempdir().unwrap();
        Self { dir: Utf8PathBuf::from_path_buf(guard.path().to_owned()).unwrap(), _guard: guard }
    }

    fn file(&self) -> Utf8PathBuf {
        self.dir.join("object")
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(&self.dir)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    fn fetch(&self, urls: &[String]) -> Result<Fetched, DownloadError> {
        fetch(&self.file(), urls, &content())
    }
}

fn fetch(destination: &Utf8Path, urls: &[String], content: &[u8]) -> Result<Fetched, DownloadError> {
    let client = HttpClient::new(options()).unwrap();
    let origins: Vec<Origin> = urls.iter().map(|url| Origin::new(HttpUrl::parse(url).unwrap())).collect();
    let expected = Expected::exactly(content.len() as u64, Sha256::digest(content));
    client.download(&Download { label: "the object", destination, expected }, &origins, &NoProgress, &GO)
}

/// The server's requests, the file, and nothing else in the directory.
fn whole(handler: impl Fn(&Seen, usize) -> Answer + Send + Sync + 'static) -> (Fetched, Vec<Seen>) {
    let server = FaultServer::start(handler);
    let place = Place::new();
    let fetched = place.fetch(&[server.url("/object")]).unwrap();
    assert_eq!(fs::read(place.file()).unwrap(), content());
    assert_eq!(place.names(), ["object"]);
    (fetched, server.seen())
}

/// The class of a failure that leaves no file.
fn failure(
    handler: impl Fn(&Seen, usize) -> Answer + Send + Sync + 'static,
) -> (HttpErrorClass, String, Vec<Seen>) {
    let server = FaultServer::start(handler);
    let place = Place::new();
    let error = place.fetch(&[server.url("/object")]).unwrap_err();
    assert!(!place.file().exists());
    (error.class(), error.to_string(), server.seen())
}

#[test]
fn a_cut_body_is_continued_where_it_broke_off() {
    let (_, seen) = whole(|seen, before| {
        let answer = Answer::serve(seen, &content());
        if before < 2 { answer.cut(100_000) } else { answer }
    });
    let starts: Vec<_> = seen.iter().map(Seen::range_start).collect();
    assert_eq!(starts, [None, Some(100_000), Some(200_000)]);
}

#[test]
fn a_body_of_unknown_length_that_ends_early_is_continued() {
    let (_, seen) = whole(|seen, before| {
        let mut answer = Answer::serve(seen, &content());
        answer.no_length = true;
        if before == 0 { answer.cut(50_000) } else { answer }
    });
    assert_eq!(seen[1].range_start(), Some(50_000));
}

#[test]
fn a_server_that_ignores_ranges_is_asked_from_the_beginning() {
    // 200 with the whole content in answer to a range.
    let (_, seen) = whole(|_, before| {
        let answer = Answer::new(200, content());
        if before == 0 { answer.cut(100_000) } else { answer }
    });
    assert_eq!(seen.len(), 2);
}

#[test]
fn a_range_that_is_not_the_one_asked_for_is_not_used() {
    for range in
        ["bytes 0-299999/300000", "bytes 99999-299999/300000", "bytes 100000-299999/400000", "nonsense"]
    {
        let (_, seen) = whole(move |seen, before| match (before, seen.range_start()) {
            (0, _) => Answer::new(200, content()).cut(100_000),
            (_, Some(_)) => Answer::new(206, &content()[100_000..]).header("Content-Range", range),
            (_, None) => Answer::new(200, content()),
        });
        assert_eq!(seen.last().unwrap().range_start(), None, "{range}");
    }
}

#[test]
fn a_refused_range_is_a_clean_restart() {
    let (_, seen) = whole(|seen, before| match (before, seen.range_start()) {
        (0, _) => Answer::new(200, content()).cut(100_000),
        (_, Some(_)) => Answer::new(416, ""),
        (_, None) => Answer::new(200, content()),
    });
    assert_eq!(seen.len(), 3);
}

#[test]
fn the_next_run_goes_on_from_the_prefix() {
    let place = Place::new();
    let broken = FaultServer::start(|seen, _| Answer::serve(seen, &content()).cut(30_000));
    let error = place.fetch(&[broken.url("/object")]).unwrap_err();
    assert_eq!(error.class(), HttpErrorClass::Network, "{error}");
    assert_eq!(place.names(), ["object.partial", "object.partial.json"]);
    let good = FaultServer::start(|seen, _| Answer::serve(seen, &content()));
    let fetched = place.fetch(&[good.url("/object")]).unwrap();
    assert_eq!((fetched.resumed, fetched.requests), (120_000, 1));
    assert_eq!(good.seen()[0].range_start(), Some(120_000));
    assert_eq!(place.names(), ["object"]);
}

#[test]
fn a_changed_etag_is_a_clean_restart() {
    let (_, seen) = whole(|seen, before| match before {
        0 => Answer::new(200, vec![7; 300_000]).header("ETag", "\"old\"").cut(100_000),
        _ => {
            assert_eq!(seen.header("if-range"), Some("\"old\""));
            Answer::new(200, content()).header("ETag", "\"new\"")
        }
    });
    assert_eq!(seen.len(), 2);
}

#[test]
fn damage_on_the_way_is_told_from_damage_at_the_server() {
    let damaged = |at: usize| {
        let mut bytes = content();
        bytes[at] ^= 0x10;
        bytes
    };
    // Damaged once: the second download is right.
    whole(move |_, before| Answer::new(200, if before == 0 { damaged(9) } else { content() }));
    let (class, words, seen) = failure(move |_, _| Answer::new(200, damaged(9)));
    assert_eq!((class, seen.len()), (HttpErrorClass::CorruptAtServer, 2), "{words}");
    let (class, words, _) = failure(move |_, before| Answer::new(200, damaged(before)));
    assert_eq!(class, HttpErrorClass::CorruptInTransit, "{words}");
    let (class, words, _) = failure(|_, _| Answer::new(200, &content()[..299_999]));
    assert_eq!(class, HttpErrorClass::CorruptAtServer, "{words}");
    let (class, words, _) = failure(|_, _| Answer::new(200, [content(), vec![0; 10_000_000]].concat()));
    assert!(class == HttpErrorClass::CorruptAtServer || class == HttpErrorClass::CorruptInTransit, "{words}");
}

#[test]
fn a_wrong_prefix_does_not_spoil_a_good_server() {
    let mut wrong = content();
    wrong[5] ^= 1;
    let (_, seen) = whole(move |seen, before| match before {
        0 => Answer::new(200, wrong.clone()).cut(100_000),
        _ => Answer::serve(seen, &content()),
    });
    assert_eq!(seen.len(), 3);
    assert_eq!(seen[2].range_start(), None);
}

#[test]
fn a_silent_server_is_given_up_and_a_slow_one_is_not() {
    let begun = Instant::now();
    let (class, words, seen) = failure(|seen, _| {
        let mut answer = Answer::serve(seen, &content());
        answer.stall_after = Some((10, Duration::from_secs(5)));
        answer
    });
    assert_eq!((class, seen.len()), (HttpErrorClass::Network, 4), "{words}");
    assert!(words.contains("no byte came"), "{words}");
    assert!(begun.elapsed() < Duration::from_secs(5));
    // In pieces of 1 KiB for longer than the stall timeout: bytes come, so it is waited for.
    let (fetched, seen) = whole(|seen, _| {
        let mut answer = Answer::serve(seen, &content());
        answer.pace = Some(Duration::from_millis(3));
        answer
    });
    assert_eq!((fetched.requests, seen.len()), (1, 1));
}

#[test]
fn everybody_waits_as_long_as_the_server_asks() {
    let (_, seen) = whole(|seen, before| {
        if before == 0 {
            Answer::new(429, "").header("Retry-After", 1)
        } else {
            Answer::serve(seen, &content())
        }
    });
    assert!(seen[1].at - seen[0].at >= Duration::from_millis(990));
    let (class, _, seen) = failure(|_, _| Answer::new(429, "").header("Retry-After", 3600));
    assert_eq!((class, seen.len()), (HttpErrorClass::RateLimited, 1));
    let (class, _, seen) = failure(|_, _| Answer::new(503, ""));
    assert_eq!((class, seen.len()), (HttpErrorClass::Server, 4));
}

#[test]
fn a_retry_waits_at_least_the_backoff_and_whatever_the_server_asks() {
    let past = "Sun, 06 Nov 1994 08:49:37 GMT";
    // The waits before the second and the third request: 40 and 80 ms of backoff, or longer where that is asked for.
    for (status, retry_after, least) in
        [(503, "0", [40, 80]), (429, past, [40, 80]), (502, "1", [990, 990]), (500, "", [40, 80])]
    {
        let server = FaultServer::start(move |seen, before| match before {
            0 | 1 => Answer::new(status, "").header("Retry-After", retry_after),
            _ => Answer::serve(seen, &content()),
        });
        let client =
            HttpClient::new(HttpOptions { backoff: Duration::from_millis(40), ..options() }).unwrap();
        let request = Request::get(HttpUrl::parse(&server.url("/x")).unwrap());
        client.read(&request, 1 << 20, &GO).unwrap();
        let seen = server.seen();
        let waits = [1, 2].map(|index: usize| seen[index].at - seen[index - 1].at);
        for (wait, least) in waits.iter().zip(least) {
            assert!(*wait >= Duration::from_millis(least), "{status} {retry_after:?}: {waits:?}");
        }
    }
}

#[test]
fn final_answers_are_not_asked_for_again() {
    let budget = r#"{"message":"This repository exceeded its LFS budget."}"#;
    for (status, body, class) in [
        (404, "", HttpErrorClass::Gone),
        (401, "", HttpErrorClass::Auth),
        (403, "no", HttpErrorClass::Auth),
        (403, budget, HttpErrorClass::Quota),
        (509, "", HttpErrorClass::Quota),
    ] {
        let (found, words, seen) = failure(move |_, _| Answer::new(status, body));
        assert_eq!((found, seen.len()), (class, 1), "{words}");
    }
}

#[test]
fn the_next_origin_serves_what_the_first_does_not() {
    let first = FaultServer::start(|seen, before| match before {
        0 => Answer::serve(seen, &content()).cut(70_000),
        _ => Answer::new(404, ""),
    });
    let second = FaultServer::start(|seen, _| Answer::serve(seen, &content()));
    let place = Place::new();
    let fetched = place.fetch(&[first.url("/a"), second.url("/b")]).unwrap();
    assert_eq!(fetched.url, second.url("/b"));
    // The prefix of the first serves the second.
    assert_eq!(second.seen()[0].range_start(), Some(70_000));
    assert_eq!(second.seen()[0].header("if-range"), None);
}

#[test]
fn secrets_do_not_follow_a_redirect_to_another_host() {
    let other = FaultServer::start(|seen, _| Answer::serve(seen, &content()));
    let target = other.url("/moved?signature=1");
    let first = FaultServer::start(move |seen, _| match seen.path.as_str() {
        "/start" => Answer::new(302, "").header("Location", "/same"),
        _ => Answer::new(307, "").header("Location", &target),
    });
    let place = Place::new();
    let client = HttpClient::new(options()).unwrap();
    let origin = Origin {
        url: HttpUrl::parse(&first.url("/start")).unwrap(),
        headers: vec![
            ("Cookie".to_owned(), "c=1".to_owned()),
            ("X-Token".to_owned(), "2".to_owned()),
            ("Accept".to_owned(), "text/x-object".to_owned()),
        ],
        credentials: Some(Credentials::new("user", "secret")),
    };
    let file = place.file();
    let expected = Expected { size: Some(content().len() as u64), sha256: None };
    let download = Download { label: "the object", destination: &file, expected };
    client.download(&download, &[origin], &NoProgress, &GO).unwrap();
    for seen in first.seen() {
        assert!(seen.header("authorization").unwrap().starts_with("Basic "), "{}", seen.path);
        assert_eq!((seen.header("cookie"), seen.header("x-token")), (Some("c=1"), Some("2")));
    }
    let seen = &other.seen()[0];
    assert_eq!((seen.header("authorization"), seen.header("cookie")), (None, None));
    // A secret may have any name; what is asked for is none.
    assert_eq!((seen.header("x-token"), seen.header("accept")), (None, Some("text/x-object")));
    assert_eq!(seen.path, "/moved?signature=1");
}

#[test]
fn redirects_end() {
    let (class, words, seen) = failure(|_, _| Answer::new(302, "").header("Location", "/object"));
    assert_eq!((class, seen.len()), (HttpErrorClass::Protocol, 11), "{words}");
    let (_, words, _) = failure(|_, _| Answer::new(302, "").header("Location", "file:///etc/passwd"));
    assert!(words.contains("neither http nor https"), "{words}");
}

#[test]
fn encoded_content_is_refused() {
    let (class, words, _) = failure(|_, _| Answer::new(200, content()).header("Content-Encoding", "gzip"));
    assert_eq!(class, HttpErrorClass::Protocol);
    assert!(words.contains("encoded as gzip"), "{words}");
}

#[test]
fn no_server_and_no_disk_have_their_own_classes() {
    let place = Place::new();
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = place.fetch(&[format!("http://{nobody}/x")]).unwrap_err();
    assert_eq!(error.class(), HttpErrorClass::Network, "{error}");
    let server = FaultServer::start(|seen, _| Answer::serve(seen, &content()));
    let error = fetch(&place.dir.join("missing/object"), &[server.url("/x")], &content()).unwrap_err();
    assert_eq!(error.class(), HttpErrorClass::System, "{error}");
    assert!(error.to_string().contains("missing/object"), "{error}");
}

#[test]
fn a_stop_keeps_the_prefix() {
    let server = FaultServer::start(|seen, _| {
        let mut answer = Answer::serve(seen, &content());
        answer.pace = Some(Duration::from_millis(2));
        answer
    });
    let place = Place::new();
    let client = HttpClient::new(options()).unwrap();
    let expected = Expected::exactly(content().len() as u64, Sha256::digest(&content()));
    let stop = AtomicBool::new(false);
    let file = place.file();
    let download = Download { label: "the object", destination: &file, expected };
    let origins = [Origin::new(HttpUrl::parse(&server.url("/x")).unwrap())];
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(150));
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        let error = client.download(&download, &origins, &NoProgress, &stop).unwrap_err();
        assert_eq!(error.class(), HttpErrorClass::Interrupted);
    });
    assert_eq!(place.names(), ["object.partial", "object.partial.json"]);
    let fetched = client.download(&download, &origins, &NoProgress, &GO).unwrap();
    assert!(fetched.resumed > 0);
}

#[test]
fn small_bodies_are_bounded() {
    let server = FaultServer::start(|_, _| Answer::new(200, vec![0; 5_000]));
    let client = HttpClient::new(options()).unwrap();
    let request = Request::get(HttpUrl::parse(&server.url("/x")).unwrap());
    assert_eq!(client.read(&request, 5_000, &GO).unwrap().len(), 5_000);
    assert_eq!(client.read(&request, 4_999, &GO).unwrap_err().class(), HttpErrorClass::Protocol);
}

/// A certificate for 127.0.0.1 with these dates, and a TLS server that shows it; ends with the test.
struct TlsServer {
    child: std::process::Child,
    port: u16,
    certificate: String,
}

impl Drop for TlsServer {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn openssl(dir: &Utf8Path, args: &[&str]) {
    let output = std::process::Command::new("openssl").args(args).current_dir(dir).output().unwrap();
    assert!(output.status.success(), "openssl {args:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn tls_server(dir: &Utf8Path, not_before: &str, not_after: &str) -> TlsServer {
    openssl(dir, &["ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", "key.pem"]);
    // Only this way of making a certificate takes dates in every version of openssl.
    let config = "[ca]\ndefault_ca=own\n[own]\ndatabase=index.txt\nserial=serial\nnew_certs_dir=.\ndefault_md=sha256\npolicy=any\n\
        x509_extensions=ext\n[any]\ncommonName=supplied\n[ext]\nsubjectAltName=IP:127.0.0.1\nbasicConstraints=critical,CA:FALSE\n";
    for (name, text) in [("ca.cnf", config), ("index.txt", ""), ("serial", "01\n")] {
        durable_fs::write_atomic(dir.join(name), text.as_bytes()).unwrap();
    }
    openssl(dir, &["req", "-new", "-key", "key.pem", "-subj", "/CN=test", "-out", "request.pem"]);
    let sign = [
        "ca",
        "-selfsign",
        "-batch",
        "-notext",
        "-config",
        "ca.cnf",
        "-keyfile",
        "key.pem",
        "-in",
        "request.pem",
    ];
    openssl(
        dir,
        &[&sign[..], &["-out", "cert.pem", "-startdate", not_before, "-enddate", not_after]].concat(),
    );
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let child = std::process::Command::new("openssl")
        .args([
            "s_server",
            "-quiet",
            "-WWW",
            "-accept",
            &format!("127.0.0.1:{port}"),
            "-key",
            "key.pem",
            "-cert",
            "cert.pem",
        ])
        .current_dir(dir)
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(begun.elapsed() < Duration::from_secs(10), "openssl s_server does not listen");
        std::thread::sleep(Duration::from_millis(20));
    }
    TlsServer { child, port, certificate: fs::read_to_string(dir.join("cert.pem")).unwrap() }
}

#[test]
fn certificates_and_clocks_are_told_apart() {
    if std::process::Command::new("openssl").arg("version").output().is_err() {
        println!("skipped: certificates_and_clocks_are_told_apart: openssl is not installed");
        return;
    }
    for (dates, class) in [
        (["20200101000000Z", "20990101000000Z"], None),
        (["20200101000000Z", "20210101000000Z"], Some(HttpErrorClass::Clock)),
        (["20980101000000Z", "20990101000000Z"], Some(HttpErrorClass::Clock)),
    ] {
        let place = Place::new();
        let server = tls_server(&place.dir, dates[0], dates[1]);
        let ask = |roots: Option<String>| {
            let client =
                HttpClient::new(HttpOptions { root_certificates: roots, attempts: 1, ..options() }).unwrap();
            let url = HttpUrl::parse(&format!("https://127.0.0.1:{}/cert.pem", server.port)).unwrap();
            client.read(&Request::get(url), 1 << 20, &GO)
        };
        match (ask(Some(server.certificate.clone())), class) {
            (Ok(body), None) => assert_eq!(String::from_utf8(body).unwrap(), server.certificate),
            (Err(error), Some(class)) => assert_eq!(error.class(), class, "{error}"),
            (outcome, class) => panic!("{outcome:?} instead of {class:?}"),
        }
        // Nobody vouches for it: that is another matter than its dates.
        let stranger = ask(None).unwrap_err();
        if class.is_none() {
            assert!(stranger.to_string().contains("certificate is not accepted"), "{stranger}");
            assert_eq!(stranger.class(), HttpErrorClass::Protocol);
        }
    }
}
