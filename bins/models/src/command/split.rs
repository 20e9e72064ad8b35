//! `models --split-artifact FILE`: parts at any size.

use camino::Utf8Path;
use console_report::{Console, Exit, Failure, size_text};
use durable_fs::{Expected, FsError};

use super::parts;
use crate::{arguments::CompileArgs, failure::of_fs};

/// Splits the file.
pub fn run(args: &CompileArgs, console: &Console) -> Result<(), Failure> {
    let Some(file) = &args.split_artifact else {
        return Err(Failure::new(Exit::Usage, "no file to split").advice("give --split-artifact FILE"));
    };
    let beside = file.parent().filter(|dir| !dir.as_str().is_empty()).unwrap_or(Utf8Path::new("."));
    let into = args.output_dir.as_deref().unwrap_or(beside);
    if !file.is_file() {
        return Err(Failure::new(Exit::Usage, format!("{file} was not split"))
            .why("there is no such file")
            .advice("check the path"));
    }
    std::fs::create_dir_all(into).map_err(|error| {
        of_fs(format!("{file} was not split"), &FsError::io("make the directory", into)(error))
    })?;
    let set = parts::make(file, into, Expected::default(), args, console)?;
    console.result(&set, || {
        let parts = set.parts.iter().map(|part| format!("  {}  {}", part.name, size_text(part.size)));
        let head = format!("{} split into {} parts in {into}", set.name, set.parts.len());
        let checksum = format!("  {}  {}", artifact_parts::checksum_name(&set.name), set.sha256);
        std::iter::once(head).chain(parts).chain([checksum]).collect::<Vec<_>>().join("\n")
    });
    Ok(())
}
