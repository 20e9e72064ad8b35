//! The user's git configuration, beside the clone's own. The library does not look for it: a program hands it over.

use std::io;

use camino::{Utf8Path, Utf8PathBuf};
use durable_fs::FsError;
use gix::{bstr::ByteSlice, config::file::Metadata};

use crate::ExtractError;

/// Where git itself has a configuration for the whole machine, by platform and packager.
const SYSTEM_FILES: &[&str] = &[
    #[cfg(target_os = "macos")]
    "/Library/Developer/CommandLineTools/usr/share/git-core/gitconfig",
    #[cfg(target_os = "macos")]
    "/Applications/Xcode.app/Contents/Developer/usr/share/git-core/gitconfig",
    #[cfg(target_os = "macos")]
    "/opt/homebrew/etc/gitconfig",
    #[cfg(target_os = "macos")]
    "/usr/local/etc/gitconfig",
    "/etc/gitconfig",
];

/// Settings of the user that count for every clone: where LFS servers and objects are, and other names of addresses. The files
/// are only read. The default has nothing in it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UserGitConfig {
    /// Files, the weakest first; all are weaker than the clone's own. One that does not exist has nothing to say.
    pub files: Vec<Utf8PathBuf>,
    /// What `~/` means in their includes.
    pub home: Option<Utf8PathBuf>,
    /// Keys and values that are stronger than any file.
    pub overrides: Vec<(String, String)>,
}

impl UserGitConfig {
    /// What git would read with these variables: `GIT_CONFIG_SYSTEM` (unless `GIT_CONFIG_NOSYSTEM`), `GIT_CONFIG_GLOBAL` or the
    /// files below `XDG_CONFIG_HOME` and `HOME`, and the pairs of `GIT_CONFIG_COUNT`. `variable` is given a name.
    pub fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Self {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        let home = set("HOME").map(Utf8PathBuf::from);
        let mut files = Vec::new();
        let without_system = set("GIT_CONFIG_NOSYSTEM")
            .is_some_and(|value| !matches!(&*value.to_ascii_lowercase(), "0" | "false" | "no" | "off"));
        match variable("GIT_CONFIG_SYSTEM") {
            _ if without_system => {}
            Some(file) => files.push(file.into()),
            None => files.extend(SYSTEM_FILES.iter().map(Utf8PathBuf::from)),
        }
        match variable("GIT_CONFIG_GLOBAL") {
            Some(file) => files.push(file.into()),
            None => {
                let xdg = set("XDG_CONFIG_HOME").map(Utf8PathBuf::from);
                let xdg = xdg.or_else(|| Some(home.as_ref()?.join(".config")));
                files.extend(xdg.map(|dir| dir.join("git/config")));
                files.extend(home.as_ref().map(|home| home.join(".gitconfig")));
            }
        }
        files.retain(|file| !file.as_str().is_empty());
        let count = set("GIT_CONFIG_COUNT").and_then(|count| count.parse::<usize>().ok()).unwrap_or(0);
        let pair = |index: usize| {
            let key = set(&format!("GIT_CONFIG_KEY_{index}"))?;
            Some((key, variable(&format!("GIT_CONFIG_VALUE_{index}")).unwrap_or_default()))
        };
        Self { files, home, overrides: (0..count.min(MOST_OVERRIDES)).filter_map(pair).collect() }
    }
}

/// More pairs than anybody sets.
const MOST_OVERRIDES: usize = 10_000;

/// All settings that count for a clone: the user's files, then the clone's own, then the user's overrides.
pub(crate) struct GitConfig {
    merged: gix::config::File,
    overrides: Vec<(String, String)>,
}

