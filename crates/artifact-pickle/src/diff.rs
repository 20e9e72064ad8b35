//! What differs between two files: metadata, kernels, contents by digest.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::File;
use std::io::{BufRead, BufReader};

use camino::{Utf8Path, Utf8PathBuf};
use model_catalog::Sha256Digest;
use serde::Serialize;
use serde_json::Value;

use crate::digest::digest_each;
use crate::inspect::{InspectError, InspectOptions, Inspection, inspect_with_graph};
use crate::read::Graph;
use crate::view::JitView;

/// One value that differs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Change {
    /// Where, such as `metadata.policy.output_slices.plan`.
    pub place: String,
    /// In the first file; `None` where it has none.
    pub a: Option<Value>,
    /// In the second file.
    pub b: Option<Value>,
}

/// How the members of two collections compare.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Overlap {
    /// In both.
    pub equal: usize,
    /// Only in the first file, described.
    pub only_a: Vec<String>,
    /// Only in the second file, described.
    pub only_b: Vec<String>,
}

impl Overlap {
    fn is_equal(&self) -> bool {
        self.only_a.is_empty() && self.only_b.is_empty()
    }
}

/// One jit of both files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct JitDiff {
    /// Its name.
    pub jit: String,
    /// Kernels by name, source and compiled code.
    pub kernels: Overlap,
    /// Contents of buffers by digest.
    pub buffers: Overlap,
}

/// The differences of two files.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Diff {
    /// The first file.
    pub a: Utf8PathBuf,
    /// The second file.
    pub b: Utf8PathBuf,
    /// Fields and metadata that differ.
    pub changes: Vec<Change>,
    /// Jits that both have and that differ.
    pub jits: Vec<JitDiff>,
    /// Bytes of buffer contents that are equal.
    pub equal_bytes: u64,
    /// Where nothing of the above differs: the first byte at which the files do. The order of the steps, constants and which
    /// buffer goes where are compared by their bytes alone.
    pub first_byte: Option<u64>,
}

/// A file that cannot be compared.
#[derive(Debug, thiserror::Error)]
#[error("{source}")]
pub struct DiffError {
    /// The file.
    pub path: Utf8PathBuf,
    /// Why.
    pub source: Box<InspectError>,
}

impl Diff {
    /// Whether the files are equal.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.is_equal_in_parts() && self.first_byte.is_none()
    }

    /// Whether fields, kernels and contents are equal, each for itself.
    #[must_use]
    pub fn is_equal_in_parts(&self) -> bool {
        self.changes.is_empty() && self.jits.is_empty()
    }
}

/// Compares two files without loading either.
///
/// # Errors
/// [`DiffError`] names the one that is no well-formed pickle.
pub fn diff(a: &Utf8Path, b: &Utf8Path) -> Result<Diff, DiffError> {
    let options = InspectOptions::default();
    let of = |path: &Utf8Path| {
        let path = path.to_owned();
        move |source| DiffError { path: path.clone(), source: Box::new(source) }
    };
    let (left, right) = (Side::read(a, &options).map_err(of(a))?, Side::read(b, &options).map_err(of(b))?);
    let mut changes = Vec::new();
    compare_values("", &left.fields(), &right.fields(), &mut changes);
    let mut out = Diff {
        a: a.to_owned(),
        b: b.to_owned(),
        changes,
        jits: Vec::new(),
        equal_bytes: 0,
        first_byte: None,
    };
    for (name, jit) in left.inspection.content.jits() {
        let other = right.inspection.content.jits().into_iter().find(|(other, _)| *other == name);
        if let Some((_, other)) = other {
            let (kernels, _) =
                overlap(left.kernels(jit).map_err(of(a))?, right.kernels(other).map_err(of(b))?);
            let (buffers, bytes) =
                overlap(left.buffers(jit).map_err(of(a))?, right.buffers(other).map_err(of(b))?);
            out.equal_bytes += bytes;
            if !kernels.is_equal() || !buffers.is_equal() {
                out.jits.push(JitDiff { jit: name.to_owned(), kernels, buffers });
            }
        }
    }
    if out.is_equal_in_parts() {
        out.first_byte = first_difference(a, b).map_err(|(path, source)| DiffError {
            path: path.clone(),
            source: Box::new(InspectError::Open { path, source }),
        })?;
    }
    Ok(out)
}

/// The first byte at which two files differ; the end of the shorter one counts.
fn first_difference(a: &Utf8Path, b: &Utf8Path) -> Result<Option<u64>, (Utf8PathBuf, std::io::Error)> {
    let open =
        |path: &Utf8Path| File::open(path).map(BufReader::new).map_err(|error| (path.to_owned(), error));
    let (mut left, mut right, mut at) = (open(a)?, open(b)?, 0);
    loop {
        let (x, y) = (
            left.fill_buf().map_err(|error| (a.to_owned(), error))?,
            right.fill_buf().map_err(|error| (b.to_owned(), error))?,
        );
        let both = x.len().min(y.len());
        if let Some(differs) = x.iter().zip(y).position(|(x, y)| x != y) {
            return Ok(Some(at + differs as u64));
        }
        if both == 0 {
            return Ok((x.len() != y.len()).then_some(at));
        }
        at += both as u64;
        left.consume(both);
        right.consume(both);
    }
}

struct Side {
    path: Utf8PathBuf,
    inspection: Inspection,
    graph: Graph,
}

/// Identity to number of occurrences, description and size.
type Members = BTreeMap<(String, Option<Sha256Digest>, Option<Sha256Digest>), (usize, String, u64)>;

