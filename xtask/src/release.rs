//! `cargo xtask release`: verifies a workspace and publishes it, with what `rebuild verify` and `rebuild publish` are made of.
//!
//! For a maintainer who releases from a checkout of this project. Nothing is pushed unless `--push` is given.

use std::{
    fs,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, Result, anyhow, bail};
use artifact_parts::PartLimit;
use camino::Utf8PathBuf;
use clap::Args;
use console_report::{Console, interrupt_flag};
use durable_fs::Progress;
use model_catalog::ManifestVersion;
use model_manifest::{
    GateOptions, PublishRequest, PublishRoute, PushLimit, Remote, Signer, VerifiedRelease, plan_publish,
    publish, recover, verify_workspace,
};
use rebuild_workspace::{Workspace, load_source_maps};
use verified_download::{HttpClient, HttpOptions};

/// Options of `cargo xtask release`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// The workspace.
    #[arg(long, value_name = "DIR")]
    workspace: Utf8PathBuf,
    /// A local clone of the resource repository; only verified where it is absent.
    #[arg(long, value_name = "DIR")]
    repository: Option<Utf8PathBuf>,
    /// A remote to publish to, with the address under which devices fetch its branches; may be repeated.
    #[arg(long, value_name = "NAME[=RAW_URL]", default_value = "origin")]
    remote: Vec<Remote>,
    /// How many MiB one remote takes in one push; may be repeated.
    #[arg(long, value_name = "NAME=MIB")]
    push_limit: Vec<PushLimit>,
    /// The version of the namespace that is released.
    #[arg(long, default_value = "v23", value_name = "vN")]
    manifest_version: ManifestVersion,
    /// A minisign secret key without password that signs the part list.
    #[arg(long, value_name = "FILE")]
    sign_key: Option<Utf8PathBuf>,
    /// How many seconds a host may take until it serves what was pushed.
    #[arg(long, default_value_t = 600, value_name = "N")]
    settle_seconds: u64,
    /// Push where no remote has an address for devices: nothing is fetched again, and nothing is confirmed.
    #[arg(long)]
    unconfirmed: bool,
    /// Push; without it the plan is shown.
    #[arg(long, requires = "repository")]
    push: bool,
}

/// Verifies, and publishes where a repository is named.
pub fn run(arguments: &Arguments) -> Result<()> {
    let console = Console::new(false, false);
    let workspace = Workspace::open(&arguments.workspace)?;
    let _lock = workspace.lock("cargo xtask release")?;
    recover(&workspace)?;
    let part_limit = PartLimit::from_bytes(workspace.config()?.part_limit())?;
    let release = verified(arguments, &workspace, part_limit, &console)?;
    let Some(repository) = &arguments.repository else { return Ok(()) };
    let signer = arguments.sign_key.as_ref().map(signer).transpose()?;
    let client = HttpClient::new(HttpOptions::from_variables(|name| std::env::var(name).ok())?)?;
    let stop = interrupt_flag()?;
    let remotes = Remote::with_limits(&arguments.remote, &arguments.push_limit)
        .map_err(|limit| anyhow!("--push-limit names {}, which is no --remote", limit.remote))?;
    let request = PublishRequest {
        release: &release,
        workspace: workspace.root(),
        route: PublishRoute {
            repository,
            remotes: &remotes,
            branch: "Models",
            part_limit,
            batch_bytes: 1000 << 20,
            unconfirmed: arguments.unconfirmed,
            settle: Duration::from_secs(arguments.settle_seconds),
            client: &client,
            progress: &console,
            stop: &stop,
        },
        signer: signer.as_ref(),
        seconds: i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs())?,
    };
    if !arguments.push {
        println!("{}(nothing was pushed: give --push)", plan_publish(&request)?);
        return Ok(());
    }
    let published = publish(&request, &mut |event| println!("{event}"))?;
    match published.confirmed {
        0 => println!("pushed at {}: nothing was fetched again, not confirmed", published.commit),
        files => println!("published at {}: {files} files looked at", published.commit),
    }
    Ok(())
}

fn verified(
    arguments: &Arguments,
    workspace: &Workspace,
    part_limit: PartLimit,
    console: &Console,
) -> Result<VerifiedRelease> {
    let sources = load_source_maps(workspace, &[])?;
    let options = GateOptions {
        version: arguments.manifest_version,
        part_limit,
        driver_monitoring: true,
        proof: workspace.config()?.release,
    };
    console.begin("verifying", None);
    let report = verify_workspace(workspace, sources, &options, console);
    console.end();
    let report = report?;
    println!("{report}");
    match report.into_release() {
        Ok(release) => Ok(release),
        Err(report) => bail!("{} problems forbid releasing {}", report.problems.len(), report.version),
    }
}

fn signer(path: &Utf8PathBuf) -> Result<Signer> {
    let text = fs::read_to_string(path).with_context(|| format!("read {path}"))?;
    Ok(Signer::from_key_file(&text, None)?)
}
