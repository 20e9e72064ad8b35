//! Fills the arena, within the limits.

use super::error::{Fault, PickleError};
use super::graph::{
    Construction, Extra, GlobalEntry, Graph, Node, NodeId, ObjectEntry, Payload, PayloadKind, Span,
};
use super::limits::Limits;
use super::opcode as op;

type Result<T> = std::result::Result<T, PickleError>;

pub(crate) struct Builder {
    pub(super) limits: Limits,
    pub(super) graph: Graph,
    /// Nesting of each node when it was made.
    depths: Vec<u16>,
    /// Members of all containers and objects.
    members: usize,
}

impl Builder {
    pub(crate) const NONE: NodeId = NodeId(0);
    pub(crate) const TRUE: NodeId = NodeId(1);
    pub(crate) const FALSE: NodeId = NodeId(2);
    pub(crate) const EMPTY_TUPLE: NodeId = NodeId(3);
    const FIRST_INT: u32 = 4;

    pub(crate) fn new(limits: Limits) -> Self {
        let mut nodes = Vec::with_capacity(1024);
        nodes.extend([
            Node::None,
            Node::Bool(true),
            Node::Bool(false),
            Node::Tuple(Span { start: 0, len: 0 }),
        ]);
        nodes.extend((0..256).map(Node::Int));
        let depths = vec![0; nodes.len()];
        let graph = Graph {
            nodes,
            edges: Vec::new(),
            sequences: Vec::new(),
            dicts: Vec::new(),
            objects: Vec::new(),
            globals: Vec::new(),
            payloads: Vec::new(),
            text: Vec::new(),
            root: Self::NONE,
            protocol: 0,
            opcodes: 0,
            start: 0,
            end: 0,
            out_of_band: false,
        };
        Builder { limits, graph, depths, members: 0 }
    }

    pub(crate) fn finish(mut self, root: NodeId) -> Graph {
        self.graph.root = root;
        self.graph
    }

    /// 0 to 255 exist once.
    pub(crate) fn small_int(value: u8) -> NodeId {
        NodeId(Self::FIRST_INT + u32::from(value))
    }

    pub(crate) fn int(&mut self, value: i64, at: u64) -> Result<NodeId> {
        match u8::try_from(value) {
            Ok(small) => Ok(Self::small_int(small)),
            Err(_) => self.leaf(Node::Int(value), at),
        }
    }

    pub(crate) fn leaf(&mut self, node: Node, at: u64) -> Result<NodeId> {
        self.node(node, 0, at)
    }

    fn node(&mut self, node: Node, depth: u16, at: u64) -> Result<NodeId> {
        let count = self.graph.nodes.len();
        if count >= self.limits.nodes {
            return Err(over(at, "values", self.limits.nodes));
        }
        if depth > self.limits.depth {
            return Err(over(at, "levels of nesting", usize::from(self.limits.depth)));
        }
        self.graph.nodes.push(node);
        self.depths.push(depth);
        Ok(NodeId(count as u32))
    }

    /// One level above the deepest member.
    fn above(&self, members: &[NodeId]) -> u16 {
        let deepest = members.iter().map(|id| self.depths[id.index()]).max().unwrap_or(0);
        deepest.saturating_add(1)
    }

    fn count_members(&mut self, more: usize, at: u64) -> Result<()> {
        self.members += more;
        if self.members > self.limits.edges {
            return Err(over(at, "members of containers", self.limits.edges));
        }
        Ok(())
    }

    // --- containers ---

    fn span(&mut self, items: &[NodeId], at: u64) -> Result<Span> {
        self.count_members(items.len(), at)?;
        let start = self.graph.edges.len() as u32;
        self.graph.edges.extend_from_slice(items);
        Ok(Span { start, len: items.len() as u32 })
    }

    pub(crate) fn tuple(&mut self, items: &[NodeId], at: u64) -> Result<NodeId> {
        if items.is_empty() {
            return Ok(Self::EMPTY_TUPLE);
        }
        let span = self.span(items, at)?;
        self.node(Node::Tuple(span), self.above(items), at)
    }

    pub(crate) fn frozen_set(&mut self, items: &[NodeId], at: u64) -> Result<NodeId> {
        let span = self.span(items, at)?;
        self.node(Node::FrozenSet(span), self.above(items), at)
    }

    fn sequence(&mut self, items: &[NodeId], at: u64) -> Result<u32> {
        self.count_members(items.len(), at)?;
        self.graph.sequences.push(items.to_vec());
        Ok(self.graph.sequences.len() as u32 - 1)
    }

    pub(crate) fn list(&mut self, at: u64) -> Result<NodeId> {
        self.list_of(&[], at)
    }

    pub(crate) fn list_of(&mut self, items: &[NodeId], at: u64) -> Result<NodeId> {
        let slot = self.sequence(items, at)?;
        self.node(Node::List(slot), self.above(items), at)
    }

    pub(crate) fn set(&mut self, at: u64) -> Result<NodeId> {
        let slot = self.sequence(&[], at)?;
        self.node(Node::Set(slot), 1, at)
    }

    pub(crate) fn dict(&mut self, at: u64) -> Result<NodeId> {
        self.dict_of(&[], at)
    }

    pub(crate) fn dict_of(&mut self, items: &[NodeId], at: u64) -> Result<NodeId> {
        self.count_members(items.len(), at)?;
        self.graph.dicts.push(pairs(items, "DICT", at)?.collect());
        let slot = self.graph.dicts.len() as u32 - 1;
        self.node(Node::Dict(slot), self.above(items), at)
    }

