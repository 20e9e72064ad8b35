//! Fetching artifacts from hosts that behave and hosts that do not.
#![expect(clippy::unwrap_used, reason = "tests")]

mod support;

use std::{
    fs,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::Duration,
};

use artifact_fetch::{FetchContext, FetchError, Fetched, Form, Wanted, fetch, fetch_list};
use artifact_parts::{ListedArtifact, PartList};
use durable_fs::{Expected, NoProgress, Progress, Sha256, write_atomic};
use model_catalog::ManifestVersion;
use support::{Fault, FaultHost, NAME, Nginx, Place, bytes, client};
use verified_download::{HttpClient, HttpErrorClass, HttpUrl};

struct Fetch<'a> {
    client: HttpClient,
    connections: usize,
    bases: Vec<HttpUrl>,
    listed: Option<&'a ListedArtifact>,
    expected: Expected,
}

impl<'a> Fetch<'a> {
    fn from(bases: &[&str]) -> Self {
        let bases = bases.iter().map(|base| HttpUrl::parse(base).unwrap()).collect();
        Self { client: client(), connections: 4, bases, listed: None, expected: Expected::default() }
    }

    fn listed(self, listed: &'a ListedArtifact) -> Self {
        Self { listed: Some(listed), ..self }
    }

    fn run(&self, place: &Place) -> Result<Fetched, FetchError> {
        self.run_until(place, &AtomicBool::new(false), &NoProgress)
    }

    fn run_until(
        &self,
        place: &Place,
        stop: &AtomicBool,
        progress: &dyn Progress,
    ) -> Result<Fetched, FetchError> {
        let context = FetchContext {
            client: &self.client,
            connections: self.connections,
            progress,
            stop,
            accept: &|_| Ok(()),
        };
        let wanted = Wanted {
            name: NAME,
            urls: &[],
            bases: &self.bases,
            listed: self.listed,
            expected: self.expected,
        };
        fetch(&context, &wanted, &place.to())
    }
}

fn good(place: &Place, content: &[u8]) {
    assert_eq!(fs::read(place.target()).unwrap(), content);
    assert_eq!(place.left(), [NAME], "nothing else stays");
}

#[test]
fn a_whole_file_is_fetched_by_name() {
    let place = Place::new();
    let content = bytes(300_000);
    place.serve(NAME, &content);
    let host = FaultHost::serve(&place.served(), |_, _| None);
    write_atomic(place.target(), b"older").unwrap();
    let fetched = Fetch::from(&[&host.base]).run(&place).unwrap();
    assert_eq!((fetched.form, fetched.verified, fetched.size), (Form::Whole, false, 300_000));
    good(&place, &content);
}

#[test]
fn what_must_not_be_used_gets_no_name_and_leaves_what_was_there() {
    for in_parts in [false, true] {
        let place = Place::new();
        let content = bytes(300_000);
        if in_parts {
            place.serve_parts(&content, 100_000);
        } else {
            place.serve(NAME, &content);
        }
        let host = FaultHost::serve(&place.served(), |_, _| None);
        write_atomic(place.target(), b"older").unwrap();
        let (client, stop) = (client(), AtomicBool::new(false));
        let refuse = |staged: &camino::Utf8Path| {
            assert_eq!(fs::read(staged).unwrap(), content, "it is looked at when it is whole");
            Err("made for another device".to_owned())
        };
        let context = FetchContext {
            client: &client,
            connections: 2,
            progress: &NoProgress,
            stop: &stop,
            accept: &refuse,
        };
        let bases = [HttpUrl::parse(&host.base).unwrap()];
        let wanted =
            Wanted { name: NAME, urls: &[], bases: &bases, listed: None, expected: Expected::default() };
        let error = fetch(&context, &wanted, &place.to()).unwrap_err();
        assert!(matches!(&error, FetchError::Unfit { name, .. } if name == NAME), "{error}");
        assert!(error.to_string().contains("made for another device"));
        assert_eq!(fs::read(place.target()).unwrap(), b"older");
    }
}

#[test]
fn parts_are_found_by_name_and_fetched_several_at_a_time() {
    let place = Place::new();
    let content = bytes(1_000_000);
    place.serve_parts(&content, 90_000);
    let host = FaultHost::serve(&place.served(), |_, _| None);
    let fetched = Fetch::from(&[&host.base]).run(&place).unwrap();
    assert_eq!((fetched.form, fetched.verified), (Form::Parts(12), true));
    good(&place, &content);
    assert!(host.requests() <= 12 + 1 + 1 + 1 + 4, "{} requests", host.requests());
}

