//! The sources of a whole catalog: planned in one pass, fetched in parallel, extracted model by model.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use camino::{Utf8Path, Utf8PathBuf};
use model_catalog::{ModelId, SourceEntry};
use verified_download::HttpUrl;

use crate::{
    ByteSource, ExtractError, ExtractedFile, FetchOptions, GitId, GitStore, LfsFetcher, ModelPlan,
    ObjectCache, Pointer, SourceClone, StagedCheck, UserGitConfig, WantedObject, Watch, git_store::Wanted,
    revision::full_id,
};

/// What the sources are taken from.
#[derive(Debug, Clone)]
pub struct SourcesOptions {
    /// The clone.
    pub clone: Utf8PathBuf,
    /// The user's git configuration; the default reads the clone's own alone.
    pub user_config: UserGitConfig,
    /// A directory of the workspace for what is fetched: LFS objects under `lfs`, git objects under `git`.
    pub cache: Option<Utf8PathBuf>,
    /// Repositories to ask for commits that the clone lacks, in order.
    pub upstreams: Vec<String>,
    /// How to fetch; without it no server is asked.
    pub fetch: Option<FetchOptions>,
}

/// What an extraction would begin with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Preview {
    /// Everything that says where the bytes come from is on this machine.
    Planned(ModelPlan),
    /// Git objects would be fetched first; what else it takes is known only then.
    Fetch(Vec<MissingObject>),
}

/// A git object that the clone lacks and that can be asked for by ID.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingObject {
    /// Its ID.
    pub id: GitId,
    /// What it is: the commit, a directory, or a file's path in the commit.
    pub what: String,
    wanted: Wanted,
}

/// A clone, and what fills its gaps.
#[derive(Debug)]
pub struct Sources {
    clone: SourceClone,
    store: Option<GitStore>,
    fetcher: Option<LfsFetcher>,
}

impl Sources {
    /// Opens the clone and what was fetched in earlier runs.
    ///
    /// # Errors
    /// [`ExtractError`] where the clone cannot be opened or an option cannot be used.
    pub fn open(options: SourcesOptions) -> Result<Self, ExtractError> {
        let SourcesOptions { clone, user_config, cache, upstreams, fetch } = options;
        let mut clone = SourceClone::open_with(clone, &user_config)?;
        let objects = cache.as_ref().map(|cache| ObjectCache::new(cache.join("lfs")));
        if let Some(objects) = &objects {
            clone.add_object_cache(objects);
        }
        let fetcher = match (objects, fetch) {
            (Some(objects), Some(fetch)) => Some(
                LfsFetcher::new(objects, fetch)
                    .map_err(|error| ExtractError::Options { why: error.to_string() })?,
            ),
            _ => None,
        };
        let settings = clone.config().for_git();
        let store = cache.map(|cache| GitStore::new(cache.join("git"), upstreams).with_settings(settings));
        if let Some(store) = store.as_ref().filter(|store| store.exists()) {
            clone.read_through(store.path())?;
        }
        Ok(Self { clone, store, fetcher })
    }

    /// The clone.
    pub fn clone_repository(&self) -> &SourceClone {
        &self.clone
    }

    fn mirrors(&self) -> &[HttpUrl] {
        self.fetcher.as_ref().map_or(&[], LfsFetcher::mirrors)
    }

    /// Plans every model. Commits and blobs that the clone lacks (it may be a partial one) are fetched first, all of a kind
    /// in one request; LFS objects are not: [`Self::fetch`] does that.
    pub fn plan(
        &mut self,
        models: &[(ModelId, SourceEntry)],
        watch: &Watch<'_>,
    ) -> Vec<Result<ModelPlan, ExtractError>> {
        let mut failures = BTreeMap::new();
        if self.fetcher.is_some() {
            self.fetch_git_objects(models, &mut failures, watch);
        }
        models.iter().map(|(id, entry)| self.plan_one(id, entry, &mut failures)).collect()
    }

    /// What [`Self::plan`] would find out or fetch for each model. Nothing is written and nobody is asked.
    pub fn preview(&self, models: &[(ModelId, SourceEntry)]) -> Vec<Result<Preview, ExtractError>> {
        let preview = |(id, entry): &(ModelId, SourceEntry)| {
            let missing = if self.fetcher.is_some() { self.missing_git_objects(entry) } else { Vec::new() };
            if !missing.is_empty() {
                return Ok(Preview::Fetch(missing));
            }
            self.clone.plan_with_mirrors(id, entry, self.mirrors()).map(Preview::Planned)
        };
        models.iter().map(preview).collect()
    }

