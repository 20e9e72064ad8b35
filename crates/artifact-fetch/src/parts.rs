//! Parts, several at a time.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use artifact_parts::{KnownParts, ListedArtifact, Part, PartsError, checksum_name, join, parse_checksum};
use durable_fs::{Expected, NoProgress, Written, hash_file};
use model_catalog::{MAX_PARTS, PartName, Sha256Digest};
use verified_download::{Download, HttpErrorClass, HttpUrl, Origin};

use crate::{FetchContext, FetchError, Wanted, fetch::refuse_foreign, list::read, staging::Staging};

/// A checksum file holds a digest and a name.
const LONGEST_CHECKSUM: u64 = 4096;

/// Fetches the parts of a listed artifact, each checked on its own, and joins them in the staging directory.
pub(crate) fn fetch_listed_parts(
    context: &FetchContext<'_>,
    bases: &[HttpUrl],
    listed: &ListedArtifact,
    staging: &Staging,
) -> Result<Written, FetchError> {
    // Parts of another build may be left from an earlier run.
    staging.remove(|name| PartName::parse(name).is_some_and(|part| part.number() >= listed.parts.len()))?;
    in_parallel(context, listed.parts.len(), |number| {
        let part = &listed.parts[number];
        let Some(sha256) = part.sha256 else { return Ok(true) };
        let staged = staging.path(&part.name);
        if staged.is_file() && hash_file(&staged, &NoProgress)? == (sha256, part.size) {
            context.progress.advance(part.size);
            return Ok(true);
        }
        fetch_part(context, bases, &part.name, Expected::exactly(part.size, sha256), staging).map(|_| true)
    })?;
    let whole = Expected::exactly(listed.size, listed.sha256);
    join_staged(staging, &listed.filename, whole, Some(&listed.parts))
}

/// Fetches parts by their names until one is missing, and joins them. `None` where no host has a checksum of the name.
pub(crate) fn fetch_probed_parts(
    context: &FetchContext<'_>,
    wanted: &Wanted<'_>,
    expected: Expected,
    staging: &Staging,
) -> Result<Option<(Written, usize)>, FetchError> {
    let Some((digest, first)) = find_checksum(context, wanted)? else { return Ok(None) };
    // The host with the checksum has the parts of the same build; the others may help out.
    let mut bases = vec![first.clone()];
    bases.extend(wanted.bases.iter().filter(|base| **base != first).cloned());
    forget_other_build(staging, wanted.name, digest)?;
    let end = AtomicUsize::new(MAX_PARTS);
    in_parallel(context, MAX_PARTS, |number| {
        if number >= end.load(Ordering::Acquire) {
            return Ok(false);
        }
        let Some(name) = PartName::new(wanted.name, number).map(|name| name.to_string()) else {
            return Ok(false);
        };
        if staging.path(&name).is_file() {
            return Ok(true);
        }
        match fetch_part(context, &bases, &name, Expected::default(), staging) {
            Ok(url) => match refuse_foreign(&staging.path(&name), &name, &url) {
                // Hosts that answer with a page instead of "not found".
                Err(FetchError::Foreign { .. }) if number > 0 => {}
                result => return result.map(|()| true),
            },
            // The host with the checksum knows how many there are, whatever others answer or do not.
            Err(error) if error.is_gone_at(&first) => {}
            Err(error) => return Err(error),
        }
        end.fetch_min(number, Ordering::AcqRel);
        Ok(false)
    })?;
    let count = end.into_inner();
    staging.remove(|name| PartName::parse(name).is_some_and(|part| part.number() >= count))?;
    let whole = Expected { size: expected.size, sha256: expected.sha256.or(Some(digest)) };
    let written = join_staged(staging, wanted.name, whole, None)?;
    Ok(Some((written, count)))
}

/// Parts of another build than the checksum's are of no use: which one is staged stands in a file beside them.
fn forget_other_build(staging: &Staging, name: &str, digest: Sha256Digest) -> Result<(), FetchError> {
    let marker = staging.path("build.txt");
    let text = format!("{digest}\n");
    if std::fs::read_to_string(&marker).is_ok_and(|staged| staged == text) {
        return Ok(());
    }
    staging.remove(|staged| PartName::parse(staged).is_some_and(|part| part.whole() == name))?;
    durable_fs::write_atomic(&marker, text.as_bytes())?;
    Ok(())
}

fn find_checksum(
    context: &FetchContext<'_>,
    wanted: &Wanted<'_>,
) -> Result<Option<(Sha256Digest, HttpUrl)>, FetchError> {
    let (mut wrong, mut failure) = (None, None);
    for base in wanted.bases {
        let url = base.with_suffix(&checksum_name(wanted.name));
        let body = match read(context, &url, LONGEST_CHECKSUM) {
            Ok(Some(body)) => body,
            Ok(None) => continue,
            // A page is longer than a checksum may be.
            Err(error) if error.class() == HttpErrorClass::Protocol => {
                wrong = wrong.or(Some(url));
                continue;
            }
            Err(error) if error.class() == HttpErrorClass::Interrupted => return Err(error.into()),
            // Another host may have it.
            Err(error) => {
                failure.get_or_insert(error);
                continue;
            }
        };
        match parse_checksum(&String::from_utf8_lossy(&body)) {
            Some((digest, name)) if name == wanted.name => return Ok(Some((digest, base.clone()))),
            _ => wrong = wrong.or(Some(url)),
        }
    }
    match (wrong, failure) {
        (Some(url), _) => Err(FetchError::Checksum { url: url.to_string(), name: wanted.name.to_owned() }),
        (None, Some(error)) => Err(error.into()),
        (None, None) => Ok(None),
    }
}

fn fetch_part(
    context: &FetchContext<'_>,
    bases: &[HttpUrl],
    name: &str,
    expected: Expected,
    staging: &Staging,
) -> Result<String, FetchError> {
    let origins: Vec<Origin> = bases.iter().map(|base| Origin::new(base.with_suffix(name))).collect();
    let download = Download { label: name, destination: &staging.path(name), expected };
    let fetched = context.client.download(&download, &origins, context.progress, context.stop)?;
    Ok(fetched.url)
}

fn join_staged(
    staging: &Staging,
    name: &str,
    whole: Expected,
    parts: Option<&[Part]>,
) -> Result<Written, FetchError> {
    let known = KnownParts { whole, parts, without_checksum: true };
    let joined = join(staging.dir(), name, &staging.path(name), known, &NoProgress);
    if matches!(
        joined,
        Err(PartsError::WholeDigest { .. } | PartsError::PartSize { .. } | PartsError::Surplus { .. })
    ) {
        // Nobody can say which part is wrong: all of them are fetched anew by the next run.
        staging.remove(|staged| PartName::parse(staged).is_some())?;
    }
    Ok(joined?)
}

/// Calls `work` for 0, 1, 2, ... on several threads until it says that there is no more, or fails.
fn in_parallel(
    context: &FetchContext<'_>,
    count: usize,
    work: impl Fn(usize) -> Result<bool, FetchError> + Sync,
) -> Result<(), FetchError> {
    let next = AtomicUsize::new(0);
    let failure: Mutex<Option<FetchError>> = Mutex::new(None);
    let failed = || failure.lock().unwrap_or_else(PoisonError::into_inner).is_some();
    thread::scope(|scope| {
        for _ in 0..context.connections.clamp(1, 16).min(count) {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count || failed() {
                        return;
                    }
                    match work(number) {
                        Ok(true) => {}
                        Ok(false) => return,
                        Err(error) => {
                            failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                            return;
                        }
                    }
                }
            });
        }
    });
    failure.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
}
