//! What this machine has: the interpreter, the environment, the signals.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use camino::{Utf8Path, Utf8PathBuf};
use console_report::{Console, Exit, Failure, interrupt_flag};
use durable_fs::{NoProgress, hash_file};
use model_catalog::Sha256Digest;
use tinygrad_compile::{
    Cache,
    driver::{DEVICE_PYTHON, PythonChoices},
};

use crate::arguments::CompileArgs;

/// The variables of this process that are text.
pub fn variables() -> BTreeMap<String, String> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}

/// Where this program is.
pub fn this_program() -> Option<Utf8PathBuf> {
    Utf8PathBuf::from_path_buf(std::env::current_exe().ok()?).ok()
}

/// SHA-256 of this program, for build records.
pub fn program_digest() -> Option<Sha256Digest> {
    Some(hash_file(&this_program()?, &NoProgress).ok()?.0)
}

/// Where an interpreter may be: as told, on the device, or in the virtual environment beside a build of this project
/// (`target/venv` beside `target/debug/models`), or that of the tree.
pub fn python_choices(args: &CompileArgs) -> PythonChoices {
    let built = this_program().and_then(|program| Some(program.parent()?.parent()?.join("venv/bin/python3")));
    let of_tree = root(args).map(|root| root.join(".venv/bin/python3"));
    let fallbacks = of_tree.into_iter().chain(built).collect();
    PythonChoices { explicit: args.python.clone(), environment: None, fallbacks }
}

/// The interpreter to use.
pub fn python(args: &CompileArgs) -> Utf8PathBuf {
    python_choices(args).resolve(Utf8Path::new(DEVICE_PYTHON))
}

/// The tree, where it is there.
pub fn root(args: &CompileArgs) -> Option<Utf8PathBuf> {
    Some(args.root()).filter(|root| root.is_dir())
}

/// The directory of the cache, where no other is named. A device keeps only what is below `/data`.
fn default_cache_dir(variables: &BTreeMap<String, String>) -> Option<Utf8PathBuf> {
    let on_device = Utf8Path::new("/data/openpilot").is_dir();
    let base = match (on_device, variables.get("XDG_CACHE_HOME"), variables.get("HOME")) {
        (true, _, _) => "/data/cache".into(),
        (false, Some(cache), _) if !cache.is_empty() => Utf8PathBuf::from(cache),
        (false, _, Some(home)) if !home.is_empty() => Utf8Path::new(home).join(".cache"),
        _ => return None,
    };
    Some(base.join("driving-models"))
}

/// What is kept between compiles. A cache that cannot be used is no reason not to compile.
pub fn cache(args: &CompileArgs, console: &Console) -> Option<Cache> {
    if args.no_cache {
        return None;
    }
    let dir = args.cache_dir.clone().or_else(|| default_cache_dir(&variables()))?;
    match Cache::open(dir, args.cache_limit_mib) {
        Ok(cache) => Some(cache),
        Err(error) => {
            console.warn(&format!("nothing is kept between compiles: {error}"));
            None
        }
    }
}

/// The longest accepted silence of a driver.
pub fn quiet_limit(args: &CompileArgs) -> Duration {
    Duration::from_secs(args.quiet_limit_minutes.saturating_mul(60))
}

/// The flag that Ctrl-C sets.
pub fn interrupts() -> Result<Arc<AtomicBool>, Failure> {
    interrupt_flag()
        .map_err(|error| Failure::new(Exit::Environment, "cannot listen for Ctrl-C").because(&error))
}
