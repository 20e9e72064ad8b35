//! `rebuild.toml`: what does not change from one command to the next.

use std::{collections::BTreeMap, fs, net::IpAddr};

use camino::{Utf8Path, Utf8PathBuf};
use durable_fs::FsError;
use model_catalog::{ImageHistoryPipeline, Target, near_matches};
use serde::Deserialize;

use crate::WorkspaceError;

/// The largest part limit, in MiB: what a repository host takes as one file. It may be lowered, not raised.
pub const MAX_PART_LIMIT_MIB: u64 = 100;

/// The longest soak that a release may ask for, in minutes: a day.
pub const MAX_SOAK_MINUTES: f64 = 24.0 * 60.0;

/// What a device allows an artifact to take; what is absent is as the artifact's target has it, `inf` is no bound.
#[derive(Debug, Clone, Copy, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BudgetConfig {
    /// Median milliseconds of a step.
    pub step_p50_ms: Option<f64>,
    /// Milliseconds that 99 of 100 steps do not pass.
    pub step_p99_ms: Option<f64>,
    /// Seconds that loading may take.
    pub load_seconds: Option<f64>,
    /// Largest resident size in MiB.
    pub peak_mib: Option<f64>,
    /// MiB by which memory may grow in a minute of a soak.
    pub growth_mib: Option<f64>,
}

impl BudgetConfig {
    fn values(&self) -> [(&'static str, Option<f64>); 5] {
        [
            ("step_p50_ms", self.step_p50_ms),
            ("step_p99_ms", self.step_p99_ms),
            ("load_seconds", self.load_seconds),
            ("peak_mib", self.peak_mib),
            ("growth_mib", self.growth_mib),
        ]
    }

    /// The first value that bounds nothing: not a number, or not above zero.
    pub fn nonsense(&self) -> Option<(&'static str, f64)> {
        self.values()
            .into_iter()
            .find_map(|(name, value)| Some((name, value.filter(|value| value.is_nan() || *value <= 0.0)?)))
    }

    /// These bounds, and where one is absent that of `other`.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            step_p50_ms: self.step_p50_ms.or(other.step_p50_ms),
            step_p99_ms: self.step_p99_ms.or(other.step_p99_ms),
            load_seconds: self.load_seconds.or(other.load_seconds),
            peak_mib: self.peak_mib.or(other.peak_mib),
            growth_mib: self.growth_mib.or(other.growth_mib),
        }
    }
}

/// What a release for devices must have shown on one, besides a validation of every artifact.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ReleaseProof {
    /// Minutes for which each validation must have gone on; 0 asks for no soak.
    pub soak_minutes: f64,
    /// Whether one model each of the kinds there are must have driven on the device's own runtime.
    pub runtime: bool,
    /// Whether every check of a person must have been answered with a pass.
    pub checklist: bool,
}

impl Default for ReleaseProof {
    /// A minute each is an hour and a quarter for a catalog, and shows a leak of a buffer a step. The checks of a person look at
    /// the release where devices see it, which is after it was published.
    fn default() -> Self {
        Self { soak_minutes: 1.0, runtime: true, checklist: false }
    }
}

impl ReleaseProof {
    /// Nothing beyond the validations.
    pub const NONE: Self = Self { soak_minutes: 0.0, runtime: false, checklist: false };
}

