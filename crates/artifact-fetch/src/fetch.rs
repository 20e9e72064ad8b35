//! One artifact, whole or in parts.

use std::sync::atomic::AtomicBool;

use artifact_parts::ListedArtifact;
use camino::{Utf8Path, Utf8PathBuf};
use durable_fs::{Expected, FsError, Progress, ProgressOnce, hash_file};
use serde::Serialize;
use verified_download::{Download, HttpClient, HttpUrl, Origin};

use crate::{
    FetchError,
    parts::{fetch_listed_parts, fetch_probed_parts},
    ranges::fetch_ranges,
    recognise,
    staging::Staging,
};

/// What every fetch needs.
#[derive(Clone, Copy)]
pub struct FetchContext<'a> {
    /// The client, with its limits per host.
    pub client: &'a HttpClient,
    /// How many files, or ranges of a file, are fetched at a time.
    pub connections: usize,
    /// Watches the bytes.
    pub progress: &'a dyn Progress,
    /// Set to stop; what is complete stays for the next run.
    pub stop: &'a AtomicBool,
    /// Looks at the whole, verified file before it gets its name; `Err` says why it must not be used.
    pub accept: &'a (dyn Fn(&Utf8Path) -> Result<(), String> + Sync),
}

/// What to fetch.
#[derive(Debug, Clone)]
pub struct Wanted<'a> {
    /// The artifact's file name.
    pub name: &'a str,
    /// Addresses of the whole file itself, asked before the hosts.
    pub urls: &'a [HttpUrl],
    /// Addresses under which hosts have their files.
    pub bases: &'a [HttpUrl],
    /// What a part list says of it.
    pub listed: Option<&'a ListedArtifact>,
    /// Size and digest, where something else than a part list says them.
    pub expected: Expected,
}

/// How an artifact was served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Form {
    /// It was there already.
    Present,
    /// As one file.
    Whole,
    /// In so many parts.
    Parts(usize),
}

/// A fetched artifact.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Fetched {
    /// The file.
    pub path: Utf8PathBuf,
    /// Its size in bytes.
    pub size: u64,
    /// Its SHA-256.
    pub sha256: model_catalog::Sha256Digest,
    /// How it was served.
    pub form: Form,
    /// Whether its digest was known before; without that nothing but its length and looks vouches for it.
    pub verified: bool,
}

/// Fetches an artifact into the directory `to`. An older file of the name stays until the new one is whole; one that has the
/// expected digest already is left as it is.
///
/// # Errors
/// [`FetchError`]; what is complete of it is kept for the next run.
pub fn fetch(context: &FetchContext<'_>, wanted: &Wanted<'_>, to: &Utf8Path) -> Result<Fetched, FetchError> {
    let expected = match wanted.listed {
        Some(listed) => Expected::exactly(listed.size, listed.sha256),
        None => wanted.expected,
    };
    // Whichever way the bytes come in the end, each counts once.
    let once = ProgressOnce::new(context.progress, expected.size);
    let context = &FetchContext { progress: &once, ..*context };
    if let Some(present) = present(context, &to.join(wanted.name), expected)? {
        return Ok(present);
    }
    once.begin_again();
    let staging = Staging::open(to, wanted.name)?;
    match fetch_through(context, &once, wanted, expected, &staging, to) {
        Ok(fetched) => {
            staging.place(wanted.name, to)?;
            staging.close()?;
            Ok(fetched)
        }
        Err(error) => {
            staging.abandon();
            Err(error)
        }
    }
}

/// Brings the whole, verified and accepted file into the staging directory.
fn fetch_through(
    context: &FetchContext<'_>,
    once: &ProgressOnce<'_>,
    wanted: &Wanted<'_>,
    expected: Expected,
    staging: &Staging,
    to: &Utf8Path,
) -> Result<Fetched, FetchError> {
    let fetched = match wanted.listed {
        Some(listed) if !listed.parts.is_empty() => {
            let written = fetch_listed_parts(context, wanted.bases, listed, staging)?;
            let form = Form::Parts(listed.parts.len());
            let path = to.join(wanted.name);
            Fetched { path, size: written.size, sha256: written.sha256, form, verified: true }
        }
        _ => by_name(context, once, wanted, expected, staging, to)?,
    };
    let staged = staging.path(wanted.name);
    if let Err(why) = (context.accept)(&staged) {
        // Its bytes are the published ones: another try from what is staged would end here again.
        staging.remove(|_| true)?;
        return Err(FetchError::Unfit { name: wanted.name.to_owned(), why });
    }
    Ok(fetched)
}

