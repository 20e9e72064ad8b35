//! Extraction against what a person would type: `git cat-file` and `openssl`, `git lfs fetch` and `checkout`.

use std::{
    fmt::Write as _,
    fs,
    io::Write as _,
    process::{Command, Stdio},
    time::Instant,
};

use anyhow::{Context, Result, ensure};
use camino::{Utf8Path, Utf8PathBuf};
use e2e::{OnnxKind, OnnxRequest, PythonEnvironment, Scenario, ScenarioModel};
use lfs_extract::SourceClone;
use model_catalog::{COMPONENT_DIRECTORIES, InputFormat, Variant};

use super::{
    Arguments,
    comparison::{Comparison, print_goal},
    part_directory, release_binary, shell,
};

const DIRECTORY: &str = "selfdrive/modeld/models";
const FILE: &str = "driving_supercombo.onnx";

/// Models of a whole catalog.
const CATALOG: usize = 75;

pub fn run(arguments: &Arguments) -> Result<()> {
    let python = PythonEnvironment::find().map_err(anyhow::Error::msg)?;
    let rebuild = release_binary("rebuild")?;
    let dir = part_directory("extract")?;
    large(arguments, &python, &rebuild, &dir)?;
    lfs(arguments, &python, &rebuild, &dir)?;
    catalog(arguments, &python, &rebuild, &dir)?;
    look_ups(&dir)
}

/// A scenario in an empty directory, with a workspace.
fn scenario(dir: &Utf8Path, python: &PythonEnvironment, models: &[ScenarioModel]) -> Result<Scenario> {
    if dir.exists() {
        fs::remove_dir_all(dir).with_context(|| format!("remove {dir}"))?;
    }
    let scenario = Scenario::create(dir, python, models)?;
    scenario.init(python, None)?.expect_code(0);
    Ok(scenario)
}

fn extract(rebuild: &Utf8Path, scenario: &Scenario, arguments: &[&str]) -> Command {
    let mut command = Command::new(rebuild);
    command.arg("extract").args(arguments).args(["--workspace", scenario.workspace.as_str()]);
    command
}

/// One large blob that is the ONNX itself: packed, and loose.
fn large(
    arguments: &Arguments,
    python: &PythonEnvironment,
    rebuild: &Utf8Path,
    dir: &Utf8Path,
) -> Result<()> {
    let onnx = OnnxRequest::small(OnnxKind::Supercombo, 71).with_size_mib(arguments.size_mib.unwrap_or(300));
    let files: &'static [(&str, OnnxRequest)] = Box::leak(Box::new([(FILE, onnx)]));
    let mut model = ScenarioModel::split("large", files);
    model.source.plain = true;
    for (title, packed, limit) in [("extract, packed", true, 0.9), ("extract, loose", false, 0.9)] {
        let scenario = scenario(&dir.join(if packed { "packed" } else { "loose" }), python, &[model])?;
        if packed {
            scenario.history.git(["repack", "-adq", "--depth=0", "--window=0"])?;
        }
        let out = dir.join("peer.onnx");
        let object = format!("{}:{DIRECTORY}/{FILE}", scenario.commits[0].1);
        let git = format!("git -C '{}' cat-file blob {object} > '{out}'", scenario.history.root());
        let onnx_dir = scenario.workspace.join("onnx/large");
        let report = Comparison::new(title, arguments.runs)
            .side("rebuild extract", || removed(&onnx_dir), extract(rebuild, &scenario, &["--force"]))
            .side("git + openssl", || removed(&out), shell(&format!("{git}; openssl dgst -sha256 '{out}'")))
            .side(
                "git + openssl + sync",
                || removed(&out),
                shell(&format!("{git}; openssl dgst -sha256 '{out}'; sync '{out}'")),
            )
            .measure()?;
        report.print("git + openssl")?;
        report.goal("rebuild extract", "git + openssl", limit)?;
        report.goal("rebuild extract", "git + openssl + sync", limit)?;
        report.memory_goal("rebuild extract", 16.0)?;
    }
    Ok(())
}

