//! A file from the first origin that serves it whole.

use std::sync::atomic::{AtomicBool, Ordering};

use camino::Utf8Path;
use durable_fs::{BLOCK, Expected, FsError, Progress, Written};
use model_catalog::Sha256Digest;

use crate::{
    Credentials, DownloadError, HttpClient, HttpError, HttpUrl, OriginFailure, Request, Response,
    partial::{Partial, Validator},
};

/// One place that may serve a file.
#[derive(Debug, Clone)]
pub struct Origin {
    /// The address.
    pub url: HttpUrl,
    /// Headers that it wants.
    pub headers: Vec<(String, String)>,
    /// Credentials that it wants.
    pub credentials: Option<Credentials>,
}

impl Origin {
    /// An origin that wants nothing.
    pub const fn new(url: HttpUrl) -> Self {
        Self { url, headers: Vec::new(), credentials: None }
    }
}

/// What is downloaded to where.
#[derive(Debug, Clone, Copy)]
pub struct Download<'a> {
    /// Its name in messages.
    pub label: &'a str,
    /// The file, whose directory must exist. `<destination>.partial` stands beside it meanwhile.
    pub destination: &'a Utf8Path,
    /// What it has to be. Without a digest a prefix is only resumed where the server vouches for it with an `ETag`.
    pub expected: Expected,
}

/// A file that was downloaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetched {
    /// Size, digest and durability.
    pub written: Written,
    /// Which origin served it, without secrets.
    pub url: String,
    /// Bytes that were there from an earlier run.
    pub resumed: u64,
    /// Requests that were made.
    pub requests: u32,
}

/// One origin's attempts.
struct Attempts<'a> {
    client: &'a HttpClient,
    download: &'a Download<'a>,
    origin: &'a Origin,
    progress: &'a dyn Progress,
    stop: &'a AtomicBool,
    partial: &'a mut Partial,
    /// Whether everything in the partial file came in one answer of this origin.
    clean: bool,
    /// Whether a range may still be asked for.
    ranges: bool,
    requests: u32,
    /// Bytes that were reported already, so that a restart does not count them twice.
    reported: &'a mut u64,
    wrong: Vec<Sha256Digest>,
}

/// How one request of a download ended.
enum Step {
    Complete,
    /// The server did not honour the range: once more from the beginning, at once.
    Restart,
}

impl HttpClient {
    /// Downloads a file: origins in order, each with the client's retries, resumed where possible, checked before it gets
    /// its name.
    ///
    /// # Errors
    /// [`DownloadError`] with what every origin said. What was downloaded of it is kept for the next run.
    pub fn download(
        &self,
        download: &Download<'_>,
        origins: &[Origin],
        progress: &dyn Progress,
        stop: &AtomicBool,
    ) -> Result<Fetched, DownloadError> {
        let mut failures = Vec::new();
        let failed = |failures| DownloadError { label: download.label.to_owned(), failures };
        let local = |error: FsError| failed(vec![OriginFailure { url: String::new(), error: error.into() }]);
        let mut partial = Partial::open(download.destination, download.expected).map_err(local)?;
        let resumed = partial.len();
        let mut reported = resumed;
        progress.advance(resumed);
        let mut requests = 0;
        for origin in origins {
            let mut attempts = Attempts {
                client: self,
                download,
                origin,
                progress,
                stop,
                partial: &mut partial,
                clean: false,
                ranges: true,
                requests: 0,
                reported: &mut reported,
                wrong: Vec::new(),
            };
            let outcome = attempts.run();
            requests += attempts.requests;
            match outcome {
                Ok(()) => {
                    let written = partial.finish().map_err(local)?;
                    return Ok(Fetched { written, url: origin.url.to_string(), resumed, requests });
                }
                Err(error) => {
                    let give_up = error.is_local();
                    failures.push(OriginFailure { url: origin.url.to_string(), error });
                    if give_up {
                        break;
                    }
                }
            }
        }
        Err(failed(failures))
    }
}

