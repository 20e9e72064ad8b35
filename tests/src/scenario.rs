//! A clone, a source map, a base manifest and a workspace that belong together.

use std::{fs, process::Command};

use anyhow::{Context, Result};
use camino::{Utf8Path, Utf8PathBuf};
use serde_json::{Map, Value, json};

use crate::{Binaries, Blob, History, OnnxKind, OnnxRequest, Outcome, PythonEnvironment, onnx_fixture, run};

/// Where and how a model's sources lie in its commit.
#[derive(Debug, Clone, Copy)]
pub struct ModelSource {
    /// Directory in the commit.
    pub directory: &'static str,
    /// Whether the files are committed as they are instead of as LFS pointers.
    pub plain: bool,
    /// File names (`driving_vision.onnx`) and what they hold.
    pub files: &'static [(&'static str, OnnxRequest)],
}

/// One model of a scenario.
#[derive(Debug, Clone, Copy)]
pub struct ScenarioModel {
    /// Its ID.
    pub id: &'static str,
    /// Its display name.
    pub name: &'static str,
    /// Its behaviour version.
    pub version: &'static str,
    /// Whether the base manifest lists it (recovered models are not yet there).
    pub listed: bool,
    /// Its commit.
    pub source: ModelSource,
}

impl ScenarioModel {
    /// A small split model with one policy.
    #[must_use]
    pub const fn split(id: &'static str, files: &'static [(&'static str, OnnxRequest)]) -> Self {
        let source = ModelSource { directory: "selfdrive/modeld/models", plain: false, files };
        Self { id, name: id, version: "v11", listed: true, source }
    }

    fn input_format(&self) -> &'static str {
        let supercombo =
            |request: &OnnxRequest| matches!(request.kind, OnnxKind::Supercombo | OnnxKind::SupercomboOld);
        if self.source.files.iter().any(|(_, request)| supercombo(request)) { "supercombo" } else { "split" }
    }

    /// The entry of the base manifest, with the fields of an older release that generation drops.
    fn manifest_entry(&self) -> Value {
        json!({
            "id": self.id, "name": self.name, "version": self.version, "series": "Demo Series",
            "released": "2026-01-15", "community_favorite": false,
            "artifact_format": "thneed", "artifact_size": 1, "artifact_sha256": "0".repeat(64),
            "artifact_url": format!("https://example.org/{}.thneed", self.id),
        })
    }
}

/// Everything that a run of the workflow reads, in one directory.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// The clone.
    pub history: History,
    /// The workspace, not made yet.
    pub workspace: Utf8PathBuf,
    /// The source map.
    pub source_map: Utf8PathBuf,
    /// The base manifest.
    pub base_manifest: Utf8PathBuf,
    /// The commit of each model.
    pub commits: Vec<(String, String)>,
    binaries: Binaries,
}

impl Scenario {
    /// Generates the ONNX files and commits them, one commit a model, under `root` (which must be empty or absent).
    ///
    /// # Errors
    /// When a file cannot be generated or git refuses.
    pub fn create(root: &Utf8Path, python: &PythonEnvironment, models: &[ScenarioModel]) -> Result<Self> {
        let history = History::create(root.join("openpilot"))?;
        let (mut map, mut commits) = (Map::new(), Vec::new());
        for model in models {
            let commit = commit_model(&history, python, model)?;
            map.insert(model.id.to_owned(), json!({"ref": commit, "input_format": model.input_format()}));
            commits.push((model.id.to_owned(), commit));
        }
        let listed = models.iter().filter(|model| model.listed).map(ScenarioModel::manifest_entry);
        let scenario = Self {
            history,
            workspace: root.join("workspace"),
            source_map: root.join("model_source_map.json"),
            base_manifest: root.join("model_names_v21.json"),
            commits,
            binaries: Binaries::locate()?,
        };
        write_json(&scenario.source_map, &Value::Object(map))?;
        write_json(&scenario.base_manifest, &json!({"models": listed.collect::<Vec<_>>()}))?;
        Ok(scenario)
    }

    /// The same inputs with another workspace.
    #[must_use]
    pub fn with_workspace(&self, workspace: Utf8PathBuf) -> Self {
        Self { workspace, ..self.clone() }
    }

    /// The same inputs for other binaries.
    #[must_use]
    pub fn with_binaries(self, binaries: Binaries) -> Self {
        Self { binaries, ..self }
    }

    /// Makes the workspace for this machine's CPU, with parts above `part_limit_mib` MiB where that is given; returns what
    /// `rebuild init` did.
    ///
    /// # Errors
    /// When it does not start or its configuration cannot be written.
    pub fn init(&self, python: &PythonEnvironment, part_limit_mib: Option<u64>) -> Result<Outcome> {
        let outcome = run(&mut self.init_command())?;
        self.configure(python, part_limit_mib)?;
        Ok(outcome)
    }

    /// `rebuild init` as a user would type it.
    #[must_use]
    pub fn init_command(&self) -> Command {
        let map = self.source_map.as_str();
        self.rebuild(&["init", "--device", "local", "--target", "cpu", "--source-map", map])
    }

