//! Typed access to the values of a graph: what a caller expects, or `None`.

use super::graph::{Global, Graph, NodeId, Object, Payload, Value};
use super::text::Text;

impl Graph {
    /// A string that is UTF-8 (a Python string may hold lone surrogates; those are `None` here).
    #[must_use]
    pub fn as_str(&self, id: NodeId) -> Option<&str> {
        self.as_text(id)?.as_str()
    }

    /// A string.
    #[must_use]
    pub fn as_text(&self, id: NodeId) -> Option<Text<'_>> {
        match self.value(id) {
            Value::Str(text) => Some(text),
            _ => None,
        }
    }

    /// An integer of at most 64 bits; `True` and `False` are none.
    #[must_use]
    pub fn as_int(&self, id: NodeId) -> Option<i64> {
        match self.value(id) {
            Value::Int(v) => Some(v),
            _ => None,
        }
    }

    /// A bool.
    #[must_use]
    pub fn as_bool(&self, id: NodeId) -> Option<bool> {
        match self.value(id) {
            Value::Bool(v) => Some(v),
            _ => None,
        }
    }

    /// A float.
    #[must_use]
    pub fn as_float(&self, id: NodeId) -> Option<f64> {
        match self.value(id) {
            Value::Float(v) => Some(v),
            _ => None,
        }
    }

    /// Whether this is `None`.
    #[must_use]
    pub fn is_none(&self, id: NodeId) -> bool {
        matches!(self.value(id), Value::None)
    }

    /// The place of bytes, a bytearray or an out-of-band buffer.
    #[must_use]
    pub fn as_payload(&self, id: NodeId) -> Option<Payload> {
        match self.value(id) {
            Value::Bytes(payload) => Some(payload),
            _ => None,
        }
    }

    /// The members of a tuple.
    #[must_use]
    pub fn as_tuple(&self, id: NodeId) -> Option<&[NodeId]> {
        match self.value(id) {
            Value::Tuple(items) => Some(items),
            _ => None,
        }
    }

    /// The members of a list.
    #[must_use]
    pub fn as_list(&self, id: NodeId) -> Option<&[NodeId]> {
        match self.value(id) {
            Value::List(items) => Some(items),
            _ => None,
        }
    }

    /// The members of a tuple or a list.
    #[must_use]
    pub fn as_sequence(&self, id: NodeId) -> Option<&[NodeId]> {
        self.as_tuple(id).or_else(|| self.as_list(id))
    }

    /// The pairs of a dict.
    #[must_use]
    pub fn as_dict(&self, id: NodeId) -> Option<&[(NodeId, NodeId)]> {
        match self.value(id) {
            Value::Dict(pairs) => Some(pairs),
            _ => None,
        }
    }

    /// The value under a string key; of equal keys the last, as a loader would have it.
    #[must_use]
    pub fn get(&self, dict: NodeId, key: &str) -> Option<NodeId> {
        let pairs = self.as_dict(dict)?;
        let is_key = |id| self.as_text(id).is_some_and(|text: Text<'_>| text.as_bytes() == key.as_bytes());
        pairs.iter().rev().find(|(k, _)| is_key(*k)).map(|(_, v)| *v)
    }

    /// A class or function by name.
    #[must_use]
    pub fn as_global(&self, id: NodeId) -> Option<Global<'_>> {
        match self.value(id) {
            Value::Global(global) => Some(global),
            _ => None,
        }
    }

    /// An opaque object.
    #[must_use]
    pub fn as_object(&self, id: NodeId) -> Option<Object<'_>> {
        match self.value(id) {
            Value::Object(object) => Some(object),
            _ => None,
        }
    }

    /// The global that makes an object, where it is one.
    #[must_use]
    pub fn class_of(&self, id: NodeId) -> Option<Global<'_>> {
        self.as_global(self.as_object(id)?.callable)
    }

    /// The arguments of an object made by exactly `module.name`.
    #[must_use]
    pub fn args_of(&self, id: NodeId, module: &str, name: &str) -> Option<&[NodeId]> {
        let object = self.as_object(id)?;
        let global = self.as_global(object.callable)?;
        if global.is(module, name) { self.as_tuple(object.args) } else { None }
    }
}