fn present(
    context: &FetchContext<'_>,
    path: &Utf8Path,
    expected: Expected,
) -> Result<Option<Fetched>, FsError> {
    let is_size = |size| path.metadata().is_ok_and(|found| found.is_file() && found.len() == size);
    match expected {
        Expected { size, sha256: Some(sha256) } if size.is_none_or(is_size) && path.is_file() => {
            let (actual, size) = hash_file(path, context.progress)?;
            let fetched =
                Fetched { path: path.to_owned(), size, sha256, form: Form::Present, verified: true };
            Ok((actual == sha256).then_some(fetched))
        }
        _ => Ok(None),
    }
}

/// The whole file first, its parts second.
fn by_name(
    context: &FetchContext<'_>,
    once: &ProgressOnce<'_>,
    wanted: &Wanted<'_>,
    expected: Expected,
    staging: &Staging,
    to: &Utf8Path,
) -> Result<Fetched, FetchError> {
    let beside: Vec<HttpUrl> = wanted.bases.iter().map(|base| base.with_suffix(wanted.name)).collect();
    let urls: Vec<HttpUrl> = wanted.urls.iter().chain(&beside).cloned().collect();
    let path = to.join(wanted.name);
    match fetch_whole(context, once, wanted.name, &urls, expected, staging) {
        Ok((size, sha256)) => {
            return Ok(Fetched {
                path,
                size,
                sha256,
                form: Form::Whole,
                verified: expected.sha256.is_some(),
            });
        }
        Err(error) if error.may_be_elsewhere() && wanted.listed.is_none() => {}
        Err(error) => return Err(error),
    }
    once.begin_again();
    let Some((written, count)) = fetch_probed_parts(context, wanted, expected, staging)? else {
        let tried = urls.iter().map(ToString::to_string).collect();
        return Err(FetchError::Absent { name: wanted.name.to_owned(), tried });
    };
    Ok(Fetched { path, size: written.size, sha256: written.sha256, form: Form::Parts(count), verified: true })
}

fn fetch_whole(
    context: &FetchContext<'_>,
    once: &ProgressOnce<'_>,
    name: &str,
    urls: &[HttpUrl],
    expected: Expected,
    staging: &Staging,
) -> Result<(u64, model_catalog::Sha256Digest), FetchError> {
    let staged = staging.path(name);
    let ranges = urls.first().map(|url| fetch_ranges(context, url, expected, &staged)).transpose()?.flatten();
    let (written, url) = match ranges {
        Some(written) => (written, urls[0].to_string()),
        None => {
            once.begin_again();
            let origins: Vec<Origin> = urls.iter().cloned().map(Origin::new).collect();
            let download = Download { label: name, destination: &staged, expected };
            let fetched = context.client.download(&download, &origins, context.progress, context.stop)?;
            (fetched.written, fetched.url)
        }
    };
    if expected.sha256.is_none() {
        refuse_foreign(&staged, name, &url)?;
    }
    Ok((written.size, written.sha256))
}

/// Refuses a staged file that is recognisably something else, and removes it.
pub(crate) fn refuse_foreign(staged: &Utf8Path, name: &str, url: &str) -> Result<(), FetchError> {
    let Some(foreign) = recognise(staged)? else { return Ok(()) };
    std::fs::remove_file(staged).map_err(FsError::io("remove", staged))?;
    Err(FetchError::Foreign {
        name: name.to_owned(),
        url: url.to_owned(),
        what: foreign.what(),
        hint: foreign.hint(),
    })
}
