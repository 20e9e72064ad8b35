"""Pickle streams as spliceable sections.

A jit's own pickle becomes a section: no protocol header, frames or STOP, and memo references that can be moved. An
artifact is then one dict whose values are such sections, so that a section made earlier (a cached camera warp) gives
the same bytes as one made now, whatever objects the two processes happened to share.
"""

from __future__ import annotations

import pickle
import pickletools
import struct
from dataclasses import dataclass
from typing import Any

PROTO, FRAME, STOP, MARK, MEMOIZE, BINGET, LONG_BINGET, SETITEMS = (ord(c) for c in "\x80\x95.(\x94hju")


def _argument_sizes() -> list[int | tuple[str, int] | None]:
    """Per opcode: a fixed size, or the format and width of a length that precedes the payload, or a text line."""
    prefixes = {pickletools.TAKEN_FROM_ARGUMENT1: ("<B", 1), pickletools.TAKEN_FROM_ARGUMENT4: ("<i", 4),
                pickletools.TAKEN_FROM_ARGUMENT4U: ("<I", 4), pickletools.TAKEN_FROM_ARGUMENT8U: ("<Q", 8)}
    sizes: list[int | tuple[str, int] | None] = [None] * 256
    for op in pickletools.opcodes:
        n = 0 if op.arg is None else op.arg.n
        if n >= 0:
            sizes[ord(op.code)] = n
        elif n in prefixes:
            sizes[ord(op.code)] = prefixes[n]
    return sizes


SIZES = _argument_sizes()


@dataclass(frozen=True)
class Section:
    """Opcodes that leave one value on the stack, and how many memo entries they make."""

    code: bytes
    memo: int

    def placed(self, base: int) -> bytes:
        """The section with its memo references moved past `base` entries."""
        return _walk(self.code, base)[0] if base else self.code


def _walk(stream: bytes, base: int) -> tuple[bytes, int]:
    """Copies opcodes without header, frames and STOP, moving references; gives the code and the memo entries made."""
    out = bytearray()
    at, memo = 0, 0
    while at < len(stream):
        op = stream[at]
        size = SIZES[op]
        if size is None:
            raise ValueError(f"opcode {op:#x} has no place in a section")
        if isinstance(size, tuple):
            (length,) = struct.unpack_from(size[0], stream, at + 1)
            size = size[1] + length
        end = at + 1 + size
        if op in (BINGET, LONG_BINGET):
            index = stream[at + 1] if op == BINGET else struct.unpack_from("<I", stream, at + 1)[0]
            out += struct.pack("<BI", LONG_BINGET, index + base)
        elif op not in (PROTO, FRAME, STOP):
            memo += op == MEMOIZE
            out += stream[at:end]
        at = end
    return bytes(out), memo


def section_of(pickled: bytes) -> Section:
    """A section from a protocol 4 or 5 pickle. References are widened once, so that moving them keeps every offset."""
    return Section(*_walk(pickled, 0))


def section(value: Any, protocol: int) -> Section:
    return section_of(pickle.dumps(value, protocol=protocol))


def key_of_two(pair: tuple[int, int]) -> bytes:
    return struct.pack("<BHBHB", ord("M"), pair[0], ord("M"), pair[1], 0x86)
