//! `models fetch URL|ID`: an artifact from resource hosts.

use artifact_fetch::{FetchContext, FetchError, Wanted, fetch, fetch_list};
use artifact_parts::{ListedArtifact, PartList};
use artifact_pickle::{AbiDescription, Expectations, InspectOptions, verify};
use camino::Utf8Path;
use console_report::{Console, Exit, Failure, interrupt_flag, size_text};
use durable_fs::{Expected, Progress};
use model_catalog::{ArtifactName, ModelId, Target};
use verified_download::{HttpClient, HttpErrorClass, HttpOptions, HttpUrl};

use super::judged::AbiChoice;
use crate::arguments::FetchArgs;

/// The branch on which hosts have the files.
const BRANCH: &str = "Models";

/// Fetches and verifies.
pub fn run(args: &FetchArgs, console: &Console) -> Result<(), Failure> {
    let stop = interrupt_flag()
        .map_err(|error| Failure::new(Exit::Environment, "cannot listen for Ctrl-C").because(&error))?;
    let http = HttpOptions::from_variables(|name| std::env::var(name).ok())
        .map_err(|error| Failure::new(Exit::Environment, "nothing can be fetched").because(&error))?;
    let http = HttpOptions { per_host: http.per_host.max(args.connections), ..http };
    let client = HttpClient::new(http)
        .map_err(|error| Failure::new(Exit::Environment, "nothing can be fetched").because(&error))?;
    let place = Place::of(args)?;
    let abi = args.abi.as_ref().map(AbiChoice::load).transpose()?;
    let accept = |staged: &Utf8Path| fitness(staged, &place.name, args.target, abi.as_ref());
    let context = FetchContext {
        client: &client,
        connections: args.connections,
        progress: console,
        stop: &stop,
        accept: &accept,
    };
    let what = format!("{} was not fetched", place.name);
    let failed = |error: FetchError| of_fetch(&what, &error);
    let list = part_list(&context, &place, args, console).map_err(failed)?;
    let listed = place.find_in(list.as_ref(), args.public_key.is_some()).map_err(failed)?;
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
fn fitness(
    staged: &Utf8Path,
    name: &str,
    target: Option<Target>,
    abi: Option<&AbiDescription>,
) -> Result<(), String> {
    if Utf8Path::new(name).extension() != Some("pkl") {
        return Ok(());
    }
    let options = InspectOptions { abi: abi.cloned(), ..InspectOptions::default() };
    let expected = Expectations::of_file_name(name, target);
    let verdict = verify(staged, &options, &expected).map_err(|error| error.to_string())?;
    verdict.errors().next().map_or(Ok(()), |finding| Err(finding.to_string()))
}

/// The part list of the release, where it is needed or there.
fn part_list(
    context: &FetchContext<'_>,
    place: &Place,
    args: &FetchArgs,
    console: &Console,
) -> Result<Option<PartList>, FetchError> {
    let rejected =
        &mut |error: &FetchError| console.warn(&format!("a host's part list is not used: {error}"));
    let key = args.public_key.as_deref();
    let list = fetch_list(context, &place.bases, args.manifest_version, key, rejected);
    match list {
        // An address may be anywhere: a host of something else answers anything where a list would be.
        Err(error) if place.is_address && args.public_key.is_none() => {
            console.note(&format!("no part list is used: {error}"));
            Ok(None)
        }
        list => list,
    }
}

/// Where to look for what.
struct Place {
    /// The model; `None` for an address of something else.
    id: Option<ModelId>,
    is_address: bool,
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
            let id = ArtifactName::parse(&name).and_then(Result::ok).map(|artifact| artifact.id().clone());
            let bases = vec![directory_of(&parent)];
            return Ok(Self { id, is_address: true, name, bases, urls: vec![url] });
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
        let name = ArtifactName::new(id.clone()).to_string();
        Ok(Self { name, id: Some(id), is_address: false, urls: Vec::new(), bases })
    }

    /// What the list says of the file. With a key nothing but a listed file is taken; without one an address may be of an
    /// unlisted file.
    fn find_in<'l>(
        &self,
        list: Option<&'l PartList>,
        with_key: bool,
    ) -> Result<Option<&'l ListedArtifact>, FetchError> {
        let Some(list) = list else { return Ok(None) };
        let found = self.id.as_ref().and_then(|id| list.get(id));
        if found.is_some() || (self.is_address && !with_key) {
            return Ok(found);
        }
        Err(FetchError::NotListed { name: self.name.clone() })
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
