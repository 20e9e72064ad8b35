//! `rebuild device trust` and `rebuild device bootstrap`.

use std::io::{BufRead, IsTerminal, Write};

use camino::Utf8PathBuf;
use clap::{Args, Subcommand};
use console_report::{Console, Exit, Failure};
use rebuild_workspace::TrustedDevice;
use remote_compile::{
    safety::HostKey,
    ssh::{BinaryProblem, bootstrap, presented_host_key},
};
use serde_json::json;

use crate::{
    cli::{Cli, DeviceArgs},
    device::{self, Allowed, allowed, named, of_ssh},
    failure::of_workspace,
    session::Session,
};

/// What is done with a device itself.
#[derive(Debug, Subcommand)]
pub enum DeviceCommand {
    /// Show the host key that the device presents, and record the device with it in rebuild.toml.
    Trust(TrustArgs),
    /// Put `models` onto the device, after checking that it is one for the device.
    Bootstrap(BootstrapArgs),
}

#[derive(Debug, Args)]
pub struct TrustArgs {
    /// The device.
    #[command(flatten)]
    device: DeviceArgs,
    /// Record it only if its key has this fingerprint, without asking.
    #[arg(long, value_name = "SHA256:...")]
    fingerprint: Option<String>,
}

#[derive(Debug, Args)]
pub struct BootstrapArgs {
    /// The device.
    #[command(flatten)]
    device: DeviceArgs,
    /// The static `models` to put there [default: `models` of rebuild.toml, else the one beside this program].
    #[arg(long, value_name = "FILE")]
    binary: Option<Utf8PathBuf>,
}

pub fn run(command: &DeviceCommand, cli: &Cli, console: &Console) -> Result<(), Failure> {
    match command {
        DeviceCommand::Trust(args) => trust(args, cli, console),
        DeviceCommand::Bootstrap(args) => install(args, cli, console),
    }
}

fn trust(args: &TrustArgs, cli: &Cli, console: &Console) -> Result<(), Failure> {
    let session = Session::begin(cli, console, "rebuild device trust")?;
    let name = named(&session, &args.device).to_owned();
    if name == "local" {
        return Err(
            Failure::new(Exit::Usage, "this machine needs no trust").advice("name a device with --device")
        );
    }
    // Naming it here is the explicit choice that allows it; what is forbidden stays forbidden.
    let mut policy = device::policy(&session, &args.device);
    policy.allowed.push(name.clone());
    let address = device::address(&session, &name, &policy)?;
    let options = device::options(&session, &args.device)?;
    let key = presented_host_key(&address, &options)
        .map_err(|error| of_ssh(format!("the host key of {name} cannot be seen"), error))?;
    let recorded = session.config.devices.iter().find(|device| device.name == name);
    for old in
        recorded.into_iter().flat_map(|device| &device.host_keys).filter(|old| **old != key.fingerprint())
    {
        console.warn(&format!("{name} was recorded with another host key: {old}"));
    }
    if policy.forbidden.has_host_key(&key) {
        let why = format!("its host key {} is forbidden", key.fingerprint());
        return Err(
            Failure::new(Exit::Refused, format!("{name} is refused by the rule forbidden-host-key")).why(why)
        );
    }
    if !agreed(args, &name, &address.describe(), &key)? {
        return Err(Failure::new(Exit::Refused, format!("{name} was not trusted"))
            .why(format!("its host key is {}, and nobody confirmed it", key.fingerprint()))
            .advice("compare it with the device (ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub there) and give it with --fingerprint"));
    }
    let device = TrustedDevice { name: name.clone(), host_keys: vec![key.fingerprint()] };
    session.workspace.trust_device(&device).map_err(of_workspace("the device cannot be recorded"))?;
    console.result(&json!({"device": name, "host_key": key.fingerprint()}), || {
        format!("{name} is recorded in rebuild.toml with {} {}", key.algorithm(), key.fingerprint())
    });
    Ok(())
}

/// Whether the person agrees: by the fingerprint on the command line, or by typing `yes` at a terminal.
fn agreed(args: &TrustArgs, name: &str, way: &str, key: &HostKey) -> Result<bool, Failure> {
    if let Some(expected) = &args.fingerprint {
        return Ok(*expected == key.fingerprint());
    }
    let (input, mut output) = (std::io::stdin(), std::io::stderr());
    if !input.is_terminal() {
        return Ok(false);
    }
    let failed = |error: std::io::Error| {
        Failure::new(Exit::Environment, "the terminal cannot be read").because(&error)
    };
    let question = format!(
        "{name} ({way}) presents\n  {} {}\nIs this its key? Type yes: ",
        key.algorithm(),
        key.fingerprint()
    );
    output.write_all(question.as_bytes()).and_then(|()| output.flush()).map_err(failed)?;
    let mut answer = String::new();
    input.lock().read_line(&mut answer).map_err(failed)?;
    Ok(answer.trim().eq_ignore_ascii_case("yes"))
}

fn install(args: &BootstrapArgs, cli: &Cli, console: &Console) -> Result<(), Failure> {
    let session = Session::begin(cli, console, "rebuild device bootstrap")?;
    let Allowed::Remote(address, options) = allowed(&session, &args.device)? else {
        return Err(Failure::new(Exit::Usage, "the local device runs the `models` beside this program")
            .advice("name a device with --device"));
    };
    let binary = args.binary.clone().unwrap_or_else(|| device::models_binary(&session));
    let what = format!("`models` was not put onto {}", address.asked());
    let said =
        bootstrap(&address, &options, &binary, env!("CARGO_PKG_VERSION")).map_err(
            |problem| match problem {
                BinaryProblem::Ssh(error) => of_ssh(what.clone(), error),
                BinaryProblem::Fs(error) => Failure::new(Exit::Environment, what.clone()).because(&error),
                other => Failure::new(Exit::Usage, what.clone()).because(&other),
            },
        )?;
    console.result(&json!({"device": address.asked(), "models": options.models(), "version": said}), || {
        format!("{} is on {} and says {said}", options.models(), address.asked())
    });
    Ok(())
}
