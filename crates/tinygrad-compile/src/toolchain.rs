//! Which compilers are used: the driver of this project, or those of a StarPilot tree.
//!
//! A tree's own compilers define what its runtime expects, so they are preferred where they are. Their command lines are
//! fixed; they run with the tree as working directory, and a package `openpilot` has to resolve to the tree.

use std::{fmt, os::unix::fs::symlink, process::Command, str::FromStr};

use camino::{Utf8Path, Utf8PathBuf};
use durable_fs::{FsError, Sha256};
use model_catalog::{Camera, DM_WARP_TARGET, MODEL_FRAME, PolicyKey, Sha256Digest, Target};

use crate::{CompilePlan, Environment};

/// What a person or a request chooses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ToolchainChoice {
    /// The tree's where it has them, else the embedded driver.
    #[default]
    Auto,
    /// The driver of this project.
    Embedded,
    /// The tree's, or an error.
    Tree,
}

impl ToolchainChoice {
    /// The spelling on command lines and in requests.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Embedded => "embedded",
            Self::Tree => "tree",
        }
    }
}

impl fmt::Display for ToolchainChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Text that names no toolchain.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a toolchain; it is one of: auto, embedded, tree")]
pub struct ParseToolchainError {
    /// The refused text.
    pub text: String,
}

impl FromStr for ToolchainChoice {
    type Err = ParseToolchainError;

    fn from_str(text: &str) -> Result<Self, ParseToolchainError> {
        [Self::Auto, Self::Embedded, Self::Tree]
            .into_iter()
            .find(|choice| choice.as_str() == text)
            .ok_or_else(|| ParseToolchainError { text: text.to_owned() })
    }
}

/// Why a tree's compilers cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ToolchainError {
    /// The tree does not have the compiler.
    #[error(
        "the tree {root} has no {program}; name a StarPilot tree with --root, or use --toolchain embedded"
    )]
    Missing {
        /// The tree.
        root: Utf8PathBuf,
        /// The compiler, relative to it.
        program: &'static str,
    },
    /// The tree's compiler is older than the out-of-band form.
    #[error(
        "the tree's {program} knows no --out-of-band, which an external GPU needs; update the tree, or use --toolchain embedded"
    )]
    NoOutOfBand {
        /// The compiler.
        program: Utf8PathBuf,
    },
}

/// Compiles a driving model.
pub const COMPILE_MODELD: &str = "selfdrive/modeld/compile_modeld.py";
/// Compiles a camera warp of driver monitoring.
pub const COMPILE_DM_WARP: &str = "selfdrive/modeld/compile_dm_warp.py";
/// Compiles the driver-monitoring model.
pub const COMPILE3: &str = "tinygrad_repo/examples/openpilot/compile3.py";

/// A StarPilot tree with compilers of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tree {
    root: Utf8PathBuf,
}

