//! `models fetch URL|ID`: an artifact from resource hosts.

use artifact_fetch::{FetchContext, FetchError, Wanted, fetch, fetch_list};
use artifact_pickle::{Expectations, FileKind, InspectOptions, verify};
use camino::Utf8Path;
use console_report::{Console, Exit, Failure, interrupt_flag, size_text};
use durable_fs::{Expected, Progress};
use model_catalog::{ArtifactName, ModelId, Target};
use verified_download::{HttpClient, HttpErrorClass, HttpOptions, HttpUrl};

use crate::arguments::FetchArgs;

/// The branch on which hosts have the files.
const BRANCH: &str = "Models";

/// Fetches and verifies.
pub fn run(args: &FetchArgs, console: &Console) -> Result<(), Failure> {
    let stop = interrupt_flag()
        .map_err(|error| Failure::new(Exit::Environment, "cannot listen for Ctrl-C").because(&error))?;
    let client = HttpClient::new(HttpOptions::default())
        .map_err(|error| Failure::new(Exit::Environment, "nothing can be fetched").because(&error))?;
    let place = Place::of(args)?;
    let accept = |staged: &Utf8Path| fitness(staged, &place.name, args.target);
    let context = FetchContext {
        client: &client,
        connections: args.connections,
        progress: console,
        stop: &stop,
        accept: &accept,
    };
    let what = format!("{} was not fetched", place.name);
    let failed = |error: FetchError| of_fetch(&what, &error);
    let list = match &place.id {
        Some(_) => fetch_list(&context, &place.bases, args.manifest_version, args.public_key.as_deref())
            .map_err(failed)?,
        None => None,
    };
    let listed = match (&list, &place.id) {
        (Some(list), Some(id)) => {
            Some(list.get(id).ok_or_else(|| failed(FetchError::NotListed { id: id.clone() }))?)
        }
        _ => None,
    };
    console.begin("fetch", listed.map(|artifact| artifact.size));
    let wanted = Wanted {
        name: &place.name,
        urls: &place.urls,
        bases: &place.bases,
        listed,
        expected: Expected::default(),
    };
    let fetched = fetch(&context, &wanted, &args.to);
    console.end();
    let fetched = fetched.map_err(failed)?;
    console.result(&fetched, || {
        let vouched = if fetched.verified { "" } else { "  (nobody vouches for its digest)" };
        format!("{}  {}  {}{vouched}", fetched.path, size_text(fetched.size), fetched.sha256)
    });
    Ok(())
}

/// Reads a fetched artifact as data; what is no pickle by its name is not judged.
fn fitness(staged: &Utf8Path, name: &str, target: Option<Target>) -> Result<(), String> {
    if Utf8Path::new(name).extension() != Some("pkl") {
        return Ok(());
    }
    let kind = matches!(ArtifactName::parse(name), Some(Ok(_))).then_some(FileKind::Driving);
    let expected = Expectations { target, kind, ..Expectations::default() };
    let verdict = verify(staged, &InspectOptions::default(), &expected).map_err(|error| error.to_string())?;
    verdict.errors().next().map_or(Ok(()), |finding| Err(finding.to_string()))
}

/// Where to look for what.
struct Place {
    id: Option<ModelId>,
    name: String,
    urls: Vec<HttpUrl>,
    bases: Vec<HttpUrl>,
}

impl Place {
    fn of(args: &FetchArgs) -> Result<Self, Failure> {
        let parse = |text: &str| {
            HttpUrl::parse(text)
                .map_err(|error| Failure::new(Exit::Usage, format!("{text} is no address")).because(&error))
        };
        if args.what.contains("://") {
            let url = parse(&args.what)?;
            let path = Utf8Path::new(url.path().split('?').next().unwrap_or_default());
            let name = path.file_name().unwrap_or_default().to_owned();
            let parent =
                url.join(".").map_err(|error| Failure::new(Exit::Usage, "no address").because(&error))?;
            return Ok(Self { id: None, name, bases: vec![directory_of(&parent)], urls: vec![url] });
        }
        let id: ModelId = args.what.parse().map_err(|error| {
            Failure::new(Exit::Usage, format!("{:?} is neither an address nor a model ID", args.what))
                .because(&error)
        })?;
        if args.base.is_empty() {
            return Err(Failure::new(Exit::Usage, format!("no host is known for {id}"))
                .advice("name one with --base URL; its files are under URL/Models/"));
        }
        let bases = args
            .base
            .iter()
            .map(|base| Ok(parse(base)?.with_suffix(BRANCH)))
            .collect::<Result<_, Failure>>()?;
        Ok(Self { name: ArtifactName::new(id.clone()).to_string(), id: Some(id), urls: Vec::new(), bases })
    }
}

/// `https://h/a/.` as `https://h/a`.
fn directory_of(url: &HttpUrl) -> HttpUrl {
    let path = url.path().trim_end_matches('.').trim_end_matches('/').to_owned();
    HttpUrl::parse(&format!("{}{path}", url.origin())).unwrap_or_else(|_| url.clone())
}

fn of_fetch(what: &str, error: &FetchError) -> Failure {
    let exit = match error.class() {
        Some(HttpErrorClass::Interrupted) => Exit::Interrupted,
        Some(HttpErrorClass::DiskFull | HttpErrorClass::NotWritable | HttpErrorClass::System) => {
            Exit::Environment
        }
        _ if matches!(
            error,
            FetchError::Destination { .. } | FetchError::Key { .. } | FetchError::NotListed { .. }
        ) =>
        {
            Exit::Usage
        }
        _ => Exit::Failed,
    };
    Failure::new(exit, what).because(error)
}
