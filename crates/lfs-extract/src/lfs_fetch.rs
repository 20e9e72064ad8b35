//! LFS objects over the network: asked for in batches, downloaded in parallel, verified, kept in the workspace's cache.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use camino::Utf8PathBuf;
use durable_fs::{Expected, Progress, ProgressOnce};
use model_catalog::{RelPath, Sha256Digest};
use verified_download::{
    Credentials, Download, HttpClient, HttpError, HttpErrorClass, HttpOptions, HttpUrl, Origin, Request,
};

use crate::{
    Endpoint, ObjectCache, Pointer, Watch,
    batch::{Action, BatchAnswer, MAX_ANSWER, MEDIA_TYPE, parse_batch_answer, question},
    fetch_error::{LfsFetchError, Tried},
    git_credentials::{CredentialSources, CredentialStore},
};

/// How objects are fetched.
#[derive(Debug, Clone)]
pub struct FetchOptions {
    /// Downloads at a time.
    pub jobs: usize,
    /// LFS servers to ask last.
    pub mirrors: Vec<HttpUrl>,
    /// Where credentials come from.
    pub credentials: CredentialSources,
    /// Timeouts, retries, proxy.
    pub http: HttpOptions,
}

impl Default for FetchOptions {
    fn default() -> Self {
        Self {
            jobs: 4,
            mirrors: Vec::new(),
            credentials: CredentialSources::default(),
            http: HttpOptions::default(),
        }
    }
}

/// An object that is wanted, and who may have it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedObject {
    /// Its ID and size.
    pub pointer: Pointer,
    /// The file that it is for.
    pub git_path: RelPath,
    /// The servers to ask, in order.
    pub endpoints: Vec<Endpoint>,
    /// Where it was looked for on this machine.
    pub looked_in: Vec<Utf8PathBuf>,
}

/// An object that was fetched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchedObject {
    /// Its file in the cache.
    pub path: Utf8PathBuf,
    /// The address that served it, without secrets.
    pub url: String,
}

/// What became of each object.
pub type FetchOutcomes = BTreeMap<Sha256Digest, Result<FetchedObject, LfsFetchError>>;

/// Objects that are asked for at once. The addresses in an answer expire, so a batch is small.
const BATCH: usize = 32;

/// Fetches objects into a cache.
#[derive(Debug)]
pub struct LfsFetcher {
    http: HttpClient,
    cache: ObjectCache,
    jobs: usize,
    mirrors: Vec<HttpUrl>,
    credentials: CredentialStore,
}

/// An object on its way, with what was tried so far. However often its download begins again, its bytes count once.
struct Pending<'p> {
    wanted: WantedObject,
    tried: Vec<Tried>,
    progress: ProgressOnce<'p>,
}

impl LfsFetcher {
    /// A fetcher into `cache`.
    ///
    /// # Errors
    /// [`HttpError`] where the options name a proxy or certificates that cannot be used.
    pub fn new(cache: ObjectCache, options: FetchOptions) -> Result<Self, HttpError> {
        let FetchOptions { jobs, mirrors, credentials, http } = options;
        let http = HttpOptions { per_host: http.per_host.max(jobs), ..http };
        let credentials = CredentialStore::new(credentials);
        Ok(Self { http: HttpClient::new(http)?, cache, jobs: jobs.max(1), mirrors, credentials })
    }

    /// The cache.
    pub fn cache(&self) -> &ObjectCache {
        &self.cache
    }

    /// The configured mirrors.
    pub fn mirrors(&self) -> &[HttpUrl] {
        &self.mirrors
    }

    /// Fetches every wanted object: at the first of its servers that serves it, several at a time. Equal objects are fetched
    /// once. Progress is one bar over all bytes.
    pub fn fetch(&self, wanted: Vec<WantedObject>, watch: &Watch<'_>) -> FetchOutcomes {
        let mut pending = merge(wanted, watch.progress);
        let total = pending.iter().map(|object| object.wanted.pointer.size).sum();
        watch.progress.begin("LFS objects", Some(total));
        let mut outcomes = FetchOutcomes::new();
        for round in 0.. {
            let (ask, over): (Vec<_>, Vec<_>) = pending
                .into_iter()
                .partition(|object| round < object.wanted.endpoints.len() && !object.is_hopeless());
            outcomes
                .extend(over.into_iter().map(|object| (object.wanted.pointer.oid, Err(object.into_error()))));
            if ask.is_empty() {
                break;
            }
            pending = self.ask_round(ask, round, &mut outcomes, watch);
        }
        watch.progress.end();
        outcomes
    }