/// One large LFS object that lies in a remote on this machine.
fn lfs(arguments: &Arguments, python: &PythonEnvironment, rebuild: &Utf8Path, dir: &Utf8Path) -> Result<()> {
    let onnx = OnnxRequest::small(OnnxKind::Supercombo, 71).with_size_mib(arguments.size_mib.unwrap_or(300));
    let files: &'static [(&str, OnnxRequest)] = Box::leak(Box::new([(FILE, onnx)]));
    let scenario = scenario(&dir.join("lfs"), python, &[ScenarioModel::split("large", files)])?;
    let commit = scenario.commits[0].1.clone();
    let clone = dir.join("lfs/clone");
    let upstream = scenario.history.root().to_owned();
    let made = shell(&format!(
        "export GIT_LFS_SKIP_SMUDGE=1; git clone -q '{upstream}' '{clone}'; cd '{clone}'; git lfs install --local >/dev/null; \
         echo '*.onnx filter=lfs -text' > .git/info/attributes"
    ))
    .status()?;
    ensure!(made.success(), "the clone could not be made");
    scenario.set("openpilot", clone.as_str())?;
    let onnx_dir = scenario.workspace.join("onnx/large");
    let cached = clone.join(".git/lfs/objects");
    let working = clone.join(DIRECTORY).join(FILE);
    let pointer = format!("git -C '{clone}' cat-file blob {commit}:{DIRECTORY}/{FILE} > '{working}'");
    let prepare = || {
        removed(&cached)?;
        ensure!(shell(&pointer).status()?.success(), "the pointer could not be put back");
        Ok(())
    };
    let peer = format!(
        "cd '{clone}'; git lfs fetch origin {commit} >/dev/null 2>&1; git lfs checkout '{DIRECTORY}/{FILE}' >/dev/null"
    );
    let report = Comparison::new("extract, LFS object of a local remote", arguments.runs)
        .side("rebuild extract", || removed(&onnx_dir), extract(rebuild, &scenario, &["--force"]))
        .side("git lfs fetch + checkout", prepare, shell(&peer))
        .measure()?;
    let size = fs::metadata(&working).with_context(|| format!("look at {working}"))?.len();
    ensure!(size > 1024, "git lfs checkout left the pointer: the comparison would say nothing");
    report.print("git lfs fetch + checkout")?;
    report.goal("rebuild extract", "git lfs fetch + checkout", 1.0)?;
    report.memory_goal("rebuild extract", 16.0)
}

/// Six models whose objects are cached, and a rerun over a whole catalog.
fn catalog(
    arguments: &Arguments,
    python: &PythonEnvironment,
    rebuild: &Utf8Path,
    dir: &Utf8Path,
) -> Result<()> {
    const FILES: &[(&str, OnnxRequest)] = &[
        ("driving_vision.onnx", OnnxRequest::small(OnnxKind::Vision, 72)),
        ("driving_policy.onnx", OnnxRequest::small(OnnxKind::Policy, 73)),
    ];
    let models: Vec<ScenarioModel> = (0..CATALOG)
        .map(|index| ScenarioModel::split(Box::leak(format!("m{index:02}").into_boxed_str()), FILES))
        .collect();
    let scenario = scenario(&dir.join("catalog"), python, &models)?;
    let six: Vec<&str> = (0..6).flat_map(|index| ["--model", models[index].id]).chain(["--force"]).collect();
    ensure!(extract(rebuild, &scenario, &[]).stdout(Stdio::null()).stderr(Stdio::null()).status()?.success());
    let onnx = scenario.workspace.join("onnx");
    let fresh = || (0..6).try_for_each(|index| removed(&onnx.join(models[index].id)));
    let report = Comparison::new("extract, small models", arguments.runs)
        .side("six models, cached objects", fresh, extract(rebuild, &scenario, &six))
        .side("75 models, nothing to do", || Ok(()), extract(rebuild, &scenario, &[]))
        .measure()?;
    report.print("75 models, nothing to do")?;
    report.time_goal("six models, cached objects", 0.15)?;
    report.time_goal("75 models, nothing to do", 0.1)
}

