//! Compiled kernels: name, language, sizes.

use std::fmt;

use serde::Serialize;

use crate::read::{Graph, NodeId};

/// The language of a kernel's source, told by its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[expect(missing_docs, reason = "each is the language of that name")]
#[non_exhaustive]
pub enum Language {
    C,
    #[serde(rename = "OpenCL")]
    OpenCl,
    Cuda,
    #[serde(rename = "HIP")]
    Hip,
    Metal,
    #[serde(rename = "LLVM IR")]
    LlvmIr,
    #[serde(rename = "WGSL")]
    Wgsl,
    #[serde(rename = "unknown")]
    Unknown,
}

impl Language {
    /// By the words that only one of them has.
    #[must_use]
    pub fn of(source: &str) -> Language {
        let marks = [
            ("metal_stdlib", Language::Metal),
            ("__kernel", Language::OpenCl),
            ("__global__", Language::Cuda),
            ("__attribute__((global))", Language::Hip),
            ("@compute", Language::Wgsl),
            ("define ", Language::LlvmIr),
        ];
        match marks.into_iter().find(|(mark, _)| source.contains(mark)) {
            Some((_, language)) => language,
            None if source.contains("void ") => Language::C,
            None => Language::Unknown,
        }
    }
}

impl fmt::Display for Language {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Language::C => "C",
            Language::OpenCl => "OpenCL",
            Language::Cuda => "CUDA",
            Language::Hip => "HIP",
            Language::Metal => "Metal",
            Language::LlvmIr => "LLVM IR",
            Language::Wgsl => "WGSL",
            Language::Unknown => "unknown",
        })
    }
}

/// One compiled program of a jit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Kernel {
    /// Name of the function.
    pub name: String,
    /// Language of the source.
    pub language: Language,
    /// Length of the source text.
    pub source_bytes: u64,
    /// Length of the compiled code.
    pub binary_bytes: u64,
    #[serde(skip)]
    pub(crate) source: Option<NodeId>,
    #[serde(skip)]
    pub(crate) binary: Option<NodeId>,
}

impl Kernel {
    pub(crate) fn new(graph: &Graph, name: &str, source: Option<NodeId>, binary: Option<NodeId>) -> Self {
        let text = source.and_then(|id| graph.as_text(id));
        Kernel {
            name: without_colours(name),
            language: text.map_or(Language::Unknown, |text| Language::of(&text.to_string_lossy())),
            source_bytes: text.map_or(0, |text| text.as_bytes().len() as u64),
            binary_bytes: binary.and_then(|id| graph.as_payload(id)).map_or(0, |payload| payload.len),
            source,
            binary,
        }
    }

    /// The source text.
    #[must_use]
    pub fn source<'g>(&self, graph: &'g Graph) -> Option<&'g str> {
        graph.as_str(self.source?)
    }
}

/// Names are coloured for terminals; files and reports want the letters.
fn without_colours(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    let mut rest = name;
    while let Some((before, after)) = rest.split_once("\u{1b}[") {
        out.push_str(before);
        rest = after.split_once('m').map_or("", |(_, after)| after);
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn languages_by_their_words() {
        assert_eq!(Language::of("void E_64_4n1(float* restrict data0) {"), Language::C);
        assert_eq!(Language::of("__kernel void r_4(__global float* a) {"), Language::OpenCl);
        assert_eq!(Language::of("define amdgpu_kernel void @r_4("), Language::LlvmIr);
        assert_eq!(Language::of(""), Language::Unknown);
        assert_eq!(without_colours("E\u{1b}[90m_\u{1b}[0m\u{1b}[97m128\u{1b}[0m"), "E_128");
    }
}