    fn plan_one(
        &self,
        id: &ModelId,
        entry: &SourceEntry,
        failures: &mut BTreeMap<gix::ObjectId, ExtractError>,
    ) -> Result<ModelPlan, ExtractError> {
        let planned = self.clone.plan_with_mirrors(id, entry, self.mirrors());
        planned.map_err(|error| match missing_object(&error).and_then(|one| failures.remove(&one.id.0)) {
            // Why it could not be fetched says more than that it is missing.
            Some(failure) => failure,
            None => error,
        })
    }

    /// Fetches what the plans lack in rounds: commits, then trees, then blobs, until nothing new is missing.
    fn fetch_git_objects(
        &mut self,
        models: &[(ModelId, SourceEntry)],
        failures: &mut BTreeMap<gix::ObjectId, ExtractError>,
        watch: &Watch<'_>,
    ) {
        let mut asked = BTreeSet::new();
        loop {
            let mut missing: BTreeMap<gix::ObjectId, Wanted> = BTreeMap::new();
            for (_, entry) in models {
                missing.extend(self.missing_git_objects(entry).into_iter().map(|one| (one.id.0, one.wanted)));
            }
            missing.retain(|id, _| asked.insert(*id));
            if missing.is_empty() || watch.check().is_err() {
                return;
            }
            for kind in [Wanted::Commit, Wanted::Object] {
                let ids: Vec<_> =
                    missing.iter().filter(|(_, wanted)| **wanted == kind).map(|(id, _)| *id).collect();
                self.fetch_all(&ids, kind, failures, watch);
            }
        }
    }

    /// The git objects that stand between an entry and its plan.
    fn missing_git_objects(&self, entry: &SourceEntry) -> Vec<MissingObject> {
        let found = self.clone.resolve(&entry.git_ref).and_then(|commit| {
            let sources = self.clone.find_sources(commit, entry.input_format, entry.variant())?;
            let mut blobs: Vec<_> =
                sources.into_iter().map(|source| (source.blob, source.git_path.to_string())).collect();
            // A pointer's servers are named there; it is small, and one round less than asking for it when it is needed.
            let config = self.clone.lfsconfig_blob(commit)?;
            blobs.extend(config.map(|blob| (GitId(blob), ".lfsconfig".to_owned())));
            Ok(blobs)
        });
        match found {
            Ok(blobs) => {
                let lacking = blobs.into_iter().filter(|(id, _)| self.clone.objects().find(id.0).is_none());
                lacking.map(|(id, what)| MissingObject { id, what, wanted: Wanted::Object }).collect()
            }
            Err(error) => missing_object(&error).into_iter().collect(),
        }
    }

    /// Fetches `ids` in one request; where that fails, one by one, so that one bad ID does not cost the others.
    fn fetch_all(
        &mut self,
        ids: &[gix::ObjectId],
        kind: Wanted,
        failures: &mut BTreeMap<gix::ObjectId, ExtractError>,
        watch: &Watch<'_>,
    ) {
        let Some(store) = self.store.clone().filter(|_| !ids.is_empty()) else { return };
        let promisors = self.promisor_urls();
        let whole = store
            .prepare(self.clone.object_dir(), watch)
            .and_then(|()| store.fetch(ids, kind, &promisors, watch));
        match whole {
            Ok(()) => {}
            Err(error) if ids.len() == 1 => drop(failures.insert(ids[0], error)),
            Err(_) => {
                for id in ids {
                    if let Err(error) = store.fetch(&[*id], kind, &promisors, watch) {
                        failures.insert(*id, error);
                    }
                }
            }
        }
        if store.exists()
            && let Err(error) = self.clone.read_through(store.path())
        {
            failures.insert(ids[0], error);
        }
    }

    /// The remotes that promised the objects which a partial clone left out.
    fn promisor_urls(&self) -> Vec<String> {
        // Other names of addresses are resolved by the `git` that is given them.
        let config = self.clone.config();
        let promisors = config.remote_names().into_iter().filter(|name| config.is_promisor(name));
        promisors.filter_map(|name| config.string(&format!("remote.{name}.url"))).collect()
    }

