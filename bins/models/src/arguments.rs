//! The command line.

use artifact_parts::{ChunkSize, PartLimit};
use camino::Utf8PathBuf;
use clap::{Args, Parser, ValueEnum};
use console_report::{Exit, Failure};
use model_catalog::{BehaviorVersion, ImageHistoryPipeline, InputFormat, ManifestVersion, ModelId, Target};
use model_store::ParamStore;
use tinygrad_compile::{WARP_CACHE_MIB, staged::FormatChoice, toolchain::ToolchainChoice};

use crate::command::{AbiChoice, diff::DiffArgs, inspect::InspectArgs, verify::VerifyArgs};

const ABOUT: &str = "Compiles driving models for this device: ONNX sources in, one proven artifact out";

const TEACH: &str = "\
HOW IT WORKS
  1. Put a model's ONNX files into the input directory, in one of three forms:
       <input>/<id>/driving_vision.onnx ...      a directory of its own
       <input>/<id>_driving_vision.onnx ...      flat, with the ID in front
       <input>/driving_vision.onnx ...           without an ID, for one model at a time
     A supercombo needs driving_supercombo.onnx; a split model needs driving_vision.onnx and driving_policy.onnx or
     driving_on_policy.onnx, and may have driving_off_policy.onnx.
  2. Compile it:            models --model <id>     or, shorter,     models --<id>
     The artifact is loaded by a second process and replayed before it gets its name; what was there before stays until
     then. Beside it appear <id>_build.json (how it was built) and <id>_compile.log (what tinygrad said).
  3. An artifact over the part limit also gets parts <name>.p00, .p01, ... and <name>.sha256 for upload.

EXAMPLES
  models --list                                     what is staged, and what is compiled
  models --rdf2                                     compile rdf2 for the device's own GPU
  models --model rdf2 --target cpu --input-dir in --output-dir out
  models --dm                                       compile driver monitoring (dmonitoring_model.onnx)
  models --batch list.txt                           compile many models in one warm process
  models --big-model --gpu                          compile for an external GPU
  models --split-artifact big.pkl --chunk-size-mib 50
  models join big.pkl.p00                           put a split file together again
  models inspect rdf2_driving_tinygrad.pkl          what is in it, without loading it
  models verify rdf2_driving_tinygrad.pkl --target qcom --abi 0.14.0

EXIT CODES
  0 all good   1 a model or check failed   2 wrong command line or unknown ID   3 refused by a safety rule
  4 interrupted   5 the environment lacks something (tinygrad, clang, disk space, permission to write)

ENVIRONMENT
  MODELS_PYTHON        the interpreter, as --python
  MODELS_CACHE_DIR     compiled kernels and captured warps, as --cache-dir
  FLOAT16, IMAGE, JIT_BATCH_SIZE, NOLOCALS, OPENPILOT_HACKS, DEBUG
                       tinygrad's flags that may be chosen; a valid integer is kept and recorded, anything else gets the
                       default. Other flags of tinygrad (BEAM, NOOPT, ...) do not reach it";

/// The whole command line.
#[derive(Debug, Parser)]
#[command(name = "models", about = ABOUT, after_help = TEACH, args_conflicts_with_subcommands = false)]
pub struct Cli {
    #[command(subcommand)]
    pub subcommand: Option<Subcommand>,
    #[command(flatten)]
    pub compile: CompileArgs,
    /// Write results and progress as JSON, one object a line
    #[arg(long, global = true)]
    pub json: bool,
    /// Show the chain of causes of an error
    #[arg(short, long, global = true)]
    pub verbose: bool,
}

/// What `models` does besides compiling.
#[derive(Debug, clap::Subcommand)]
pub enum Subcommand {
    /// Do the job that a directory describes (used by `rebuild`)
    Job(JobArgs),
    /// Put the parts of a split file together and check the result
    Join(JoinArgs),
    /// Fetch an artifact from resource hosts, whole or in parts, and check it
    Fetch(FetchArgs),
    /// Show what is in artifacts, metadata files and ONNX models, without loading any
    Inspect(InspectArgs),
    /// Say whether an artifact, a set of parts or a metadata file may be used
    Verify(VerifyArgs),
    /// Show what differs between two artifacts: metadata, kernels, weights
    Diff(DiffArgs),
    /// Say which version this is, as JSON
    About,
    /// Serve a host that has logged in to this device (used by `rebuild`)
    Serve,
    /// Put back the model selection that a killed verification left changed
    RestoreSelection(RestoreSelectionArgs),
    /// Show that the built-in model runs where the selected one cannot: missing, corrupt, no GPU, hanging
    Rehearse(RehearseArgs),
}

/// `models job`.
#[derive(Debug, Args)]
pub struct JobArgs {
    /// The job's directory, with request.json in it
    pub dir: Utf8PathBuf,
}

