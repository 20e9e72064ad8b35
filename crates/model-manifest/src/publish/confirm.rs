//! Fetching what was published over the route that devices use.

use std::{
    sync::atomic::Ordering,
    thread,
    time::{Duration, Instant},
};

use durable_fs::{BLOCK, Sha256};
use model_catalog::Sha256Digest;
use verified_download::{HttpError, HttpErrorClass, HttpUrl, Request};

use super::{PublishError, PublishEvent, PublishRoute, content::Content};

/// Wait between two looks at a host that does not serve the new files yet.
const PAUSE: Duration = Duration::from_secs(2);

/// Fetches these files, each with its size and digest, from every remote that has a raw address.
pub(super) fn confirm_files(
    route: &PublishRoute<'_>,
    files: &[(String, u64, Sha256Digest)],
    on_event: &mut dyn FnMut(PublishEvent),
) -> Result<usize, PublishError> {
    let files: Vec<_> = files.iter().map(|(name, size, sha256)| (name.as_str(), *size, *sha256)).collect();
    confirm(route, &files, true, on_event)
}

/// Fetches every artifact file of the release from every remote that has a raw address; returns how many there were.
pub(super) fn confirm_artifacts(
    route: &PublishRoute<'_>,
    content: &Content,
    on_event: &mut dyn FnMut(PublishEvent),
) -> Result<usize, PublishError> {
    let files: Vec<(&str, u64, Sha256Digest)> =
        content.files().map(|file| (file.name.as_str(), file.size, file.sha256)).collect();
    confirm(route, &files, false, on_event)
}

/// Fetches manifest, part list and signature.
pub(super) fn confirm_texts(
    route: &PublishRoute<'_>,
    content: &Content,
    on_event: &mut dyn FnMut(PublishEvent),
) -> Result<usize, PublishError> {
    let describe =
        |(name, text): &(String, String)| (name.clone(), text.len() as u64, Sha256::digest(text.as_bytes()));
    let texts: Vec<_> = content.texts.iter().map(describe).collect();
    let files: Vec<_> = texts.iter().map(|(name, size, sha256)| (name.as_str(), *size, *sha256)).collect();
    confirm(route, &files, true, on_event)
}

fn confirm(
    route: &PublishRoute<'_>,
    files: &[(&str, u64, Sha256Digest)],
    manifest_switched: bool,
    on_event: &mut dyn FnMut(PublishEvent),
) -> Result<usize, PublishError> {
    let deadline = Instant::now() + route.settle;
    let mut confirmed = 0;
    for base in route.remotes.iter().filter_map(|remote| remote.raw_base.as_deref()) {
        for &(name, size, sha256) in files {
            let url = format!("{}/{}/{name}", base.trim_end_matches('/'), route.branch);
            confirm_one(route, &url, size, sha256, deadline)
                .map_err(|error| unconfirmed(error, &url, manifest_switched))?;
            confirmed += 1;
            on_event(PublishEvent::Confirmed { url });
        }
    }
    Ok(confirmed)
}

enum Unserved {
    Stopped,
    Differs(String),
}

fn unconfirmed(error: Unserved, url: &str, manifest_switched: bool) -> PublishError {
    match error {
        Unserved::Stopped => PublishError::Interrupted,
        Unserved::Differs(why) => PublishError::Unconfirmed { url: url.to_owned(), why, manifest_switched },
    }
}

/// Fetches until the right bytes come or the host had its time: hosts serve old copies for a while.
fn confirm_one(
    route: &PublishRoute<'_>,
    url: &str,
    size: u64,
    sha256: Sha256Digest,
    deadline: Instant,
) -> Result<(), Unserved> {
    let parsed = HttpUrl::parse(url).map_err(|error| Unserved::Differs(error.to_string()))?;
    loop {
        if route.stop.load(Ordering::Relaxed) {
            return Err(Unserved::Stopped);
        }
        let why = match fetch_digest(route, &parsed) {
            Ok((found, actual)) if found == size && actual == sha256 => return Ok(()),
            Ok((found, _)) if found != size => format!("{found} bytes came instead of {size}"),
            Ok((_, actual)) => format!("SHA-256 {actual} came instead of {sha256}"),
            Err(_) if route.stop.load(Ordering::Relaxed) => return Err(Unserved::Stopped),
            Err(error) => error.to_string(),
        };
        if Instant::now() + PAUSE > deadline {
            return Err(Unserved::Differs(why));
        }
        thread::sleep(PAUSE);
    }
}

/// Whether a host serves something under an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Served {
    Yes,
    No,
    /// It did not say.
    Unknown,
}

/// Asks once, for one byte.
pub(super) fn is_served(route: &PublishRoute<'_>, url: &str) -> Served {
    let Ok(parsed) = HttpUrl::parse(url) else { return Served::Unknown };
    let mut get = Request::get(parsed);
    get.headers.push(("cache-control".to_owned(), "no-cache".to_owned()));
    get.headers.push(("range".to_owned(), "bytes=0-0".to_owned()));
    match route.client.send(&get, route.stop) {
        Ok(_) => Served::Yes,
        Err(error) if error.class() == HttpErrorClass::Gone => Served::No,
        Err(_) => Served::Unknown,
    }
}

fn fetch_digest(route: &PublishRoute<'_>, url: &HttpUrl) -> Result<(u64, Sha256Digest), HttpError> {
    route.client.with_retries(route.stop, |_| {
        let mut get = Request::get(url.clone());
        get.headers.push(("cache-control".to_owned(), "no-cache".to_owned()));
        let mut response = route.client.send(&get, route.stop)?;
        let mut hash = Sha256::new();
        let mut size = 0;
        let mut block = vec![0; BLOCK];
        loop {
            match response.read(&mut block)? {
                0 => return Ok((size, hash.finish())),
                read => {
                    hash.update(&block[..read]);
                    size += read as u64;
                    route.progress.advance(read as u64);
                }
            }
        }
    })
}