#[test]
fn a_part_list_is_used_instead_of_probing() {
    let place = Place::new();
    let content = bytes(500_000);
    let listed = place.serve_parts(&content, 90_000);
    let host = FaultHost::serve(&place.served(), |_, _| None);
    let fetched = Fetch::from(&[&host.base]).listed(&listed).run(&place).unwrap();
    assert_eq!(fetched.form, Form::Parts(6));
    good(&place, &content);
    assert_eq!(host.requests(), 6, "each part once, nothing else");
    let again = Fetch::from(&[&host.base]).listed(&listed).run(&place).unwrap();
    assert_eq!((again.form, host.requests()), (Form::Present, 6));
}

#[test]
fn a_signed_list_is_verified_and_an_unsigned_one_refused_where_a_key_is_configured() {
    let place = Place::new();
    let listed = place.serve_parts(&bytes(1000), 600);
    let v23 = ManifestVersion::from_number(23);
    let text = PartList::new(v23, vec![listed]).to_json().unwrap();
    place.serve("model_parts_v23.json", text.as_bytes());
    let host = FaultHost::serve(&place.served(), |_, _| None);
    let bases = [HttpUrl::parse(&host.base).unwrap()];
    let (client, stop) = (client(), AtomicBool::new(false));
    let context = FetchContext {
        client: &client,
        connections: 1,
        progress: &NoProgress,
        stop: &stop,
        accept: &|_| Ok(()),
    };
    let list = |key: Option<&str>| fetch_list(&context, &bases, v23, key, &mut |_| {});
    assert_eq!(list(None).unwrap().unwrap().artifacts.len(), 1);

    let minisign::KeyPair { pk, sk } = minisign::KeyPair::generate_unencrypted_keypair().unwrap();
    let key = pk.to_base64();
    assert!(matches!(list(Some(&key)), Err(FetchError::Signature { .. })), "no signature");
    let signature = minisign::sign(Some(&pk), &sk, text.as_bytes(), None, None).unwrap().into_string();
    place.serve("model_parts_v23.json.minisig", signature.as_bytes());
    assert!(list(Some(&key)).unwrap().is_some());
    let other = minisign::KeyPair::generate_unencrypted_keypair().unwrap().pk.to_base64();
    assert!(matches!(list(Some(&other)), Err(FetchError::Signature { .. })), "another key");
    place.serve("model_parts_v23.json", text.replace("m3_", "m4_").as_bytes());
    assert!(matches!(list(Some(&key)), Err(FetchError::Signature { .. })), "another text");
    assert!(matches!(list(Some("nonsense")), Err(FetchError::Key { .. })));
    fs::remove_file(place.served().join("model_parts_v23.json")).unwrap();
    assert!(list(None).unwrap().is_none());
    assert!(matches!(list(Some(&key)), Err(FetchError::NoList { .. })));
}

#[test]
fn what_is_no_artifact_never_gets_the_name() {
    let pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 5\n";
    for body in [&pointer[..], b"<!DOCTYPE html><html>log in</html>", b"", b"404: Not Found"] {
        let place = Place::new();
        write_atomic(place.target(), b"older").unwrap();
        let host = FaultHost::serve(&place.served(), move |_, _| Some(Fault::Body(body.to_vec())));
        let refused = Fetch::from(&[&host.base]).run(&place).unwrap_err();
        assert!(matches!(refused, FetchError::Foreign { .. }), "{refused}");
        assert_eq!(fs::read(place.target()).unwrap(), b"older");
    }
}

#[test]
fn pages_instead_of_not_found_end_the_parts() {
    let place = Place::new();
    let content = bytes(200_000);
    place.serve_parts(&content, 90_000);
    let host = FaultHost::serve(&place.served(), |seen, _| {
        let beyond = seen.name.rsplit_once(".p").is_some_and(|(_, part)| part.parse().unwrap_or(0) > 2);
        beyond.then(|| Fault::Body(b"<html>no such file</html>".to_vec()))
    });
    let fetched = Fetch::from(&[&host.base]).run(&place).unwrap();
    assert_eq!(fetched.form, Form::Parts(3));
    good(&place, &content);
}