/// `models restore-selection`.
#[derive(Debug, Args)]
pub struct RestoreSelectionArgs {
    /// Directory of the parameters
    #[arg(long, value_name = "DIR", default_value = ParamStore::DIR)]
    pub params_dir: Utf8PathBuf,
    /// Directory of the volatile parameters
    #[arg(long, value_name = "DIR", default_value = ParamStore::VOLATILE_DIR)]
    pub volatile_dir: Utf8PathBuf,
    /// Wait until standard input ends, as it does when the process at its other end is gone
    #[arg(long)]
    pub when_input_ends: bool,
}

/// `models rehearse`.
#[derive(Debug, Args)]
pub struct RehearseArgs {
    /// The artifact that plays the selected model
    pub artifact: Utf8PathBuf,
    /// The artifact that comes with the system
    #[arg(long, value_name = "FILE", default_value = model_store::BUILT_IN_FILE)]
    pub built_in: Utf8PathBuf,
    /// The tinygrad that compiled the artifact, where it is none of those built in: a file that the driver printed
    #[arg(long, value_name = "VERSION|FILE")]
    pub abi: Option<AbiChoice>,
    /// The longest that a load may take, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub load_limit: u64,
}

/// `models fetch`.
#[derive(Debug, Args)]
pub struct FetchArgs {
    /// The model's release ID, or the address of the artifact
    #[arg(value_name = "URL|ID")]
    pub what: String,
    /// The directory that it goes to
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub to: Utf8PathBuf,
    /// A host: its files are under URL/Models/; may be repeated, asked in order
    #[arg(long, value_name = "URL")]
    pub base: Vec<String>,
    /// The release whose part list is used where a host has one
    #[arg(long, value_name = "vN", default_value = "v23")]
    pub manifest_version: ManifestVersion,
    /// The public key (minisign, base64) that the part list must be signed by
    #[arg(long, value_name = "KEY")]
    pub public_key: Option<String>,
    /// The target that the artifact must be compiled for [default: not compared]
    #[arg(long)]
    pub target: Option<Target>,
    /// The tinygrad that the artifact must fit: a version that is built in, or a file that the driver printed [default: any built-in one]
    #[arg(long, value_name = "VERSION|FILE")]
    pub abi: Option<AbiChoice>,
    /// Files, or ranges of a file, that are fetched at a time
    #[arg(long, value_name = "N", default_value_t = 4)]
    pub connections: usize,
}

/// `models join`.
#[derive(Debug, Args)]
pub struct JoinArgs {
    /// The whole file's name, or that of one of its parts or of its checksum; the parts lie beside it
    pub file: Utf8PathBuf,
    /// Where the whole file goes [default: beside the parts]
    #[arg(long, short)]
    pub output: Option<Utf8PathBuf>,
}

/// Compiling, listing and splitting.
#[derive(Debug, Args)]
pub struct CompileArgs {
    /// The model to compile; `--<id>` is short for it [default: the only one that is staged]
    #[arg(long, value_name = "ID", help_heading = "Model")]
    pub model: Option<ModelId>,
    /// Show what is staged and what is compiled
    #[arg(long, help_heading = "Model")]
    pub list: bool,
    /// Behaviour version, such as v15 [default: what the device knows of the ID, v15 for a supercombo, else none]
    #[arg(long, value_name = "vN", help_heading = "Model")]
    pub version: Option<BehaviorVersion>,
    /// Which source files are taken; auto is supercombo where a supercombo file is present
    #[arg(long, value_enum, default_value = "auto", help_heading = "Model")]
    pub input_format: InputFormatArg,
    /// Compile driver monitoring: its model, metadata and both camera warps, all four files together
    #[arg(long, help_heading = "Model", conflicts_with_all = ["model", "batch"])]
    pub dm: bool,
    /// Compile the models that this file lists, one `ID [vN]` a line, in one warm process
    #[arg(long, value_name = "FILE", help_heading = "Model", conflicts_with_all = ["model", "version"])]
    pub batch: Option<Utf8PathBuf>,
    /// Where the artifact keeps its image history: policy, or warp (older call convention)
    #[arg(long, value_name = "PIPELINE", default_value = "policy", help_heading = "Model")]
    pub image_history_pipeline: ImageHistoryPipeline,

    /// What to compile for: qcom (the device's GPU), cpu (this host), external-gpu [default: qcom]
    #[arg(long, help_heading = "Target")]
    pub target: Option<Target>,
    /// Compile for an external GPU; the same as --target external-gpu
    #[arg(long, visible_alias = "external-gpu", help_heading = "Target")]
    pub gpu: bool,
    /// Largest accepted difference between a replay and the first run; 0 is bit for bit
    #[arg(long, value_name = "X", default_value = "0", help_heading = "Target")]
    pub tolerance: f64,

