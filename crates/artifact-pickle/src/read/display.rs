//! Values as text, much as Python would show them, cut where they get long.

use std::cell::Cell;
use std::fmt;

use super::graph::{Graph, NodeId, Object, Payload, PayloadKind, Value};

/// Nesting, members of one container, values in all (a graph shares, its text would repeat) and characters of one
/// string that are shown.
const DEPTH: usize = 8;
const ITEMS: usize = 32;
const VALUES: usize = 400;
const CHARS: usize = 120;

impl Graph {
    /// The value as text for people: nesting, long containers and long strings are cut, cycles end.
    #[must_use]
    pub fn show(&self, id: NodeId) -> impl fmt::Display + '_ {
        Display { graph: self, id }
    }
}

struct Display<'g> {
    graph: &'g Graph,
    id: NodeId,
}

impl fmt::Display for Display<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let left = Cell::new(VALUES);
        Shown { graph: self.graph, id: self.id, depth: 0, left: &left }.fmt(f)
    }
}

struct Shown<'g> {
    graph: &'g Graph,
    id: NodeId,
    depth: usize,
    left: &'g Cell<usize>,
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.left.replace(self.left.get().saturating_sub(1)) == 0 {
            return f.write_str("...");
        }
        match self.graph.value(self.id) {
            Value::None => f.write_str("None"),
            Value::Bool(true) => f.write_str("True"),
            Value::Bool(false) => f.write_str("False"),
            Value::Int(v) => write!(f, "{v}"),
            Value::BigInt(bytes) => write!(f, "<int of {} bits>", bytes.len() * 8),
            Value::Float(v) => write!(f, "{v:?}"),
            Value::Str(text) => string(f, &text.to_string_lossy()),
            Value::Bytes(payload) => bytes(f, payload),
            Value::Global(global) => write!(f, "{global}"),
            _ if self.depth >= DEPTH => f.write_str("..."),
            Value::Tuple(items) => {
                let close = if items.len() == 1 { ",)" } else { ")" };
                self.items(f, "(", items, close)
            }
            Value::List(items) => self.items(f, "[", items, "]"),
            Value::Set(items) => self.items(f, "{", items, "}"),
            Value::FrozenSet(items) => self.items(f, "frozenset({", items, "})"),
            Value::Dict(pairs) => self.pairs(f, pairs),
            Value::Object(object) => self.object(f, object),
        }
    }
}

impl Shown<'_> {
    fn inner(&self, id: NodeId) -> Shown<'_> {
        Shown { graph: self.graph, id, depth: self.depth + 1, left: self.left }
    }

    fn items(&self, f: &mut fmt::Formatter<'_>, open: &str, items: &[NodeId], close: &str) -> fmt::Result {
        f.write_str(open)?;
        for (at, id) in items.iter().take(ITEMS).enumerate() {
            write!(f, "{}{}", if at == 0 { "" } else { ", " }, self.inner(*id))?;
        }
        more(f, items.len())?;
        f.write_str(close)
    }

    fn pairs(&self, f: &mut fmt::Formatter<'_>, pairs: &[(NodeId, NodeId)]) -> fmt::Result {
        f.write_str("{")?;
        for (at, (key, value)) in pairs.iter().take(ITEMS).enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            write!(f, "{comma}{}: {}", self.inner(*key), self.inner(*value))?;
        }
        more(f, pairs.len())?;
        f.write_str("}")
    }

    fn object(&self, f: &mut fmt::Formatter<'_>, object: Object<'_>) -> fmt::Result {
        write!(f, "{}{}", self.inner(object.callable), self.inner(object.args))?;
        if let Some(kwargs) = object.kwargs {
            write!(f, "**{}", self.inner(kwargs))?;
        }
        if let Some(state) = object.state {
            write!(f, " with {}", self.inner(state))?;
        }
        if !object.items.is_empty() {
            self.items(f, " + [", object.items, "]")?;
        }
        if !object.pairs.is_empty() {
            f.write_str(" + ")?;
            self.pairs(f, object.pairs)?;
        }
        Ok(())
    }
}

fn more(f: &mut fmt::Formatter<'_>, len: usize) -> fmt::Result {
    if len > ITEMS { write!(f, ", ... {} in all", len) } else { Ok(()) }
}

fn string(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    match text.char_indices().nth(CHARS) {
        Some((cut, _)) => write!(f, "{:?}... ({} bytes)", &text[..cut], text.len()),
        None => write!(f, "{text:?}"),
    }
}

fn bytes(f: &mut fmt::Formatter<'_>, payload: Payload) -> fmt::Result {
    let kind = match payload.kind {
        PayloadKind::Bytes => "bytes",
        PayloadKind::ByteArray => "bytearray",
        PayloadKind::Buffer { .. } => "buffer",
    };
    write!(f, "<{kind} of {} at {}>", payload.len, payload.offset)
}
