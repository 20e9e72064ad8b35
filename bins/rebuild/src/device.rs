//! From the name of a device to a device that may be used.

use camino::Utf8PathBuf;
use console_report::{Exit, Failure};
use remote_compile::{
    device::{Device, LocalDevice, LocalOptions},
    safety::{DEFAULT_DEVICE, LocalUser, Policy, RecordedDevice, SshConfig, SystemResolver, check_device},
};

use crate::{cli::DeviceArgs, failure::of_device, session::Session};

/// A device that the safety check let through; nothing was sent to it yet.
#[derive(Debug)]
pub enum Allowed {
    /// This machine.
    Local,
    /// Another machine.
    Remote(String),
}

/// Checks the device of the command line, of the configuration, or the supported one. Nothing is sent anywhere.
pub fn allowed(session: &Session<'_>, args: &DeviceArgs) -> Result<Allowed, Failure> {
    let named = args.device.as_deref().or(session.config.device.as_deref()).unwrap_or(DEFAULT_DEVICE);
    if named == "local" {
        return Ok(Allowed::Local);
    }
    let policy = Policy {
        recorded: session.config.allow_devices.iter().map(|device| recorded(device)).collect(),
        ..Policy::default()
    };
    let refused = |error: remote_compile::safety::Refusal| {
        Failure::new(Exit::Refused, format!("the device {named:?} is refused by the rule {}", error.rule()))
            .because(&error)
            .advice("compile on this machine with --device local, or name the supported device")
    };
    let user = local_user();
    let config = SshConfig::load(&user).map_err(refused)?;
    check_device(named, &policy, &config, &SystemResolver, &user).map_err(refused)?;
    Ok(Allowed::Remote(named.to_owned()))
}

fn local_user() -> LocalUser {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    LocalUser {
        name: variable("USER").or_else(|| variable("LOGNAME")).unwrap_or_else(|| "root".to_owned()),
        home: variable("HOME").unwrap_or_else(|| "/".to_owned()).into(),
    }
}

fn recorded(device: &str) -> RecordedDevice {
    RecordedDevice { device: device.to_owned(), host_keys: Vec::new() }
}

/// Makes the device ready for use.
pub fn connect(session: &Session<'_>, allowed: &Allowed) -> Result<Box<dyn Device>, Failure> {
    match allowed {
        Allowed::Local => {
            let options =
                LocalOptions { jobs_dir: session.workspace.local_jobs_dir(), models: models_binary(session) };
            let device = LocalDevice::new(options)
                .map_err(|error| of_device("the local device cannot be used", &error))?;
            Ok(Box::new(device))
        }
        Allowed::Remote(name) => {
            Err(Failure::new(Exit::Usage, format!("the device {name} cannot be reached yet"))
                .why("this version compiles on this machine only")
                .advice("name it with --device local (and target = \"cpu\" in rebuild.toml)"))
        }
    }
}

/// The `models` binary: the configuration's, else the one beside this program.
fn models_binary(session: &Session<'_>) -> Utf8PathBuf {
    if let Some(path) = &session.config.models {
        return session.configured(path);
    }
    let beside = std::env::current_exe().ok().and_then(|program| Utf8PathBuf::from_path_buf(program).ok());
    beside.unwrap_or_default().with_file_name("models")
}
