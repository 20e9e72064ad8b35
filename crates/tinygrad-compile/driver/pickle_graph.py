"""The value graph of a pickle, read without calling anything.

A node is a tuple of a kind and operands, which are numbers of other nodes; equal immutable nodes are one. Lists and dicts
are objects of their own, and so is what is made by the classes in `KEPT_APART`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pickletools import TAKEN_FROM_ARGUMENT1, TAKEN_FROM_ARGUMENT4, TAKEN_FROM_ARGUMENT4U, TAKEN_FROM_ARGUMENT8U, opcodes
from typing import Any

# Results of calling these are told apart by identity; everything else that a jit holds is immutable once made.
KEPT_APART = frozenset({"tinygrad.device.Buffer", "tinygrad.tensor.Tensor", "builtins.bytearray"})
# NONE, booleans, numbers and the empty tuple are never shared; strings and bytes are.
ATOMS = frozenset(b"N\x88\x89KMJ\x8a\x8bG)")
EMPTY = {0x5D: "list", 0x7D: "dict", 0x8F: "set"}
TEXTS = frozenset(b"\x8cX\x8dCB\x8e")


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
    """A list, dict or set: mutable while it is built, and an object of its own."""

    __slots__ = ("kind", "items")

    def __init__(self, kind: str) -> None:
        self.kind, self.items = kind, []


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
            elif op in EMPTY:
                stack.append(self._add_apart(Container(EMPTY[op])))
            elif op == 0x91:  # FROZENSET
                stack.append(self._add("frozenset", *popped()))
            elif op in (0x65, 0x75, 0x90):  # APPENDS, SETITEMS, ADDITEMS
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


def _text(raw: bytes) -> str:
    """The string of a SHORT_BINUNICODE or BINUNICODE instruction."""
    return raw[2:].decode() if raw[0] == 0x8C else raw[5:].decode()