#[test]
fn complete_parts_are_kept_when_one_fails() {
    let place = Place::new();
    let content = bytes(400_000);
    let listed = place.serve_parts(&content, 100_000);
    let broken = std::sync::Arc::new(AtomicBool::new(true));
    let state = std::sync::Arc::clone(&broken);
    let host = FaultHost::serve(&place.served(), move |seen, _| {
        (seen.name.ends_with(".p03") && state.load(Ordering::Relaxed)).then_some(Fault::Status(500))
    });
    for (listed, whole_first) in [(None, true), (Some(&listed), false)] {
        broken.store(true, Ordering::Relaxed);
        let fetch = Fetch { connections: 1, listed, ..Fetch::from(&[&host.base]) };
        write_atomic(place.target(), b"older").unwrap();
        let refused = fetch.run(&place).unwrap_err();
        assert_eq!(refused.class(), Some(HttpErrorClass::Server), "{refused}");
        assert_eq!(fs::read(place.target()).unwrap(), b"older");
        let asked = host.asked(&format!("{NAME}.p00"));
        broken.store(false, Ordering::Relaxed);
        fetch.run(&place).unwrap();
        good(&place, &content);
        assert_eq!(host.asked(&format!("{NAME}.p00")), asked, "kept, {whole_first}");
    }
}

#[test]
fn cut_and_stalled_bodies_are_continued() {
    let place = Place::new();
    let content = bytes(400_000);
    let listed = place.serve_parts(&content, 150_000);
    let host = FaultHost::serve(&place.served(), |seen, before| match (seen.name.as_str(), before) {
        (name, 0) if name.ends_with(".p00") => Some(Fault::Cut(70_000)),
        (name, 0) if name.ends_with(".p01") => Some(Fault::Stall(60_000)),
        _ => None,
    });
    Fetch::from(&[&host.base]).listed(&listed).run(&place).unwrap();
    good(&place, &content);
    let seen = host.seen.lock().unwrap();
    assert!(seen.iter().any(|seen| seen.range == Some((70_000, None))), "{seen:?}");
}

#[test]
fn another_host_helps_out_and_a_damaging_one_is_found_out() {
    let place = Place::new();
    let content = bytes(300_000);
    let listed = place.serve_parts(&content, 100_000);
    let bad = FaultHost::serve(&place.served(), |seen, _| seen.name.ends_with(".p01").then_some(Fault::Flip));
    let good_host = FaultHost::serve(&place.served(), |_, _| None);
    let alone = Fetch::from(&[&bad.base]).listed(&listed).run(&place).unwrap_err();
    assert_eq!(alone.class(), Some(HttpErrorClass::CorruptAtServer), "{alone}");
    Fetch::from(&[&bad.base, &good_host.base]).listed(&listed).run(&place).unwrap();
    good(&place, &content);
    assert_eq!(good_host.requests(), 1, "only what the first could not serve");

    // Without a list the digest of the whole shows it, and everything is fetched anew by the next run.
    fs::remove_file(place.target()).unwrap();
    let refused = Fetch::from(&[&bad.base]).run(&place).unwrap_err();
    let wrong =
        |error: &artifact_parts::PartsError| matches!(error, artifact_parts::PartsError::WholeDigest { .. });
    assert!(matches!(&refused, FetchError::Parts(error) if wrong(error)), "{refused}");
    Fetch::from(&[&good_host.base]).run(&place).unwrap();
    good(&place, &content);
}

#[test]
fn a_host_that_is_down_does_not_hide_the_parts_of_another() {
    let place = Place::new();
    let content = bytes(300_000);
    place.serve_parts(&content, 100_000);
    let host = FaultHost::serve(&place.served(), |_, _| None);
    for down in ["http://127.0.0.1:9/x".to_owned(), failing(&place).base] {
        for bases in [[&down, &host.base], [&host.base, &down]] {
            let fetched = Fetch::from(&bases.map(String::as_str)).run(&place).unwrap();
            assert_eq!((fetched.form, fetched.verified), (Form::Parts(3), true));
            good(&place, &content);
            fs::remove_file(place.target()).unwrap();
        }
    }
    // Where no host that answers has it, nobody knows whether it is absent.
    let elsewhere = Place::new();
    let empty = FaultHost::serve(&elsewhere.served(), |_, _| None);
    let refused = Fetch::from(&["http://127.0.0.1:9/x", &empty.base]).run(&elsewhere).unwrap_err();
    assert_eq!(refused.class(), Some(HttpErrorClass::Network), "{refused}");
}

/// A host that always fails.
fn failing(place: &Place) -> FaultHost {
    FaultHost::serve(&place.served(), |_, _| Some(Fault::Status(503)))
}

