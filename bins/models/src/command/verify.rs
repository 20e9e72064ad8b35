//! `models verify FILE`: whether an artifact, a set of parts or a metadata file may be used.

use artifact_parts::{KnownParts, verify as verify_parts};
use artifact_pickle::{Expectations, InspectOptions, verify};
use camino::{Utf8Path, Utf8PathBuf};
use clap::Args;
use console_report::{Console, Exit, Failure, size_text};
use durable_fs::Progress;
use model_catalog::{ArtifactName, Manifest, ManifestEntry, PartName, Target};

use super::{
    join::whole_name,
    judged::{AbiChoice, of_inspect},
};
use crate::failure::of_parts;

/// `models verify`.
#[derive(Debug, Args)]
pub struct VerifyArgs {
    /// An artifact or metadata pickle, or a part or checksum of a split file
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
    if PartName::parse(name).is_some() || args.file.extension() == Some("sha256") {
        return parts(&args.file, name, console);
    }
    let expected = expectations(args, name)?;
    let abi = args.abi.as_ref().map(AbiChoice::load).transpose()?;
    let options = InspectOptions { deep: args.deep, abi, ..InspectOptions::default() };
    let verdict = verify(&args.file, &options, &expected).map_err(|error| of_inspect(&args.file, &error))?;
    console.result(&verdict, || verdict.to_string().trim_end().to_owned());
    let mut errors = verdict.errors();
    match errors.next() {
        None => Ok(()),
        Some(first) => {
            let more = errors.count();
            let why = if more == 0 { first.to_string() } else { format!("{first}, and {more} more") };
            Err(Failure::new(Exit::Failed, format!("{} must not be used", args.file))
                .why(why)
                .advice("compile it again for this target and tinygrad"))
        }
    }
}

fn parts(file: &Utf8Path, name: &str, console: &Console) -> Result<(), Failure> {
    let dir = file.parent().filter(|dir| !dir.as_str().is_empty()).unwrap_or(Utf8Path::new("."));
    let whole = whole_name(name);
    console.begin("verify", None);
    let set = verify_parts(dir, &whole, KnownParts::default(), console);
    console.end();
    let set = set.map_err(|error| of_parts(format!("the parts of {whole} are not good"), &error))?;
    console.result(&set, || {
        let (count, size) = (set.parts.len(), size_text(set.size));
        format!("{whole}: good, {count} parts, {size}, {}", set.sha256)
    });
    Ok(())
}

fn expectations(args: &VerifyArgs, name: &str) -> Result<Expectations, Failure> {
    let mut expected = Expectations { target: args.target, ..Expectations::default() };
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
