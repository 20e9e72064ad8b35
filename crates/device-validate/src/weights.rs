//! The weights inside an artifact, compared with those of the ONNX files byte by byte.
//!
//! A run cannot show a flipped low bit of one weight among millions, and a digest only shows that a file is the one that
//! was recorded. Many backends keep weights as the ONNX has them: there every altered byte can be named. Where a backend
//! stores them in another form, nothing is concluded.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::{self, Read, Seek, SeekFrom},
};

use artifact_pickle::{Graph, Limits};
use camino::{Utf8Path, Utf8PathBuf};
use durable_fs::Sha256;
use model_catalog::{PolicyKey, Sha256Digest};
use onnx_source::{ElementType, OnnxModel, Weight};
use serde::{Deserialize, Serialize};

use crate::{Check, Verdict, reference::SourceModel};

const BLOCK: usize = 256 << 10;
/// Where at least this part of the values is equal, two buffers of one length are the same weight, altered: values of
/// different weights are hardly ever equal.
const ALTERED: f64 = 0.05;

/// How many weights were found as they are in the sources.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct WeightReport {
    /// Weights of the sources, the smallest left out.
    pub weights: usize,
    /// Those that the artifact holds byte for byte.
    pub equal: usize,
}

/// A stretch of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Stretch {
    offset: u64,
    len: u64,
}

/// A weight of the sources that the artifact does not hold as it is.
struct Unfound {
    key: PolicyKey,
    path: Utf8PathBuf,
    weight: Weight,
}

/// Where two stretches differ.
#[derive(Debug, Default)]
struct Gap {
    values: u64,
    equal: u64,
    first: Option<(u64, Vec<u8>, Vec<u8>)>,
}

/// Compares the artifact's buffers with the weights of `models`. What cannot be read is left to the checks that are about
/// reading.
pub(crate) fn judge(
    artifact: &Utf8Path,
    models: &[SourceModel],
) -> (WeightReport, Vec<ElementType>, Vec<Verdict>) {
    let (mut report, mut types) = (WeightReport::default(), Vec::new());
    let mut unfound = Vec::new();
    let buffers = buffers_of(artifact).unwrap_or_default();
    let lengths: BTreeSet<u64> = buffers.iter().map(|buffer| buffer.len).collect();
    let mut known: BTreeMap<Sha256Digest, Stretch> = BTreeMap::new();
    let mut wanted = BTreeSet::new();
    let mut sources = Vec::new();
    for SourceModel { key, path } in models {
        let Ok(model) = OnnxModel::open(path) else { continue };
        types.extend(model.weights.iter().map(|weight| weight.dtype));
        wanted.extend(model.weights.iter().map(|weight| weight.len).filter(|len| lengths.contains(len)));
        sources.push((*key, path, model.weights));
    }
    if let Ok(mut file) = File::open(artifact) {
        for &buffer in buffers.iter().filter(|buffer| wanted.contains(&buffer.len)) {
            if let Ok(digest) = digest_of(&mut file, buffer) {
                known.insert(digest, buffer);
            }
        }
    }
    let mut taken = BTreeSet::new();
    for (key, path, weights) in sources {
        let Ok(mut file) = File::open(path) else { continue };
        for weight in weights {
            report.weights += 1;
            let stretch = Stretch { offset: weight.offset, len: weight.len };
            match digest_of(&mut file, stretch).ok().and_then(|digest| known.get(&digest)) {
                Some(buffer) => {
                    report.equal += 1;
                    taken.insert(*buffer);
                }
                None => unfound.push(Unfound { key, path: path.clone(), weight }),
            }
        }
    }
    let free: Vec<Stretch> = known.into_values().filter(|buffer| !taken.contains(buffer)).collect();
    let verdicts = unfound.iter().filter_map(|unfound| altered(artifact, &free, unfound)).collect();
    (report, types, verdicts)
}

/// Every buffer that the artifact carries.
fn buffers_of(artifact: &Utf8Path) -> Option<Vec<Stretch>> {
    let graph = Graph::read(&mut File::open(artifact).ok()?, &Limits::default()).ok()?;
    let mut found: Vec<_> =
        graph.payloads().iter().map(|payload| Stretch { offset: payload.offset, len: payload.len }).collect();
    found.sort_unstable();
    found.dedup();
    Some(found)
}

