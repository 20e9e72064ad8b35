//! Strings and numbers: counted, quoted or spelled out on a line.

use super::build::{Builder, over};
use super::error::{Fault, PickleError};
use super::graph::{Node, NodeId, Span};
use super::input::Input;
use super::machine::Width;
use super::text::{self, Integer};

type Result<T> = std::result::Result<T, PickleError>;

impl Builder {
    pub(crate) fn global_lines(
        &mut self,
        input: &mut Input<'_>,
        at: u64,
        what: &'static str,
    ) -> Result<NodeId> {
        let module = self.line(input, what)?;
        let name = self.line(input, what)?;
        self.global_at(module, name, at)
    }

    /// Room for `count` more bytes of text.
    fn admit_text(&self, count: u64, at: u64) -> Result<usize> {
        if count > self.limits.string as u64 {
            return Err(over(at, "bytes in a string", self.limits.string));
        }
        if self.graph.text.len() as u64 + count > self.limits.text as u64 {
            return Err(over(at, "bytes of text", self.limits.text));
        }
        Ok(count as usize)
    }

    fn text_since(&mut self, start: usize, at: u64, what: &'static str) -> Result<Span> {
        if !text::is_python_utf8(&self.graph.text[start..]) {
            return Err(PickleError::new(at, Fault::NotUtf8(what)));
        }
        Ok(Span { start: start as u32, len: (self.graph.text.len() - start) as u32 })
    }

    fn counted(&mut self, input: &mut Input<'_>, width: Width, what: &'static str) -> Result<Span> {
        let at = input.offset();
        let len = width.read(input, what)?;
        if len > input.left() {
            let fault = Fault::Truncated { what, needed: len, left: input.left() };
            return Err(PickleError::new(at, fault));
        }
        let count = self.admit_text(len, at)?;
        let start = self.graph.text.len();
        input.append_to(&mut self.graph.text, count, what)?;
        Ok(Span { start: start as u32, len: count as u32 })
    }

    pub(crate) fn string(
        &mut self,
        input: &mut Input<'_>,
        width: Width,
        what: &'static str,
    ) -> Result<NodeId> {
        let at = input.offset();
        let span = self.counted(input, width, what)?;
        let span = self.text_since(span.start as usize, at, what)?;
        self.leaf(Node::Str(span), at)
    }

    /// Python 2 strings are decoded as ASCII by a loader that is told nothing else.
    pub(crate) fn ascii(
        &mut self,
        input: &mut Input<'_>,
        width: Width,
        what: &'static str,
    ) -> Result<NodeId> {
        let at = input.offset();
        let span = self.counted(input, width, what)?;
        if !self.graph.text[span.start as usize..].is_ascii() {
            return Err(PickleError::new(at, Fault::Literal { what, why: "it is not ASCII" }));
        }
        self.leaf(Node::Str(span), at)
    }

    /// Two's complement of any width.
    pub(crate) fn long(&mut self, input: &mut Input<'_>, width: Width, what: &'static str) -> Result<NodeId> {
        let at = input.offset();
        let span = self.counted(input, width, what)?;
        match text::from_twos_complement(&self.graph.text[span.start as usize..]) {
            Integer::Small(value) => {
                self.graph.text.truncate(span.start as usize);
                self.int(value, at)
            }
            Integer::Big(_) => self.leaf(Node::BigInt(span), at),
        }
    }

    fn integer(&mut self, value: Integer, at: u64) -> Result<NodeId> {
        match value {
            Integer::Small(value) => self.int(value, at),
            Integer::Big(bytes) => {
                let span = self.text(&bytes, at)?;
                self.leaf(Node::BigInt(span), at)
            }
        }
    }

    fn text(&mut self, bytes: &[u8], at: u64) -> Result<Span> {
        self.admit_text(bytes.len() as u64, at)?;
        let start = self.graph.text.len() as u32;
        self.graph.text.extend_from_slice(bytes);
        Ok(Span { start, len: bytes.len() as u32 })
    }

    /// A line of UTF-8 (module and attribute names), kept.
    fn line(&mut self, input: &mut Input<'_>, what: &'static str) -> Result<Span> {
        let (at, start) = (input.offset(), self.graph.text.len());
        input.line_to(&mut self.graph.text, self.limits.string, what)?;
        self.admit_text(0, at)?;
        self.text_since(start, at, what)
    }

    fn scratch_line(&self, input: &mut Input<'_>, what: &'static str) -> Result<Vec<u8>> {
        let mut line = Vec::new();
        input.line_to(&mut line, self.limits.string, what)?;
        Ok(line)
    }

    pub(crate) fn unicode_line(&mut self, input: &mut Input<'_>) -> Result<NodeId> {
        let at = input.offset();
        let line = self.scratch_line(input, "UNICODE")?;
        let decoded = text::raw_unicode_escape(&line).ok_or(literal(at, "UNICODE", "bad escape"))?;
        let span = self.text(&decoded, at)?;
        self.leaf(Node::Str(span), at)
    }

    pub(crate) fn quoted_line(&mut self, input: &mut Input<'_>) -> Result<NodeId> {
        let at = input.offset();
        let line = self.scratch_line(input, "STRING")?;
        let why = "it is not a quoted ASCII string";
        let decoded = text::quoted(&line).ok_or(literal(at, "STRING", why))?;
        let span = self.text(&decoded, at)?;
        self.leaf(Node::Str(span), at)
    }

    pub(crate) fn int_line(&mut self, input: &mut Input<'_>) -> Result<NodeId> {
        let at = input.offset();
        let line = self.scratch_line(input, "INT")?;
        match line.as_slice() {
            b"00" => Ok(Self::FALSE),
            b"01" => Ok(Self::TRUE),
            digits => {
                let value = text::decimal(digits).ok_or(literal(at, "INT", "it is not a decimal integer"))?;
                self.integer(value, at)
            }
        }
    }

    pub(crate) fn long_line(&mut self, input: &mut Input<'_>) -> Result<NodeId> {
        let at = input.offset();
        let line = self.scratch_line(input, "LONG")?;
        let digits = line.strip_suffix(b"L").unwrap_or(&line);
        let value = text::decimal(digits).ok_or(literal(at, "LONG", "it is not a decimal integer"))?;
        self.integer(value, at)
    }

    pub(crate) fn float_line(&mut self, input: &mut Input<'_>) -> Result<NodeId> {
        let at = input.offset();
        let line = self.scratch_line(input, "FLOAT")?;
        let value = text::float(&line).ok_or(literal(at, "FLOAT", "it is not a float"))?;
        self.leaf(Node::Float(value), at)
    }

    /// A memo index in decimal.
    pub(crate) fn index_line(input: &mut Input<'_>, what: &'static str) -> Result<u64> {
        let at = input.offset();
        let mut line = Vec::new();
        input.line_to(&mut line, 20, what)?;
        match text::decimal(&line) {
            Some(Integer::Small(value)) if value >= 0 => Ok(value as u64),
            _ => Err(literal(at, what, "it is not a decimal index")),
        }
    }
}

fn literal(at: u64, what: &'static str, why: &'static str) -> PickleError {
    PickleError::new(at, Fault::Literal { what, why })
}
