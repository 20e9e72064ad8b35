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
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from pickle_graph import Container, Graph, walk

IN_BAND_BUFFER = b"cbuiltins\nbytearray\n"
OPEN = {"list": b"]", "dict": b"}", "set": b"\x8f"}
CLOSE = {"list": b"e", "dict": b"u", "set": b"\x90"}
CLOSE_ONE = {"list": b"a", "dict": b"s"}
Chunk = bytes | int


@dataclass(frozen=True)
class Section:
    """Opcodes that leave one value on the stack, the memo entries they make, and the buffers that they call for."""

    chunks: tuple[Chunk, ...]
    memo: int


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
            if node.kind != "set" and len(node.items) == (1 if node.kind == "list" else 2):
                return [CLOSE_ONE[node.kind], *reversed(node.items), *kept, OPEN[node.kind]]
            return [CLOSE[node.kind], *reversed(node.items), b"(", *kept, OPEN[node.kind]]
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
        if kind == "frozenset":
            return [*kept, b"\x91", *reversed(operands), b"("]
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