    /// Asks each object's server number `round`; returns what is still pending.
    fn ask_round<'p>(
        &self,
        ask: Vec<Pending<'p>>,
        round: usize,
        outcomes: &mut FetchOutcomes,
        watch: &Watch<'_>,
    ) -> Vec<Pending<'p>> {
        let mut groups: Vec<(HttpUrl, Vec<Pending<'p>>)> = Vec::new();
        for object in ask {
            let url = object.wanted.endpoints[round].url.clone();
            match groups.iter_mut().find(|(known, _)| *known == url) {
                Some((_, group)) => group.push(object),
                None => groups.push((url, vec![object])),
            }
        }
        let mut left = Vec::new();
        for (endpoint, mut group) in groups {
            while !group.is_empty() {
                let rest = group.split_off(group.len().min(BATCH));
                let batch = std::mem::replace(&mut group, rest);
                for (object, outcome) in self.fetch_batch(&endpoint, batch, watch) {
                    match outcome {
                        Ok(fetched) => drop(outcomes.insert(object.wanted.pointer.oid, Ok(fetched))),
                        Err(()) => left.push(object),
                    }
                }
            }
        }
        left
    }

    fn fetch_batch<'p>(
        &self,
        endpoint: &HttpUrl,
        batch: Vec<Pending<'p>>,
        watch: &Watch<'_>,
    ) -> Vec<(Pending<'p>, Result<FetchedObject, ()>)> {
        let pointers: Vec<Pointer> = batch.iter().map(|object| object.wanted.pointer).collect();
        let answers = self.batch(endpoint, &pointers, watch);
        let next = AtomicUsize::new(0);
        let slots: Vec<Mutex<(Pending<'_>, Option<FetchedObject>)>> =
            batch.into_iter().map(|object| Mutex::new((object, None))).collect();
        let work = || {
            while let Some(slot) = slots.get(next.fetch_add(1, Ordering::Relaxed)) {
                let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
                match self.fetch_one(endpoint, &slot.0, &answers, watch) {
                    Ok(fetched) => slot.1 = Some(fetched),
                    Err(tried) => slot.0.tried.extend(tried),
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..self.jobs.min(slots.len()) {
                scope.spawn(work);
            }
        });
        let done = slots.into_iter().map(|slot| slot.into_inner().unwrap_or_else(PoisonError::into_inner));
        done.map(|(object, fetched)| (object, fetched.ok_or(()))).collect()
    }

    fn fetch_one(
        &self,
        endpoint: &HttpUrl,
        object: &Pending<'_>,
        answers: &Result<BatchAnswer, Arc<HttpError>>,
        watch: &Watch<'_>,
    ) -> Result<FetchedObject, Vec<Tried>> {
        let Pending { wanted, progress, .. } = object;
        let tried = |error: Arc<HttpError>| vec![Tried { endpoint: endpoint.to_string(), error }];
        let answers = answers.as_ref().map_err(|error| tried(error.clone()))?;
        let mut action = action_for(endpoint, wanted, answers).map_err(|error| tried(error.into()))?;
        for last in [false, true] {
            progress.begin_again();
            match self.download(endpoint, wanted, &action, progress, watch) {
                Ok(fetched) => return Ok(fetched),
                // Signed addresses expire: one fresh answer is asked for before the refusal is believed.
                Err(errors) if !last && errors.iter().any(Tried::is_refusal) => {
                    let again = self.batch(endpoint, &[wanted.pointer], watch).map_err(tried)?;
                    action = action_for(endpoint, wanted, &again).map_err(|error| tried(error.into()))?;
                }
                Err(errors) => return Err(errors),
            }
        }
        unreachable!("the last attempt returns")
    }

    fn download(
        &self,
        endpoint: &HttpUrl,
        wanted: &WantedObject,
        action: &Action,
        progress: &dyn Progress,
        watch: &Watch<'_>,
    ) -> Result<FetchedObject, Vec<Tried>> {
        let tried = |error: HttpError| Tried { endpoint: endpoint.to_string(), error: error.into() };
        let url = endpoint.join(&action.href).map_err(|error| vec![tried(error.into())])?;
        let path = self.cache.prepare(wanted.pointer.oid).map_err(|error| vec![tried(error.into())])?;
        let headers: Vec<(String, String)> =
            action.header.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
        // Objects at the endpoint's own origin take its credentials, others only what the answer says.
        let credentials =
            if url.origin() == endpoint.origin() { self.credentials.known(endpoint) } else { None };
        let expected = Expected::exactly(wanted.pointer.size, wanted.pointer.oid);
        let download = Download { label: wanted.git_path.as_str(), destination: &path, expected };
        let origin = Origin { url, headers, credentials };
        let fetched = self.http.download(&download, &[origin], progress, watch.stop);
        match fetched {
            Ok(fetched) => Ok(FetchedObject { path, url: fetched.url }),
            Err(error) => Err(error.failures.into_iter().map(|failure| tried(failure.error)).collect()),
        }
    }

    /// Asks a server for objects; where it wants credentials, asks git's helpers for them.
    fn batch(
        &self,
        endpoint: &HttpUrl,
        pointers: &[Pointer],
        watch: &Watch<'_>,
    ) -> Result<BatchAnswer, Arc<HttpError>> {
        let known = self.credentials.known(endpoint);
        let answer = match self.batch_as(endpoint, pointers, known, watch) {
            Err(refused) if refused.class() == HttpErrorClass::Auth => {
                match self.credentials.ask(endpoint, watch.stop) {
                    Err(silent) => Err(silent),
                    Ok(None) => Err(refused),
                    Ok(Some(found)) => {
                        let answer = self.batch_as(endpoint, pointers, Some(found.clone()), watch);
                        let refused =
                            answer.as_ref().is_err_and(|error| error.class() == HttpErrorClass::Auth);
                        self.credentials.report(endpoint, &found, !refused, watch.stop);
                        answer
                    }
                }
            }
            answer => answer,
        };
        answer.map_err(Arc::new)
    }

    fn batch_as(
        &self,
        endpoint: &HttpUrl,
        pointers: &[Pointer],
        credentials: Option<Credentials>,
        watch: &Watch<'_>,
    ) -> Result<BatchAnswer, HttpError> {
        let headers =
            ["accept", "content-type"].map(|name| (name.to_owned(), MEDIA_TYPE.to_owned())).to_vec();
        let url = endpoint.with_suffix("objects/batch");
        let request = Request { url, headers, credentials, body: Some(question(pointers)) };
        let body = self.http.read(&request, MAX_ANSWER, watch.stop)?;
        parse_batch_answer(&body).map_err(|why| HttpError::Protocol { url: request.url.to_string(), why })
    }
}

fn action_for(endpoint: &HttpUrl, wanted: &WantedObject, answers: &BatchAnswer) -> Result<Action, HttpError> {
    let status = |status: u16, message: String| HttpError::Status {
        url: endpoint.to_string(),
        status,
        message,
        retry_after: None,
    };
    match answers.get(&wanted.pointer.oid) {
        Some(Ok(action)) => Ok(action.clone()),
        Some(Err(error)) => Err(status(error.code, error.message.clone())),
        None => Err(status(404, "the answer does not mention the object".to_owned())),
    }
}

/// One entry per object; servers that any of its commits names are asked.
fn merge(wanted: Vec<WantedObject>, progress: &dyn Progress) -> Vec<Pending<'_>> {
    let mut merged: Vec<Pending<'_>> = Vec::new();
    for object in wanted {
        match merged.iter_mut().find(|known| known.wanted.pointer.oid == object.pointer.oid) {
            None => {
                let progress = ProgressOnce::new(progress, Some(object.pointer.size));
                merged.push(Pending { wanted: object, tried: Vec::new(), progress });
            }
            Some(known) => {
                for endpoint in object.endpoints {
                    if !known.wanted.endpoints.iter().any(|other| other.url == endpoint.url) {
                        known.wanted.endpoints.push(endpoint);
                    }
                }
            }
        }
    }
    merged
}

impl Pending<'_> {
    /// Whether no further server can help: the disk is full, or the work was stopped.
    fn is_hopeless(&self) -> bool {
        self.tried.iter().any(Tried::is_local)
    }

    fn into_error(self) -> LfsFetchError {
        let WantedObject { pointer, git_path, looked_in, .. } = self.wanted;
        LfsFetchError { oid: pointer.oid, size: pointer.size, git_path, looked_in, tried: self.tried }
    }
}