    /// Fetches the LFS objects that the plans lack, several at a time, equal ones once. Without a network the plans come back
    /// as they are.
    pub fn fetch(&self, plans: Vec<ModelPlan>, watch: &Watch<'_>) -> Vec<Result<ModelPlan, ExtractError>> {
        let wanted: Vec<WantedObject> = plans.iter().flat_map(wanted_objects).collect();
        let Some(fetcher) = self.fetcher.as_ref().filter(|_| !wanted.is_empty()) else {
            return plans.into_iter().map(Ok).collect();
        };
        let (mut fetched, mut failed) = (BTreeMap::new(), BTreeMap::new());
        for (oid, outcome) in fetcher.fetch(wanted, watch) {
            match outcome {
                Ok(object) => drop(fetched.insert(oid, object)),
                Err(error) => drop(failed.insert(oid, Arc::new(error))),
            }
        }
        let finish = |mut plan: ModelPlan| {
            for file in plan.files.iter_mut().filter(|file| file.source.is_remote()) {
                let Some(oid) = file.sha256 else { continue };
                if let Some(object) = fetched.get(&oid) {
                    file.source =
                        ByteSource::LfsFetched { path: object.path.clone(), url: object.url.clone() };
                } else if let Some(error) = failed.get(&oid) {
                    return Err(ExtractError::Fetch(error.clone()));
                }
            }
            Ok(plan)
        };
        plans.into_iter().map(finish).collect()
    }

    /// Extracts a plan into `destination` as [`SourceClone::extract_model`] does. An object of a cache that turns out to be
    /// damaged is taken from the next place that has one of its size, then from a server, until none is damaged.
    ///
    /// # Errors
    /// [`ExtractError`]
    pub fn extract(
        &self,
        plan: &ModelPlan,
        destination: &Utf8Path,
        check: StagedCheck<'_>,
        watch: &Watch<'_>,
    ) -> Result<Vec<ExtractedFile>, ExtractError> {
        let (mut plan, mut damaged) = (plan.clone(), BTreeSet::new());
        loop {
            let outcome = self.clone.extract_model(&plan, destination, check, watch);
            let Err(ExtractError::LfsObjectDamaged { source, .. }) = &outcome else { return outcome };
            // A file that was replaced and is damaged again is no matter of where it came from.
            if !damaged.insert(source.path().to_owned()) {
                return outcome;
            }
            let next = self.without(&plan, &damaged)?;
            let needs_server = next.files.iter().any(|file| file.source.is_remote());
            if next == plan || (needs_server && self.fetcher.is_none()) {
                return outcome;
            }
            plan = self.fetch(vec![next], watch).remove(0)?;
        }
    }

    /// The plan with every object whose file is among `damaged` taken from elsewhere.
    fn without(&self, plan: &ModelPlan, damaged: &BTreeSet<Utf8PathBuf>) -> Result<ModelPlan, ExtractError> {
        let mut plan = plan.clone();
        for file in &mut plan.files {
            let (ByteSource::LfsCache { path }, Some(oid)) = (&file.source, file.sha256) else { continue };
            if !damaged.contains(path) {
                continue;
            }
            file.source = self.clone.find_lfs_object(&Pointer { oid, size: file.size }, damaged);
            if let (ByteSource::LfsServer { endpoints, .. }, true) =
                (&mut file.source, self.fetcher.is_some())
            {
                *endpoints = self.clone.lfs_endpoints(plan.commit, self.mirrors())?;
            }
        }
        Ok(plan)
    }
}

fn wanted_objects(plan: &ModelPlan) -> Vec<WantedObject> {
    let wanted = plan.files.iter().filter_map(|file| match (&file.source, file.sha256) {
        (ByteSource::LfsServer { endpoints, looked_in, .. }, Some(oid)) => Some(WantedObject {
            pointer: Pointer { oid, size: file.size },
            git_path: file.git_path.clone(),
            endpoints: endpoints.clone(),
            looked_in: looked_in.clone(),
        }),
        _ => None,
    });
    wanted.collect()
}

/// The object whose absence an error reports, where it can be asked for by ID.
fn missing_object(error: &ExtractError) -> Option<MissingObject> {
    let (id, what, wanted) = match error {
        ExtractError::CommitMissing { git_ref, .. } => {
            (full_id(git_ref)?, "the commit".to_owned(), Wanted::Commit)
        }
        ExtractError::ObjectMissing { id, what, .. } => (full_id(id)?, what.clone(), Wanted::Object),
        _ => return None,
    };
    Some(MissingObject { id: GitId(id), what, wanted })
}