    /// The StarPilot tree [default: /data/openpilot]
    #[arg(long, value_name = "DIR", help_heading = "Places")]
    pub root: Option<Utf8PathBuf>,
    /// Where sources are staged [default: ROOT/uncompiledmodels]
    #[arg(long, value_name = "DIR", help_heading = "Places")]
    pub input_dir: Option<Utf8PathBuf>,
    /// Where artifacts go [default: ROOT/compiledmodels]
    #[arg(long, value_name = "DIR", help_heading = "Places")]
    pub output_dir: Option<Utf8PathBuf>,
    /// The device's model store, whose caches know behaviour versions
    #[arg(long, value_name = "DIR", default_value = "/data/models", help_heading = "Places")]
    pub store_dir: Utf8PathBuf,
    /// The Python interpreter with tinygrad and numpy [default: /usr/local/venv/bin/python3 where present]
    #[arg(long, value_name = "FILE", env = "MODELS_PYTHON", hide_env = true, help_heading = "Places")]
    pub python: Option<Utf8PathBuf>,
    /// Which compilers: embedded (this program's driver), tree (those of the StarPilot tree), auto (the tree's where it has them)
    #[arg(long, value_name = "TOOLCHAIN", default_value = "auto", help_heading = "Target")]
    pub toolchain: ToolchainChoice,

    /// Where compiled kernels and captured camera warps are kept [default: /data/cache/driving-models on a device, else
    /// ~/.cache/driving-models]
    #[arg(long, value_name = "DIR", env = "MODELS_CACHE_DIR", hide_env = true, help_heading = "Cache")]
    pub cache_dir: Option<Utf8PathBuf>,
    /// Bound of the captured camera warps; those used longest ago go first
    #[arg(long, value_name = "MIB", default_value_t = WARP_CACHE_MIB, help_heading = "Cache")]
    pub cache_limit_mib: u64,
    /// Reuse nothing and keep nothing; the artifact is the same
    #[arg(long, help_heading = "Cache")]
    pub no_cache: bool,

    /// Split this file into parts, whatever its size; they go to --output-dir or beside it
    #[arg(long, value_name = "FILE", help_heading = "Parts")]
    pub split_artifact: Option<Utf8PathBuf>,
    /// Size of a part, 1 to 99 MiB
    #[arg(long, value_name = "N", default_value = "95", value_parser = chunk_size, help_heading = "Parts")]
    pub chunk_size_mib: ChunkSize,
    /// Artifacts over this size get parts; it can be lowered, not raised
    #[arg(long, value_name = "N", default_value = "100", value_parser = part_limit, help_heading = "Parts")]
    pub part_limit_mib: PartLimit,
    /// Make no parts
    #[arg(long, help_heading = "Parts")]
    pub no_split: bool,

    /// Accepted for compatibility: a selected model's outputs are always replaced
    #[arg(long, help_heading = "Other")]
    pub force: bool,
    /// Do not install a local-* model into the store
    #[arg(long, help_heading = "Other")]
    pub no_install: bool,
    /// Kill the driver when it reports nothing for this long
    #[arg(long, value_name = "MINUTES", default_value = "20", value_parser = clap::value_parser!(u64).range(1..), help_heading = "Other")]
    pub quiet_limit_minutes: u64,
}

/// Values of `--input-format`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum InputFormatArg {
    /// Supercombo where a supercombo file is present, else split
    Auto,
    /// One file for all
    Supercombo,
    /// Vision and policies
    Split,
}

impl From<InputFormatArg> for FormatChoice {
    fn from(format: InputFormatArg) -> Self {
        match format {
            InputFormatArg::Auto => Self::Auto,
            InputFormatArg::Supercombo => Self::Exactly(InputFormat::Supercombo),
            InputFormatArg::Split => Self::Exactly(InputFormat::Split),
        }
    }
}

fn chunk_size(text: &str) -> Result<ChunkSize, String> {
    let mib = text.parse().map_err(|_| format!("{text:?} is not a number of MiB"))?;
    ChunkSize::from_mib(mib).map_err(|error| error.to_string())
}

fn part_limit(text: &str) -> Result<PartLimit, String> {
    let mib = text.parse().map_err(|_| format!("{text:?} is not a number of MiB"))?;
    PartLimit::from_mib(mib).map_err(|error| error.to_string())
}

impl CompileArgs {
    /// The target: qcom unless something else is asked for; `--gpu` asks for the external GPU.
    pub fn target(&self) -> Result<Target, Failure> {
        match (self.target, self.gpu) {
            (None, true) => Ok(Target::ExternalGpu),
            (None, false) => Ok(Target::Qcom),
            (Some(target), true) if target != Target::ExternalGpu => {
                Err(Failure::new(Exit::Usage, "two targets are asked for")
                    .why(format!("--gpu means external-gpu, --target says {target}"))
                    .advice("give one of them"))
            }
            (Some(target), _) => Ok(target),
        }
    }

    /// The StarPilot tree.
    pub fn root(&self) -> Utf8PathBuf {
        self.root.clone().unwrap_or_else(|| "/data/openpilot".into())
    }

    /// Where sources are staged.
    pub fn input_dir(&self) -> Utf8PathBuf {
        self.input_dir.clone().unwrap_or_else(|| self.root().join("uncompiledmodels"))
    }

    /// Where artifacts go.
    pub fn output_dir(&self) -> Utf8PathBuf {
        self.output_dir.clone().unwrap_or_else(|| self.root().join("compiledmodels"))
    }
}
