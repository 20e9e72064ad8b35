//! Where and with what models are compiled.

use std::{collections::BTreeMap, time::Duration};

use camino::{Utf8Path, Utf8PathBuf};
use durable_fs::Expected;
use model_catalog::{Sha256Digest, Target};

use crate::{
    CompileError,
    c_compiler::find_clang,
    cache::Cache,
    driver::{Driver, QUIET_LIMIT, embedded},
    environment::{Environment, QCOM_DEVICE},
    external_gpu::UsbTree,
    kernel_log::KernelLog,
    toolchain::ToolchainChoice,
};

/// Where and with what models are compiled. Everything that a test replaces is a field.
#[derive(Debug, Clone)]
pub struct Workshop {
    /// The interpreter.
    pub python: Utf8PathBuf,
    /// A StarPilot tree: its vendored tinygrad is used, and its own compilers where the toolchain says so.
    pub root: Option<Utf8PathBuf>,
    /// Which compilers are used.
    pub toolchain: ToolchainChoice,
    /// The environment that the driver would inherit.
    pub caller_environment: BTreeMap<String, String>,
    /// Where artifacts and build records go.
    pub output_dir: Utf8PathBuf,
    /// Receives, appended, what the driver prints.
    pub log: Utf8PathBuf,
    /// What is kept between compiles; `None` compiles everything anew.
    pub cache: Option<Cache>,
    /// The longest accepted silence of the driver.
    pub quiet_limit: Duration,
    /// The GPU device file of the `qcom` target.
    pub qcom_device: Utf8PathBuf,
    /// The USB devices, where the bridge of an external GPU is looked for.
    pub usb: UsbTree,
    /// The kernel's log, where GPU faults are looked for.
    pub kernel_log: KernelLog,
    /// What source files must be, where that is known.
    pub expected: BTreeMap<Utf8PathBuf, Expected>,
    /// SHA-256 of the running program, for the build record.
    pub program_sha256: Option<Sha256Digest>,
}

impl Workshop {
    /// A workshop with the defaults of a device.
    pub fn new(python: Utf8PathBuf, output_dir: Utf8PathBuf, log: Utf8PathBuf) -> Self {
        Self {
            python,
            root: None,
            toolchain: ToolchainChoice::Auto,
            caller_environment: BTreeMap::new(),
            output_dir,
            log,
            cache: None,
            quiet_limit: QUIET_LIMIT,
            qcom_device: QCOM_DEVICE.into(),
            usb: UsbTree::default(),
            kernel_log: KernelLog::default(),
            expected: BTreeMap::new(),
            program_sha256: None,
        }
    }

    /// A driver in `scratch` with `environment`, completed by what the workshop knows.
    pub(crate) fn driver(
        &self,
        scratch: &Utf8Path,
        target: Target,
        mut environment: Environment,
    ) -> Result<Driver, CompileError> {
        if let Some(vendored) =
            self.root.as_ref().map(|root| root.join("tinygrad_repo")).filter(|dir| dir.is_dir())
        {
            environment.python_path(&vendored, &self.caller_environment);
        }
        let clang = (target == Target::Cpu).then(|| find_clang(&self.caller_environment)).flatten();
        if let Some(clang) = &clang {
            environment.c_compiler(clang);
        }
        let kernels = self
            .cache
            .as_ref()
            .map_or_else(|| scratch.join("kernels.db"), |cache| cache.kernels(clang.as_deref()));
        environment.kernel_cache(&kernels);
        Ok(Driver {
            python: self.python.clone(),
            entry: embedded::unpack(scratch)?,
            scratch: scratch.to_owned(),
            environment,
            log: self.log.clone(),
            quiet_limit: self.quiet_limit,
            cpu: if target == Target::ExternalGpu { crate::external_gpu::PINNED_CPU } else { None },
        })
    }
}
