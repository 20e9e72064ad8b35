//! One large file in several ranges at a time.
//!
//! The file is written at several places; how far each range has come is recorded after the bytes were synced, so that the
//! next run goes on from there. What holds the ranges together is the server's strong `ETag`, sent as `If-Range`, and the
//! digest of the whole.

use std::{
    fs::{self, File, OpenOptions},
    os::unix::fs::FileExt,
    sync::{Mutex, PoisonError, atomic::Ordering},
    thread,
};

use camino::{Utf8Path, Utf8PathBuf};
use durable_fs::{BLOCK, Expected, FsError, NoProgress, Written, hash_file, sync_dir, sync_file, write_json};
use serde::{Deserialize, Serialize};
use verified_download::{HttpError, HttpErrorClass, HttpUrl, Request, Response};

use crate::{FetchContext, FetchError};

/// A file below this size is fetched in one piece.
const SMALLEST: u64 = 8 << 20;

/// A range is never shorter than this.
const SHORTEST_RANGE: u64 = 2 << 20;

/// The state is recorded each time a range has grown by so many bytes.
const CHECKPOINT: u64 = 16 << 20;

/// One range: from `start`, `done` bytes of `len`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Range {
    start: u64,
    len: u64,
    done: u64,
}

/// What is recorded beside the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct State {
    url: String,
    etag: Option<String>,
    size: u64,
    expected: Option<model_catalog::Sha256Digest>,
    ranges: Vec<Range>,
}

struct Work<'a> {
    context: &'a FetchContext<'a>,
    url: &'a HttpUrl,
    file: File,
    path: Utf8PathBuf,
    record: Utf8PathBuf,
    state: Mutex<State>,
}

/// Fetches a file in ranges, to `staged`. `None` where the server does not offer them, the file is small, or the ranges
/// could not be completed: it is then fetched in one piece.
///
/// # Errors
/// [`FetchError`] of this machine, or where it was stopped.
pub(crate) fn fetch_ranges(
    context: &FetchContext<'_>,
    url: &HttpUrl,
    expected: Expected,
    staged: &Utf8Path,
) -> Result<Option<Written>, FetchError> {
    if context.connections < 2 || expected.size.is_some_and(|size| size < SMALLEST) {
        return Ok(None);
    }
    let Some((size, etag)) = probe(context, url)? else { return Ok(None) };
    let fits = size >= SMALLEST && expected.size.is_none_or(|expected| expected == size);
    if !fits || (etag.is_none() && expected.sha256.is_none()) {
        return Ok(None);
    }
    let state = State { url: url.to_string(), etag, size, expected: expected.sha256, ranges: Vec::new() };
    let work = Work::open(context, url, staged, state)?;
    match work.run() {
        Ok(()) => {}
        // Another way may still lead there: the file in one piece, or another origin.
        Err(error) if is_remote(&error) => {
            work.discard()?;
            return Ok(None);
        }
        Err(error) => return Err(error.into()),
    }
    work.finish(staged, expected)
}

fn is_remote(error: &HttpError) -> bool {
    !matches!(
        error.class(),
        HttpErrorClass::Interrupted
            | HttpErrorClass::DiskFull
            | HttpErrorClass::NotWritable
            | HttpErrorClass::System
    )
}