impl Side {
    fn read(path: &Utf8Path, options: &InspectOptions) -> Result<Side, InspectError> {
        let (inspection, graph) = inspect_with_graph(path, options)?;
        Ok(Side { path: path.to_owned(), inspection, graph })
    }

    /// Everything small as one JSON value: kernels and buffers are compared on their own.
    fn fields(&self) -> Value {
        let mut value = serde_json::to_value(&self.inspection.content).unwrap_or(Value::Null);
        if let Some(jits) = value.get_mut("jits").and_then(Value::as_object_mut) {
            jits.values_mut().for_each(without_lists);
        } else {
            without_lists(&mut value);
        }
        if let Some(map) = value.as_object_mut() {
            map.insert("out_of_band".to_owned(), self.inspection.file.out_of_band.into());
            map.insert("globals".to_owned(), self.inspection.globals.keys().cloned().collect());
        }
        value
    }

    fn digests(&self, payloads: &[crate::read::Payload]) -> Result<Vec<Sha256Digest>, InspectError> {
        let error = |source| InspectError::Open { path: self.path.clone(), source };
        let mut file = File::open(&self.path).map_err(error)?;
        digest_each(&mut file, payloads).map_err(error)
    }

    fn kernels(&self, jit: &JitView) -> Result<Members, InspectError> {
        let mut members = Members::new();
        for kernel in &jit.kernels {
            let source = kernel.source.and_then(|id| self.graph.as_text(id));
            let source = source.map(|text| durable_fs::Sha256::digest(text.as_bytes()));
            let payload = kernel.binary.and_then(|id| self.graph.as_payload(id));
            let binary = self.digests(payload.as_slice())?.first().copied();
            let entry = members.entry((kernel.name.clone(), source, binary));
            entry.or_insert_with(|| (0, kernel.name.clone(), 0)).0 += 1;
        }
        Ok(members)
    }

    fn buffers(&self, jit: &JitView) -> Result<Members, InspectError> {
        let digests = self.digests(&jit.contents)?;
        let mut members = Members::new();
        for (payload, digest) in jit.contents.iter().zip(digests) {
            let text = format!("{} bytes {}", payload.len, &digest.to_string()[..12]);
            let entry = members.entry((String::new(), Some(digest), None));
            entry.or_insert_with(|| (0, text, payload.len)).0 += 1;
        }
        Ok(members)
    }
}

fn without_lists(jit: &mut Value) {
    if let Some(kernels) = jit.get_mut("kernels") {
        *kernels = kernels.as_array().map_or(0, Vec::len).into();
    }
}

fn overlap(mut a: Members, mut b: Members) -> (Overlap, u64) {
    let mut out = Overlap::default();
    let mut bytes = 0;
    let keys: BTreeSet<_> = a.keys().chain(b.keys()).cloned().collect();
    for key in keys {
        let (left, right) = (a.remove(&key), b.remove(&key));
        let count = |side: &Option<(usize, String, u64)>| side.as_ref().map_or(0, |(count, ..)| *count);
        let both = count(&left).min(count(&right));
        out.equal += both;
        bytes += both as u64 * left.as_ref().or(right.as_ref()).map_or(0, |(_, _, size)| *size);
        let surplus = |side: Option<(usize, String, u64)>| {
            side.map(|(count, text, _)| std::iter::repeat_n(text, count - both)).into_iter().flatten()
        };
        out.only_a.extend(surplus(left));
        out.only_b.extend(surplus(right));
    }
    (out, bytes)
}

fn compare_values(place: &str, a: &Value, b: &Value, changes: &mut Vec<Change>) {
    let (Value::Object(left), Value::Object(right)) = (a, b) else {
        if a != b {
            changes.push(Change { place: place.to_owned(), a: Some(a.clone()), b: Some(b.clone()) });
        }
        return;
    };
    let new_keys = right.keys().filter(|key| !left.contains_key(*key));
    for key in left.keys().chain(new_keys) {
        let place = if place.is_empty() { key.clone() } else { format!("{place}.{key}") };
        match (left.get(key), right.get(key)) {
            (Some(a), Some(b)) => compare_values(&place, a, b, changes),
            (a, b) => changes.push(Change { place, a: a.cloned(), b: b.cloned() }),
        }
    }
}

impl fmt::Display for Diff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return writeln!(f, "no differences");
        }
        if let Some(at) = self.first_byte {
            return writeln!(
                f,
                "fields, kernels and contents are equal; the programs differ, from byte {at} of the files on"
            );
        }
        let show = |value: &Option<Value>| value.as_ref().map_or_else(|| "-".to_owned(), Value::to_string);
        for change in &self.changes {
            writeln!(f, "{}: {} -> {}", change.place, show(&change.a), show(&change.b))?;
        }
        for jit in &self.jits {
            for (what, overlap) in [("kernels", &jit.kernels), ("buffers", &jit.buffers)] {
                if !overlap.is_equal() {
                    let (a, b) = (overlap.only_a.len(), overlap.only_b.len());
                    writeln!(
                        f,
                        "{}: {what}: {} equal, {a} only in a, {b} only in b",
                        jit.jit, overlap.equal
                    )?;
                    overlap.only_a.iter().try_for_each(|text| writeln!(f, "  - {text}"))?;
                    overlap.only_b.iter().try_for_each(|text| writeln!(f, "  + {text}"))?;
                }
            }
        }
        Ok(())
    }
}