    /// Completes the `rebuild.toml` that `init` made.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn configure(&self, python: &PythonEnvironment, part_limit_mib: Option<u64>) -> Result<()> {
        let path = self.workspace.join("rebuild.toml");
        let mut text = fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
        let settings = [
            ("openpilot", self.history.root()),
            ("base_manifest", self.base_manifest.as_path()),
            ("python", python.python.as_path()),
        ];
        for (key, value) in settings {
            text.push_str(&format!("{key} = \"{value}\"\n"));
        }
        // Tests ask no server that they have not started themselves.
        text.push_str("offline = true\n");
        if let Some(limit) = part_limit_mib {
            text.push_str(&format!("part_limit_mib = {limit}\n"));
        }
        write_text(&path, &text)
    }

    /// Sets a key of `rebuild.toml`, in place of the value that it has.
    ///
    /// # Errors
    /// When the file cannot be read or written.
    pub fn set(&self, key: &str, value: &str) -> Result<()> {
        let path = self.workspace.join("rebuild.toml");
        let text = fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
        let others = text.lines().filter(|line| !line.starts_with(&format!("{key} =")));
        let lines: Vec<String> =
            others.map(str::to_owned).chain([format!("{key} = \"{value}\"\n")]).collect();
        write_text(&path, &lines.join("\n"))
    }

    /// Adds a model to the source map (not to the manifest).
    ///
    /// # Errors
    /// When the map cannot be read or written.
    pub fn add_source(&self, id: &str, git_ref: &str, input_format: &str) -> Result<()> {
        let mut map = read_json(&self.source_map)?;
        map[id] = json!({"ref": git_ref, "input_format": input_format});
        write_json(&self.source_map, &map)
    }

    /// `rebuild COMMAND --workspace ...`, ready to run.
    #[must_use]
    pub fn rebuild(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.binaries.rebuild);
        command.args(arguments).args(["--workspace", self.workspace.as_str()]);
        // Whose machine it is must not matter.
        command.envs([("GIT_CONFIG_NOSYSTEM", "1"), ("GIT_CONFIG_GLOBAL", "/dev/null")]);
        command
    }

    /// `rebuild COMMAND` with the source map as it is now, where that was changed after `init`.
    #[must_use]
    pub fn rebuild_mapped(&self, arguments: &[&str]) -> Command {
        let mut command = self.rebuild(arguments);
        command.args(["--source-map", self.source_map.as_str()]);
        command
    }

    /// Text of a program with the paths and digests of this run replaced, for comparison with what was printed on another
    /// machine.
    #[must_use]
    pub fn redacted(&self, text: &str) -> String {
        let root = self.workspace.parent().unwrap_or(&self.workspace);
        without_digests(&text.replace(root.as_str(), "[root]"))
    }

    /// The names in a directory of the workspace, sorted; empty where it is absent.
    #[must_use]
    pub fn list(&self, dir: &str) -> Vec<String> {
        let entries = self.workspace.join(dir).read_dir_utf8().into_iter().flatten().flatten();
        let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_owned()).collect();
        names.sort();
        names
    }

    /// The `models` binary.
    #[must_use]
    pub fn models(&self) -> Command {
        Command::new(&self.binaries.models)
    }

    /// A JSON record of the workspace's `results/`.
    ///
    /// # Errors
    /// When it is absent or no JSON.
    pub fn record(&self, name: &str) -> Result<Value> {
        read_json(&self.workspace.join("results").join(name))
    }

    /// A manifest of the workspace.
    ///
    /// # Errors
    /// When it is absent or no JSON.
    pub fn manifest(&self, version: &str) -> Result<Value> {
        read_json(&self.workspace.join(format!("manifests/model_names_{version}.json")))
    }
}

/// Commits, digests and names made of them, as `[hex]`.
fn without_digests(text: &str) -> String {
    let is_hex = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
    let mut out = String::new();
    let mut rest = text;
    while let Some(start) = rest.find(is_hex) {
        let (before, from) = rest.split_at(start);
        let (run, after) = from.split_at(from.find(|c| !is_hex(c)).unwrap_or(from.len()));
        out.push_str(before);
        out.push_str(if run.len() >= 16 { "[hex]" } else { run });
        rest = after;
    }
    out + rest
}

fn commit_model(history: &History, python: &PythonEnvironment, model: &ScenarioModel) -> Result<String> {
    let mut files = vec![("README.md".to_owned(), Blob::Text(format!("# {}\n", model.name)))];
    for (name, request) in model.source.files {
        let onnx = onnx_fixture(python, request)?;
        let blob = if model.source.plain { Blob::Plain(onnx) } else { Blob::Pointer(onnx) };
        files.push((format!("{}/{name}", model.source.directory), blob));
    }
    history.commit(&format!("modeld: {}", model.name), &files)
}

fn read_json(path: &Utf8Path) -> Result<Value> {
    let text = fs::read_to_string(path).with_context(|| format!("read {path}"))?;
    serde_json::from_str(&text).with_context(|| format!("parse {path}"))
}

fn write_json(path: &Utf8Path, value: &Value) -> Result<()> {
    write_text(path, &format!("{}\n", serde_json::to_string_pretty(value)?))
}

#[expect(clippy::disallowed_methods, reason = "inputs of a run that has not begun")]
fn write_text(path: &Utf8Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("write {path}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_replaced_and_words_stay() {
        let text = format!("decade {}: file ab/{} of face", "0a".repeat(20), "b".repeat(64));
        assert_eq!(without_digests(&text), "decade [hex]: file ab/[hex] of face");
    }
}
