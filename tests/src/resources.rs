//! A resource repository: a local clone, two bare repositories as its remotes, and nginx in front of each branch.

use std::{fs, os::unix::fs::PermissionsExt};

use anyhow::{Context, Result};
use camino::{Utf8Path, Utf8PathBuf};

use crate::{Blob, History, Nginx};

/// The remotes' names in the clone, and those of their repositories.
const REMOTES: [(&str, &str); 2] = [("origin", "one"), ("mirror", "two")];

/// A clone and its two remotes.
#[derive(Debug)]
pub struct Resources {
    dir: Utf8PathBuf,
    clone: History,
    host: Nginx,
}

impl Resources {
    /// Makes everything below `dir`; the branch `Models` has an older release on it.
    ///
    /// # Errors
    /// When git, nginx or the file system refuses.
    pub fn create(dir: &Utf8Path) -> Result<Self> {
        let clone = History::create(dir.join("clone"))?;
        clone.git(["checkout", "--quiet", "-b", "Models"])?;
        for (name, bare) in REMOTES {
            let (path, served) = (dir.join(format!("{bare}.git")), dir.join("raw").join(bare));
            fs::create_dir_all(&served).with_context(|| format!("make {served}"))?;
            clone.git(["init", "--quiet", "--bare", "--initial-branch=Models", path.as_str()])?;
            // As hosts do it: what is pushed appears under the raw address, whole and at once.
            install_hook(&path, "post-receive", &raw_view(&served))?;
            clone.git(["remote", "add", name, path.as_str()])?;
        }
        let old = [
            ("model_names_v22.json", "{\"models\": []}\n"),
            ("old_driving_tinygrad.pkl", "an older artifact\n"),
        ];
        let files = old.map(|(name, text)| (name.to_owned(), Blob::Text(text.to_owned())));
        clone.commit("Models of v22", &files)?;
        for (name, _) in REMOTES {
            clone.git(["push", "--quiet", name, "Models"])?;
        }
        clone.git(["config", "user.name", "Publisher"])?;
        clone.git(["config", "user.email", "publisher@example.org"])?;
        let host = Nginx::serve(&dir.join("nginx"), &dir.join("raw"), "")?;
        Ok(Self { dir: dir.to_owned(), clone, host })
    }

    /// The clone's directory.
    #[must_use]
    pub fn clone_dir(&self) -> &Utf8Path {
        self.clone.root()
    }

    /// The bare repository `one` or `two`.
    #[must_use]
    pub fn bare(&self, bare: &str) -> Utf8PathBuf {
        self.dir.join(format!("{bare}.git"))
    }

    /// The address below which a remote's branches are.
    #[must_use]
    pub fn raw_base(&self, bare: &str) -> String {
        format!("{}/{bare}", self.host.base())
    }

    /// Where nginx reads what it serves of a remote's branch.
    #[must_use]
    pub fn served(&self, bare: &str) -> Utf8PathBuf {
        self.dir.join("raw").join(bare).join("Models")
    }

    /// The host.
    #[must_use]
    pub fn host(&self) -> &Nginx {
        &self.host
    }

    /// The `--remote` words for both remotes.
    #[must_use]
    pub fn remote_arguments(&self) -> Vec<String> {
        let remote = |(name, bare)| format!("--remote={name}={}", self.raw_base(bare));
        REMOTES.into_iter().map(remote).collect()
    }

    /// Runs git in the clone.
    ///
    /// # Errors
    /// When git fails.
    pub fn git(&self, arguments: &[&str]) -> Result<String> {
        Ok(self.clone.git(arguments)?.trim_end().to_owned())
    }

    /// Runs git in a bare repository.
    ///
    /// # Errors
    /// When git fails.
    pub fn git_in(&self, bare: &str, arguments: &[&str]) -> Result<String> {
        let dir = self.bare(bare);
        self.git(&[&["--git-dir", dir.as_str()], arguments].concat())
    }

    /// The names on a remote's branch.
    ///
    /// # Errors
    /// When git fails.
    pub fn names(&self, bare: &str) -> Result<Vec<String>> {
        let listing = self.git_in(bare, &["ls-tree", "--name-only", "Models"])?;
        Ok(listing.lines().map(str::to_owned).collect())
    }

    /// Somebody else's commit on the branch of `one`: `name` gets `text`.
    ///
    /// # Errors
    /// When git fails.
    pub fn somebody_pushes(&self, name: &str, text: &str) -> Result<()> {
        let other = self.dir.join("other");
        let _ = fs::remove_dir_all(&other);
        self.git(&["clone", "--quiet", self.bare("one").as_str(), other.as_str()])?;
        put(&other.join(name), text)?;
        let at = ["-C", other.as_str()];
        self.git(&[&at[..], &["add", "--all"]].concat())?;
        self.git(&[&at[..], &["commit", "--quiet", "--message", "Somebody's work"]].concat())?;
        self.git(&[&at[..], &["push", "--quiet", "origin", "Models"]].concat()).map(drop)
    }

    /// Makes a remote run `script` (of `sh`) before it takes a push; an empty one takes the hook away.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn before_push(&self, bare: &str, script: &str) -> Result<()> {
        install_hook(&self.bare(bare), "pre-receive", &format!("#!/bin/sh\n{script}\n"))
    }
}

/// A hook that shows the branch's newest commit as plain files.
fn raw_view(served: &Utf8Path) -> String {
    format!(
        "#!/bin/sh\nset -e\ntip=$(git rev-parse Models)\nrm -rf '{served}'/next\nmkdir -p '{served}'/\"$tip\"\n\
         git archive \"$tip\" | tar -x -C '{served}'/\"$tip\"\nln -s \"$tip\" '{served}'/next\n\
         mv -T '{served}'/next '{served}'/Models\n"
    )
}

fn install_hook(bare: &Utf8Path, name: &str, text: &str) -> Result<()> {
    let path = bare.join("hooks").join(name);
    fs::create_dir_all(bare.join("hooks"))?;
    put(&path, text)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).with_context(|| format!("allow {path}"))
}

#[expect(clippy::disallowed_methods, reason = "files of a repository that the test has made")]
fn put(path: &Utf8Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("write {path}"))
}