/// Size and strong `ETag` of a file whose server offers ranges.
fn probe(context: &FetchContext<'_>, url: &HttpUrl) -> Result<Option<(u64, Option<String>)>, FetchError> {
    let mut request = Request::get(url.clone());
    request.headers.push(("range".to_owned(), "bytes=0-0".to_owned()));
    let response =
        match context.client.with_retries(context.stop, |_| context.client.send(&request, context.stop)) {
            Ok(response) => response,
            Err(error) if is_remote(&error) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
    if response.status() != 206 || response.header("content-encoding").is_some_and(|name| name != "identity")
    {
        return Ok(None);
    }
    let total =
        response.header("content-range").and_then(|range| range.rsplit_once('/')?.1.trim().parse().ok());
    let etag = response.header("etag").filter(|etag| etag.starts_with('"')).map(str::to_owned);
    Ok(total.map(|total| (total, etag)))
}

impl<'a> Work<'a> {
    fn open(
        context: &'a FetchContext<'a>,
        url: &'a HttpUrl,
        staged: &Utf8Path,
        mut state: State,
    ) -> Result<Self, FetchError> {
        let path = Utf8PathBuf::from(format!("{staged}.ranges"));
        let record = Utf8PathBuf::from(format!("{path}.json"));
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(FsError::io("open", &path))?;
        let recorded: Option<State> =
            fs::read(&record).ok().and_then(|text| serde_json::from_slice(&text).ok());
        state.ranges = match recorded {
            Some(recorded) if recorded.is_of(&state) => {
                context.progress.advance(recorded.ranges.iter().map(|range| range.done).sum());
                recorded.ranges
            }
            _ => cut(state.size, context.connections),
        };
        file.set_len(state.size).map_err(FsError::io("make room for", &path))?;
        Ok(Self { context, url, file, path, record, state: Mutex::new(state) })
    }

    fn run(&self) -> Result<(), HttpError> {
        let count = self.lock().ranges.len();
        let mut results = Vec::new();
        thread::scope(|scope| {
            let running: Vec<_> =
                (0..count).map(|index| scope.spawn(move || self.fetch_range(index))).collect();
            for thread in running {
                results.push(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            }
        });
        self.checkpoint()?;
        results.into_iter().collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fetch_range(&self, index: usize) -> Result<(), HttpError> {
        self.context.client.with_retries(self.context.stop, |_| {
            let (range, etag) = {
                let state = self.lock();
                (state.ranges[index], state.etag.clone())
            };
            if range.done == range.len {
                return Ok(());
            }
            let (from, to) = (range.start + range.done, range.start + range.len - 1);
            let mut request = Request::get(self.url.clone());
            request.headers.push(("range".to_owned(), format!("bytes={from}-{to}")));
            request.headers.extend(etag.map(|etag| ("if-range".to_owned(), etag)));
            let response = self.context.client.send(&request, self.context.stop)?;
            self.check(&response, from, to)?;
            self.receive(response, index)
        })
    }

    /// The answer is the range that was asked for, of the same file.
    fn check(&self, response: &Response<'_>, from: u64, to: u64) -> Result<(), HttpError> {
        let wanted = format!("bytes {from}-{to}/{}", self.lock().size);
        let found = response.header("content-range").unwrap_or("no range");
        if response.status() == 206 && found.trim() == wanted {
            return Ok(());
        }
        let why = format!("{wanted} was asked for; the server answers {} with {found}", response.status());
        Err(HttpError::Protocol { url: self.url.to_string(), why })
    }

    fn receive(&self, mut response: Response<'_>, index: usize) -> Result<(), HttpError> {
        let mut block = vec![0; BLOCK];
        let mut since = 0;
        loop {
            if self.context.stop.load(Ordering::Relaxed) {
                return Err(HttpError::Interrupted);
            }
            let read = response.read(&mut block)?;
            let range = self.lock().ranges[index];
            let fits = usize::try_from(range.len - range.done).unwrap_or(usize::MAX).min(read);
            if fits == 0 {
                break;
            }
            self.file
                .write_all_at(&block[..fits], range.start + range.done)
                .map_err(FsError::io("write", &self.path))?;
            self.lock().ranges[index].done += fits as u64;
            self.context.progress.advance(fits as u64);
            since += fits as u64;
            if since >= CHECKPOINT {
                since = 0;
                self.checkpoint()?;
            }
        }
        let range = self.lock().ranges[index];
        if range.done == range.len {
            return Ok(());
        }
        let why = format!("the range ends after {} of {} bytes", range.done, range.len);
        Err(HttpError::Network { url: self.url.to_string(), why })
    }

    /// Records how far the ranges have come, once those bytes are on disk.
    fn checkpoint(&self) -> Result<(), FsError> {
        let state = self.lock().clone();
        let _ = sync_file(&self.file, &self.path)?;
        write_json(&self.record, &state).map(drop)
    }

    fn discard(&self) -> Result<(), FsError> {
        for path in [&self.record, &self.path] {
            match fs::remove_file(path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(FsError::io("remove", path)(error));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn finish(self, staged: &Utf8Path, expected: Expected) -> Result<Option<Written>, FetchError> {
        let (sha256, size) = hash_file(&self.path, &NoProgress)?;
        if expected.check(&self.path, size, sha256).is_err() {
            // Damage on the way or at the server: fetching in one piece tells which.
            self.discard()?;
            return Ok(None);
        }
        let durability = sync_file(&self.file, &self.path)?;
        fs::rename(&self.path, staged).map_err(FsError::io("replace", staged))?;
        self.discard()?;
        let _ = sync_dir(staged.parent().unwrap_or(Utf8Path::new(".")))?;
        Ok(Some(Written { size, sha256, durability }))
    }
}

impl State {
    /// Whether a recorded state is one of the same file.
    fn is_of(&self, other: &Self) -> bool {
        let key = |state: &Self| (state.url.clone(), state.etag.clone(), state.size, state.expected);
        let covered: u64 = self.ranges.iter().map(|range| range.len).sum();
        let sound = self.ranges.iter().all(|range| range.done <= range.len);
        key(self) == key(other) && covered == self.size && sound
    }
}

/// Cuts a file into as many ranges as connections, none of them too short.
fn cut(size: u64, connections: usize) -> Vec<Range> {
    let count = (size / SHORTEST_RANGE).clamp(1, connections.clamp(1, 16) as u64);
    let len = size.div_ceil(count);
    (0..count).map(|at| Range { start: at * len, len: len.min(size - at * len), done: 0 }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_cover_the_file_once() {
        for (size, connections) in [(8 << 20, 4), ((8 << 20) + 1, 4), (123_456_789, 7), (5_000_000_000, 16)] {
            let ranges = cut(size, connections);
            let mut end = 0;
            for range in &ranges {
                assert_eq!(range.start, end);
                assert!(range.len > 0);
                end += range.len;
            }
            assert_eq!(end, size);
            assert!(ranges.len() <= connections);
        }
    }
}
