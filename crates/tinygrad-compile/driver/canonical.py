"""Pickles that depend on values alone.

Python's pickler writes an object once when it is *shared*, and whether two equal strings or tuples are one object
depends on caches, on unpickling, on what the process did before. Here the pickle of a value is read back as a graph
(nothing is called), equal immutable nodes are merged, and the graph is written again. Equal values then give equal
bytes in every process, which lets a camera warp or a compiled kernel come from a cache without a trace.

Contents of buffers are kept out of the graph and streamed when the file is written.
"""

from __future__ import annotations

import copyreg
import io
import pickle
import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pickletools import TAKEN_FROM_ARGUMENT1, TAKEN_FROM_ARGUMENT4, TAKEN_FROM_ARGUMENT4U, TAKEN_FROM_ARGUMENT8U, opcodes
from typing import Any

# Results of calling these are told apart by identity; everything else that a jit holds is immutable once made.
KEPT_APART = frozenset({"tinygrad.device.Buffer", "tinygrad.tensor.Tensor", "builtins.bytearray"})
IN_BAND_BUFFER = b"cbuiltins\nbytearray\n"
Chunk = bytes | int


def _argument_formats() -> list[int | str | None]:
    """Per opcode: the size of its argument, or the format of the length before its payload; None where unsupported."""
    prefixes = {TAKEN_FROM_ARGUMENT1: "<B", TAKEN_FROM_ARGUMENT4: "<i", TAKEN_FROM_ARGUMENT4U: "<I", TAKEN_FROM_ARGUMENT8U: "<Q"}
    formats: list[int | str | None] = [None] * 256
    for op in opcodes:
        size = 0 if op.arg is None else op.arg.n
        formats[ord(op.code)] = size if size >= 0 else prefixes.get(size)
    return formats


FORMATS = _argument_formats()


def walk(stream: bytes) -> Iterator[tuple[int, int, int]]:
    """Opcode, start and end of every instruction of a binary pickle."""
    at, end = 0, len(stream)
    while at < end:
        op = stream[at]
        size = FORMATS[op]
        if isinstance(size, str):
            width = struct.calcsize(size)
            size = width + struct.unpack_from(size, stream, at + 1)[0]
        elif size is None:
            raise ValueError(f"opcode {op:#04x} at {at} is not one that a pickler writes")
        yield op, at, at + 1 + size
        at += 1 + size


class Container:
    """A list or dict: mutable while it is built, and an object of its own."""

    __slots__ = ("kind", "items")

    def __init__(self, kind: str) -> None:
        self.kind, self.items = kind, []


@dataclass(frozen=True)
class Section:
    """Opcodes that leave one value on the stack, the memo entries they make, and the buffers that they call for."""

    chunks: tuple[Chunk, ...]
    memo: int


