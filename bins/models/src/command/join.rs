//! `models join FILE`: parts to the whole.

use artifact_parts::{KnownParts, ListedArtifact, PartList, find_parts, join};
use camino::Utf8Path;
use console_report::{Console, Exit, Failure, size_text};
use durable_fs::{Expected, Progress, list_dir};
use model_catalog::{ManifestVersion, PartName};
use serde_json::json;

use crate::{arguments::JoinArgs, failure::of_parts};

/// The whole file's name, from its own, a part's or the checksum's.
pub fn whole_name(file_name: &str) -> String {
    PartName::parse(file_name).map_or_else(
        || file_name.strip_suffix(".sha256").unwrap_or(file_name).to_owned(),
        |part| part.whole().to_owned(),
    )
}

/// What the part list of a release says of `name`, where one lies beside the parts: it tells which part is wrong. Of several
/// lists the newest counts.
pub fn listed_beside(dir: &Utf8Path, name: &str) -> Result<Option<ListedArtifact>, Failure> {
    let refused = |path: &Utf8Path, error: &(dyn std::error::Error + 'static)| {
        Failure::new(Exit::Usage, format!("the part list {path} cannot be used"))
            .because(error)
            .advice("take it away where it does not belong to these parts")
    };
    let names = list_dir(dir).map_err(|error| refused(dir, &error))?;
    let version = |name: &String| {
        let text = name.strip_prefix("model_parts_")?.strip_suffix(".json")?;
        text.parse::<ManifestVersion>().ok()
    };
    let mut lists: Vec<(ManifestVersion, String)> =
        names.into_iter().filter_map(|name| Some((version(&name)?, name))).collect();
    lists.sort();
    for (_, file) in lists.into_iter().rev() {
        let path = dir.join(file);
        let text = std::fs::read_to_string(&path).map_err(|error| refused(&path, &error))?;
        let list = PartList::from_json(&text).map_err(|error| refused(&path, &error))?;
        let found = list.artifacts.into_iter().find(|listed| listed.filename == name);
        if let Some(listed) = found.filter(|listed| !listed.parts.is_empty()) {
            return Ok(Some(listed));
        }
    }
    Ok(None)
}

/// What is known of a set, where a list has it.
pub fn known(listed: Option<&ListedArtifact>) -> KnownParts<'_> {
    listed.map_or_else(KnownParts::default, |listed| KnownParts {
        whole: Expected::exactly(listed.size, listed.sha256),
        parts: Some(&listed.parts),
        without_checksum: false,
    })
}

/// Joins and checks.
pub fn run(args: &JoinArgs, console: &Console) -> Result<(), Failure> {
    let dir = args.file.parent().filter(|dir| !dir.as_str().is_empty()).unwrap_or(Utf8Path::new("."));
    let name = whole_name(args.file.file_name().unwrap_or_default());
    let destination = args.output.clone().unwrap_or_else(|| dir.join(&name));
    let failed = |error| of_parts(format!("{name} was not put together"), &error);
    let listed = listed_beside(dir, &name)?;
    let total = find_parts(dir, &name).map_err(failed)?.values().map(|part| part.size).sum();
    console.begin("join", Some(total));
    let written = join(dir, &name, &destination, known(listed.as_ref()), console);
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