#[test]
fn a_list_that_is_not_signed_by_the_key_is_reported_and_the_next_host_is_asked() {
    let (forged, place) = (Place::new(), Place::new());
    let v23 = ManifestVersion::from_number(23);
    let text = PartList::new(v23, vec![place.serve_parts(&bytes(1000), 600)]).to_json().unwrap();
    let minisign::KeyPair { pk, sk } = minisign::KeyPair::generate_unencrypted_keypair().unwrap();
    let signature = minisign::sign(Some(&pk), &sk, text.as_bytes(), None, None).unwrap().into_string();
    for (place, text) in [(&forged, text.replace("m3_", "m4_")), (&place, text)] {
        place.serve("model_parts_v23.json", text.as_bytes());
        place.serve("model_parts_v23.json.minisig", signature.as_bytes());
    }
    let no_signature =
        |seen: &support::Seen, _: usize| seen.name.ends_with(".minisig").then_some(Fault::Status(503));
    let hosts = [
        FaultHost::serve(&forged.served(), |_, _| None),
        FaultHost::serve(&place.served(), no_signature),
        FaultHost::serve(&place.served(), |_, _| None),
    ];
    let bases: Vec<HttpUrl> = hosts.iter().map(|host| HttpUrl::parse(&host.base).unwrap()).collect();
    let (client, stop) = (client(), AtomicBool::new(false));
    let context = FetchContext {
        client: &client,
        connections: 1,
        progress: &NoProgress,
        stop: &stop,
        accept: &|_| Ok(()),
    };
    let mut rejected = Vec::new();
    let key = pk.to_base64();
    let list =
        fetch_list(&context, &bases, v23, Some(&key), &mut |error| rejected.push(error.to_string())).unwrap();
    assert_eq!(list.unwrap().artifacts[0].id.as_str(), "m3");
    assert!(rejected.len() == 1 && rejected[0].contains(&hosts[0].base), "{rejected:?}");
    let alone = fetch_list(&context, &bases[..2], v23, Some(&key), &mut |_| {});
    assert!(matches!(alone, Err(FetchError::Signature { .. })), "never accepted");
}

#[test]
fn parts_of_an_earlier_build_are_not_mixed_in() {
    let place = Place::new();
    let old = bytes(300_000);
    place.serve_parts(&old, 100_000);
    let host = FaultHost::serve(&place.served(), |seen, before| {
        (seen.name.ends_with(".p02") && before < 3).then_some(Fault::Status(503))
    });
    let fetch = Fetch { connections: 1, ..Fetch::from(&[&host.base]) };
    fetch.run(&place).unwrap_err();
    let new: Vec<u8> = old.iter().map(|byte| byte ^ 0x55).collect();
    place.serve_parts(&new, 100_000);
    fetch.run(&place).unwrap();
    good(&place, &new);
}

#[test]
fn absent_and_mistaken_names_are_said_so() {
    let place = Place::new();
    let host = FaultHost::serve(&place.served(), |_, _| None);
    let refused = Fetch::from(&[&host.base]).run(&place).unwrap_err();
    assert!(matches!(&refused, FetchError::Absent { tried, .. } if tried.len() == 1), "{refused}");
    place.serve(&format!("{NAME}.sha256"), b"<html>");
    let refused = Fetch::from(&[&host.base]).run(&place).unwrap_err();
    assert!(matches!(refused, FetchError::Checksum { .. }), "{refused}");
    let nowhere = Fetch::from(&["http://127.0.0.1:9/x"]).run(&place).unwrap_err();
    assert_eq!(nowhere.class(), Some(HttpErrorClass::Network), "{nowhere}");
}

/// Stops the fetch once so many bytes have come.
struct StopAfter<'a>(&'a AtomicBool, AtomicU64, u64);

