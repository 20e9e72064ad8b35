//! `models fetch` from nginx, as a device does it.

use std::time::Duration;

use super::*;

const NAME: &str = "m3_driving_tinygrad.pkl";

/// A host with files, and a directory to fetch into; `None` without nginx.
struct Host {
    nginx: Nginx,
    root: Utf8PathBuf,
    _dir: tempfile::TempDir,
}

impl Host {
    fn new(more: &str) -> Result<Option<Self>> {
        if let Err(reason) = find_nginx() {
            report_skip(&format!("{reason:#}"));
            return Ok(None);
        }
        let dir = tempfile::tempdir()?;
        let root = Utf8Path::from_path(dir.path()).context("a UTF-8 path")?.to_owned();
        for name in ["served/Models", "to"] {
            fs::create_dir_all(root.join(name))?;
        }
        let nginx = Nginx::serve(&root.join("nginx"), &root.join("served"), more)?;
        Ok(Some(Self { nginx, root, _dir: dir }))
    }

    fn serve(&self, name: &str, bytes: &[u8]) -> Result<()> {
        put(&self.root.join("served/Models").join(name), bytes)
    }

    /// Serves the bytes in parts of `part` bytes, and the checksum.
    fn serve_parts(&self, bytes: &[u8], part: usize) -> Result<()> {
        for (number, part) in bytes.chunks(part).enumerate() {
            self.serve(&format!("{NAME}.p{number:02}"), part)?;
        }
        self.serve(&format!("{NAME}.sha256"), format!("{}  {NAME}\n", sha256_bytes(bytes)).as_bytes())
    }

    fn target(&self) -> Utf8PathBuf {
        self.root.join("to").join(NAME)
    }

    fn command(&self, arguments: &[&str]) -> Result<Command> {
        let mut command = Command::new(e2e::Binaries::locate()?.models);
        command.args(["fetch", "--to", self.root.join("to").as_str()]).args(arguments);
        Ok(command)
    }

    fn fetch(&self, arguments: &[&str]) -> Result<Outcome> {
        run(&mut self.command(arguments)?)
    }

    fn by_id(&self, arguments: &[&str]) -> Result<Outcome> {
        self.fetch(&[&["m3", "--base", self.nginx.base()], arguments].concat())
    }

    fn left(&self) -> Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in self.root.join("to").read_dir_utf8()? {
            names.push(entry?.file_name().to_owned());
        }
        Ok(names)
    }
}

/// A real artifact, as only such a one is taken; `None` after the line that counts the test as skipped.
fn artifact() -> Result<Option<Vec<u8>>> {
    let Some(made) = made() else { return Ok(None) };
    let path = made.scenario.workspace.join("compiled").join(pkl("rdf23"));
    Ok(Some(fs::read(&path).with_context(|| format!("read {path}"))?))
}

#[test]
fn whole_files_come_by_id_and_by_address() -> Result<()> {
    let Some(host) = Host::new("")? else { return Ok(()) };
    let Some(content) = artifact()? else { return Ok(()) };
    host.serve(NAME, &content)?;
    host.by_id(&[])?.expect_code(0);
    assert_eq!(sha256_file(&host.target())?, sha256_bytes(&content));
    let ranges = host.nginx.requests()?.iter().filter(|line| line.contains(" 206 ")).count();
    assert!(ranges >= 4, "ranges in parallel: {:?}", host.nginx.requests()?);
    fs::remove_file(host.target())?;
    let address = format!("{}/Models/{NAME}", host.nginx.base());
    let outcome = host.fetch(&[&address, "--json"])?;
    outcome.expect_code(0);
    let said = outcome.json_lines()?.pop().context("a result")?;
    assert_eq!(
        (&said["sha256"], &said["form"]),
        (&Value::from(sha256_bytes(&content)), &Value::from("whole"))
    );
    assert_eq!(host.left()?, [NAME]);
    Ok(())
}

#[test]
fn parts_come_by_name_where_the_whole_is_absent() -> Result<()> {
    let Some(host) = Host::new("")? else { return Ok(()) };
    let Some(content) = artifact()? else { return Ok(()) };
    host.serve_parts(&content, 3_000_000)?;
    host.by_id(&[])?.expect_code(0);
    assert_eq!(sha256_file(&host.target())?, sha256_bytes(&content));
    fs::remove_file(host.target())?;
    host.fetch(&[&format!("{}/Models/{NAME}", host.nginx.base())])?.expect_code(0);
    assert_eq!(sha256_file(&host.target())?, sha256_bytes(&content));
    Ok(())
}