/// The toolchain for `programs` (paths in a tree): the tree where it is chosen, or preferred and complete; `None` for the
/// embedded driver.
///
/// # Errors
/// [`ToolchainError::Missing`] where the tree is chosen and lacks a program.
pub fn choose(
    choice: ToolchainChoice,
    root: Option<&Utf8Path>,
    programs: &[&'static str],
) -> Result<Option<Tree>, ToolchainError> {
    if choice == ToolchainChoice::Embedded {
        return Ok(None);
    }
    let root = root.map(Utf8Path::to_owned).unwrap_or_default();
    let missing = programs.iter().copied().find(|program| !root.join(program).is_file());
    match (missing, choice) {
        (None, _) => Ok(Some(Tree { root: root.canonicalize_utf8().unwrap_or(root) })),
        (Some(program), ToolchainChoice::Tree) => Err(ToolchainError::Missing { root, program }),
        (Some(_), _) => Ok(None),
    }
}

impl Tree {
    /// Adds what the tree's programs need to import: the tree, and a package `openpilot` that is the tree. Where the tree has
    /// no such directory, a link in `scratch` stands for it (a package of one file where the disk takes no links).
    ///
    /// # Errors
    /// [`FsError::Io`] where neither can be made.
    pub fn prepare(&self, scratch: &Utf8Path, environment: &mut Environment) -> Result<(), FsError> {
        environment.python_path(&self.root, &std::collections::BTreeMap::new());
        if !self.root.join("openpilot").is_dir() {
            let packages = scratch.join("packages");
            std::fs::create_dir_all(&packages).map_err(FsError::io("make the directory", &packages))?;
            let package = packages.join("openpilot");
            if symlink(&self.root, &package).is_err() {
                // A disk without links (exFAT): a package whose modules are those of the tree.
                self.write_package(&package)?;
            }
            environment.python_path(&packages, &std::collections::BTreeMap::new());
        }
        Ok(())
    }

    fn write_package(&self, package: &Utf8Path) -> Result<(), FsError> {
        let root = serde_json::Value::from(self.root.as_str());
        std::fs::create_dir_all(package).map_err(FsError::io("make the directory", package))?;
        durable_fs::write_atomic(package.join("__init__.py"), format!("__path__ = [{root}]\n").as_bytes())?;
        Ok(())
    }

    /// A command that runs `program` of the tree with `python`.
    fn command(&self, python: &Utf8Path, program: &str, environment: &Environment) -> Command {
        let mut command = Command::new(python);
        command.arg(self.root.join(program)).current_dir(&self.root);
        for name in &environment.remove {
            command.env_remove(name);
        }
        command.envs(&environment.set);
        command
    }

    /// The command that compiles `plan` to `output`.
    ///
    /// # Errors
    /// [`ToolchainError::NoOutOfBand`].
    pub fn compile_modeld(
        &self,
        python: &Utf8Path,
        plan: &CompilePlan,
        output: &Utf8Path,
        environment: &Environment,
    ) -> Result<Command, ToolchainError> {
        let mut command = self.command(python, COMPILE_MODELD, environment);
        command.args(["--model-type", plan.model_type.as_str()]);
        command.args(["--model-size", &format!("{}x{}", MODEL_FRAME.0, MODEL_FRAME.1)]);
        command.arg("--camera-resolutions").args(plan.cameras.iter().map(ToString::to_string));
        command.args(["--output", output.as_str(), "--frame-skip", &plan.frame_skip.to_string()]);
        command.args(["--image-history-pipeline", plan.image_history_pipeline.as_str()]);
        if let Some(version) = plan.version {
            command.args(["--behavior-version", &version.to_string()]);
        }
        if plan.target == Target::ExternalGpu {
            self.check_out_of_band()?;
            command.arg("--out-of-band");
        }
        for model in &plan.models {
            let path = model.file.path.canonicalize_utf8().unwrap_or_else(|_| model.file.path.clone());
            command.args([onnx_flag(model.key), path.as_str()]);
        }
        Ok(command)
    }

    fn check_out_of_band(&self) -> Result<(), ToolchainError> {
        let program = self.root.join(COMPILE_MODELD);
        let text = std::fs::read_to_string(&program).unwrap_or_default();
        if text.contains("--out-of-band") { Ok(()) } else { Err(ToolchainError::NoOutOfBand { program }) }
    }

    /// The command that compiles the driver-monitoring warp of `camera` to `output`.
    pub fn compile_dm_warp(
        &self,
        python: &Utf8Path,
        camera: Camera,
        output: &Utf8Path,
        environment: &Environment,
    ) -> Command {
        let mut command = self.command(python, COMPILE_DM_WARP, environment);
        command.args(["--camera-resolution", &camera.to_string()]);
        command.args([
            "--warp-to",
            &format!("{}x{}", DM_WARP_TARGET.0, DM_WARP_TARGET.1),
            "--output",
            output.as_str(),
        ]);
        command
    }

    /// The command that compiles the driver-monitoring model `onnx` to `output`.
    pub fn compile3(
        &self,
        python: &Utf8Path,
        onnx: &Utf8Path,
        output: &Utf8Path,
        environment: &Environment,
    ) -> Command {
        let mut command = self.command(python, COMPILE3, environment);
        command.args([onnx.as_str(), output.as_str()]);
        command
    }

    /// SHA-256 over the compilers, for build records.
    pub fn digest(&self) -> Sha256Digest {
        let mut hash = Sha256::new();
        for program in [COMPILE_MODELD, COMPILE_DM_WARP, COMPILE3] {
            let text = std::fs::read(self.root.join(program)).unwrap_or_default();
            hash.update(format!("{program} {}\n", text.len()).as_bytes());
            hash.update(&text);
        }
        hash.finish()
    }
}

const fn onnx_flag(key: PolicyKey) -> &'static str {
    match key {
        PolicyKey::Model => "--supercombo-onnx",
        PolicyKey::Vision => "--vision-onnx",
        PolicyKey::Policy => "--policy-onnx",
        PolicyKey::OnPolicy => "--on-policy-onnx",
        PolicyKey::OffPolicy => "--off-policy-onnx",
    }
}

#[cfg(test)]
mod tests {
    use durable_fs::write_atomic;
    use model_catalog::{Component, ImageHistoryPipeline, InputFormat, ModelId, Variant};

    use super::*;
    use crate::{
        PlanOptions,
        staged::{SourceSet, StagedFile},
    };

    fn tree(programs: &[&str], text: &str) -> (tempfile::TempDir, Utf8PathBuf) {
        let guard = tempfile::tempdir().unwrap();
        let root = Utf8Path::from_path(guard.path()).unwrap().canonicalize_utf8().unwrap();
        for program in programs {
            std::fs::create_dir_all(root.join(program).parent().unwrap()).unwrap();
            write_atomic(root.join(program), text.as_bytes()).unwrap();
        }
        (guard, root)
    }