/// The configuration of a workspace; every key is optional.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The device to compile and validate on; `local` is this machine.
    pub device: Option<String>,
    /// Devices other than the supported one that a person has allowed, as `user@address`.
    pub allow_devices: Vec<String>,
    /// Devices that a person has trusted, with the host keys that they have to present.
    pub devices: Vec<TrustedDevice>,
    /// Addresses that are never contacted, besides the one that is forbidden everywhere.
    pub forbid_addresses: Vec<IpAddr>,
    /// Fingerprints of host keys whose machines are never used.
    pub forbid_host_keys: Vec<String>,
    /// Directory on the device that holds `models` and its jobs; `/data/model-rebuild` where absent.
    pub device_root: Option<String>,
    /// What artifacts are compiled for; `qcom` where absent.
    pub target: Option<Target>,
    /// Where the history of camera images is kept; `policy` where absent.
    pub image_history_pipeline: Option<ImageHistoryPipeline>,
    /// Artifacts over this many MiB get parts.
    pub part_limit_mib: Option<u64>,
    /// The openpilot clone.
    pub openpilot: Option<Utf8PathBuf>,
    /// The repository that is asked for commits which the clone lacks; the openpilot repository where absent.
    pub upstream: Option<String>,
    /// LFS servers to ask last, by their base address.
    pub lfs_mirrors: Vec<String>,
    /// Where fetched objects are kept; `cache` in the workspace where absent.
    pub cache: Option<Utf8PathBuf>,
    /// Whether no server is ever asked for sources.
    pub offline: bool,
    /// The manifest that a rebuild starts from.
    pub base_manifest: Option<Utf8PathBuf>,
    /// The `models` binary of the local device.
    pub models: Option<Utf8PathBuf>,
    /// The Python of the local device, with tinygrad and numpy.
    pub python: Option<Utf8PathBuf>,
    /// The Python of this machine with onnxruntime, which validation may compare with.
    pub reference_python: Option<Utf8PathBuf>,
    /// By device, as it is named in `device`: what it allows an artifact to take.
    pub budgets: BTreeMap<String, BudgetConfig>,
    /// How the device's own runtime is verified.
    pub runtime: RuntimeConfig,
    /// What a release must have shown on a device.
    pub release: ReleaseProof,
}

/// Where the runtime's parts are on a device and how its programs are started; every key is optional.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RuntimeConfig {
    /// The StarPilot tree; `/data/openpilot` where absent.
    pub root: Option<Utf8PathBuf>,
    /// The model store; `/data/models` where absent.
    pub store: Option<Utf8PathBuf>,
    /// Directory of the parameters; `/data/params/d` where absent.
    pub params: Option<Utf8PathBuf>,
    /// Directory of the volatile parameters; `/dev/shm/params/d` where absent.
    pub volatile_params: Option<Utf8PathBuf>,
    /// The interpreter; the device's own where absent.
    pub python: Option<Utf8PathBuf>,
    /// The programs that are started, in this order; camera, model and driver monitoring where absent.
    pub programs: Vec<RuntimeProgram>,
}

/// A program of the runtime.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuntimeProgram {
    /// Its name in messages.
    pub name: String,
    /// Program and arguments, run in the tree; `{python}` stands for the interpreter.
    pub command: Vec<String>,
}

/// A device that a person has trusted.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrustedDevice {
    /// As it is named on the command line.
    pub name: String,
    /// Fingerprints of its host keys, `SHA256:...`; none where the known hosts decide.
    #[serde(default)]
    pub host_keys: Vec<String>,
}

/// The keys in the order of the documentation; kept beside the struct so that a suggestion can be made.
const KEYS: [&str; 21] = [
    "device",
    "allow_devices",
    "devices",
    "forbid_addresses",
    "forbid_host_keys",
    "device_root",
    "target",
    "image_history_pipeline",
    "part_limit_mib",
    "openpilot",
    "upstream",
    "lfs_mirrors",
    "cache",
    "offline",
    "base_manifest",
    "models",
    "python",
    "runtime",
    "reference_python",
    "budgets",
    "release",
];

impl Config {
    pub(crate) fn load(path: &Utf8Path) -> Result<Self, WorkspaceError> {
        match fs::read_to_string(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            text => Self::parse(&text.map_err(FsError::io("read", path))?, path),
        }
    }

