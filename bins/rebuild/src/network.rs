//! How sources are fetched: from the configuration, the options and the user's environment. The libraries read none of it.

use std::fs;

use camino::{Utf8Path, Utf8PathBuf};
use console_report::{Exit, Failure};
use lfs_extract::{
    CredentialSources, DEFAULT_UPSTREAM, FetchOptions, HttpOptions, HttpUrl, Netrc, SourcesOptions,
    UserGitConfig,
};

use crate::session::{Session, at_home};

/// What the command line says about fetching.
#[derive(Debug, Clone, Copy)]
pub struct Wishes {
    pub jobs: usize,
    pub offline: bool,
}

/// The options of a run over `clone`.
pub fn sources_options(
    session: &Session<'_>,
    clone: &Utf8Path,
    wishes: Wishes,
) -> Result<SourcesOptions, Failure> {
    let config = &session.config;
    let cache = match &config.cache {
        Some(path) => session.configured(path),
        None => session.workspace.root().join("cache"),
    };
    let fetch =
        if wishes.offline || config.offline { None } else { Some(fetch_options(session, clone, wishes)?) };
    let upstream = config.upstream.clone().unwrap_or_else(|| DEFAULT_UPSTREAM.to_owned());
    let user_config = UserGitConfig::from_variables(|name| std::env::var(name).ok());
    Ok(SourcesOptions {
        clone: clone.to_owned(),
        user_config,
        cache: Some(cache),
        upstreams: vec![upstream],
        fetch,
    })
}

fn fetch_options(session: &Session<'_>, clone: &Utf8Path, wishes: Wishes) -> Result<FetchOptions, Failure> {
    let mirror = |text: &String| {
        HttpUrl::parse(text).map_err(|error| {
            Failure::new(Exit::Usage, "`lfs_mirrors` in rebuild.toml cannot be used").because(&error)
        })
    };
    let mirrors = session.config.lfs_mirrors.iter().map(mirror).collect::<Result<_, _>>()?;
    let credentials =
        CredentialSources { netrc: netrc(), git_in: Some(clone.to_owned()), ..Default::default() };
    let http = http_options()?;
    Ok(FetchOptions { jobs: wishes.jobs, mirrors, credentials, http })
}

fn variable(names: &[&str]) -> Option<String> {
    names.iter().find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
}

/// The user's netrc; a missing one has no entries.
fn netrc() -> Netrc {
    let path = variable(&["NETRC"]).map_or_else(|| at_home(Utf8Path::new("~/.netrc")), Utf8PathBuf::from);
    fs::read_to_string(path).map_or_else(|_| Netrc::default(), |text| Netrc::parse(&text))
}

/// The way to the network as the user's environment has it.
pub fn http_options() -> Result<HttpOptions, Failure> {
    HttpOptions::from_variables(|name| std::env::var(name).ok())
        .map_err(|error| Failure::new(Exit::Environment, "nothing can be fetched").because(&error))
}
