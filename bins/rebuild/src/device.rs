//! From the name of a device to a device that may be used.

use std::sync::Arc;

use camino::Utf8PathBuf;
use console_report::{Exit, Failure};
use durable_fs::Sha256;
use remote_compile::{
    device::{Device, LocalDevice, LocalOptions, RememberedDevice},
    safety::{
        DEFAULT_DEVICE, DeviceAddress, LocalUser, Policy, RecordedDevice, Refusal, SshConfig, SystemResolver,
        check_device,
    },
    ssh::{RemotePath, SshDevice, SshError, SshOptions},
};

use crate::{
    cli::DeviceArgs,
    failure::{of_device, of_refusal},
    passphrase,
    session::Session,
};

/// A device that the safety check let through; nothing was sent to it yet.
#[derive(Debug)]
pub enum Allowed {
    /// This machine.
    Local,
    /// Another machine.
    Remote(Box<DeviceAddress>, Box<SshOptions>),
}

/// The device's name: the command line's, the configuration's, or the supported one.
pub fn named<'a>(session: &'a Session<'_>, args: &'a DeviceArgs) -> &'a str {
    args.device.as_deref().or(session.config.device.as_deref()).unwrap_or(DEFAULT_DEVICE)
}

/// Checks the device. Names are resolved; nothing is sent to any host.
pub fn allowed(session: &Session<'_>, args: &DeviceArgs) -> Result<Allowed, Failure> {
    let name = named(session, args);
    if name == "local" {
        return Ok(Allowed::Local);
    }
    let address = address(session, name, &policy(session, args))?;
    Ok(Allowed::Remote(Box::new(address), Box::new(options(session, args)?)))
}

/// Checks `name` against `policy`.
pub fn address(session: &Session<'_>, name: &str, policy: &Policy) -> Result<DeviceAddress, Failure> {
    let refused = |error: Refusal| of_refusal(format!("the device {name:?}"), &error);
    let user = local_user();
    let config = SshConfig::load(&user).map_err(refused)?;
    let address = check_device(name, policy, &config, &SystemResolver, &user).map_err(refused)?;
    let ignored = address.ignored_directives();
    if !ignored.is_empty() {
        session
            .console
            .note(&format!("directives of the SSH configuration that are not used: {}", ignored.join(", ")));
    }
    Ok(address)
}

/// What is forbidden, recorded and allowed.
pub fn policy(session: &Session<'_>, args: &DeviceArgs) -> Policy {
    let config = &session.config;
    let mut policy = Policy { allowed: args.allow_device.clone(), ..Policy::default() };
    policy.allowed.extend(config.allow_devices.iter().cloned());
    for device in &config.devices {
        policy
            .recorded
            .push(RecordedDevice { device: device.name.clone(), host_keys: device.host_keys.clone() });
    }
    config.forbid_addresses.iter().for_each(|address| policy.forbidden.forbid_address(*address));
    config.forbid_host_keys.iter().for_each(|key| policy.forbidden.forbid_host_key(key.clone()));
    policy
}

/// How a device is reached.
pub fn options(session: &Session<'_>, args: &DeviceArgs) -> Result<SshOptions, Failure> {
    let root = session.config.device_root.as_deref().unwrap_or(SshOptions::DEFAULT_ROOT);
    let root: RemotePath = root.parse().map_err(|error| {
        Failure::new(Exit::Usage, "device_root of rebuild.toml cannot be used").because(&error)
    })?;
    let user = local_user();
    let mut options = SshOptions::new(root, user.clone(), owner(session, &user));
    options.agent = variable("SSH_AUTH_SOCK").map(Utf8PathBuf::from);
    options.passphrases = Some(Arc::new(passphrase::ask));
    options.while_driving = args.while_driving;
    options.stop = Arc::clone(&session.interrupt);
    Ok(options)
}

/// Who this host and workspace are to a device: the same at every run, so that work is taken up again.
fn owner(session: &Session<'_>, user: &LocalUser) -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let root = session.workspace.root();
    let place = root.canonicalize_utf8().unwrap_or_else(|_| root.to_owned());
    let digest = Sha256::digest(place.as_str().as_bytes()).to_string();
    format!("{}@{host} ({}, {})", user.name, place.file_name().unwrap_or("workspace"), &digest[..8])
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn local_user() -> LocalUser {
    LocalUser {
        name: variable("USER").or_else(|| variable("LOGNAME")).unwrap_or_else(|| "root".to_owned()),
        home: variable("HOME").unwrap_or_else(|| "/".to_owned()).into(),
    }
}

/// A failure of the connection, with the exit code of its kind.
pub fn of_ssh(what: impl Into<String>, error: SshError) -> Failure {
    match error {
        SshError::Refused(refusal) => of_refusal(what, &refusal),
        other => Failure::new(Exit::Environment, what).because(&other),
    }
}

/// The device at the other end of a connection.
pub fn remote(address: &DeviceAddress, options: &SshOptions) -> Result<SshDevice, Failure> {
    SshDevice::new(address.clone(), options.clone())
        .map_err(|error| of_ssh("the device cannot be used", error))
}

/// Makes the device ready for use. What is put there is remembered until it is removed.
pub fn connect(session: &Session<'_>, allowed: &Allowed) -> Result<Box<dyn Device>, Failure> {
    let device = plain(session, allowed)?;
    Ok(Box::new(RememberedDevice::new(device, session.workspace.device_jobs_file())))
}

/// Whether an earlier run may have left something on the device.
pub fn may_hold_jobs(session: &Session<'_>, allowed: &Allowed) -> bool {
    let name = match allowed {
        Allowed::Local => "local",
        Allowed::Remote(address, _) => address.asked(),
    };
    RememberedDevice::may_hold_jobs(&session.workspace.device_jobs_file(), name)
}

fn plain(session: &Session<'_>, allowed: &Allowed) -> Result<Box<dyn Device>, Failure> {
    match allowed {
        Allowed::Local => {
            let options =
                LocalOptions { jobs_dir: session.workspace.local_jobs_dir(), models: models_binary(session) };
            let device = LocalDevice::new(options)
                .map_err(|error| of_device("the local device cannot be used", &error))?;
            Ok(Box::new(device))
        }
        Allowed::Remote(address, options) => Ok(Box::new(remote(address, options)?)),
    }
}

/// The `models` binary: the configuration's, else the one beside this program.
pub fn models_binary(session: &Session<'_>) -> Utf8PathBuf {
    if let Some(path) = &session.config.models {
        return session.configured(path);
    }
    let beside = std::env::current_exe().ok().and_then(|program| Utf8PathBuf::from_path_buf(program).ok());
    beside.unwrap_or_default().with_file_name("models")
}