class Graph:
    """The value graph of one pickle. Nodes are tuples of a kind and operands; equal ones have one number."""

    def __init__(self, stream: bytes) -> None:
        self.nodes: list[tuple[Any, ...] | Container] = []
        self.numbers: dict[tuple[Any, ...], int] = {}
        self.root = self._read(stream)

    def _add(self, *node: Any) -> int:
        number = self.numbers.get(node)
        if number is None:
            number = self.numbers[node] = len(self.nodes)
            self.nodes.append(node)
        return number

    def _add_apart(self, node: tuple[Any, ...] | Container) -> int:
        self.nodes.append(node)
        return len(self.nodes) - 1

    def _name(self, number: int) -> str:
        """The dotted name of a global; empty for anything else."""
        node = self.nodes[number]
        if isinstance(node, Container) or node[0] != "global":
            return ""
        return ".".join(_text(self.nodes[n][1]) for n in node[1:])  # type: ignore[index]

    def _frozen(self, number: int) -> Any:
        """A state as part of its object's identity: the dict that carries it is used once and never seen again."""
        node = self.nodes[number]
        return (node.kind, *node.items) if isinstance(node, Container) else number

    def _read(self, stream: bytes) -> int:  # noqa: C901 - one branch an opcode
        stack: list[int] = []
        marks: list[int] = []
        memo: list[int] = []
        memoized: dict[int, int] = {}
        buffers = 0

        def popped() -> list[int]:
            mark = marks.pop()
            items = stack[mark:]
            del stack[mark:]
            return items

        for op, at, end in walk(stream):
            if op == 0x94:  # MEMOIZE
                memoized[stack[-1]] = len(memo)
                memo.append(stack[-1])
            elif op == 0x6A:  # LONG_BINGET
                stack.append(memo[int.from_bytes(stream[at + 1:end], "little")])
            elif op == 0x68:  # BINGET
                stack.append(memo[stream[at + 1]])
            elif op == 0x28:  # MARK
                marks.append(len(stack))
            elif op == 0x74:  # TUPLE
                stack.append(self._add("tuple", *popped()))
            elif 0x85 <= op <= 0x87:  # TUPLE1..3
                items = stack[0x84 - op:]
                del stack[0x84 - op:]
                stack.append(self._add("tuple", *items))
            elif op == 0x52:  # REDUCE
                given, maker = stack.pop(), stack.pop()
                node = ("reduce", maker, given)
                stack.append(self._add_apart(node) if self._name(maker) in KEPT_APART else self._add(*node))
            elif op == 0x81:  # NEWOBJ
                given, maker = stack.pop(), stack.pop()
                stack.append(self._add_apart(("newobj", maker, given)))
            elif op == 0x62:  # BUILD
                state = stack.pop()
                stack[-1] = self._build(stack[-1], state)
                if (place := memoized.get(stack[-1])) is not None:
                    memo[place] = stack[-1]
            elif op == 0x93:  # STACK_GLOBAL
                name, module = stack.pop(), stack.pop()
                stack.append(self._add("global", module, name))
            elif op in (0x5D, 0x7D):  # EMPTY_LIST, EMPTY_DICT
                stack.append(self._add_apart(Container("list" if op == 0x5D else "dict")))
            elif op in (0x65, 0x75):  # APPENDS, SETITEMS
                items = popped()
                self._fill(stack[-1], items)
            elif op in (0x61, 0x73):  # APPEND, SETITEM
                count = 1 if op == 0x61 else 2
                items = stack[-count:]
                del stack[-count:]
                self._fill(stack[-1], items)
            elif op == 0x97:  # NEXT_BUFFER
                stack.append(self._add_apart(("buffer", buffers)))
                buffers += 1
            elif op in ATOMS:
                stack.append(self._add("atom", stream[at:end]))
            elif op in TEXTS:
                stack.append(self._add("text", stream[at:end]))
            elif op == 0x2E:  # STOP
                return stack.pop()
            elif op not in (0x80, 0x95):  # PROTO, FRAME
                raise ValueError(f"opcode {op:#04x} is not expected in an artifact")
        raise ValueError("the pickle has no end")

    def _fill(self, number: int, items: list[int]) -> None:
        node = self.nodes[number]
        if not isinstance(node, Container):
            raise ValueError("items are added to something that is no list or dict")
        node.items.extend(items)

    def _build(self, target: int, state: int) -> int:
        """Sets an object's state; gives an equal object's number where there is one."""
        made = self.nodes[target]
        if isinstance(made, Container) or made[0] != "newobj":
            raise ValueError("a state is set on something that was not made by NEWOBJ")
        key = ("build", made[1], made[2], self._frozen(state))
        if self._name(made[1]) not in KEPT_APART:
            if (known := self.numbers.get(key)) is not None:
                return known
            self.numbers[key] = target
        self.nodes[target] = ("build", made[1], made[2], state)
        return target


# NONE, booleans, numbers and the empty tuple are never shared; strings and bytes are.
ATOMS = frozenset(b"N\x88\x89KMJ\x8a\x8bG)")
TEXTS = frozenset(b"\x8cX\x8dCB\x8e")
OPEN = {"list": b"]", "dict": b"}"}
CLOSE = {"list": (b"a", b"e"), "dict": (b"s", b"u")}


def _text(raw: bytes) -> str:
    """The string of a SHORT_BINUNICODE or BINUNICODE instruction."""
    return raw[2:].decode() if raw[0] == 0x8C else raw[5:].decode()


