//! Lines of a configuration file, with included files in their place.

use camino::{Utf8Path, Utf8PathBuf};

use super::{LocalUser, pattern};
use crate::safety::Refusal;

/// OpenSSH's own limit of nested includes.
const MAX_DEPTH: usize = 16;

/// One line.
#[derive(Debug, Clone)]
pub(super) struct Line {
    pub(super) file: Utf8PathBuf,
    pub(super) number: usize,
    /// In lower case.
    pub(super) keyword: String,
    pub(super) arguments: Vec<String>,
    /// The lines of included files.
    pub(super) included: Vec<Vec<Line>>,
}

impl Line {
    pub(super) fn bad(&self, why: impl Into<String>) -> Refusal {
        Refusal::BadConfig { file: self.file.to_string(), line: self.number, why: why.into() }
    }
}

pub(super) fn unreadable(file: &Utf8Path, why: impl ToString) -> Refusal {
    Refusal::BadConfig {
        file: file.to_string(),
        line: 0,
        why: format!("it cannot be read: {}", why.to_string()),
    }
}

pub(super) fn read_file(
    file: &Utf8Path,
    include_dir: &Utf8Path,
    user: &LocalUser,
    depth: usize,
) -> Result<Vec<Line>, Refusal> {
    let text = std::fs::read_to_string(file).map_err(|error| unreadable(file, error))?;
    read_text(&text, file, include_dir, user, depth)
}

pub(super) fn read_text(
    text: &str,
    file: &Utf8Path,
    include_dir: &Utf8Path,
    user: &LocalUser,
    depth: usize,
) -> Result<Vec<Line>, Refusal> {
    let mut lines = Vec::new();
    for (index, raw) in text.lines().enumerate() {
        let bad =
            |why: &str| Refusal::BadConfig { file: file.to_string(), line: index + 1, why: why.to_owned() };
        let words = split_words(raw).map_err(bad)?;
        let Some((keyword, arguments)) = words.split_first() else { continue };
        let mut line = Line {
            file: file.to_owned(),
            number: index + 1,
            keyword: keyword.to_ascii_lowercase(),
            arguments: arguments.to_vec(),
            included: Vec::new(),
        };
        if line.arguments.is_empty() {
            return Err(line.bad(format!("{keyword} has no value")));
        }
        if line.keyword == "include" {
            line.included = read_includes(&line, include_dir, user, depth)?;
        }
        lines.push(line);
    }
    Ok(lines)
}

fn read_includes(
    line: &Line,
    include_dir: &Utf8Path,
    user: &LocalUser,
    depth: usize,
) -> Result<Vec<Vec<Line>>, Refusal> {
    if depth >= MAX_DEPTH {
        return Err(line.bad("files include each other too deeply"));
    }
    let mut included = Vec::new();
    for argument in &line.arguments {
        if argument.contains("${") || argument.contains('%') {
            return Err(line.bad("tokens and variables in Include are not supported"));
        }
        let path = match argument.strip_prefix("~/") {
            Some(rest) => user.home.join(rest),
            None => include_dir.join(argument),
        };
        for file in expand(&path) {
            included.push(read_file(&file, include_dir, user, depth + 1)?);
        }
    }
    Ok(included)
}

/// The existing files that a path with `*` and `?` names, in order.
fn expand(path: &Utf8Path) -> Vec<Utf8PathBuf> {
    let mut found = vec![Utf8PathBuf::new()];
    for component in path.components() {
        let part = component.as_str();
        if !part.contains(['*', '?']) {
            found.iter_mut().for_each(|dir| dir.push(part));
            continue;
        }
        found = found.iter().flat_map(|dir| matching_names(dir, part)).collect();
    }
    found.retain(|file| file.is_file());
    found
}

fn matching_names(dir: &Utf8Path, wanted: &str) -> Vec<Utf8PathBuf> {
    let Ok(entries) = dir.read_dir_utf8() else { return Vec::new() };
    let mut names: Vec<Utf8PathBuf> = entries
        .filter_map(Result::ok)
        .filter(|entry| pattern::matches(entry.file_name(), wanted))
        .filter(|entry| wanted.starts_with('.') || !entry.file_name().starts_with('.'))
        .map(|entry| entry.path().to_owned())
        .collect();
    names.sort();
    names
}

/// Splits a line: the keyword ends at a blank or `=`, arguments may stand in double quotes, `#` begins a comment.
fn split_words(raw: &str) -> Result<Vec<String>, &'static str> {
    let text = raw.trim();
    if text.is_empty() || text.starts_with('#') {
        return Ok(Vec::new());
    }
    let end = text.find([' ', '\t', '=']).unwrap_or(text.len());
    let mut words = vec![text[..end].trim_matches('"').to_owned()];
    let rest = text[end..].trim_start();
    let rest = rest.strip_prefix('=').unwrap_or(rest);
    words.extend(split_arguments(rest)?);
    Ok(words)
}

fn split_arguments(text: &str) -> Result<Vec<String>, &'static str> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut characters = text.chars().peekable();
    while let Some(c) = characters.next() {
        match c {
            '\\' if characters.peek().is_some_and(|next| "\"'\\".contains(*next)) => {
                word.get_or_insert_default().extend(characters.next());
            }
            _ if quote == Some(c) => quote = None,
            '"' | '\'' if quote.is_none() => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            ' ' | '\t' if quote.is_none() => words.extend(word.take()),
            '#' if quote.is_none() && word.is_none() => break,
            _ => word.get_or_insert_default().push(c),
        }
    }
    if quote.is_some() {
        return Err("a quote is not closed");
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_split_as_openssh_does() {
        let words = |text| split_words(text).unwrap();
        assert_eq!(words("HostName=host"), ["HostName", "host"]);
        assert_eq!(words("  Port \t = 22 # comment"), ["Port", "22"]);
        assert_eq!(words("IdentityFile \"a b\" c\\\"d"), ["IdentityFile", "a b", "c\"d"]);
        assert!(words("# Host x").is_empty());
        assert!(split_words("User \"x").is_err());
    }
}
