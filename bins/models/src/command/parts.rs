//! Parts beside a compiled artifact.

use artifact_parts::{PartSet, SplitRequest, remove_set, split};
use camino::Utf8Path;
use console_report::{Console, Failure};
use durable_fs::{Expected, Progress};

use crate::{arguments::CompileArgs, failure::of_parts};

/// Makes the parts of `artifact` where it is over the limit, and removes those of an earlier one where it is not, or where it
/// stays `one_file`.
pub fn after_compile(
    artifact: &Utf8Path,
    expected: Expected,
    one_file: bool,
    args: &CompileArgs,
    console: &Console,
) -> Result<Option<PartSet>, Failure> {
    let (dir, name) =
        (artifact.parent().unwrap_or(Utf8Path::new(".")), artifact.file_name().unwrap_or_default());
    let size = expected.size.unwrap_or(0);
    if args.no_split || one_file || size <= args.part_limit_mib.bytes() {
        let removed = remove_set(dir, name)
            .map_err(|error| of_parts(format!("parts of an earlier {name} were not removed"), &error))?;
        if !removed.is_empty() {
            console.note(&format!("removed {} files of an earlier split", removed.len()));
        }
        return Ok(None);
    }
    let made = make(artifact, dir, expected, args, console);
    if made.is_err() {
        // The artifact in place is a new one: parts of the one before beside it would be taken for its own.
        remove_set(dir, name)
            .map_err(|error| of_parts(format!("parts of an earlier {name} were not removed"), &error))?;
    }
    made.map(Some)
}

/// Splits `artifact` into `into`, whatever its size.
pub fn make(
    artifact: &Utf8Path,
    into: &Utf8Path,
    expected: Expected,
    args: &CompileArgs,
    console: &Console,
) -> Result<PartSet, Failure> {
    let request = SplitRequest {
        source: artifact,
        into,
        name: None,
        chunk: args.chunk_size_mib.within(args.part_limit_mib),
        expected,
        part_digests: false,
    };
    console.begin("split", artifact.metadata().ok().map(|metadata| metadata.len()));
    let set = split(&request, console);
    console.end();
    set.map_err(|error| of_parts(format!("{artifact} was not split"), &error))
}
