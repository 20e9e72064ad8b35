//! The values of a pickle as a graph in an arena: shared and cyclic references are plain indices, nothing is
//! recursive to build or to drop, and whatever a loader would have called stays an opaque object.

use super::error::Kind;
use super::text::Text;

/// A value of one [`Graph`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub(crate) u32);

impl NodeId {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// A stretch of one of the graph's tables.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span {
    pub(crate) start: u32,
    pub(crate) len: u32,
}

impl Span {
    fn of<T>(self, table: &[T]) -> &[T] {
        &table[self.start as usize..][..self.len as usize]
    }
}

/// 16 bytes; everything larger lives in a side table.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Node {
    None,
    Bool(bool),
    Int(i64),
    BigInt(Span),
    Float(f64),
    Str(Span),
    Bytes(u32),
    Tuple(Span),
    FrozenSet(Span),
    List(u32),
    Set(u32),
    Dict(u32),
    Global(u32),
    Object(u32),
}

impl Node {
    pub(crate) fn kind(self) -> Kind {
        match self {
            Node::None => Kind::None,
            Node::Bool(_) => Kind::Bool,
            Node::Int(_) | Node::BigInt(_) => Kind::Int,
            Node::Float(_) => Kind::Float,
            Node::Str(_) => Kind::Str,
            Node::Bytes(_) => Kind::Bytes,
            Node::Tuple(_) => Kind::Tuple,
            Node::FrozenSet(_) => Kind::FrozenSet,
            Node::List(_) => Kind::List,
            Node::Set(_) => Kind::Set,
            Node::Dict(_) => Kind::Dict,
            Node::Global(_) => Kind::Global,
            Node::Object(_) => Kind::Object,
        }
    }
}

/// Which Python type a payload has once loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PayloadKind {
    /// `bytes`.
    Bytes,
    /// `bytearray`.
    ByteArray,
    /// The out-of-band buffer of this index, as handed to the loader.
    Buffer {
        /// Position among the file's buffers.
        index: usize,
        /// Whether the pickle asks for a read-only view.
        read_only: bool,
    },
}

/// Bytes that were skipped: where they are in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Payload {
    /// Offset from the start of the file.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
    /// The Python type.
    pub kind: PayloadKind,
}

/// A class or function that the pickle names. Nothing is imported: it is two strings and a place.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GlobalEntry {
    pub(crate) module: Span,
    pub(crate) name: Span,
    pub(crate) offset: u64,
}

/// How an object is made when the pickle is loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Construction {
    /// `callable(*args)`.
    Reduce,
    /// `class.__new__(class, *args)`.
    New,
    /// `class.__new__(class, *args, **kwargs)`.
    NewEx,
    /// Protocol 0 and 1 instances (`INST`, `OBJ`).
    Instance,
}

#[derive(Debug)]
pub(crate) struct ObjectEntry {
    pub(crate) construction: Construction,
    pub(crate) callable: NodeId,
    pub(crate) args: NodeId,
    pub(crate) kwargs: Option<NodeId>,
    pub(crate) state: Option<NodeId>,
    pub(crate) offset: u64,
    /// Items appended and set after construction: subclasses of list, dict and set.
    pub(crate) extra: Option<Box<Extra>>,
}

#[derive(Debug, Default)]
pub(crate) struct Extra {
    pub(crate) items: Vec<NodeId>,
    pub(crate) pairs: Vec<(NodeId, NodeId)>,
}

/// One parsed pickle.
pub struct Graph {
    pub(crate) nodes: Vec<Node>,
    pub(crate) edges: Vec<NodeId>,
    pub(crate) sequences: Vec<Vec<NodeId>>,
    pub(crate) dicts: Vec<Vec<(NodeId, NodeId)>>,
    pub(crate) objects: Vec<ObjectEntry>,
    pub(crate) globals: Vec<GlobalEntry>,
    pub(crate) payloads: Vec<Payload>,
    pub(crate) text: Vec<u8>,
    pub(crate) root: NodeId,
    pub(crate) protocol: u8,
    pub(crate) opcodes: u64,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) out_of_band: bool,
}

/// The root as text: the tables themselves may have millions of entries.
impl std::fmt::Debug for Graph {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Graph({})", self.show(self.root))
    }
}