class Writer:
    """Writes values of a graph as opcodes; memo entries are made only for what is referred to again."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.out: list[Chunk] = []
        self.code = bytearray()
        self.memo: dict[int, int] = {}
        self.uses = self._count_uses()

    def _operands(self, number: int) -> tuple[int, ...]:
        node = self.graph.nodes[number]
        if isinstance(node, Container):
            return tuple(node.items)
        return () if node[0] in ("atom", "text", "buffer") else node[1:]

    def _count_uses(self) -> dict[int, int]:
        uses: dict[int, int] = {}
        stack = [self.graph.root]
        while stack:
            number = stack.pop()
            seen = uses.get(number, 0)
            uses[number] = seen + 1
            if not seen:
                stack.extend(self._operands(number))
        return uses

    def write(self, number: int) -> None:
        """Depth first with a stack of its own: graphs are nested deeper than Python may recurse."""
        pending: list[int | bytes | tuple[int]] = [number]
        while pending:
            item = pending.pop()
            if isinstance(item, bytes):
                self.code += item
            elif isinstance(item, tuple):
                self._memoize(item[0])
            elif (index := self.memo.get(item)) is not None:
                self.code += bytes((0x68, index)) if index < 256 else struct.pack("<BI", 0x6A, index)
            else:
                pending.extend(self._expanded(item))

    def _memoize(self, number: int) -> None:
        self.memo[number] = len(self.memo)
        self.code += b"\x94"

    def _expanded(self, number: int) -> list[int | bytes | tuple[int]]:
        """What writes a node, last step first."""
        node = self.graph.nodes[number]
        kept: list[Any] = [(number,)] if self.uses[number] > 1 else []
        if isinstance(node, Container):
            if not node.items:
                return [*kept, OPEN[node.kind]]
            one = len(node.items) == (1 if node.kind == "list" else 2)
            head = [*kept, OPEN[node.kind]] if one else [b"(", *kept, OPEN[node.kind]]
            return [CLOSE[node.kind][not one], *reversed(node.items), *head]
        kind, *operands = node
        if kind == "atom":
            return [operands[0]]
        if kind == "buffer":
            self._flush()
            self.out.append(operands[0])
            return []
        if kind == "text":
            return [*kept, operands[0]]
        if kind == "tuple":
            if len(operands) <= 3:
                return [*kept, bytes((0x84 + len(operands),)), *reversed(operands)]
            return [*kept, b"t", *reversed(operands), b"("]
        if kind == "build":
            maker, given, state = operands
            return [b"b", state, *kept, b"\x81", given, maker]
        code = {"reduce": b"R", "newobj": b"\x81", "global": b"\x93"}[kind]
        return [*kept, code, *reversed(operands)]

    def _flush(self) -> None:
        if self.code:
            self.out.append(bytes(self.code))
            self.code = bytearray()

    def chunks(self) -> tuple[Chunk, ...]:
        self._flush()
        return tuple(self.out)


@dataclass
class Pickled:
    """A canonical value: its section, and the sources of the buffers that the section calls for by number."""

    section: Section
    buffers: list[Callable[[], Any]]


def without_contents(value: Any) -> tuple[bytes, list[Any]]:
    """Pickles a value with the contents of tinygrad's buffers left out, and gives the buffers in order."""
    from tinygrad.device import Buffer
    found: list[Any] = []

    def reduced(buffer: Any) -> Any:
        maker, given = buffer.__reduce_ex__(5)
        if not any(isinstance(g, pickle.PickleBuffer | bytearray) for g in given):
            return maker, given
        found.append(buffer)
        return maker, tuple(pickle.PickleBuffer(bytearray()) if isinstance(g, pickle.PickleBuffer | bytearray) else g for g in given)

    out = io.BytesIO()
    pickler = pickle.Pickler(out, 5, buffer_callback=lambda _: None)
    pickler.dispatch_table = copyreg.dispatch_table | {Buffer: reduced}
    pickler.dump(value)
    return out.getvalue(), found


def contents(buffer: Any) -> memoryview:
    """A copy of a buffer's contents in host memory, as its own pickling makes it."""
    raw = next(g for g in buffer.__reduce_ex__(5)[1] if isinstance(g, pickle.PickleBuffer | bytearray))
    return raw.raw() if isinstance(raw, pickle.PickleBuffer) else memoryview(raw)


def canonical(value: Any) -> Pickled:
    """The section of one value."""
    stream, buffers = without_contents(value)
    graph = Graph(stream)
    writer = Writer(graph)
    writer.write(graph.root)
    return Pickled(Section(writer.chunks(), len(writer.memo)), [lambda b=b: contents(b) for b in buffers])


def moved(code: bytes, base: int) -> bytes:
    """Opcodes with their memo references moved past `base` entries."""
    if not base:
        return code
    out = bytearray()
    for op, at, end in walk(code):
        if op in (0x68, 0x6A):
            out += struct.pack("<BI", 0x6A, int.from_bytes(code[at + 1:end], "little") + base)
        else:
            out += code[at:end]
    return bytes(out)


def placed(section: Section, base: int) -> Iterable[Chunk]:
    return (moved(c, base) if isinstance(c, bytes) else c for c in section.chunks)