impl Progress for StopAfter<'_> {
    fn begin(&self, _: &str, _: Option<u64>) {}
    fn advance(&self, amount: u64) {
        if self.1.fetch_add(amount, Ordering::Relaxed) + amount > self.2 {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    fn end(&self) {}
}

#[test]
fn a_large_file_comes_in_ranges_and_goes_on_after_a_stop() {
    let place = Place::new();
    let content = bytes(12 << 20);
    place.serve(NAME, &content);
    let host = FaultHost::serve(&place.served(), |seen, before| {
        // One of the ranges breaks off once.
        (seen.range.is_some_and(|(start, _)| start > 6 << 20) && before < 8).then_some(Fault::Cut(300_000))
    });
    let fetch = Fetch {
        expected: Expected::exactly(12 << 20, Sha256::digest(&content)),
        ..Fetch::from(&[&host.base])
    };
    let stop = AtomicBool::new(false);
    let stopped = fetch.run_until(&place, &stop, &StopAfter(&stop, AtomicU64::new(0), 5 << 20)).unwrap_err();
    assert_eq!(stopped.class(), Some(HttpErrorClass::Interrupted), "{stopped}");
    assert!(!place.target().exists());
    let before = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    let fetched = fetch.run_until(&place, &stop, &StopAfter(&stop, before, u64::MAX)).unwrap();
    assert_eq!(fetched.form, Form::Whole);
    good(&place, &content);
    let seen = host.seen.lock().unwrap();
    assert!(seen.iter().all(|seen| seen.range.is_some()), "nothing was fetched whole");
    assert!(seen.iter().filter(|seen| seen.range != Some((0, Some(0)))).all(|seen| seen.if_range.is_some()));
}

#[test]
fn ranges_of_two_builds_or_of_a_host_without_ranges_fall_back_to_one_piece() {
    let place = Place::new();
    let content = bytes(9 << 20);
    place.serve(NAME, &content);
    let expected = Expected::exactly(9 << 20, Sha256::digest(&content));
    let without = FaultHost::serve(&place.served(), |_, _| Some(Fault::NoRanges));
    Fetch { expected, ..Fetch::from(&[&without.base]) }.run(&place).unwrap();
    good(&place, &content);
    fs::remove_file(place.target()).unwrap();
    // A flipped byte in one range: the whole is fetched in one piece.
    let flipping = FaultHost::serve(&place.served(), |seen, before| {
        (seen.range.is_some_and(|(start, end)| start > 0 && end.is_some()) && before < 6)
            .then_some(Fault::Flip)
    });
    Fetch { expected, ..Fetch::from(&[&flipping.base]) }.run(&place).unwrap();
    good(&place, &content);
}

#[test]
fn two_fetches_of_one_file_do_not_meet() {
    let place = Place::new();
    let content = bytes(300_000);
    place.serve(NAME, &content);
    let host = FaultHost::serve(&place.served(), |_, before| (before < 2).then_some(Fault::Stall(1000)));
    let fetch = Fetch::from(&[&host.base]);
    thread::scope(|scope| {
        let first = scope.spawn(|| fetch.run(&place));
        thread::sleep(Duration::from_millis(200));
        let second = Fetch::from(&[&host.base]).run(&place).unwrap_err();
        assert!(matches!(second, FetchError::Busy(_)), "{second}");
        first.join().unwrap().unwrap();
    });
    good(&place, &content);
}

#[test]
fn the_real_nginx_serves_whole_files_parts_and_ranges() {
    let place = Place::new();
    let Some(nginx) = Nginx::serve(&place) else {
        println!("skipped: the_real_nginx_serves_whole_files_parts_and_ranges: nginx is not installed");
        return;
    };
    let content = bytes(20 << 20);
    place.serve(NAME, &content);
    let fetched = Fetch::from(&[&nginx.base]).run(&place).unwrap();
    assert_eq!(fetched.form, Form::Whole);
    good(&place, &content);
    fs::remove_file(place.served().join(NAME)).unwrap();
    fs::remove_file(place.target()).unwrap();
    let listed = place.serve_parts(&content, 3 << 20);
    let fetched = Fetch::from(&[&nginx.base]).run(&place).unwrap();
    assert_eq!(fetched.form, Form::Parts(7));
    good(&place, &content);
    fs::remove_file(place.target()).unwrap();
    Fetch::from(&[&nginx.base]).listed(&listed).run(&place).unwrap();
    good(&place, &content);
}

/// Adds up what is reported.
#[derive(Default)]
struct Sum(AtomicU64);

impl Progress for Sum {
    fn begin(&self, _label: &str, _total: Option<u64>) {}
    fn advance(&self, amount: u64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }
    fn end(&self) {}
}

#[test]
fn bytes_that_come_again_in_another_form_count_once() {
    let place = Place::new();
    let content = bytes(9 << 20);
    place.serve(NAME, &content);
    let expected = Expected::exactly(9 << 20, Sha256::digest(&content));
    // An older file is looked at, ranges come and are damaged, and one piece breaks off before it is whole.
    let older = [&content[1..], b"x"].concat();
    write_atomic(place.target(), &older).unwrap();
    let flipping = FaultHost::serve(&place.served(), |seen, before| match seen.range {
        Some((start, Some(_))) if start > 0 => Some(Fault::Flip),
        Some((_, Some(_))) => None,
        _ => (before < 8).then_some(Fault::Cut(4 << 20)),
    });
    let sum = Sum::default();
    let fetch = Fetch { expected, ..Fetch::from(&[&flipping.base]) };
    fetch.run_until(&place, &AtomicBool::new(false), &sum).unwrap();
    good(&place, &content);
    assert_eq!(sum.0.load(Ordering::Relaxed), 9 << 20);
    let seen = flipping.seen.lock().unwrap();
    assert!(seen.iter().any(|seen| seen.range.is_none()), "it came in one piece in the end");
}