impl GitConfig {
    /// Reads the user's files for `repository`.
    pub(crate) fn read(user: &UserGitConfig, repository: &gix::Repository) -> Result<Self, ExtractError> {
        let branch = repository.head_name().ok().flatten();
        let conditional = gix::config::file::includes::conditional::Context {
            git_dir: Some(repository.git_dir()),
            branch_name: branch.as_ref().map(AsRef::as_ref),
        };
        let interpolate = gix::config::path::interpolate::Context {
            home_dir: user.home.as_deref().map(Utf8Path::as_std_path),
            ..Default::default()
        };
        let includes = gix::config::file::includes::Options::follow(interpolate, conditional);
        let options = gix::config::file::init::Options { includes, ..Default::default() };
        let mut merged = gix::config::File::default();
        for path in &user.files {
            let Some(mut text) = read_if_there(path)? else { continue };
            let meta = Metadata::from(gix::config::Source::User).at(path.as_std_path());
            let file = gix::config::File::from_bytes_owned(&mut text, meta, options);
            let added = file.and_then(|file| merged.append(file).map(drop));
            added.map_err(|error| unusable(path.as_str(), &error))?;
        }
        let own = repository.config_snapshot().plumbing().clone();
        merged.append(own).map_err(|error| unusable("the clone", &error))?;
        let set = overrides(&user.overrides).and_then(|file| merged.append(file).map(drop));
        set.map_err(|error| unusable("GIT_CONFIG_COUNT", &error))?;
        Ok(Self { merged, overrides: user.overrides.clone() })
    }

    /// The strongest value of a key such as `lfs.url`.
    pub(crate) fn string(&self, key: &str) -> Option<String> {
        self.merged.string(key).map(|value| value.to_string())
    }

    /// The remotes' names, `origin` first, then in alphabetical order.
    pub(crate) fn remote_names(&self) -> Vec<String> {
        let sections = self.merged.sections_by_name("remote").into_iter().flatten();
        let names = sections.filter_map(|section| Some(section.header().subsection_name()?.to_string()));
        let mut names: Vec<String> = names.collect();
        names.sort_by_key(|name| (name != "origin", name.clone()));
        names.dedup();
        names
    }

    /// The remote's address with the user's other names resolved.
    pub(crate) fn remote_url(&self, name: &str) -> Option<String> {
        Some(self.rewritten(&self.string(&format!("remote.{name}.url"))?))
    }

    pub(crate) fn is_promisor(&self, name: &str) -> bool {
        self.merged.boolean(format!("remote.{name}.promisor").as_str()).ok().flatten() == Some(true)
    }

    /// Every `url.<base>.insteadOf`: the base, and the beginning that it replaces.
    fn aliases(&self) -> Vec<(String, String)> {
        let mut aliases = Vec::new();
        for section in self.merged.sections_by_name("url").into_iter().flatten() {
            let Some(base) = section.header().subsection_name() else { continue };
            for beginning in section.values("insteadOf") {
                aliases.push((base.to_string(), beginning.to_str_lossy().into_owned()));
            }
        }
        aliases
    }

    /// `address` as git rewrites it: the longest beginning that some `url.<base>.insteadOf` names is replaced by that base, once.
    pub(crate) fn rewritten(&self, address: &str) -> String {
        let mut best: Option<(String, String)> = None;
        for (base, beginning) in self.aliases() {
            // Of two equally long ones git takes the first.
            let longer = best.as_ref().is_none_or(|(_, known)| beginning.len() > known.len());
            if !beginning.is_empty() && address.starts_with(&beginning) && longer {
                best = Some((base, beginning));
            }
        }
        match best {
            Some((base, beginning)) => format!("{base}{}", &address[beginning.len()..]),
            None => address.to_owned(),
        }
    }

    /// What a `git` that does not run in the clone has to be told, so that addresses mean the same to it.
    pub(crate) fn for_git(&self) -> Vec<(String, String)> {
        let aliases = self.aliases().into_iter();
        let aliases = aliases.map(|(base, beginning)| (format!("url.{base}.insteadOf"), beginning));
        self.overrides.iter().cloned().chain(aliases).collect()
    }
}

fn read_if_there(path: &Utf8Path) -> Result<Option<Vec<u8>>, ExtractError> {
    match std::fs::read(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(None)
        }
        Err(error) => Err(FsError::io("read the git configuration", path)(error).into()),
    }
}

fn unusable(path: &str, why: &dyn std::fmt::Display) -> ExtractError {
    ExtractError::Options {
        why: format!("the git configuration of {path} cannot be used: {why}; correct it"),
    }
}