    fn plan(components: &[Component], target: Target) -> CompilePlan {
        let file = |component: &Component| StagedFile {
            component: *component,
            variant: Variant::Standard,
            path: format!("/in/{component}.onnx").into(),
        };
        let sources = SourceSet {
            id: ModelId::new("m").unwrap(),
            format: InputFormat::Split,
            files: components.iter().map(file).collect(),
            notes: Vec::new(),
        };
        let options = PlanOptions {
            version: Some("v12".parse().unwrap()),
            image_history_pipeline: ImageHistoryPipeline::Warp,
            target,
            tolerance: 0.0,
        };
        CompilePlan::new(&sources, options)
    }

    fn words(command: &Command) -> Vec<String> {
        command.get_args().map(|word| word.to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn auto_takes_a_tree_that_is_complete() {
        let (_guard, root) = tree(&[COMPILE_MODELD], "");
        let choose = |choice, programs: &[&'static str]| choose(choice, Some(&root), programs);
        assert!(choose(ToolchainChoice::Auto, &[COMPILE_MODELD]).unwrap().is_some());
        assert!(choose(ToolchainChoice::Embedded, &[COMPILE_MODELD]).unwrap().is_none());
        assert!(choose(ToolchainChoice::Auto, &[COMPILE_MODELD, COMPILE3]).unwrap().is_none());
        let refused = choose(ToolchainChoice::Tree, &[COMPILE3]).unwrap_err().to_string();
        assert!(refused.contains("compile3.py") && refused.contains("--root"), "{refused}");
    }

    #[test]
    fn the_command_line_is_the_trees() {
        let (_guard, root) = tree(&[COMPILE_MODELD], "");
        let tree = Tree { root: root.clone() };
        let plan = plan(&[Component::Vision, Component::Policy, Component::OffPolicy], Target::Qcom);
        let python = Utf8Path::new("/venv/bin/python3");
        let command =
            tree.compile_modeld(python, &plan, Utf8Path::new("/o.pkl"), &Environment::default()).unwrap();
        assert_eq!(command.get_current_dir(), Some(root.as_std_path()));
        let expected = format!(
            "{root}/selfdrive/modeld/compile_modeld.py --model-type vision_multi_policy --model-size 512x256 \
             --camera-resolutions 1928x1208 1344x760 --output /o.pkl --frame-skip 4 --image-history-pipeline warp \
             --behavior-version v12 --vision-onnx /in/driving_vision.onnx --on-policy-onnx /in/driving_policy.onnx \
             --off-policy-onnx /in/driving_off_policy.onnx"
        );
        assert_eq!(words(&command).join(" "), expected);
        let command =
            tree.compile_dm_warp(python, plan.cameras[1], Utf8Path::new("/w.pkl"), &Environment::default());
        assert!(
            words(&command)
                .join(" ")
                .ends_with("--camera-resolution 1344x760 --warp-to 1440x960 --output /w.pkl")
        );
    }

    #[test]
    fn an_older_tree_has_no_out_of_band_form() {
        let plan = plan(&[Component::Vision, Component::Policy], Target::ExternalGpu);
        for (text, expected) in [("parser.add_argument('--out-of-band')", true), ("", false)] {
            let (_guard, root) = tree(&[COMPILE_MODELD], text);
            let command =
                Tree { root }.compile_modeld("p".into(), &plan, "/o".into(), &Environment::default());
            assert_eq!(
                command.is_ok_and(|command| words(&command).contains(&"--out-of-band".to_owned())),
                expected
            );
        }
    }

    #[test]
    fn openpilot_resolves_to_the_tree() {
        let (_guard, root) = tree(&[COMPILE_MODELD], "");
        let scratch = tempfile::tempdir().unwrap();
        let scratch = Utf8Path::from_path(scratch.path()).unwrap();
        let mut environment = Environment::default();
        Tree { root: root.clone() }.prepare(scratch, &mut environment).unwrap();
        assert_eq!(scratch.join("packages/openpilot").canonicalize_utf8().unwrap(), root);
        assert_eq!(environment.set["PYTHONPATH"], format!("{scratch}/packages:{root}"));
    }

    #[test]
    fn openpilot_is_a_package_where_there_can_be_no_link() {
        let (_guard, root) = tree(&[COMPILE_MODELD], "");
        let scratch = tempfile::tempdir().unwrap();
        let scratch = Utf8Path::from_path(scratch.path()).unwrap();
        let mut environment = Environment::default();
        // What stands there already makes the link fail.
        std::fs::create_dir_all(scratch.join("packages/openpilot")).unwrap();
        Tree { root: root.clone() }.prepare(scratch, &mut environment).unwrap();
        let package = std::fs::read_to_string(scratch.join("packages/openpilot/__init__.py")).unwrap();
        assert_eq!(package, format!("__path__ = [\"{root}\"]\n"));
        assert_eq!(environment.set["PYTHONPATH"], format!("{scratch}/packages:{root}"));
    }
}