#[test]
fn an_older_file_stays_until_the_new_one_is_whole() -> Result<()> {
    let Some(host) = Host::new("")? else { return Ok(()) };
    put(&host.target(), b"older")?;
    let cases: [(&str, &[u8], &str); 4] = [
        (NAME, b"version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 5\n", "a Git LFS pointer"),
        (NAME, b"<!DOCTYPE html><html>sign in</html>", "a web page"),
        (NAME, b"", "empty"),
        (NAME, b"404: Not Found", "an error text"),
    ];
    for (name, body, words) in cases {
        host.serve(name, body)?;
        let outcome = host.by_id(&[])?;
        outcome.expect_code(1);
        assert!(outcome.stderr.contains(words), "{words}: {}", outcome.transcript());
        assert_eq!(fs::read(host.target())?, b"older");
    }
    fs::remove_file(host.root.join("served/Models").join(NAME))?;
    let Some(content) = artifact()? else { return Ok(()) };
    host.serve_parts(&content, 3_000_000)?;
    host.serve(&format!("{NAME}.p01"), &content[..2_000_000])?;
    let outcome = host.by_id(&[])?;
    outcome.expect_code(1);
    assert_eq!(fs::read(host.target())?, b"older", "{}", outcome.transcript());
    host.serve_parts(&content, 3_000_000)?;
    host.by_id(&[])?.expect_code(0);
    assert_eq!(sha256_file(&host.target())?, sha256_bytes(&content));
    assert_eq!(host.left()?, [NAME]);
    Ok(())
}

#[test]
fn a_cancelled_fetch_keeps_the_older_file_and_goes_on_later() -> Result<()> {
    let Some(host) = Host::new("limit_rate 300k;")? else { return Ok(()) };
    put(&host.target(), b"older")?;
    let Some(content) = artifact()? else { return Ok(()) };
    host.serve_parts(&content, 1 << 20)?;
    let mut child = host.command(&["m3", "--base", host.nginx.base()])?.spawn()?;
    // Until the first part is on disk, and others are under way.
    e2e::wait_for("a part", Duration::from_secs(60), || {
        host.nginx.requests().is_ok_and(|lines| lines.iter().any(|line| line.contains(".p00 200")))
    })?;
    e2e::send_signal(child.id(), e2e::Signal::SIGINT)?;
    assert_eq!(child.wait()?.code(), Some(4));
    assert_eq!(fs::read(host.target())?, b"older");
    let before = host.nginx.requests()?.len();
    let quick = Nginx::serve(&host.root.join("quick"), &host.root.join("served"), "")?;
    host.fetch(&["m3", "--base", quick.base()])?.expect_code(0);
    assert_eq!(sha256_file(&host.target())?, sha256_bytes(&content));
    assert_eq!(host.nginx.requests()?.len(), before);
    let again = quick.requests()?;
    assert!(!again.iter().any(|line| line.contains(".p00 200")), "verified parts are kept: {again:?}");
    assert_eq!(host.left()?, [NAME]);
    Ok(())
}

#[test]
fn the_next_host_is_asked_where_the_first_fails() -> Result<()> {
    let (Some(first), Some(second)) = (Host::new("return 503;")?, Host::new("")?) else { return Ok(()) };
    let Some(content) = artifact()? else { return Ok(()) };
    second.serve(NAME, &content)?;
    first.fetch(&["m3", "--base", first.nginx.base(), "--base", second.nginx.base()])?.expect_code(0);
    assert_eq!(sha256_file(&first.target())?, sha256_bytes(&content));
    Ok(())
}

#[test]
fn wrong_command_lines_have_their_exit_codes() -> Result<()> {
    let Some(host) = Host::new("")? else { return Ok(()) };
    for (arguments, code, words) in [
        (&["m3"][..], 2, "no host is known"),
        (&["../m3"], 2, "neither an address nor a model ID"),
        (&["ftp://127.0.0.1/x.pkl"], 2, "is no address"),
        (&["m3", "--base", "nonsense"], 2, "is no address"),
        (&["m3", "--base", host.nginx.base()], 1, "m3_driving_tinygrad.pkl was not fetched"),
        (&["m3", "--base", host.nginx.base(), "--public-key", "AAAA"], 2, "key"),
    ] {
        let outcome = host.fetch(arguments)?;
        outcome.expect_code(code);
        assert!(outcome.stderr.contains(words), "{words}: {}", outcome.transcript());
    }
    assert_eq!(host.left()?, [""; 0]);
    Ok(())
}