impl Attempts<'_> {
    fn run(&mut self) -> Result<(), HttpError> {
        loop {
            self.client.with_retries(self.stop, |_| {
                while let Step::Restart = self.request()? {}
                Ok(())
            })?;
            match self.verdict()? {
                Verdict::Right => return Ok(()),
                Verdict::Again => {
                    self.partial.reset()?;
                    self.ranges = false;
                }
            }
        }
    }

    /// Looks at a complete content. A wrong one is downloaded once more from the beginning, which tells damage on the way
    /// from damage at the server.
    fn verdict(&mut self) -> Result<Verdict, HttpError> {
        let digest = self.partial.digest();
        let checked = self.download.expected.check(self.download.destination, self.partial.len(), digest);
        let Err(source) = checked else { return Ok(Verdict::Right) };
        if !self.clean {
            return Ok(Verdict::Again);
        }
        let repeated = self.wrong.contains(&digest);
        self.wrong.push(digest);
        if self.wrong.len() < 2 {
            return Ok(Verdict::Again);
        }
        self.partial.reset()?;
        Err(HttpError::Mismatch { url: self.origin.url.to_string(), source, repeated })
    }

    /// Whether the prefix that is there can be continued from this origin.
    fn may_resume(&self) -> bool {
        let vouched = self.validator().is_some();
        self.ranges && self.partial.len() > 0 && (self.download.expected.sha256.is_some() || vouched)
    }

    /// The prefix's version, where it came from this very address.
    fn validator(&self) -> Option<&Validator> {
        self.partial.validator.as_ref().filter(|validator| validator.url == self.origin.url.to_string())
    }

    fn request(&mut self) -> Result<Step, HttpError> {
        let offset = self.partial.len();
        if offset > 0 && self.download.expected.size == Some(offset) {
            return Ok(Step::Complete);
        }
        let resume = self.may_resume();
        if offset > 0 && !resume {
            self.partial.reset()?;
        }
        let mut request =
            Request { credentials: self.origin.credentials.clone(), ..Request::get(self.origin.url.clone()) };
        request.headers.clone_from(&self.origin.headers);
        if resume {
            request.headers.push(("range".to_owned(), format!("bytes={offset}-")));
            if let Some(validator) = self.validator() {
                request.headers.push(("if-range".to_owned(), validator.etag.clone()));
            }
        }
        self.requests += 1;
        let response = match self.client.send(&request, self.stop) {
            Err(HttpError::Status { status: 416, .. }) if resume => return self.restart(),
            response => response?,
        };
        self.accept(response, resume)
    }

    fn restart(&mut self) -> Result<Step, HttpError> {
        self.ranges = false;
        self.partial.reset()?;
        Ok(Step::Restart)
    }

    fn accept(&mut self, response: Response<'_>, resume: bool) -> Result<Step, HttpError> {
        let refused = |why: String| HttpError::Protocol { url: response.url.to_string(), why };
        let encoding = response.header("content-encoding").unwrap_or("identity");
        if !encoding.eq_ignore_ascii_case("identity") {
            return Err(refused(format!("the content is encoded as {encoding}, which was not asked for")));
        }
        match response.status() {
            206 if resume => {
                let range = response.header("content-range").and_then(parse_content_range);
                let (offset, size) = (self.partial.len(), self.download.expected.size);
                let fits = range.is_some_and(|(start, total)| {
                    start == offset && total.is_none_or(|total| size.is_none_or(|size| size == total))
                });
                if !fits {
                    return self.restart();
                }
                self.clean = false;
            }
            // The whole, although a range was asked for, or because none was.
            200 => {
                self.partial.reset()?;
                self.clean = true;
                self.partial.validator = validator_of(&response, self.origin);
            }
            status => return Err(refused(format!("the server answers {status}, which was not asked for"))),
        }
        self.receive(response)
    }

    fn receive(&mut self, mut response: Response<'_>) -> Result<Step, HttpError> {
        let size = self.download.expected.size;
        let mut block = vec![0; BLOCK];
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return Err(HttpError::Interrupted);
            }
            let read = response.read(&mut block)?;
            if read == 0 {
                break;
            }
            self.partial.append(&block[..read])?;
            let len = self.partial.len();
            self.progress.advance(len.saturating_sub(*self.reported));
            *self.reported = len.max(*self.reported);
            if size.is_some_and(|size| len > size) {
                // More than was expected: the rest does not matter, the digest will say so.
                return Ok(Step::Complete);
            }
        }
        match size {
            // A clean answer that ended in order is simply too short; what broke off in the middle is continued.
            Some(size) if self.partial.len() < size && response.header("content-length").is_none() => {
                let why = format!("the content ends after {} of {size} bytes", self.partial.len());
                Err(HttpError::Network { url: response.url.to_string(), why })
            }
            _ => Ok(Step::Complete),
        }
    }
}

enum Verdict {
    Right,
    Again,
}

/// A strong `ETag`: a weak one does not promise equal bytes.
fn validator_of(response: &Response<'_>, origin: &Origin) -> Option<Validator> {
    let etag = response.header("etag").filter(|etag| etag.starts_with('"'))?;
    Some(Validator { url: origin.url.to_string(), etag: etag.to_owned() })
}

/// Start and total of `bytes 5-9/10`; the total is `None` where the server does not know it.
fn parse_content_range(value: &str) -> Option<(u64, Option<u64>)> {
    let (range, total) = value.trim().strip_prefix("bytes ")?.split_once('/')?;
    let (start, end) = range.split_once('-')?;
    let (start, end): (u64, u64) = (start.trim().parse().ok()?, end.trim().parse().ok()?);
    let total = if total.trim() == "*" { None } else { Some(total.trim().parse::<u64>().ok()?) };
    (start <= end && total.is_none_or(|total| end < total)).then_some((start, total))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ranges_are_read_strictly_and_beyond_two_gigabytes() {
        assert_eq!(parse_content_range("bytes 5-9/10"), Some((5, Some(10))));
        assert_eq!(parse_content_range("bytes 5-9/*"), Some((5, None)));
        let large = "bytes 5000000000-5999999999/6000000000";
        assert_eq!(parse_content_range(large), Some((5_000_000_000, Some(6_000_000_000))));
        for wrong in
            ["bytes */10", "bytes 9-5/10", "bytes 5-10/10", "5-9/10", "bytes 5-9", "items 5-9/10", ""]
        {
            assert_eq!(parse_content_range(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn any_range_is_answered(value in "(bytes |[0-9]|-|/|\\*){0,12}") {
            let _ = parse_content_range(&value);
        }
    }
}
