//! What every command begins with: the workspace, its configuration, its lock, the catalog.

use std::sync::{Arc, atomic::AtomicBool};

use camino::{Utf8Path, Utf8PathBuf};
use console_report::{Console, Exit, Failure, interrupt_flag};
use model_catalog::{Manifest, SourceMap};
use rebuild_workspace::{Config, Workspace, WorkspaceLock, load_manifest, load_source_maps};

use crate::{
    cli::{CatalogArgs, Cli},
    failure::{of_manifest_work, of_workspace},
};

/// An opened workspace.
pub struct Session<'c> {
    pub workspace: Workspace,
    pub config: Config,
    pub console: &'c Console,
    pub interrupt: Arc<AtomicBool>,
    // Held for as long as the command works.
    _lock: Option<WorkspaceLock>,
}

impl<'c> Session<'c> {
    /// Opens the workspace for a command that only looks.
    pub fn look(cli: &Cli, console: &'c Console) -> Result<Self, Failure> {
        let refused = of_workspace("the workspace cannot be used");
        let workspace = Workspace::open(&cli.workspace).map_err(&refused)?;
        let config = workspace.config().map_err(&refused)?;
        let interrupt = interrupt_flag()
            .map_err(|error| Failure::new(Exit::Environment, "cannot listen for Ctrl-C").because(&error))?;
        Ok(Self { workspace, config, console, interrupt, _lock: None })
    }

    /// Opens the workspace for `command`, which changes it: takes the lock, and finishes what an earlier command was stopped
    /// in.
    pub fn begin(cli: &Cli, console: &'c Console, command: &str) -> Result<Self, Failure> {
        let session = Self::look(cli, console)?;
        let refused = of_workspace(format!("`{command}` cannot begin"));
        let lock = session.workspace.lock(command).map_err(refused)?;
        for leftover in lock.swept() {
            console.note(&format!("removed {leftover}, which a killed command left behind"));
        }
        let finished = model_manifest::recover(&session.workspace)
            .map_err(|error| of_manifest_work("an interrupted command cannot be finished", &error))?;
        if let Some(steps) = finished {
            console.note(&format!("finished what an interrupted command had begun: {} changes", steps.len()));
        }
        Ok(Self { _lock: Some(lock), ..session })
    }

    /// Opens the workspace for a command that changes it unless it is a dry run.
    pub fn for_run(cli: &Cli, console: &'c Console, command: &str, dry_run: bool) -> Result<Self, Failure> {
        if dry_run { Self::look(cli, console) } else { Self::begin(cli, console, command) }
    }

    /// The source maps.
    pub fn source_map(&self, args: &CatalogArgs) -> Result<SourceMap, Failure> {
        load_source_maps(&self.workspace, &args.source_map)
            .map_err(of_workspace("the source maps cannot be read"))
    }

    /// The base manifest: the option's, else the configuration's.
    pub fn base_manifest(&self, args: &CatalogArgs) -> Result<Option<Manifest>, Failure> {
        let Some(path) = self.base_manifest_path(args) else { return Ok(None) };
        let manifest = load_manifest(&path).map_err(of_workspace("the base manifest cannot be read"))?;
        Ok(Some(manifest))
    }

    /// The base manifest of a command that cannot do without.
    pub fn required_base_manifest(&self, args: &CatalogArgs) -> Result<Manifest, Failure> {
        self.base_manifest(args)?.ok_or_else(|| {
            Failure::new(Exit::Usage, "there is no base manifest")
                .why("a new manifest is made from the one before")
                .advice("name it with --base-manifest FILE, or as `base_manifest` in rebuild.toml")
        })
    }

    fn base_manifest_path(&self, args: &CatalogArgs) -> Option<Utf8PathBuf> {
        args.base_manifest
            .clone()
            .or_else(|| self.config.base_manifest.as_ref().map(|path| self.configured(path)))
    }

    /// A path of the configuration: `~` is the home directory, a relative path is relative to the workspace.
    pub fn configured(&self, path: &Utf8Path) -> Utf8PathBuf {
        self.workspace.root().join(at_home(path))
    }

    /// Fails with the documented code where Ctrl-C was pressed.
    pub fn check_interrupt(&self, what: &str) -> Result<(), Failure> {
        if self.interrupt.load(std::sync::atomic::Ordering::Relaxed) {
            Err(Failure::new(Exit::Interrupted, format!("{what} was interrupted"))
                .advice("run the same command again; what is done is kept"))
        } else {
            Ok(())
        }
    }
}

/// The path with a leading `~` replaced by the home directory.
pub fn at_home(path: &Utf8Path) -> Utf8PathBuf {
    let home = std::env::var("HOME").ok().filter(|home| !home.is_empty());
    match (path.strip_prefix("~"), home) {
        (Ok(below), Some(home)) => Utf8PathBuf::from(home).join(below),
        _ => path.to_owned(),
    }
}
