//! What can be wrong with a stream, and where.

use std::fmt;

/// A stream that is no well-formed pickle, or one that asks for what is never given.
#[derive(Debug, thiserror::Error)]
#[error("at byte {offset}: {fault}")]
pub struct PickleError {
    /// Offset from the start of the file, of the opcode at fault.
    pub offset: u64,
    /// What is wrong there.
    pub fault: Fault,
}

impl PickleError {
    pub(crate) fn new(offset: u64, fault: Fault) -> Self {
        PickleError { offset, fault }
    }

    /// Whether the file ended before the stream did: a cut copy rather than a wrong one.
    #[must_use]
    pub fn is_truncation(&self) -> bool {
        matches!(self.fault, Fault::Truncated { .. })
    }
}

/// The ways in which a stream is refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// The file could not be read.
    #[error("cannot be read: {0}")]
    Io(std::io::Error),
    /// The bytes end inside the stream.
    #[error("the file ends here: {what} needs {needed} more bytes, {left} are left")]
    Truncated {
        /// What was being read.
        what: &'static str,
        /// How many bytes it needs.
        needed: u64,
        /// How many bytes there are.
        left: u64,
    },
    /// There is nothing at all.
    #[error("the file is empty")]
    Empty,
    /// A byte that is no opcode of any protocol.
    #[error("0x{0:02x} is no pickle opcode")]
    UnknownOpcode(u8),
    /// A protocol newer than this reader, or a second declaration.
    #[error("protocol {0} is not supported (0 to 5 are)")]
    Protocol(u8),
    /// `PROTO` anywhere but at the start.
    #[error("PROTO is only allowed at the start of the stream")]
    LateProtocol,
    /// An opcode takes more values than the stack (or the part above the last mark) has.
    #[error("{0} takes a value that is not on the stack")]
    StackUnderflow(&'static str),
    /// An opcode needs a mark and none is open.
    #[error("{0} has no MARK to go back to")]
    NoMark(&'static str),
    /// Marks or values are left over at `STOP`.
    #[error("STOP leaves {0} unused values or marks on the stack")]
    LeftOver(usize),
    /// A memo entry that was never stored.
    #[error("memo entry {0} was never stored")]
    MemoMissing(u64),
    /// A bound of [`Limits`](crate::Limits) is exceeded.
    #[error("more than {limit} {what}: this is no model artifact, or it was made to exhaust memory")]
    Limit {
        /// What is bounded.
        what: &'static str,
        /// The bound.
        limit: u64,
    },
    /// A persistent ID: it would be resolved by the loading program.
    #[error("persistent IDs are refused: they mean whatever the loading program makes of them")]
    PersistentId,
    /// A code of the extension registry: it would be resolved by the loading process.
    #[error("extension code {0} is refused: it means whatever the loading process has registered")]
    Extension(u32),
    /// A literal of protocol 0 that is not in the form that picklers write.
    #[error("{what} is malformed: {why}")]
    Literal {
        /// What was being read.
        what: &'static str,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A length field that is negative or beyond any file.
    #[error("{what} has the impossible length {length}")]
    Length {
        /// What was being read.
        what: &'static str,
        /// The length as the stream gives it.
        length: i128,
    },
    /// A string that is not UTF-8.
    #[error("{0} is not valid UTF-8")]
    NotUtf8(&'static str),
    /// A frame that is cut by an opcode, nested in another, or longer than the stream.
    #[error("framing is broken: {0}")]
    Frame(&'static str),
    /// Key without value.
    #[error("{0} has a key without a value")]
    OddItems(&'static str),
    /// An opcode applied to a kind of value that no pickler applies it to.
    #[error("{op} cannot be applied to {found}")]
    WrongTarget {
        /// The opcode.
        op: &'static str,
        /// What was on the stack.
        found: Kind,
    },
    /// A second `BUILD` on one object.
    #[error("the object has been given a state already")]
    SecondState,
    /// `NEXT_BUFFER` without a buffer left.
    #[error("NEXT_BUFFER asks for out-of-band buffer {0}, which the file does not have")]
    BufferMissing(usize),
    /// Buffers that nothing refers to.
    #[error("{0} out-of-band buffers are not used by the pickle")]
    BuffersUnused(usize),
    /// Bytes after `STOP`.
    #[error("{0} bytes follow the end of the pickle")]
    TrailingBytes(u64),
    /// The first bytes can be read as a plain pickle and as the out-of-band form.
    #[error("the file reads as a plain pickle and as an out-of-band one: loaders may disagree about it")]
    AmbiguousForm,
}

/// The kinds of value, for messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "each is the Python type of that name")]
#[non_exhaustive]
pub enum Kind {
    None,
    Bool,
    Int,
    Float,
    Str,
    Bytes,
    Tuple,
    List,
    Dict,
    Set,
    FrozenSet,
    Global,
    Object,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::None => "None",
            Kind::Bool => "a bool",
            Kind::Int => "an int",
            Kind::Float => "a float",
            Kind::Str => "a string",
            Kind::Bytes => "bytes",
            Kind::Tuple => "a tuple",
            Kind::List => "a list",
            Kind::Dict => "a dict",
            Kind::Set => "a set",
            Kind::FrozenSet => "a frozenset",
            Kind::Global => "a class or function",
            Kind::Object => "an object",
        })
    }
}
