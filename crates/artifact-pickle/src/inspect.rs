//! Everything about one file that can be known without loading it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::SeekFrom;
use std::ops::Range;

use camino::{Utf8Path, Utf8PathBuf};
use indexmap::IndexMap;
use serde::Serialize;

use crate::abi::{AbiDescription, Mismatch};
use crate::digest::{Digests, digest_all};
use crate::read::{Fault, Graph, Limits, PickleError, Source};
use crate::safety::{AllowList, Refusal};
use crate::view::{Content, Finding, view};

/// A file that cannot be inspected at all.
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    /// It cannot be opened or read.
    #[error("{path} cannot be read: {source}")]
    Open {
        /// The file.
        path: Utf8PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It ends too early.
    #[error("{path} is truncated {error}; fetch or compile it again")]
    Truncated {
        /// The file.
        path: Utf8PathBuf,
        /// Where the stream breaks off.
        error: PickleError,
    },
    /// It is recognisably something else.
    #[error("{path} is {what}, no pickle; {hint}")]
    NotAPickle {
        /// The file.
        path: Utf8PathBuf,
        /// What it is.
        what: &'static str,
        /// What to do.
        hint: &'static str,
    },
    /// It is no well-formed pickle.
    #[error("{path} is refused {error}")]
    Malformed {
        /// The file.
        path: Utf8PathBuf,
        /// What is wrong, and where.
        error: PickleError,
    },
}

/// How to look.
#[derive(Debug, Clone, Default)]
pub struct InspectOptions {
    /// Read all contents and give their digests.
    pub deep: bool,
    /// The tinygrad to compare with; without it the built-in descriptions are tried.
    pub abi: Option<AbiDescription>,
    /// Descriptions to try besides the built-in ones, such as those of build records.
    pub also: Vec<AbiDescription>,
    /// Bounds of the reader.
    pub limits: Limits,
    /// What the file may name; the built-in list where none is given.
    pub allow: Option<AllowList>,
}

/// The file itself.
#[derive(Debug, Clone, Serialize)]
pub struct FileFacts {
    /// The file.
    pub path: Utf8PathBuf,
    /// Its size in bytes.
    pub size: u64,
    /// Whether buffers stand behind the opcodes.
    pub out_of_band: bool,
    /// Pickle protocol.
    pub protocol: u8,
    /// Opcodes.
    pub opcodes: u64,
    /// Values.
    pub values: usize,
    /// Bytes of payloads that were stepped over.
    pub payload_bytes: u64,
}

/// How the file compares with descriptions of tinygrad.
#[derive(Debug, Clone, Serialize)]
pub struct AbiReport {
    /// Whether the description was given, rather than one of the built-in ones.
    pub given: bool,
    /// One comparison for each description. Where a built-in one fits, the others that lack a name say only that.
    pub compared: Vec<Mismatch>,
}

impl AbiReport {
    /// The revisions that would load the file as it is meant.
    pub fn fitting(&self) -> impl Iterator<Item = &Mismatch> {
        self.compared.iter().filter(|mismatch| mismatch.fits())
    }
}

/// What is known of one file.
#[derive(Debug, Clone, Serialize)]
pub struct Inspection {
    /// The file itself.
    pub file: FileFacts,
    /// What it is, and its parts.
    pub content: Content,
    /// Model to slice to index range of the output.
    pub slices: IndexMap<String, IndexMap<String, Range<u64>>>,
    /// What it names, with the number of times.
    pub globals: BTreeMap<String, usize>,
    /// Reasons not to load it.
    pub refusals: Vec<Refusal>,
    /// What does not fit the layout.
    pub findings: Vec<Finding>,
    /// Comparison with tinygrad; `None` for files without jits.
    pub abi: Option<AbiReport>,
    /// Digests of the file and of its contents, where asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digests: Option<Digests>,
}

/// Inspects a file without loading it.
///
/// # Errors
/// [`InspectError`] for a file that is no well-formed pickle. What is wrong *in* a well-formed one is in the result.
pub fn inspect(path: &Utf8Path, options: &InspectOptions) -> Result<Inspection, InspectError> {
    Ok(inspect_with_graph(path, options)?.0)
}

/// The same, with the values: for kernels' sources and contents.
///
/// # Errors
/// As [`inspect`].
pub fn inspect_with_graph(
    path: &Utf8Path,
    options: &InspectOptions,
) -> Result<(Inspection, Graph), InspectError> {
    let open = |source| InspectError::Open { path: path.to_owned(), source };
    let mut file = File::open(path).map_err(open)?;
    inspect_source(&mut file, path, options)
}

