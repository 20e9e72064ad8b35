//! The stack machine: runs the opcodes, calls nothing.
//!
//! It follows CPython's unpickler where that is defined for what picklers write, and refuses where loaders could
//! disagree (a second `PROTO`, opcodes across a frame's end, bytes after `STOP`), so that what is judged here is
//! what will be loaded.

use super::build::Builder;
use super::error::{Fault, PickleError};
use super::graph::{Construction, Graph, Node, NodeId, Payload, PayloadKind};
use super::input::Input;
use super::limits::Limits;
use super::opcode as op;

type Result<T> = std::result::Result<T, PickleError>;

/// Marks "never stored" in the memo.
const ABSENT: u32 = u32::MAX;

pub(crate) struct Machine<'s> {
    pub(super) input: Input<'s>,
    pub(super) limits: Limits,
    pub(super) build: Builder,
    pub(super) stack: Vec<NodeId>,
    /// Stack heights at the open marks.
    marks: Vec<usize>,
    /// Height below which the current opcode may not reach: that of the last mark.
    pub(super) fence: usize,
    memo: Vec<u32>,
    memo_filled: usize,
    /// End of the current frame; 0 outside of frames.
    pub(super) frame_end: u64,
    pub(super) buffers: Vec<Payload>,
    pub(super) next_buffer: usize,
    /// Offset of the opcode that runs.
    pub(super) at: u64,
    pub(super) protocol: u8,
}

impl<'s> Machine<'s> {
    pub(crate) fn new(input: Input<'s>, buffers: Vec<Payload>, limits: Limits) -> Self {
        Machine {
            input,
            limits,
            build: Builder::new(limits),
            stack: Vec::new(),
            marks: Vec::new(),
            fence: 0,
            memo: Vec::new(),
            memo_filled: 0,
            frame_end: 0,
            buffers,
            next_buffer: 0,
            at: 0,
            protocol: 0,
        }
    }

    /// Runs to `STOP`, which must be the end of the window.
    pub(crate) fn run(mut self) -> Result<Graph> {
        let start = self.input.offset();
        let mut opcodes = 0u64;
        loop {
            self.at = self.input.offset();
            if self.frame_end != 0 && self.at >= self.frame_end {
                self.leave_frame()?;
            }
            opcodes += 1;
            match self.input.byte("the next opcode")? {
                op::STOP => return self.finish(start, opcodes),
                op::PROTO if self.at == start => self.protocol()?,
                code => self.step(code)?,
            }
        }
    }

    fn finish(mut self, start: u64, opcodes: u64) -> Result<Graph> {
        let root = self.pop("STOP")?;
        let over = self.stack.len() + self.marks.len();
        if over > 0 {
            return Err(self.fault(Fault::LeftOver(over)));
        }
        let end = self.input.offset();
        if self.frame_end > end {
            return Err(self.fault(Fault::Frame("the last frame is longer than the stream")));
        }
        if self.input.left() > 0 {
            return Err(PickleError::new(end, Fault::TrailingBytes(self.input.left())));
        }
        let unused = self.buffers.len() - self.next_buffer;
        if unused > 0 {
            return Err(self.fault(Fault::BuffersUnused(unused)));
        }
        let mut graph = self.build.finish(root);
        (graph.protocol, graph.opcodes, graph.start, graph.end) = (self.protocol, opcodes, start, end);
        Ok(graph)
    }

    /// One opcode other than `STOP` and the leading `PROTO`, commonest first.
    #[inline]
    fn step(&mut self, code: u8) -> Result<()> {
        match code {
            op::MEMOIZE => self.memo_put(self.memo_filled as u64),
            op::BINGET => self.memo_get(|input| Ok(u64::from(input.byte("BINGET")?))),
            op::LONG_BINGET => {
                self.memo_get(|input| Ok(u64::from(u32::from_le_bytes(input.array("LONG_BINGET")?))))
            }
            op::NONE => self.push(Builder::NONE),
            op::NEWTRUE => self.push(Builder::TRUE),
            op::NEWFALSE => self.push(Builder::FALSE),
            op::BININT1 => {
                let value = self.input.byte("BININT1")?;
                self.push(Builder::small_int(value))
            }
            op::BININT2 => {
                let value = u16::from_le_bytes(self.input.array("BININT2")?);
                self.push_int(i64::from(value))
            }
            op::BININT => {
                let value = i32::from_le_bytes(self.input.array("BININT")?);
                self.push_int(i64::from(value))
            }
            op::BINFLOAT => {
                let value = f64::from_be_bytes(self.input.array("BINFLOAT")?);
                self.push_node(Node::Float(value))
            }
            op::MARK => self.mark(),
            op::TUPLE => {
                let items = self.since_mark("TUPLE")?;
                self.push_tuple(items)
            }
            op::EMPTY_TUPLE => self.push(Builder::EMPTY_TUPLE),
            op::TUPLE1 => self.push_top_tuple(1, "TUPLE1"),
            op::TUPLE2 => self.push_top_tuple(2, "TUPLE2"),
            op::TUPLE3 => self.push_top_tuple(3, "TUPLE3"),
            op::REDUCE => self.object("REDUCE", Construction::Reduce),
            op::NEWOBJ => self.object("NEWOBJ", Construction::New),
            op::BUILD => self.build_state(),
            op::POP => self.discard(),
            op::DUP => {
                let top = self.top("DUP")?;
                self.push(top)
            }
            op::POP_MARK => {
                let items = self.since_mark("POP_MARK")?;
                self.stack.truncate(items);
                Ok(())
            }
            _ => self.container_or_payload(code),
        }
    }

