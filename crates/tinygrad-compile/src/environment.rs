//! The environment that a driver process gets: tinygrad's device and flags.
//!
//! Flags decide which kernels are compiled, so they are fixed here and recorded with each artifact. What can go wrong is a
//! variable of the caller's shell that changes an artifact unseen. tinygrad reads more than a hundred, and every revision
//! others, so no list of them would do: a driver inherits only what a process needs to find programs, libraries and
//! directories. A flag that may be chosen is kept only where it is a valid integer, and is in the build record.

use std::collections::BTreeMap;

use camino::{Utf8Path, Utf8PathBuf};
use model_catalog::{InputFormat, Target};

/// The GPU device file of a Snapdragon: without it there is nothing to compile for on `qcom`.
pub const QCOM_DEVICE: &str = "/dev/kgsl-3d0";

/// Why no environment can be made for a target.
#[derive(Debug, thiserror::Error)]
pub enum EnvironmentError {
    /// The GPU of the device is not here.
    #[error(
        "target qcom needs the device's GPU, but {device} does not exist; run on the device, or compile for the host with --target cpu"
    )]
    NoQcom {
        /// The device file that was looked for.
        device: Utf8PathBuf,
    },
}

/// Changes to the environment of a driver process.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Environment {
    /// Variables that are set.
    pub set: BTreeMap<String, String>,
    /// Variables that are removed.
    pub remove: Vec<String>,
}

const DEFAULTS: [(&str, &str); 6] = [
    ("FLOAT16", "1"),
    ("JIT_BATCH_SIZE", "0"),
    ("NOLOCALS", "1"),
    ("OPENPILOT_HACKS", "1"),
    ("DEBUG", "0"),
    ("IMAGE", "2"),
];

const EXTERNAL_GPU: [(&str, &str); 7] = [
    ("DEV", "USB+AMD:LLVM"),
    ("WARP_DEV", "QCOM"),
    ("FLOAT16", "1"),
    ("JIT_BATCH_SIZE", "0"),
    ("GMMU", "0"),
    ("TC_OPT", "2"),
    ("DEBUG", "2"),
];

/// Variables that choose a device behind the target's back; a driver must not inherit them, whatever its caller knows.
const FOREIGN: [&str; 6] = ["DEV", "WARP_DEV", "CPU", "CLANG", "QCOM", "AMD"];

/// What a driver inherits: where programs, libraries, packages and directories are, and how text is written.
const INHERITED: [&str; 25] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "TERM",
    "TZ",
    "LANG",
    "LANGUAGE",
    "TMPDIR",
    "TMP",
    "TEMP",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "DYLD_LIBRARY_PATH",
    "DYLD_FALLBACK_LIBRARY_PATH",
    "SDKROOT",
    "DEVELOPER_DIR",
    "XDG_CACHE_HOME",
    "XDG_RUNTIME_DIR",
    "PYTHONPATH",
    "PYTHONHOME",
    "VIRTUAL_ENV",
    "PYENV_ROOT",
    "PYENV_VERSION",
];

fn is_inherited(name: &str) -> bool {
    INHERITED.contains(&name) || name.starts_with("LC_")
}

fn integer<'c>(caller: &'c BTreeMap<String, String>, name: &str) -> Option<&'c str> {
    caller.get(name).map(|value| value.trim()).filter(|value| value.parse::<i64>().is_ok())
}

impl Environment {
    /// The variables for compiling a model of `format` for `target`. `caller` is the environment that the process would
    /// inherit: flags that may be chosen are kept where they are valid integers, all others are removed.
    pub fn for_target(target: Target, format: InputFormat, caller: &BTreeMap<String, String>) -> Self {
        let mut environment = Self::default();
        let unwanted = caller.keys().map(String::as_str).filter(|name| !is_inherited(name));
        let mut remove: Vec<String> = FOREIGN.into_iter().chain(unwanted).map(str::to_owned).collect();
        remove.sort();
        remove.dedup();
        environment.remove = remove;
        match target {
            Target::ExternalGpu => environment.external_gpu(),
            Target::Qcom => environment.defaults("QCOM", format, caller),
            Target::Cpu => environment.defaults("CPU", format, caller),
        }
        // Python's own switches: events must not wait in a buffer, and the hash seed must not reach an artifact.
        environment.put("PYTHONUNBUFFERED", "1");
        environment.put("PYTHONHASHSEED", "0");
        environment.put("PYTHONDONTWRITEBYTECODE", "1");
        environment
    }

    fn put(&mut self, name: &str, value: &str) {
        self.remove.retain(|removed| removed != name);
        self.set.insert(name.to_owned(), value.to_owned());
    }

    fn drop(&mut self, name: &str) {
        if !self.remove.iter().any(|removed| removed == name) {
            self.remove.push(name.to_owned());
        }
    }

    fn defaults(&mut self, device: &str, format: InputFormat, caller: &BTreeMap<String, String>) {
        self.put("DEV", device);
        let supercombo = format == InputFormat::Supercombo;
        for (name, value) in DEFAULTS {
            let value = if supercombo && name == "IMAGE" { "1" } else { value };
            self.put(name, integer(caller, name).unwrap_or(value));
        }
        match integer(caller, "QCOM_PRIORITY").filter(|_| device == "QCOM" && !supercombo) {
            Some(priority) => self.put("QCOM_PRIORITY", priority),
            None => self.drop("QCOM_PRIORITY"),
        }
    }

    fn external_gpu(&mut self) {
        ["IMAGE", "NOLOCALS", "OPENPILOT_HACKS"].iter().for_each(|name| self.drop(name));
        for (name, value) in EXTERNAL_GPU {
            self.put(name, value);
        }
    }