/// A value, borrowed from its graph.
#[derive(Debug, Clone, Copy)]
pub enum Value<'g> {
    /// `None`
    None,
    /// `True`, `False`
    Bool(bool),
    /// An integer of at most 64 bits.
    Int(i64),
    /// A wider integer: two's complement, little endian.
    BigInt(&'g [u8]),
    /// A float.
    Float(f64),
    /// A string.
    Str(Text<'g>),
    /// Bytes, where they are in the file.
    Bytes(Payload),
    /// A tuple.
    Tuple(&'g [NodeId]),
    /// A list.
    List(&'g [NodeId]),
    /// A set; members as written, equal ones not merged.
    Set(&'g [NodeId]),
    /// A frozenset; members as written, equal ones not merged.
    FrozenSet(&'g [NodeId]),
    /// A dict; pairs as written, equal keys not merged.
    Dict(&'g [(NodeId, NodeId)]),
    /// A class or function by name.
    Global(Global<'g>),
    /// What a loader would have got from a call.
    Object(Object<'g>),
}

/// A class or function by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Global<'g> {
    /// Module, as the pickle spells it.
    pub module: Text<'g>,
    /// Name in the module, as the pickle spells it; dots would be an attribute chain.
    pub name: Text<'g>,
    /// Offset of the opcode that names it.
    pub offset: u64,
}

impl Global<'_> {
    /// Whether this is exactly `module.name`.
    #[must_use]
    pub fn is(&self, module: &str, name: &str) -> bool {
        self.module.as_bytes() == module.as_bytes() && self.name.as_bytes() == name.as_bytes()
    }
}

impl std::fmt::Display for Global<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.module, self.name)
    }
}

/// An opaque object: what would be called, and with what.
#[derive(Debug, Clone, Copy)]
pub struct Object<'g> {
    /// How it is made.
    pub construction: Construction,
    /// The class or callable.
    pub callable: NodeId,
    /// Its positional arguments, a tuple in everything that picklers write.
    pub args: NodeId,
    /// Its keyword arguments (`NewEx` only).
    pub kwargs: Option<NodeId>,
    /// The state given by `BUILD`.
    pub state: Option<NodeId>,
    /// Items appended afterwards.
    pub items: &'g [NodeId],
    /// Items set afterwards.
    pub pairs: &'g [(NodeId, NodeId)],
    /// Offset of the opcode that makes it.
    pub offset: u64,
}

impl Graph {
    /// The pickled value.
    #[must_use]
    pub fn root(&self) -> NodeId {
        self.root
    }

    /// The declared protocol; 0 where none is (protocols 0 and 1 look alike).
    #[must_use]
    pub fn protocol(&self) -> u8 {
        self.protocol
    }

    /// Opcodes read.
    #[must_use]
    pub fn opcodes(&self) -> u64 {
        self.opcodes
    }

    /// The bytes of the file that are the opcode stream (payloads included).
    #[must_use]
    pub fn stream(&self) -> std::ops::Range<u64> {
        self.start..self.end
    }

    /// Whether the file is of the out-of-band form.
    #[must_use]
    pub fn is_out_of_band(&self) -> bool {
        self.out_of_band
    }

    /// Number of values.
    #[must_use]
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Never: there is always a root.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Every global that the stream names, in order, used or not: a loader imports them all.
    pub fn globals(&self) -> impl Iterator<Item = Global<'_>> {
        self.globals.iter().map(|entry| self.global_of(entry))
    }

    /// Every object that a loader would make, in stream order, reachable or not.
    pub fn objects(&self) -> impl Iterator<Item = Object<'_>> {
        self.objects.iter().map(Self::object_of)
    }

    /// Every member of every container, once for each place.
    pub(crate) fn members(&self) -> impl Iterator<Item = NodeId> + '_ {
        let extras = self.objects.iter().filter_map(|object| object.extra.as_deref());
        let added =
            extras.flat_map(|e| e.items.iter().copied().chain(e.pairs.iter().flat_map(|(k, v)| [*k, *v])));
        let keyed = self.dicts.iter().flatten().flat_map(|(key, value)| [*key, *value]);
        self.edges.iter().copied().chain(self.sequences.iter().flatten().copied()).chain(keyed).chain(added)
    }

    /// Every payload, in stream order.
    #[must_use]
    pub fn payloads(&self) -> &[Payload] {
        &self.payloads
    }

    /// The kind of a value.
    #[must_use]
    pub fn kind(&self, id: NodeId) -> Kind {
        self.nodes[id.index()].kind()
    }

    /// The value itself.
    #[must_use]
    pub fn value(&self, id: NodeId) -> Value<'_> {
        match self.nodes[id.index()] {
            Node::None => Value::None,
            Node::Bool(v) => Value::Bool(v),
            Node::Int(v) => Value::Int(v),
            Node::BigInt(span) => Value::BigInt(span.of(&self.text)),
            Node::Float(v) => Value::Float(v),
            Node::Str(span) => Value::Str(self.text_of(span)),
            Node::Bytes(at) => Value::Bytes(self.payloads[at as usize]),
            Node::Tuple(span) => Value::Tuple(span.of(&self.edges)),
            Node::FrozenSet(span) => Value::FrozenSet(span.of(&self.edges)),
            Node::List(at) => Value::List(&self.sequences[at as usize]),
            Node::Set(at) => Value::Set(&self.sequences[at as usize]),
            Node::Dict(at) => Value::Dict(&self.dicts[at as usize]),
            Node::Global(at) => Value::Global(self.global_of(&self.globals[at as usize])),
            Node::Object(at) => Value::Object(Self::object_of(&self.objects[at as usize])),
        }
    }

    fn text_of(&self, span: Span) -> Text<'_> {
        Text::checked(span.of(&self.text))
    }

    fn global_of(&self, entry: &GlobalEntry) -> Global<'_> {
        Global { module: self.text_of(entry.module), name: self.text_of(entry.name), offset: entry.offset }
    }

    fn object_of(entry: &ObjectEntry) -> Object<'_> {
        let (items, pairs) = match &entry.extra {
            Some(extra) => (extra.items.as_slice(), extra.pairs.as_slice()),
            None => (&[][..], &[][..]),
        };
        Object {
            construction: entry.construction,
            callable: entry.callable,
            args: entry.args,
            kwargs: entry.kwargs,
            state: entry.state,
            items,
            pairs,
            offset: entry.offset,
        }
    }
}