    fn container_or_payload(&mut self, code: u8) -> Result<()> {
        match code {
            op::EMPTY_LIST => self.push_made(Builder::list),
            op::EMPTY_DICT => self.push_made(Builder::dict),
            op::EMPTY_SET => self.push_made(Builder::set),
            op::APPEND => self.append_one(),
            op::APPENDS | op::ADDITEMS => self.append_many(code),
            op::SETITEM => {
                let items = self.require(3, "SETITEM")? + 1;
                self.set_items(items, "SETITEM")
            }
            op::SETITEMS => {
                let items = self.since_mark("SETITEMS")?;
                self.set_items(items, "SETITEMS")
            }
            op::LIST | op::DICT | op::FROZENSET => self.collect(code),
            op::BINBYTES => self.payload(PayloadKind::Bytes, Width::Four),
            op::SHORT_BINBYTES => self.payload(PayloadKind::Bytes, Width::One),
            op::BINBYTES8 => self.payload(PayloadKind::Bytes, Width::Eight),
            op::BYTEARRAY8 => self.payload(PayloadKind::ByteArray, Width::Eight),
            op::NEXT_BUFFER => self.next_buffer(),
            op::READONLY_BUFFER => self.read_only(),
            op::STACK_GLOBAL => self.stack_global(),
            op::NEWOBJ_EX => self.new_object_ex(),
            op::OBJ | op::INST => self.instance(code),
            op::FRAME => self.frame(),
            op::PERSID | op::BINPERSID => Err(self.fault(Fault::PersistentId)),
            op::EXT1 | op::EXT2 | op::EXT4 => self.extension(code),
            op::PROTO => Err(self.fault(Fault::LateProtocol)),
            _ => self.literal(code),
        }
    }

    fn literal(&mut self, code: u8) -> Result<()> {
        let (input, build) = (&mut self.input, &mut self.build);
        let id = match code {
            op::SHORT_BINUNICODE => build.string(input, Width::One, "SHORT_BINUNICODE")?,
            op::BINUNICODE => build.string(input, Width::Four, "BINUNICODE")?,
            op::BINUNICODE8 => build.string(input, Width::Eight, "BINUNICODE8")?,
            op::SHORT_BINSTRING => build.ascii(input, Width::One, "SHORT_BINSTRING")?,
            op::BINSTRING => build.ascii(input, Width::SignedFour, "BINSTRING")?,
            op::UNICODE => build.unicode_line(input)?,
            op::STRING => build.quoted_line(input)?,
            op::LONG1 => build.long(input, Width::One, "LONG1")?,
            op::LONG4 => build.long(input, Width::SignedFour, "LONG4")?,
            op::INT => build.int_line(input)?,
            op::LONG => build.long_line(input)?,
            op::FLOAT => build.float_line(input)?,
            op::GLOBAL => build.global_lines(input, self.at, "GLOBAL")?,
            op::GET => return self.memo_get(|input| Builder::index_line(input, "GET")),
            op::PUT => {
                let index = Builder::index_line(input, "PUT")?;
                return self.memo_put(index);
            }
            op::BINPUT => {
                let index = u64::from(input.byte("BINPUT")?);
                return self.memo_put(index);
            }
            op::LONG_BINPUT => {
                let index = u64::from(u32::from_le_bytes(input.array("LONG_BINPUT")?));
                return self.memo_put(index);
            }
            unknown => return Err(self.fault(Fault::UnknownOpcode(unknown))),
        };
        self.push(id)
    }

    // --- the stack ---

    #[cold]
    pub(super) fn fault(&self, fault: Fault) -> PickleError {
        PickleError::new(self.at, fault)
    }