    /// Adds a directory in front of `PYTHONPATH`, before what the caller has there.
    pub fn python_path(&mut self, dir: &Utf8Path, caller: &BTreeMap<String, String>) {
        let before =
            self.set.get("PYTHONPATH").or_else(|| caller.get("PYTHONPATH")).filter(|path| !path.is_empty());
        let path = before.map_or_else(|| dir.to_string(), |rest| format!("{dir}:{rest}"));
        self.put("PYTHONPATH", &path);
    }

    /// Names the C compiler of the CPU backend.
    pub fn c_compiler(&mut self, clang: &Utf8Path) {
        self.put("CC", clang.as_str());
    }

    /// The variables that decide what is compiled, for build records: without places, which decide nothing.
    pub fn recorded(&self) -> BTreeMap<String, String> {
        let places = ["PYTHONPATH", "CACHEDB"];
        let set = self.set.iter().filter(|(name, _)| !places.contains(&name.as_str()));
        set.map(|(name, value)| (name.clone(), value.clone())).collect()
    }

    /// Keeps tinygrad's cache of compiled kernels in `file`.
    pub fn kernel_cache(&mut self, file: &Utf8Path) {
        self.put("CACHEDB", file.as_str());
    }
}

/// Checks that what `target` needs is there; `qcom_device` is [`QCOM_DEVICE`] except in tests.
///
/// # Errors
/// [`EnvironmentError::NoQcom`].
pub fn check_target(target: Target, qcom_device: &Utf8Path) -> Result<(), EnvironmentError> {
    match target {
        Target::Qcom if !qcom_device.exists() => {
            Err(EnvironmentError::NoQcom { device: qcom_device.to_owned() })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn defaults_give_way_to_valid_integers_only() {
        let caller = caller(&[("FLOAT16", "0"), ("IMAGE", "yes"), ("DEBUG", ""), ("DEV", "CUDA")]);
        let environment = Environment::for_target(Target::Cpu, InputFormat::Split, &caller);
        let get = |name: &str| environment.set[name].as_str();
        assert_eq!((get("FLOAT16"), get("IMAGE"), get("DEBUG"), get("DEV")), ("0", "2", "0", "CPU"));
        assert_eq!((get("JIT_BATCH_SIZE"), get("NOLOCALS"), get("OPENPILOT_HACKS")), ("0", "1", "1"));
    }

    #[test]
    fn supercombos_have_their_own_image_flag_and_no_priority() {
        let caller = caller(&[("QCOM_PRIORITY", "5")]);
        let environment = Environment::for_target(Target::Qcom, InputFormat::Supercombo, &caller);
        assert_eq!(environment.set["IMAGE"], "1");
        assert_eq!(environment.set["DEV"], "QCOM");
        assert!(environment.remove.iter().any(|name| name == "QCOM_PRIORITY"));
    }

    #[test]
    fn flags_of_the_shell_do_not_reach_the_driver() {
        let caller = caller(&[
            ("BEAM", "2"),
            ("NOOPT", "1"),
            ("TC", "0"),
            ("A_FLAG_OF_TOMORROW", "1"),
            ("CPU_LLVM", "1"),
            ("CCC_OVERRIDE_OPTIONS", "#+-O0"),
            ("PATH", "/bin"),
            ("LC_ALL", "C"),
            ("QCOM_PRIORITY", "5"),
        ]);
        for (target, priority) in
            [(Target::Cpu, None), (Target::Qcom, Some("5")), (Target::ExternalGpu, None)]
        {
            let environment = Environment::for_target(target, InputFormat::Split, &caller);
            for name in ["BEAM", "NOOPT", "TC", "A_FLAG_OF_TOMORROW", "CPU_LLVM", "CCC_OVERRIDE_OPTIONS"] {
                assert!(environment.remove.iter().any(|removed| removed == name), "{target} {name}");
            }
            for name in ["PATH", "LC_ALL"] {
                assert!(!environment.remove.iter().any(|removed| removed == name), "{target} {name}");
            }
            assert_eq!(environment.recorded().get("QCOM_PRIORITY").map(String::as_str), priority);
        }
    }

    #[test]
    fn the_external_gpu_replaces_the_flags() {
        let caller = caller(&[("IMAGE", "2"), ("DEBUG", "0")]);
        let environment = Environment::for_target(Target::ExternalGpu, InputFormat::Split, &caller);
        assert_eq!(environment.set["DEV"], "USB+AMD:LLVM");
        assert_eq!(environment.set["WARP_DEV"], "QCOM");
        assert_eq!(environment.set["DEBUG"], "2");
        for name in ["IMAGE", "NOLOCALS", "OPENPILOT_HACKS"] {
            assert!(
                environment.remove.iter().any(|removed| removed == name)
                    && !environment.set.contains_key(name)
            );
        }
    }

    #[test]
    fn qcom_without_its_device_names_the_other_target() {
        let missing = Utf8Path::new("/no/such/device");
        let refused = check_target(Target::Qcom, missing).unwrap_err().to_string();
        assert!(refused.contains("--target cpu"), "{refused}");
        check_target(Target::Cpu, missing).unwrap();
    }

    #[test]
    fn python_paths_are_put_in_front() {
        let mut environment = Environment::default();
        environment.python_path(Utf8Path::new("/b"), &caller(&[("PYTHONPATH", "/c")]));
        environment.python_path(Utf8Path::new("/a"), &BTreeMap::new());
        assert_eq!(environment.set["PYTHONPATH"], "/a:/b:/c");
    }
}
