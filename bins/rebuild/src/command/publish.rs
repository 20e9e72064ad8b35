//! `rebuild publish`.

use std::{fs, time::Duration};

use camino::Utf8PathBuf;
use clap::Args;
use console_report::{Console, Exit, Failure};
use model_catalog::ManifestVersion;
use model_manifest::{
    PublishError, PublishEvent, PublishRequest, PublishRoute, PushLimit, Remote, Removed, Signer,
    VerifiedRelease, plan_publish, publish, rollback,
};
use verified_download::HttpClient;

use super::verify::{gate, part_limit, refuse};
use crate::{
    cli::{CatalogArgs, Cli},
    network::http_options,
    session::{Session, at_home},
};

/// Publishes a verified workspace to a resource repository: artifacts, a look at them, then the manifest.
#[derive(Debug, Args)]
pub struct PublishArgs {
    /// Source maps.
    #[command(flatten)]
    catalog: CatalogArgs,
    /// The version of the namespace that is released.
    #[arg(long, default_value = "v23", value_name = "vN")]
    manifest_version: ManifestVersion,
    /// A local clone of the resource repository; its working tree and branches stay as they are.
    #[arg(long, value_name = "DIR")]
    repository: Utf8PathBuf,
    /// A remote to publish to, with the address under which devices fetch its branches; may be repeated.
    #[arg(long, value_name = "NAME[=RAW_URL]", default_value = "origin")]
    remote: Vec<Remote>,
    /// The branch on which the files lie.
    #[arg(long, default_value = "Models")]
    branch: String,
    /// About how many MiB one push may bring.
    #[arg(long, default_value_t = 1000, value_name = "N")]
    batch_mib: u64,
    /// How many MiB one remote takes in one push; commits are made for the remote that takes least. May be repeated.
    #[arg(long, value_name = "NAME=MIB")]
    push_limit: Vec<PushLimit>,
    /// A minisign secret key that signs the part list.
    #[arg(long, value_name = "FILE")]
    sign_key: Option<Utf8PathBuf>,
    /// A file with the password of the key.
    #[arg(long, value_name = "FILE", requires = "sign_key")]
    key_password_file: Option<Utf8PathBuf>,
    /// How many seconds a host may take until it serves what was pushed.
    #[arg(long, default_value_t = 600, value_name = "N")]
    settle_seconds: u64,
    /// Do not ask for the driver-monitoring set.
    #[arg(long)]
    without_dm: bool,
    /// Go on where no remote has an address for devices: nothing is fetched again, and nothing is confirmed.
    #[arg(long)]
    unconfirmed: bool,
    /// Say what would be done, and push nothing.
    #[arg(long)]
    dry_run: bool,
    /// Undo the newest release instead: its files become what they were before.
    #[arg(long, conflicts_with = "dry_run")]
    rollback: bool,
}

pub fn run(args: &PublishArgs, cli: &Cli, console: &Console) -> Result<(), Failure> {
    let session = Session::for_run(cli, console, "rebuild publish", args.dry_run)?;
    let remotes = Remote::with_limits(&args.remote, &args.push_limit).map_err(|limit| {
        Failure::new(Exit::Usage, format!("--push-limit names {}, which is no --remote", limit.remote))
            .advice("give the limit the name of a remote")
    })?;
    let repository = at_home(&args.repository);
    let seconds = jiff::Timestamp::now().as_second();
    let client = HttpClient::new(http_options()?).map_err(|error| {
        Failure::new(Exit::Environment, "the release could not be looked at").because(&error)
    })?;
    let route = PublishRoute {
        repository: &repository,
        remotes: &remotes,
        branch: &args.branch,
        part_limit: part_limit(&session)?,
        batch_bytes: args.batch_mib.saturating_mul(1 << 20),
        unconfirmed: args.unconfirmed,
        settle: Duration::from_secs(args.settle_seconds),
        client: &client,
        progress: console,
        stop: &session.interrupt,
    };
    if args.rollback {
        let rolled = rollback(&route, seconds, &mut |event| show(console, &event))
            .map_err(|error| of_publish("the release was not rolled back", &error))?;
        console.result(&rolled, || {
            format!(
                "{} files are as before, at {}; {}{}",
                rolled.files.len(),
                rolled.commit,
                looked_at(rolled.confirmed),
                still_there(&rolled.removed)
            )
        });
        return Ok(());
    }
    let release = verified(&session, args)?;
    let signer = signer(args)?;
    let request = PublishRequest {
        release: &release,
        workspace: session.workspace.root(),
        route,
        signer: signer.as_ref(),
        seconds,
    };
    if args.dry_run {
        let plan = plan_publish(&request).map_err(|error| of_publish("there is no plan", &error))?;
        console.result(&plan, || plan.to_string().trim_end().to_owned());
        return Ok(());
    }
    let published = publish(&request, &mut |event| show(console, &event))
        .map_err(|error| of_publish("the release is not published", &error))?;
    console.result(&published, || {
        let word = if published.confirmed == 0 { "pushed" } else { "published" };
        let (commit, commits) = (&published.commit, published.commits);
        format!("{word} at {commit}: {commits} commits, {}", looked_at(published.confirmed))
    });
    Ok(())
}

fn looked_at(files: usize) -> String {
    if files == 0 {
        "nothing was fetched again: not confirmed".to_owned()
    } else {
        format!("{files} files looked at")
    }
}

/// What the hosts say of the files that the release had brought.
fn still_there(removed: &Removed) -> String {
    let (gone, served, unknown) = (removed.gone.len(), removed.served.len(), removed.unknown.len());
    if gone + served + unknown == 0 {
        return String::new();
    }
    let mut text = format!("; of the files taken away {gone} are no longer served");
    if served > 0 {
        text += &format!(", {served} still are (a host keeps copies for a while; nothing names them)");
    }
    if unknown > 0 {
        text += &format!(", {unknown} were not answered for");
    }
    text
}

fn verified(session: &Session<'_>, args: &PublishArgs) -> Result<VerifiedRelease, Failure> {
    let report = gate(session, &args.catalog, args.manifest_version, !args.without_dm)?;
    if let Err(failure) = refuse(&report) {
        session.console.note(&report.to_string());
        return Err(failure);
    }
    report.into_release().map_err(|_| Failure::new(Exit::Failed, "the workspace may not be published"))
}

fn signer(args: &PublishArgs) -> Result<Option<Signer>, Failure> {
    let Some(path) = &args.sign_key else { return Ok(None) };
    let read = |path: &Utf8PathBuf| {
        fs::read_to_string(at_home(path))
            .map_err(|error| Failure::new(Exit::Usage, format!("{path} cannot be read")).because(&error))
    };
    let password = args.key_password_file.as_ref().map(read).transpose()?;
    let password = password.map(|text| text.trim_end_matches(['\r', '\n']).to_owned());
    Signer::from_key_file(&read(path)?, password)
        .map(Some)
        .map_err(|error| Failure::new(Exit::Usage, format!("{path} cannot sign")).because(&error))
}

fn show(console: &Console, event: &PublishEvent) {
    console.event(event);
    if !matches!(event, PublishEvent::Confirmed { .. }) {
        console.note(&event.to_string());
    }
}

fn of_publish(what: &str, error: &PublishError) -> Failure {
    let exit = match error {
        PublishError::Interrupted => Exit::Interrupted,
        PublishError::NoAddress => Exit::Usage,
        PublishError::NoGit { .. } | PublishError::Fs(_) => Exit::Environment,
        _ => Exit::Failed,
    };
    Failure::new(exit, what).because(error)
}