    /// A container may have grown deeper than when it was made.
    fn deepen(&mut self, target: NodeId, members: &[NodeId], at: u64) -> Result<()> {
        let depth = self.above(members).max(self.depths[target.index()]);
        if depth > self.limits.depth {
            return Err(over(at, "levels of nesting", usize::from(self.limits.depth)));
        }
        self.depths[target.index()] = depth;
        Ok(())
    }

    pub(crate) fn append(&mut self, target: NodeId, items: &[NodeId], code: u8, at: u64) -> Result<()> {
        self.count_members(items.len(), at)?;
        match self.graph.nodes[target.index()] {
            Node::List(slot) if code != op::ADDITEMS => {
                self.graph.sequences[slot as usize].extend_from_slice(items);
            }
            Node::Set(slot) if code == op::ADDITEMS => {
                self.graph.sequences[slot as usize].extend_from_slice(items);
            }
            Node::Object(slot) => self.extra(slot).items.extend_from_slice(items),
            other => return Err(wrong_target(at, op::name(code), other)),
        }
        self.deepen(target, items, at)
    }

    pub(crate) fn set_items(
        &mut self,
        target: NodeId,
        items: &[NodeId],
        name: &'static str,
        at: u64,
    ) -> Result<()> {
        self.count_members(items.len(), at)?;
        let pairs = pairs(items, name, at)?;
        match self.graph.nodes[target.index()] {
            Node::Dict(slot) => self.graph.dicts[slot as usize].extend(pairs),
            Node::Object(slot) => self.extra(slot).pairs.extend(pairs),
            other => return Err(wrong_target(at, name, other)),
        }
        self.deepen(target, items, at)
    }

    fn extra(&mut self, object: u32) -> &mut Extra {
        self.graph.objects[object as usize].extra.get_or_insert_default()
    }

    // --- objects ---

    pub(crate) fn object(
        &mut self,
        construction: Construction,
        callable: NodeId,
        args: NodeId,
        kwargs: Option<NodeId>,
        at: u64,
    ) -> Result<NodeId> {
        if !matches!(self.graph.nodes[args.index()], Node::Tuple(_)) {
            let op = match construction {
                Construction::Reduce => "REDUCE",
                _ => "NEWOBJ",
            };
            return Err(wrong_target(at, op, self.graph.nodes[args.index()]));
        }
        let depth = self.above(&[callable, args, kwargs.unwrap_or(Self::NONE)]);
        let entry =
            ObjectEntry { construction, callable, args, kwargs, state: None, offset: at, extra: None };
        let id = self.node(Node::Object(self.graph.objects.len() as u32), depth, at)?;
        self.graph.objects.push(entry);
        Ok(id)
    }

    /// `BUILD` belongs to an object made in this stream. On a class or a module it would change the loader itself.
    pub(crate) fn set_state(&mut self, target: NodeId, state: NodeId, at: u64) -> Result<()> {
        let Node::Object(slot) = self.graph.nodes[target.index()] else {
            return Err(wrong_target(at, "BUILD", self.graph.nodes[target.index()]));
        };
        let entry = &mut self.graph.objects[slot as usize];
        if entry.state.replace(state).is_some() {
            return Err(PickleError::new(at, Fault::SecondState));
        }
        self.deepen(target, &[state], at)
    }

    pub(crate) fn global(&mut self, module: NodeId, name: NodeId, at: u64) -> Result<NodeId> {
        let nodes = &self.graph.nodes;
        match (nodes[module.index()], nodes[name.index()]) {
            (Node::Str(module), Node::Str(name)) => self.global_at(module, name, at),
            (Node::Str(_), other) | (other, _) => Err(wrong_target(at, "STACK_GLOBAL", other)),
        }
    }

    pub(super) fn global_at(&mut self, module: Span, name: Span, at: u64) -> Result<NodeId> {
        let id = self.leaf(Node::Global(self.graph.globals.len() as u32), at)?;
        self.graph.globals.push(GlobalEntry { module, name, offset: at });
        Ok(id)
    }

    // --- payloads ---

    pub(crate) fn payload(&mut self, payload: Payload, at: u64) -> Result<NodeId> {
        let id = self.leaf(Node::Bytes(self.graph.payloads.len() as u32), at)?;
        self.graph.payloads.push(payload);
        Ok(id)
    }

    pub(crate) fn read_only(&mut self, buffer: NodeId, at: u64) -> Result<NodeId> {
        let Node::Bytes(slot) = self.graph.nodes[buffer.index()] else {
            return Err(wrong_target(at, "READONLY_BUFFER", self.graph.nodes[buffer.index()]));
        };
        match self.graph.payloads[slot as usize] {
            Payload { offset, len, kind: PayloadKind::Buffer { index, .. } } => {
                let kind = PayloadKind::Buffer { index, read_only: true };
                self.payload(Payload { offset, len, kind }, at)
            }
            // Plain bytes are read-only already.
            _ => Ok(buffer),
        }
    }
}

fn pairs(items: &[NodeId], name: &'static str, at: u64) -> Result<impl Iterator<Item = (NodeId, NodeId)>> {
    let (pairs, rest) = items.as_chunks::<2>();
    if rest.is_empty() {
        Ok(pairs.iter().map(|[key, value]| (*key, *value)))
    } else {
        Err(PickleError::new(at, Fault::OddItems(name)))
    }
}

#[cold]
pub(super) fn over(at: u64, what: &'static str, limit: usize) -> PickleError {
    PickleError::new(at, Fault::Limit { what, limit: limit as u64 })
}

#[cold]
fn wrong_target(at: u64, op: &'static str, found: Node) -> PickleError {
    PickleError::new(at, Fault::WrongTarget { op, found: found.kind() })
}