/// The same for content that is no single file, such as an artifact in parts; `path` names it.
///
/// # Errors
/// As [`inspect`].
pub fn inspect_source(
    source: &mut dyn Source,
    path: &Utf8Path,
    options: &InspectOptions,
) -> Result<(Inspection, Graph), InspectError> {
    let open = |source| InspectError::Open { path: path.to_owned(), source };
    let size = source.seek(SeekFrom::End(0)).map_err(open)?;
    let graph = read(source, path, &options.limits)?;
    let mut inspection = judge(&graph, path, size, options);
    if options.deep {
        inspection.digests = Some(digest_all(source, graph.payloads()).map_err(open)?);
    }
    Ok((inspection, graph))
}

fn read(source: &mut dyn Source, path: &Utf8Path, limits: &Limits) -> Result<Graph, InspectError> {
    let path = || path.to_owned();
    Graph::read(source, limits).map_err(|error| match error.fault {
        Fault::Io(source) => InspectError::Open { path: path(), source },
        _ => match other_format(source) {
            Some((what, hint)) => InspectError::NotAPickle { path: path(), what, hint },
            None if error.is_truncation() => InspectError::Truncated { path: path(), error },
            None => InspectError::Malformed { path: path(), error },
        },
    })
}

fn judge(graph: &Graph, path: &Utf8Path, size: u64, options: &InspectOptions) -> Inspection {
    let (content, findings) = view(graph);
    let kind = content.kind();
    let built_in;
    let allow = match &options.allow {
        Some(allow) => allow,
        None => {
            built_in = AllowList::built_in();
            &built_in
        }
    };
    let mut globals = BTreeMap::new();
    for global in graph.globals() {
        *globals.entry(global.to_string()).or_insert(0) += 1;
    }
    Inspection {
        file: FileFacts {
            path: path.to_owned(),
            size,
            out_of_band: graph.is_out_of_band(),
            protocol: graph.protocol(),
            opcodes: graph.opcodes(),
            values: graph.len(),
            payload_bytes: graph.payloads().iter().map(|payload| payload.len).sum(),
        },
        refusals: graph.refusals(kind, allow),
        abi: (!content.jits().is_empty()).then(|| compare(graph, options)),
        slices: content.slices(),
        content,
        globals,
        findings,
        digests: None,
    }
}

fn compare(graph: &Graph, options: &InspectOptions) -> AbiReport {
    if let Some(abi) = &options.abi {
        return AbiReport { given: true, compared: vec![abi.compare(graph)] };
    }
    let mut known = AbiDescription::known();
    for other in &options.also {
        let digest = other.digest();
        if known.iter().all(|known| known.digest() != digest) {
            known.push(other.clone());
        }
    }
    let by_name: Vec<Mismatch> = known.iter().map(|abi| abi.compare_names(graph)).collect();
    // Where every name is there, the rest decides; where no revision fits at all, all that is wrong is told of each.
    let full = |abi: &AbiDescription, names: &Mismatch, all: bool| {
        if all || names.fits() { abi.compare(graph) } else { names.clone() }
    };
    let judge =
        |all| known.iter().zip(&by_name).map(|(abi, names)| full(abi, names, all)).collect::<Vec<_>>();
    let compared = judge(false);
    let some_fits = compared.iter().any(Mismatch::fits);
    AbiReport { given: false, compared: if some_fits { compared } else { judge(true) } }
}

/// Files that stand where artifacts should, by their first bytes.
fn other_format(source: &mut dyn Source) -> Option<(&'static str, &'static str)> {
    let mut start = [0; 512];
    source.rewind().ok()?;
    let count = source.read(&mut start).ok()?;
    let start = String::from_utf8_lossy(&start[..count]).trim_start().to_ascii_lowercase();
    let start = start.trim_start_matches('\u{feff}');
    if start.starts_with("version https://git-lfs.github.com/spec") {
        return Some(("a Git LFS pointer", "fetch the object that it points to"));
    }
    if start.starts_with("<!doctype") || start.starts_with("<html") || start.starts_with("<?xml") {
        return Some(("a saved web page", "download it from a URL that serves the file itself"));
    }
    if start.starts_with('{') && start.contains('"') && start.ends_with('}') {
        return Some(("a JSON file", "give the artifact itself"));
    }
    None
}
