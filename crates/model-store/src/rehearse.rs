//! A rehearsal of what a device does when the selected model cannot run: each fault is made, the decision is taken, and what
//! it names is really loaded. The built-in model must be what runs.

use std::{
    collections::BTreeMap,
    fmt, fs,
    os::unix::fs::PermissionsExt,
    sync::atomic::AtomicBool,
    time::{Duration, Instant},
};

use artifact_pickle::AbiDescription;
use camino::{Utf8Path, Utf8PathBuf};
use durable_fs::{Expected, FsError, NoProgress, copy_file, write_atomic};
use model_catalog::{ArtifactName, ModelId, ModelType, Target};
use serde::Serialize;

use crate::{
    BuiltInBecause, CatalogModel, Decision, Loaded, Loader, Situation, StoreCatalog, StoreError, decide,
    installed,
};

/// Where a device has the built-in model.
pub const BUILT_IN_FILE: &str = "/data/openpilot/selfdrive/modeld/models/driving_tinygrad.pkl";
/// The model of the rehearsal's store.
const MODEL: &str = "rehearsed";

/// What is wrong with the selected model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// Nothing: it must be what runs, or the rehearsal proves nothing.
    None,
    /// Its file is not there.
    Missing,
    /// Its file was cut short.
    Truncated,
    /// Its file looks sound and cannot be loaded.
    Corrupt,
    /// It needs the external GPU, which is not there.
    NoExternalGpu,
    /// Its load never ends.
    Hanging,
}

impl Fault {
    /// Every fault, the control first.
    pub const ALL: [Self; 6] =
        [Self::None, Self::Missing, Self::Truncated, Self::Corrupt, Self::NoExternalGpu, Self::Hanging];
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::None => "a sound model",
            Self::Missing => "a missing artifact",
            Self::Truncated => "a truncated artifact",
            Self::Corrupt => "an artifact that cannot be loaded",
            Self::NoExternalGpu => "a model for the external GPU without one",
            Self::Hanging => "a load that never ends",
        })
    }
}

/// What runs in the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ran {
    /// The selected model.
    Selected,
    /// The built-in model.
    BuiltIn,
    /// No model at all.
    Nothing,
}

/// What a device did.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Started {
    /// What the decision was.
    pub decision: Decision,
    /// How the selected model's load ended, where it was tried.
    pub selected: Option<Loaded>,
    /// How the built-in model's load ended, where it was tried.
    pub built_in: Option<Loaded>,
    /// What runs.
    pub ran: Ran,
}

/// Starts what `decision` names, and the built-in model where that does not get ready. `load` loads a file in a process of
/// its own.
///
/// # Errors
/// Those of `load`.
pub fn start<E>(
    decision: Decision,
    (selected_file, built_in_file): (&Utf8Path, &Utf8Path),
    mut load: impl FnMut(&Utf8Path) -> Result<Loaded, E>,
) -> Result<Started, E> {
    let mut selected = None;
    if matches!(decision, Decision::Artifact { .. }) {
        let loaded = load(selected_file)?;
        if matches!(loaded, Loaded::Ready { .. }) {
            return Ok(Started { decision, selected: Some(loaded), built_in: None, ran: Ran::Selected });
        }
        selected = Some(loaded);
    }
    let built_in = load(built_in_file)?;
    let ran = if matches!(built_in, Loaded::Ready { .. }) { Ran::BuiltIn } else { Ran::Nothing };
    Ok(Started { decision, selected, built_in: Some(built_in), ran })
}

/// The rehearsal of one fault.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Rehearsed {
    /// The fault.
    pub fault: Fault,
    /// What the device did.
    #[serde(flatten)]
    pub started: Started,
    /// Seconds from the decision to a model that is ready.
    pub seconds: f64,
    /// Whether the right model ran.
    pub passed: bool,
}

impl fmt::Display for Rehearsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ran = match self.started.ran {
            Ran::Selected => "the selected model runs",
            Ran::BuiltIn => "the built-in model runs",
            Ran::Nothing => "no model runs",
        };
        let word = if self.passed { "good" } else { "WRONG" };
        write!(f, "{word}: {}: {ran} after {:.1} s", self.fault, self.seconds)?;
        if let Decision::BuiltIn { because } = &self.started.decision {
            write!(f, "; {because}")?;
        }
        for (name, loaded) in [("selected", &self.started.selected), ("built-in", &self.started.built_in)] {
            if let Some(loaded) = loaded {
                write!(f, "; {name}: {loaded}")?;
            }
        }
        Ok(())
    }
}

/// What a rehearsal works with.
#[derive(Debug, Clone)]
pub struct Rehearsal {
    /// A sound artifact that plays the selected model.
    pub artifact: Utf8PathBuf,
    /// The built-in model.
    pub built_in: Utf8PathBuf,
    /// What both were compiled for.
    pub target: Target,
    /// The tinygrad that compiled the artifact, where it is none of those that are built in.
    pub abi: Option<AbiDescription>,
    /// The interpreter.
    pub python: Utf8PathBuf,
    /// The variables of the caller.
    pub variables: BTreeMap<String, String>,
    /// The longest that a load may take.
    pub limit: Duration,
    /// A directory for stores and loads.
    pub scratch: Utf8PathBuf,
}

