//! `models verify FILE`: whether an artifact, a set of parts or a metadata file may be used.

use artifact_parts::{PartSet, PartsReader, find_parts, verify as verify_parts};
use artifact_pickle::{Expectations, InspectOptions, Verdict, inspect_source, judge, verify};
use camino::{Utf8Path, Utf8PathBuf};
use clap::Args;
use console_report::{Console, Exit, Failure, size_text};
use durable_fs::Progress;
use model_catalog::{ArtifactName, Manifest, ManifestEntry, PartName, Target};
use serde::Serialize;

use super::{
    join::{known, listed_beside, whole_name},
    judged::{AbiChoice, of_inspect},
};
use crate::failure::of_parts;

/// `models verify`.
#[derive(Debug, Args)]
pub struct VerifyArgs {
    /// An artifact or metadata pickle, or a part or checksum of a split file; it must be what its name says
    pub file: Utf8PathBuf,
    /// The target that it must be compiled for [default: with --manifest external-gpu for a tagged model, else not compared]
    #[arg(long)]
    pub target: Option<Target>,
    /// The tinygrad that it must fit: a version that is built in, or a file that the driver printed
    #[arg(long, value_name = "VERSION|FILE")]
    pub abi: Option<AbiChoice>,
    /// A manifest whose entry of the same ID it must agree with
    #[arg(long, value_name = "FILE")]
    pub manifest: Option<Utf8PathBuf>,
    /// Read all contents too, and give the file's digest
    #[arg(long)]
    pub deep: bool,
}

/// Verifies.
pub fn run(args: &VerifyArgs, console: &Console) -> Result<(), Failure> {
    let name = args.file.file_name().unwrap_or_default();
    let expected = expectations(args, &whole_name(name))?;
    let abi = args.abi.as_ref().map(AbiChoice::load).transpose()?;
    let options = InspectOptions { deep: args.deep, abi, ..InspectOptions::default() };
    if PartName::parse(name).is_some()
        || args.file.extension() == Some("sha256")
        || is_in_parts(&args.file, name)
    {
        return parts(&args.file, name, &options, &expected, console);
    }
    let verdict = verify(&args.file, &options, &expected).map_err(|error| of_inspect(&args.file, &error))?;
    console.result(&verdict, || verdict.to_string().trim_end().to_owned());
    judge_verdict(&verdict, &args.file)
}

/// Whether the file itself is not there, but its parts are.
fn is_in_parts(file: &Utf8Path, name: &str) -> bool {
    !file.exists() && find_parts(directory(file), name).is_ok_and(|parts| !parts.is_empty())
}

fn directory(file: &Utf8Path) -> &Utf8Path {
    file.parent().filter(|dir| !dir.as_str().is_empty()).unwrap_or(Utf8Path::new("."))
}

fn judge_verdict(verdict: &Verdict, file: &Utf8Path) -> Result<(), Failure> {
    let mut errors = verdict.errors();
    match errors.next() {
        None => Ok(()),
        Some(first) => {
            let more = errors.count();
            let why = if more == 0 { first.to_string() } else { format!("{first}, and {more} more") };
            Err(Failure::new(Exit::Failed, format!("{file} must not be used"))
                .why(why)
                .advice("compile it again for this target and tinygrad"))
        }
    }
}

/// The parts of an artifact, and what of it lies inside.
#[derive(Serialize)]
struct VerifiedParts<'v> {
    #[serde(flatten)]
    set: &'v PartSet,
    artifact: Option<&'v Verdict>,
}

fn parts(
    file: &Utf8Path,
    name: &str,
    options: &InspectOptions,
    expected: &Expectations,
    console: &Console,
) -> Result<(), Failure> {
    let dir = directory(file);
    let whole = whole_name(name);
    let listed = listed_beside(dir, &whole)?;
    console.begin("verify", None);
    let set = verify_parts(dir, &whole, known(listed.as_ref()), console);
    console.end();
    let set = set.map_err(|error| of_parts(format!("the parts of {whole} are not good"), &error))?;
    // Any file may be split; only a pickle has something inside to look at.
    let verdict = if whole.ends_with(".pkl") {
        let path = dir.join(&whole);
        let inspected = inspect_source(&mut PartsReader::new(dir, &set), &path, options);
        Some(judge(inspected.map_err(|error| of_inspect(&path, &error))?.0, expected))
    } else {
        None
    };
    console.result(&VerifiedParts { set: &set, artifact: verdict.as_ref() }, || {
        let (count, size) = (set.parts.len(), size_text(set.size));
        let inside = verdict.as_ref().map(|verdict| format!("\n{}", verdict.to_string().trim_end()));
        format!("{whole}: good, {count} parts, {size}, {}{}", set.sha256, inside.unwrap_or_default())
    });
    verdict.map_or(Ok(()), |verdict| judge_verdict(&verdict, &dir.join(&whole)))
}

fn expectations(args: &VerifyArgs, name: &str) -> Result<Expectations, Failure> {
    let mut expected = Expectations::of_file_name(name, args.target);
    let Some(path) = &args.manifest else { return Ok(expected) };
    let entry = manifest_entry(path, name)?;
    let refused = |error| Failure::new(Exit::Usage, format!("{path} cannot be used")).because(&error);
    expected.behavior_version = entry.version().map_err(refused)?;
    if entry.uses_external_gpu().map_err(refused)? {
        expected.target.get_or_insert(Target::ExternalGpu);
    }
    Ok(expected)
}

fn manifest_entry(path: &Utf8Path, name: &str) -> Result<ManifestEntry, Failure> {
    let unusable = |error: &(dyn std::error::Error + 'static)| {
        Failure::new(Exit::Usage, format!("the manifest {path} cannot be used")).because(error)
    };
    let text = std::fs::read_to_string(path).map_err(|error| unusable(&error))?;
    let manifest = Manifest::from_json(&text).map_err(|error| unusable(&error))?;
    let Some(Ok(artifact)) = ArtifactName::parse(name) else {
        return Err(Failure::new(Exit::Usage, format!("{name} is not named after a model"))
            .why("the manifest's entry is found by the ID in <id>_driving_tinygrad.pkl")
            .advice("verify it under its own name, or without --manifest"));
    };
    let missing = || {
        Failure::new(Exit::Usage, format!("{path} has no model {}", artifact.id()))
            .advice("give the manifest that lists this model")
    };
    manifest.get(artifact.id()).cloned().ok_or_else(missing)
}