#[test]
fn what_must_not_be_used_does_not_replace_the_older_file() -> Result<()> {
    let Some(host) = Host::new("")? else { return Ok(()) };
    let Some(content) = artifact()? else { return Ok(()) };
    put(&host.target(), b"older")?;
    host.serve_parts(&content, 3_000_000)?;
    let outcome = host.by_id(&["--target", "qcom"])?;
    outcome.expect_code(1);
    assert!(outcome.stderr.contains("not fit for use"), "{}", outcome.transcript());
    assert_eq!(fs::read(host.target())?, b"older");
    assert_eq!(host.left()?, [NAME]);
    Ok(())
}

/// A key pair that minisign made; `None` after the line that counts the test as skipped.
fn key_pair(root: &Utf8Path) -> Result<Option<(Utf8PathBuf, String)>> {
    let (secret, public) = (root.join("secret.key"), root.join("public.key"));
    let mut command = Command::new("minisign");
    command.args(["-G", "-W", "-f", "-p", public.as_str(), "-s", secret.as_str()]);
    let Ok(outcome) = run(&mut command) else {
        report_skip("minisign is not installed; `cargo xtask setup --tests` installs it");
        return Ok(None);
    };
    outcome.expect_code(0);
    let text = fs::read_to_string(public)?;
    Ok(Some((secret, text.lines().nth(1).context("a key")?.to_owned())))
}

#[test]
fn what_was_published_is_fetched_with_a_configured_key() -> Result<()> {
    let Some((bench, resources)) = Bench::with_resources()? else { return Ok(()) };
    let Some((secret, public)) = key_pair(&bench.root)? else { return Ok(()) };
    bench.publish(&resources, &["--sign-key", secret.as_str()])?.expect_code(0);
    let to = bench.root.join("device");
    let base = resources.raw_base("two");
    let fetch = |what: &str, key: &str| {
        let mut command = bench.scenario.models();
        command.args(["fetch", what, "--to", to.as_str(), "--public-key", key]);
        if !what.contains("://") {
            command.args(["--base", &base]);
        }
        run(&mut command)
    };
    fs::create_dir_all(&to)?;
    for id in RELEASED {
        fetch(id, &public)?.expect_code(0);
        assert_eq!(sha256_file(&to.join(pkl(id)))?, sha256_file(&bench.path("compiled").join(pkl(id)))?);
    }
    let probed: Vec<String> =
        resources.host().requests()?.into_iter().filter(|line| line.contains(" 404 ")).collect();
    assert_eq!(probed, [""; 0], "with a part list nothing is probed");

    let by_address = format!("{base}/Models/{}", pkl("rdf23"));
    fs::remove_file(to.join(pkl("rdf23")))?;
    fetch(&by_address, &public)?.expect_code(0);
    assert_eq!(
        sha256_file(&to.join(pkl("rdf23")))?,
        sha256_file(&bench.path("compiled").join(pkl("rdf23")))?
    );

    let unlisted = fetch("old", &public)?;
    unlisted.expect_code(2);
    assert!(unlisted.stderr.contains("old"), "{}", unlisted.transcript());

    // Another key, a changed list, no signature: each is refused, by ID and by address.
    let Some((_, other)) = key_pair(&bench.root)? else { return Ok(()) };
    fs::remove_file(to.join(pkl("rdf23")))?;
    for what in ["rdf23", by_address.as_str()] {
        let refused = fetch(what, &other)?;
        refused.expect_code(1);
        assert!(
            refused.stderr.contains("signature") || refused.stderr.contains("signed"),
            "{}",
            refused.transcript()
        );
    }
    let list = resources.served("two").join("model_parts_v23.json");
    let text = fs::read_to_string(&list)?;
    put(&list, text.replacen("rdf23", "rdf24", 1).as_bytes())?;
    fetch("rdf23", &public)?.expect_code(1);
    put(&list, text.as_bytes())?;
    fs::remove_file(resources.served("two").join("model_parts_v23.json.minisig"))?;
    let unsigned = fetch("rdf23", &public)?;
    unsigned.expect_code(1);
    assert!(unsigned.stderr.contains("no signature"), "{}", unsigned.transcript());
    assert!(!to.join(pkl("rdf23")).exists());
    Ok(())
}