/// 75 models x 15 candidate paths in a repository of 15,000 files: ours in one process, and a git process for each.
fn look_ups(dir: &Utf8Path) -> Result<()> {
    let repository = dir.join("history");
    let commits = history(&repository)?;
    let mut times = Vec::new();
    for _ in 0..7 {
        let begun = Instant::now();
        let clone = SourceClone::open(repository.clone())?;
        for commit in &commits {
            let found = clone.find_sources(clone.resolve(commit)?, InputFormat::Split, Variant::Standard)?;
            ensure!(found.len() == 2, "{commit} has {} components", found.len());
        }
        times.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    let begun = Instant::now();
    let mut asked = 0;
    for commit in commits.iter().take(5) {
        for directory in COMPONENT_DIRECTORIES {
            for component in ["supercombo", "vision", "policy", "on_policy", "off_policy"] {
                let object = format!("{commit}:{directory}/driving_{component}.onnx");
                // Most of these are not there: that is an answer too.
                Command::new("git")
                    .args(["-C", repository.as_str(), "cat-file", "-e", &object])
                    .stderr(Stdio::null())
                    .status()?;
                asked += 1;
            }
        }
    }
    let each = begun.elapsed().as_secs_f64() * 1e3 / f64::from(asked);
    let peer = each * (commits.len() * 15) as f64;
    println!(
        "look-ups: {} models x 15 paths: ours {:.1} ms, git processes {peer:.0} ms",
        commits.len(),
        times[3]
    );
    print_goal("look-ups <= 50 ms", &format!("{:.1} ms", times[3]), times[3] <= 50.0);
    Ok(())
}

/// A repository of 15,000 files and 75 commits, each with another model; returns the commits.
fn history(repository: &Utf8PathBuf) -> Result<Vec<String>> {
    removed(repository)?;
    ensure!(Command::new("git").args(["init", "-q", "--bare", repository.as_str()]).status()?.success());
    let mut stream = String::new();
    for commit in 0..CATALOG {
        let message = format!("model {commit}");
        write!(
            stream,
            "commit refs/heads/main\ncommitter F <f@example.invalid> {} +0000\n",
            1_700_000_000 + commit
        )?;
        write!(stream, "data {}\n{message}\n", message.len())?;
        if commit == 0 {
            for file in 0..15_000 {
                let text = format!("file {file}\n");
                let path = format!("dir{}/sub{}/file{file}.txt", file % 60, file % 7);
                write!(stream, "M 644 inline {path}\ndata {}\n{text}\n", text.len())?;
            }
        }
        // Beside the models, other files change too.
        let text = format!("changed by {commit}\n");
        write!(
            stream,
            "M 644 inline dir{}/sub1/file{commit}.txt\ndata {}\n{text}\n",
            commit % 60,
            text.len()
        )?;
        for component in ["vision", "policy"] {
            let text = format!("{component} {commit}\n");
            write!(
                stream,
                "M 644 inline {DIRECTORY}/driving_{component}.onnx\ndata {}\n{text}\n",
                text.len()
            )?;
        }
    }
    let mut import = Command::new("git")
        .args(["-C", repository.as_str(), "fast-import", "--quiet"])
        .stdin(Stdio::piped())
        .spawn()
        .context("start git fast-import")?;
    import.stdin.take().context("its input")?.write_all(stream.as_bytes())?;
    ensure!(import.wait()?.success(), "git fast-import failed");
    ensure!(Command::new("git").args(["-C", repository.as_str(), "repack", "-adq"]).status()?.success());
    let list = Command::new("git").args(["-C", repository.as_str(), "rev-list", "main"]).output()?;
    Ok(String::from_utf8(list.stdout)?.lines().map(str::to_owned).collect())
}

/// Removes a file or a directory where it is there.
fn removed(path: &Utf8PathBuf) -> Result<()> {
    if path.is_dir() {
        fs::remove_dir_all(path).with_context(|| format!("remove {path}"))?;
    } else if path.exists() {
        fs::remove_file(path).with_context(|| format!("remove {path}"))?;
    }
    Ok(())
}