    #[inline]
    pub(super) fn push(&mut self, id: NodeId) -> Result<()> {
        if self.stack.len() >= self.limits.stack {
            let limit = self.limits.stack as u64;
            return Err(self.fault(Fault::Limit { what: "values on the stack", limit }));
        }
        self.stack.push(id);
        Ok(())
    }

    fn push_int(&mut self, value: i64) -> Result<()> {
        let id = self.build.int(value, self.at)?;
        self.push(id)
    }

    fn push_node(&mut self, node: Node) -> Result<()> {
        let id = self.build.leaf(node, self.at)?;
        self.push(id)
    }

    fn push_made(&mut self, make: fn(&mut Builder, u64) -> Result<NodeId>) -> Result<()> {
        let id = make(&mut self.build, self.at)?;
        self.push(id)
    }

    /// Checks that `count` values are above the last mark; returns the height below them.
    #[inline]
    pub(super) fn require(&self, count: usize, name: &'static str) -> Result<usize> {
        if self.stack.len() < self.fence + count {
            return Err(self.fault(Fault::StackUnderflow(name)));
        }
        Ok(self.stack.len() - count)
    }

    pub(super) fn top(&self, name: &'static str) -> Result<NodeId> {
        Ok(self.stack[self.require(1, name)?])
    }

    pub(super) fn pop(&mut self, name: &'static str) -> Result<NodeId> {
        let height = self.require(1, name)?;
        let id = self.stack[height];
        self.stack.truncate(height);
        Ok(id)
    }

    fn mark(&mut self) -> Result<()> {
        if self.marks.len() >= usize::from(self.limits.depth) {
            let limit = u64::from(self.limits.depth);
            return Err(self.fault(Fault::Limit { what: "open marks", limit }));
        }
        self.fence = self.stack.len();
        self.marks.push(self.fence);
        Ok(())
    }

    /// Closes the last mark; the values above it start at the returned height.
    pub(super) fn since_mark(&mut self, name: &'static str) -> Result<usize> {
        let Some(height) = self.marks.pop() else { return Err(self.fault(Fault::NoMark(name))) };
        self.fence = self.marks.last().copied().unwrap_or(0);
        Ok(height)
    }

    /// `POP` takes a mark where that is on top, as CPython's does.
    fn discard(&mut self) -> Result<()> {
        if self.marks.last() == Some(&self.stack.len()) {
            return self.since_mark("POP").map(drop);
        }
        self.pop("POP").map(drop)
    }

    fn push_tuple(&mut self, from: usize) -> Result<()> {
        let id = self.build.tuple(&self.stack[from..], self.at)?;
        self.stack.truncate(from);
        self.push(id)
    }

    fn push_top_tuple(&mut self, count: usize, name: &'static str) -> Result<()> {
        let from = self.require(count, name)?;
        self.push_tuple(from)
    }

    // --- the memo ---

    fn memo_put(&mut self, index: u64) -> Result<()> {
        let top = self.top("a memo opcode")?;
        let slot = usize::try_from(index).unwrap_or(usize::MAX);
        if slot >= self.limits.memo {
            let limit = self.limits.memo as u64;
            return Err(self.fault(Fault::Limit { what: "memo slots", limit }));
        }
        if slot >= self.memo.len() {
            self.memo.resize(slot + 1, ABSENT);
        }
        self.memo_filled += usize::from(self.memo[slot] == ABSENT);
        self.memo[slot] = top.0;
        Ok(())
    }

    fn memo_get(&mut self, index: impl FnOnce(&mut Input<'s>) -> Result<u64>) -> Result<()> {
        let index = index(&mut self.input)?;
        let stored = usize::try_from(index).ok().and_then(|slot| self.memo.get(slot)).copied();
        match stored {
            Some(id) if id != ABSENT => self.push(NodeId(id)),
            _ => Err(self.fault(Fault::MemoMissing(index))),
        }
    }
}

/// The width of a length field.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Width {
    One,
    Four,
    SignedFour,
    Eight,
}

impl Width {
    pub(crate) fn read(self, input: &mut Input<'_>, what: &'static str) -> Result<u64> {
        Ok(match self {
            Width::One => u64::from(input.byte(what)?),
            Width::Four => u64::from(u32::from_le_bytes(input.array(what)?)),
            Width::Eight => u64::from_le_bytes(input.array(what)?),
            Width::SignedFour => {
                let at = input.offset();
                let length = i32::from_le_bytes(input.array(what)?);
                let fault = Fault::Length { what, length: i128::from(length) };
                u64::try_from(length).map_err(|_| PickleError::new(at, fault))?
            }
        })
    }
}
