//! Which LFS servers may have a commit's objects.
//!
//! The endpoint is a property of the commit: the host moved more than once, and `.lfsconfig` moved with it. So it is read
//! from the tree of the commit that is being extracted, whatever the working tree holds or does not hold.

use gix::bstr::ByteSlice;
use verified_download::HttpUrl;

use crate::{ExtractError, GitId, SourceClone};

/// Why an endpoint is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndpointSource {
    /// `lfs.url` of the clone's configuration or the user's.
    CloneConfig,
    /// `remote.<name>.lfsurl` of the clone's configuration or the user's.
    RemoteConfig,
    /// `.lfsconfig` at the commit.
    CommitConfig,
    /// The usual place beside a remote's repository.
    RemoteDefault,
    /// A mirror that the user configured.
    Mirror,
}

impl std::fmt::Display for EndpointSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::CloneConfig => "lfs.url of the git configuration",
            Self::RemoteConfig => "lfsurl of a remote",
            Self::CommitConfig => ".lfsconfig at the commit",
            Self::RemoteDefault => "beside the remote",
            Self::Mirror => "mirror",
        })
    }
}

/// An LFS server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// Its base address; `/objects/batch` below it answers.
    pub url: HttpUrl,
    /// Why it is asked.
    pub source: EndpointSource,
}

/// The LFS address that git-lfs derives from a remote's address, or `None` for a remote that no web server stands beside.
pub(crate) fn beside_remote(remote: &str) -> Option<HttpUrl> {
    let web = as_web_address(remote)?;
    let url = HttpUrl::parse(&web).ok()?;
    let path = url.path().trim_end_matches('/');
    let suffix = if path.ends_with(".git") { "info/lfs" } else { ".git/info/lfs" };
    if suffix.starts_with('.') {
        return HttpUrl::parse(&format!("{}{suffix}", web.trim_end_matches('/'))).ok();
    }
    Some(url.with_suffix(suffix))
}

/// `ssh`, `git` and scp-like addresses as the `https` address of the same repository.
fn as_web_address(remote: &str) -> Option<String> {
    if remote.starts_with("https://") || remote.starts_with("http://") {
        return Some(remote.to_owned());
    }
    for scheme in ["ssh://", "git+ssh://", "ssh+git://", "git://"] {
        if let Some(rest) = remote.strip_prefix(scheme) {
            let (authority, path) = rest.split_once('/')?;
            // The port is that of the other protocol.
            let host = authority.rsplit('@').next()?.split(':').next()?;
            return Some(format!("https://{host}/{path}"));
        }
    }
    // user@host:path; a path on this machine has a slash before any colon.
    let (host, path) = remote.split_once(':')?;
    if host.contains('/') || path.starts_with("//") || host.is_empty() {
        return None;
    }
    Some(format!("https://{}/{}", host.rsplit('@').next()?, path.trim_start_matches('/')))
}

/// An address as it stands in a configuration: taken as it is, or derived where it names another protocol.
fn configured(text: &str) -> Option<HttpUrl> {
    match HttpUrl::parse(text) {
        Ok(url) => Some(url),
        Err(_) => beside_remote(text),
    }
}

impl SourceClone {
    /// The LFS servers to ask for objects of `commit`, in order: `lfs.url`, `remote.*.lfsurl`, the `.lfsconfig` at the commit,
    /// the remotes' own, then `mirrors`. `url.*.insteadOf` applies to all but the mirrors, as it does for git-lfs.
    ///
    /// # Errors
    /// [`ExtractError`] where the commit's tree cannot be read.
    pub fn lfs_endpoints(&self, commit: GitId, mirrors: &[HttpUrl]) -> Result<Vec<Endpoint>, ExtractError> {
        let config = self.config();
        let address = |url: String| configured(&config.rewritten(&url));
        let names = config.remote_names();
        let mut found: Vec<(Option<HttpUrl>, EndpointSource)> = Vec::new();
        found.push((config.string("lfs.url").and_then(address), EndpointSource::CloneConfig));
        for name in &names {
            let url = config.string(&format!("remote.{name}.lfsurl"));
            found.push((url.and_then(address), EndpointSource::RemoteConfig));
        }
        for url in self.commit_lfs_urls(commit)? {
            found.push((address(url), EndpointSource::CommitConfig));
        }
        for name in &names {
            let url = config.remote_url(name);
            found.push((url.as_deref().and_then(beside_remote), EndpointSource::RemoteDefault));
        }
        found.extend(mirrors.iter().map(|url| (Some(url.clone()), EndpointSource::Mirror)));
        let mut endpoints: Vec<Endpoint> = Vec::new();
        for (url, source) in found {
            if let Some(url) = url
                && !endpoints.iter().any(|known| known.url == url)
            {
                endpoints.push(Endpoint { url, source });
            }
        }
        Ok(endpoints)
    }

    /// The blob of the commit's `.lfsconfig`, where it has one. A partial clone may lack it.
    pub(crate) fn lfsconfig_blob(&self, commit: GitId) -> Result<Option<gix::ObjectId>, ExtractError> {
        self.root_blob(commit, ".lfsconfig")
    }

    /// `lfs.url` and the `lfsurl` of remotes in the `.lfsconfig` at the root of the commit's tree. Nothing else of that file
    /// is believed: it comes from the repository, not from the user.
    fn commit_lfs_urls(&self, commit: GitId) -> Result<Vec<String>, ExtractError> {
        let Some(blob) = self.lfsconfig_blob(commit)? else { return Ok(Vec::new()) };
        let Some(text) = self.open_blob(blob, ".lfsconfig")?.read_small(MAX_LFSCONFIG)? else {
            return Ok(Vec::new());
        };
        let metadata = gix::config::file::Metadata::from(gix::config::Source::Local);
        let Ok(parsed) = gix::config::File::from_bytes_no_includes(&text, metadata, Default::default())
        else {
            return Ok(Vec::new());
        };
        let mut urls: Vec<String> = parsed.string("lfs.url").map(|url| url.to_string()).into_iter().collect();
        for section in parsed.sections_by_name("remote").into_iter().flatten() {
            urls.extend(section.value("lfsurl").map(|url| url.to_str_lossy().into_owned()));
        }
        Ok(urls)
    }
}

/// Longest `.lfsconfig` that is read, in bytes.
const MAX_LFSCONFIG: u64 = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remotes_have_their_server_beside_them() {
        let derived = |remote: &str| beside_remote(remote).map(|url| url.to_string());
        for (remote, expected) in [
            ("https://example.org/a/b.git", Some("https://example.org/a/b.git/info/lfs")),
            ("https://example.org/a/b", Some("https://example.org/a/b.git/info/lfs")),
            ("https://example.org/a/b/", Some("https://example.org/a/b.git/info/lfs")),
            ("git@example.org:a/b.git", Some("https://example.org/a/b.git/info/lfs")),
            ("ssh://git@example.org:2222/a/b.git", Some("https://example.org/a/b.git/info/lfs")),
            ("git://example.org/a/b.git", Some("https://example.org/a/b.git/info/lfs")),
            ("/srv/git/b.git", None),
            ("../b", None),
            ("file:///srv/b.git", None),
        ] {
            assert_eq!(derived(remote).as_deref(), expected, "{remote}");
        }
    }
}