fn digest_of(file: &mut File, stretch: Stretch) -> io::Result<Sha256Digest> {
    file.seek(SeekFrom::Start(stretch.offset))?;
    let (mut hash, mut block, mut left) = (Sha256::new(), vec![0; BLOCK], stretch.len);
    while left > 0 {
        let count = left.min(BLOCK as u64) as usize;
        file.read_exact(&mut block[..count])?;
        hash.update(&block[..count]);
        left -= count as u64;
    }
    Ok(hash.finish())
}

/// The verdict on a weight of which a buffer of the artifact is an altered copy; `None` where none is.
fn altered(artifact: &Utf8Path, free: &[Stretch], unfound: &Unfound) -> Option<Verdict> {
    let Unfound { key, path, weight } = unfound;
    let width = if weight.dtype == ElementType::FLOAT16 { 2 } else { 4 };
    let source = Stretch { offset: weight.offset, len: weight.len };
    let candidates = free.iter().filter(|buffer| buffer.len == weight.len);
    let gaps = candidates.filter_map(|buffer| gap(artifact, *buffer, path, source, width).ok());
    let gap = gaps.max_by_key(|gap| gap.equal)?;
    let (at, ours, theirs) = gap.first.filter(|_| gap.equal as f64 >= ALTERED * gap.values as f64)?;
    let (ours, theirs) = (value(&ours), value(&theirs));
    let text = format!(
        "{} of {} values of the weight {:?} are not those of the ONNX: value {at} is {ours} instead of {theirs}",
        gap.values - gap.equal,
        gap.values,
        weight.name
    );
    Some(Verdict {
        output: Some(*key),
        slice: None,
        index: usize::try_from(at).ok(),
        value: Some(ours).filter(|value| value.is_finite()),
        ..Verdict::failure(Check::Weights, text)
    })
}

fn gap(ours: &Utf8Path, own: Stretch, theirs: &Utf8Path, other: Stretch, width: usize) -> io::Result<Gap> {
    let (mut a, mut b) = (File::open(ours)?, File::open(theirs)?);
    a.seek(SeekFrom::Start(own.offset))?;
    b.seek(SeekFrom::Start(other.offset))?;
    let (mut left, mut found) = (own.len, Gap::default());
    let (mut here, mut there) = (vec![0; BLOCK], vec![0; BLOCK]);
    while left > 0 {
        let count = left.min(BLOCK as u64) as usize;
        a.read_exact(&mut here[..count])?;
        b.read_exact(&mut there[..count])?;
        for (x, y) in here[..count].chunks(width).zip(there[..count].chunks(width)) {
            if x == y {
                found.equal += 1;
            } else if found.first.is_none() {
                found.first = Some((found.values, x.to_vec(), y.to_vec()));
            }
            found.values += 1;
        }
        left -= count as u64;
    }
    Ok(found)
}

/// A 16- or 32-bit float as a number; text in a verdict, so rounding does not matter.
fn value(bytes: &[u8]) -> f64 {
    match *bytes {
        [a, b, c, d] => f64::from(f32::from_le_bytes([a, b, c, d])),
        [a, b] => half(u16::from_le_bytes([a, b])),
        _ => f64::NAN,
    }
}

fn half(bits: u16) -> f64 {
    let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
    let (exponent, fraction) = (i32::from(bits >> 10 & 0x1f), f64::from(bits & 0x3ff) / 1024.0);
    match exponent {
        0 => sign * fraction * 2f64.powi(-14),
        31 if fraction == 0.0 => sign * f64::INFINITY,
        31 => f64::NAN,
        _ => sign * (1.0 + fraction) * 2f64.powi(exponent - 15),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_are_read() {
        for (bits, expected) in
            [(0x3c00, 1.0), (0xc000, -2.0), (0x0001, 2f64.powi(-24)), (0x7c00, f64::INFINITY)]
        {
            assert_eq!(half(bits), expected);
        }
        assert!(half(0x7e00).is_nan());
        assert_eq!(value(&1.5f32.to_le_bytes()), 1.5);
    }

    #[test]
    fn what_cannot_be_read_is_left_to_others() {
        let nowhere = [SourceModel { key: PolicyKey::Vision, path: "/no/such.onnx".into() }];
        let (report, types, verdicts) = judge(Utf8Path::new("/no/such.pkl"), &nowhere);
        assert_eq!((report, types, verdicts), (WeightReport::default(), vec![], vec![]));
    }
}
