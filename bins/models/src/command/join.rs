//! `models join FILE`: parts to the whole.

use artifact_parts::{KnownParts, find_parts, join};
use camino::Utf8Path;
use console_report::{Console, Failure, size_text};
use durable_fs::Progress;
use model_catalog::PartName;
use serde_json::json;

use crate::{arguments::JoinArgs, failure::of_parts};

/// The whole file's name, from its own, a part's or the checksum's.
pub fn whole_name(file_name: &str) -> String {
    PartName::parse(file_name).map_or_else(
        || file_name.strip_suffix(".sha256").unwrap_or(file_name).to_owned(),
        |part| part.whole().to_owned(),
    )
}

/// Joins and checks.
pub fn run(args: &JoinArgs, console: &Console) -> Result<(), Failure> {
    let dir = args.file.parent().filter(|dir| !dir.as_str().is_empty()).unwrap_or(Utf8Path::new("."));
    let name = whole_name(args.file.file_name().unwrap_or_default());
    let destination = args.output.clone().unwrap_or_else(|| dir.join(&name));
    let failed = |error| of_parts(format!("{name} was not put together"), &error);
    let total = find_parts(dir, &name).map_err(failed)?.values().map(|part| part.size).sum();
    console.begin("join", Some(total));
    let written = join(dir, &name, &destination, KnownParts::default(), console);
    console.end();
    let written = written.map_err(failed)?;
    let result = json!({"path": destination, "size": written.size, "sha256": written.sha256});
    console.result(&result, || format!("{destination}  {}  {}", size_text(written.size), written.sha256));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_file_of_a_set_names_it() {
        for name in ["a.pkl", "a.pkl.p00", "a.pkl.p17", "a.pkl.sha256"] {
            assert_eq!(whole_name(name), "a.pkl");
        }
    }
}