impl Rehearsal {
    /// Makes the fault in a store of its own, decides, and starts what the decision names. Neither file is changed.
    ///
    /// # Errors
    /// [`StoreError`] where the store cannot be made; what a device would do wrong is in the answer.
    pub fn run(&self, fault: Fault, cancel: &AtomicBool) -> Result<Rehearsed, StoreError> {
        let dir = self.scratch.join(format!("{fault:?}").to_lowercase());
        let store = dir.join("store");
        fs::create_dir_all(&store).map_err(FsError::io("create", &store))?;
        let id = ModelId::new(MODEL).unwrap_or_else(|_| unreachable!("the ID is a plain one"));
        let file = store.join(ArtifactName::new(id.clone()).to_string());
        self.install(fault, &file)?;
        let uses_external_gpu = fault == Fault::NoExternalGpu;
        let model = CatalogModel { name: MODEL.to_owned(), version: None, uses_external_gpu };
        let catalog = StoreCatalog { models: BTreeMap::from([(id.clone(), model)]) };
        let files = installed(&store, &catalog, self.target, self.abi.as_ref())?;
        let began = Instant::now();
        let decision = decide(&Situation {
            selected: Some(MODEL),
            catalog: &catalog,
            installed: &files,
            has_external_gpu: false,
        });
        let mut turn = 0;
        let started = start(decision, (&file, &self.built_in), |artifact| {
            turn += 1;
            let loader = self.loader(fault, artifact == file, &dir)?;
            Ok::<_, StoreError>(loader.load(
                artifact,
                model_type(artifact),
                &dir.join(format!("load-{turn}")),
                cancel,
            )?)
        })?;
        let expected = if fault == Fault::None { Ran::Selected } else { Ran::BuiltIn };
        let passed = started.ran == expected && self.is_right_reason(fault, &started);
        Ok(Rehearsed { fault, seconds: began.elapsed().as_secs_f64(), passed, started })
    }

    /// Whether the built-in model ran for the fault that was made, and for no other reason.
    fn is_right_reason(&self, fault: Fault, started: &Started) -> bool {
        match (fault, &started.decision, &started.selected) {
            (Fault::None, Decision::Artifact { .. }, Some(Loaded::Ready { .. })) => true,
            (Fault::Missing, Decision::BuiltIn { because }, None) => {
                matches!(because, BuiltInBecause::NotInstalled { .. })
            }
            (Fault::Truncated, Decision::BuiltIn { because }, None) => {
                matches!(because, BuiltInBecause::Refused { .. })
            }
            (Fault::NoExternalGpu, Decision::BuiltIn { because }, None) => {
                matches!(because, BuiltInBecause::NoExternalGpu { .. })
            }
            (Fault::Corrupt, Decision::Artifact { .. }, Some(Loaded::Failed { .. })) => true,
            (Fault::Hanging, Decision::Artifact { .. }, Some(Loaded::TimedOut { .. })) => true,
            _ => false,
        }
    }

    fn install(&self, fault: Fault, file: &Utf8Path) -> Result<(), StoreError> {
        if fault == Fault::Missing {
            return Ok(());
        }
        copy_file(&self.artifact, file, Expected::default(), &NoProgress)?;
        if fault == Fault::Truncated {
            let size = file.metadata().map_err(FsError::io("look at", file))?.len();
            let opened = fs::OpenOptions::new().write(true).open(file).map_err(FsError::io("open", file))?;
            opened.set_len(size / 2).map_err(FsError::io("cut short", file))?;
        }
        Ok(())
    }

    /// The loader of a file: that of a selected model with a fault of loading has an interpreter that shows it.
    fn loader(&self, fault: Fault, is_selected: bool, dir: &Utf8Path) -> Result<Loader, FsError> {
        let script = match fault {
            // The shell waits for its child and ignores what a polite supervisor sends.
            Fault::Hanging if is_selected => Some("#!/bin/sh\ntrap '' TERM INT HUP\nsleep 86400\n"),
            Fault::Corrupt if is_selected => {
                Some("#!/bin/sh\necho 'pickle data was truncated' >&2\nexit 1\n")
            }
            _ => None,
        };
        let mut python = self.python.clone();
        if let Some(script) = script {
            python = dir.join("python");
            write_atomic(&python, script.as_bytes())?;
            let mode = fs::Permissions::from_mode(0o755);
            fs::set_permissions(&python, mode).map_err(FsError::io("make executable", &python))?;
        }
        Ok(Loader { python, target: self.target, variables: self.variables.clone(), limit: self.limit })
    }
}

/// The type of an artifact, without loading it.
fn model_type(artifact: &Utf8Path) -> Option<ModelType> {
    use artifact_pickle::{Content, InspectOptions, inspect};
    match inspect(artifact, &InspectOptions::default()).ok()?.content {
        Content::Driving(view) => view.model_type?.parse().ok(),
        _ => None,
    }
}

#[cfg(test)]
#[path = "rehearse_tests.rs"]
mod tests;