fn overrides(pairs: &[(String, String)]) -> Result<gix::config::File, gix::Error> {
    let mut file = gix::config::File::default();
    for (key, value) in pairs {
        let Some((section, rest)) = key.split_once('.') else { continue };
        let (subsection, name) = match rest.rsplit_once('.') {
            Some((subsection, name)) => (Some(gix::bstr::BString::from(subsection)), name),
            None => (None, rest),
        };
        file.new_section(section, subsection)?.push(name, value.as_str())?;
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(variables: &[(&str, &str)]) -> Vec<String> {
        let variable = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        UserGitConfig::from_variables(variable).files.into_iter().map(|file| file.to_string()).collect()
    }

    #[test]
    fn the_variables_name_the_files_that_git_reads() {
        let home = ("HOME", "/home/u");
        let off = ("GIT_CONFIG_NOSYSTEM", "1");
        assert_eq!(files(&[home, off]), ["/home/u/.config/git/config", "/home/u/.gitconfig"]);
        assert_eq!(files(&[home, off, ("XDG_CONFIG_HOME", "/x")]), ["/x/git/config", "/home/u/.gitconfig"]);
        assert_eq!(files(&[home, off, ("GIT_CONFIG_GLOBAL", "/g")]), ["/g"]);
        assert!(files(&[home, off, ("GIT_CONFIG_GLOBAL", "")]).is_empty(), "an empty name means none");
        let system = files(&[("GIT_CONFIG_GLOBAL", "/g")]);
        assert_eq!(system.last().map(String::as_str), Some("/g"), "{system:?}");
        assert!(system.contains(&"/etc/gitconfig".to_owned()));
        assert_eq!(files(&[("GIT_CONFIG_SYSTEM", "/s"), ("GIT_CONFIG_GLOBAL", "/g")]), ["/s", "/g"]);
        assert_eq!(files(&[("GIT_CONFIG_SYSTEM", "/s"), off, ("GIT_CONFIG_GLOBAL", "/g")]), ["/g"]);
    }

    #[test]
    fn pairs_of_the_environment_are_read() {
        let variable = |name: &str| match name {
            "GIT_CONFIG_COUNT" => Some("2".to_owned()),
            "GIT_CONFIG_KEY_0" => Some("url.https://h/a.b/.insteadOf".to_owned()),
            "GIT_CONFIG_VALUE_0" => Some("gh:".to_owned()),
            "GIT_CONFIG_KEY_1" => Some("lfs.url".to_owned()),
            "GIT_CONFIG_VALUE_1" => Some("gh:lfs".to_owned()),
            _ => None,
        };
        let pairs = UserGitConfig::from_variables(variable).overrides;
        let config = GitConfig { merged: overrides(&pairs).unwrap(), overrides: pairs };
        assert_eq!(config.string("lfs.url").as_deref(), Some("gh:lfs"));
        assert_eq!(config.rewritten("gh:lfs"), "https://h/a.b/lfs");
    }

    #[test]
    fn the_longest_beginning_is_replaced_once() {
        let text = "[url \"https://one/\"]\ninsteadOf = gh:\n[url \"gh:\"]\ninsteadOf = x:\n[url \"ssh://two/\"]\n\
                    insteadOf = gh:a/\ninsteadOf = second:\n[url \"https://late/\"]\ninsteadOf = gh:a/\n";
        let mut bytes = text.as_bytes().to_vec();
        let meta = Metadata::from(gix::config::Source::User);
        let merged = gix::config::File::from_bytes_owned(&mut bytes, meta, Default::default()).unwrap();
        let config = GitConfig { merged, overrides: Vec::new() };
        for (address, expected) in [
            ("gh:b/c", "https://one/b/c"),
            ("gh:a/c", "ssh://two/c"),
            ("second:c", "ssh://two/c"),
            ("x:c", "gh:c"),
            ("https://other/", "https://other/"),
        ] {
            assert_eq!(config.rewritten(address), expected, "{address}");
        }
    }
}