    /// Parses the text of the file at `path`.
    pub(crate) fn parse(text: &str, path: &Utf8Path) -> Result<Self, WorkspaceError> {
        let refused = |why: String| WorkspaceError::Config { path: path.to_owned(), why };
        let table: toml::Table = text.parse().map_err(|error: toml::de::Error| refused(error.to_string()))?;
        if let Some(key) = table.keys().find(|key| !KEYS.contains(&key.as_str())) {
            let suggestion = near_matches(key, KEYS).first().map(|&near| near.to_owned());
            return Err(WorkspaceError::UnknownKey { path: path.to_owned(), key: key.clone(), suggestion });
        }
        let config: Self = toml::from_str(text).map_err(|error| refused(error.to_string()))?;
        for (device, budget) in &config.budgets {
            if let Some((name, value)) = budget.nonsense() {
                return Err(refused(format!("{name} of budgets.{device:?} is {value}; it must be above 0")));
            }
        }
        let soak = config.release.soak_minutes;
        if !(0.0..=MAX_SOAK_MINUTES).contains(&soak) {
            return Err(refused(format!(
                "soak_minutes of [release] is {soak}; it may be 0 to {MAX_SOAK_MINUTES}"
            )));
        }
        match config.part_limit_mib {
            Some(limit) if !(1..=MAX_PART_LIMIT_MIB).contains(&limit) => {
                Err(refused(format!("part_limit_mib is {limit}; it may be 1 to {MAX_PART_LIMIT_MIB}")))
            }
            _ => Ok(config),
        }
    }

    /// The size in bytes over which an artifact gets parts.
    pub fn part_limit(&self) -> u64 {
        self.part_limit_mib.unwrap_or(MAX_PART_LIMIT_MIB) << 20
    }

    /// The target of normal artifacts.
    pub fn target(&self) -> Target {
        self.target.unwrap_or(Target::Qcom)
    }

    /// The image-history pipeline.
    pub fn image_history_pipeline(&self) -> ImageHistoryPipeline {
        self.image_history_pipeline.unwrap_or(ImageHistoryPipeline::Policy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Config, String> {
        Config::parse(text, Utf8Path::new("rebuild.toml")).map_err(|refused| refused.to_string())
    }

    #[test]
    fn budgets_are_by_device_and_bound_something() {
        let text = "[budgets.local]\nstep_p50_ms = 45\npeak_mib = inf\n[budgets.\"comma@192.168.3.109\"]\nload_seconds = 20.5";
        let config = parse(text).unwrap();
        assert_eq!(config.budgets["local"].step_p50_ms, Some(45.0));
        assert_eq!(config.budgets["comma@192.168.3.109"].load_seconds, Some(20.5));
        for wrong in
            ["step_p50_ms = 0", "peak_mib = -1", "growth_mib = nan", "step_p50 = 3", "load_seconds = \"x\""]
        {
            parse(&format!("[budgets.local]\n{wrong}")).unwrap_err();
        }
    }

    #[test]
    fn a_release_asks_for_a_soak_and_the_runtime_unless_told_otherwise() {
        assert_eq!(
            parse("").unwrap().release,
            ReleaseProof { soak_minutes: 1.0, runtime: true, checklist: false }
        );
        let config = parse("[release]\nsoak_minutes = 0\nchecklist = true").unwrap();
        assert_eq!(config.release, ReleaseProof { soak_minutes: 0.0, runtime: true, checklist: true });
        for wrong in
            ["soak_minutes = -1", "soak_minutes = nan", "soak_minutes = inf", "soak = 1", "runtime = 3"]
        {
            parse(&format!("[release]\n{wrong}")).unwrap_err();
        }
    }

    #[test]
    fn every_key_is_listed() {
        for key in KEYS {
            let refused = parse(&format!("{key} = 1.5")).unwrap_err();
            assert!(!refused.contains("unknown"), "{key}: {refused}");
        }
    }

    #[test]
    fn a_mistyped_key_is_an_error_with_a_suggestion() {
        let refused = parse("part_limit_mb = 4").unwrap_err();
        assert!(refused.contains("\"part_limit_mb\"") && refused.contains("\"part_limit_mib\""), "{refused}");
        assert!(parse("nonsense-altogether = 1").unwrap_err().contains("unknown key"));
    }

    #[test]
    fn the_part_limit_may_be_lowered_only() {
        assert_eq!(parse("part_limit_mib = 4").unwrap().part_limit(), 4 << 20);
        assert_eq!(parse("").unwrap().part_limit(), 104_857_600);
        for limit in ["0", "101", "-1"] {
            assert!(parse(&format!("part_limit_mib = {limit}")).is_err());
        }
    }

    #[test]
    fn wrong_values_name_the_choices() {
        let refused = parse("target = \"gpu\"").unwrap_err();
        assert!(refused.contains("external-gpu"), "{refused}");
    }
}
