"""The artifact file: its keys in order, both of its forms, and a plain load as the runtime does it."""

from __future__ import annotations

import os
import pickle
import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Any, BinaryIO

from canonical import IN_BAND_BUFFER, Chunk, Pickled, Writer, contents, placed, without_contents
from events import DriverError
from pickle_graph import Container, Graph
from request import Camera, CompileRequest

FORMAT_VERSION = 1
PLAIN_PROTOCOL, OUT_OF_BAND_PROTOCOL = 4, 5
WARP_KEYS = ("tfm", "big_tfm")
QUEUE_KEYS = ("img_q", "big_img_q")
STATE_KEYS = ("feat_q", "desire_q", "packed_npy_inputs")
NEXT_BUFFER = b"\x97"
# None, dropped again: an object's opcodes with two bytes more.
PADDING = b"N0"
BufferSource = Callable[[], Any]


def head(request: CompileRequest, frame_skip: int, run_policy: Any) -> dict[str, Any]:
    """All keys before the camera warps, in the layout's order."""
    policies = [m.key for m in request.models if m.key not in ("vision", "model")]
    out: dict[str, Any] = {"format_version": FORMAT_VERSION, "model_type": request.model_type,
                           "metadata": {m.key: m.metadata.as_stored() for m in request.models},
                           "image_history_pipeline": request.pipeline}
    if request.behavior_version is not None:
        out["behavior_version"] = request.behavior_version
    if policies:
        out["policy_order"] = policies
    out["frame_skip"] = frame_skip
    sampled = request.pipeline == "warp"
    out["policy_input_keys"] = STATE_KEYS if sampled else QUEUE_KEYS + STATE_KEYS
    out["warp_input_keys"] = QUEUE_KEYS + WARP_KEYS if sampled else WARP_KEYS
    out["run_policy"] = run_policy
    return out


def _two_numbers(pair: tuple[int, int]) -> bytes:
    return struct.pack("<BIBIB", ord("J"), pair[0], ord("J"), pair[1], 0x86)


def _dict_of(values: dict[str, Any], warps: dict[Camera, Pickled]) -> tuple[list[Chunk], list[BufferSource]]:
    """Opcodes of the whole dict: the head's items, then the camera warps as sections moved behind its memo."""
    stream, buffers = without_contents(values)
    graph = Graph(stream)
    root = graph.nodes[graph.root]
    assert isinstance(root, Container)
    writer = Writer(graph)
    for number in root.items:
        writer.write(number)
    chunks: list[Chunk] = [b"}(", *writer.chunks()]
    sources: list[BufferSource] = [lambda b=b: contents(b) for b in buffers]
    base = len(writer.memo)
    for camera, pickled in warps.items():
        first = len(sources)
        chunks.append(_two_numbers(camera))
        chunks += [c + first if isinstance(c, int) else c for c in placed(pickled.section, base)]
        sources += pickled.buffers
        base += pickled.section.memo
    return [*chunks, b"u"], sources


def _write_plain(out: BinaryIO, chunks: Iterable[Chunk], sources: list[BufferSource]) -> None:
    """Buffers stand in the stream as `bytearray(bytes)`, one copied at a time."""
    out.write(bytes((0x80, PLAIN_PROTOCOL)))
    for chunk in chunks:
        if isinstance(chunk, bytes):
            out.write(chunk)
            continue
        data = sources[chunk]()
        size = struct.pack("<BI", ord("B"), data.nbytes) if data.nbytes < 1 << 31 else struct.pack("<BQ", 0x8E, data.nbytes)
        out.write(IN_BAND_BUFFER + size)
        out.write(data)
        del data  # before the next is copied, so that two are never held
        out.write(b"\x85R")
    out.write(b".")


def begins_like_a_plain_pickle(length: int) -> bool:
    """Whether the first two bytes of this length are those of a plain pickle (0x80 and a protocol), so that the first bytes of
    the file do not tell which form it has."""
    return length & 0xFF == 0x80 and 2 <= length >> 8 & 0xFF <= 5


def _write_out_of_band(out: BinaryIO, chunks: list[Chunk], sources: list[BufferSource]) -> None:
    """The opcodes' length, the opcodes, then every buffer with its length, one copied at a time."""
    code = b"".join(c if isinstance(c, bytes) else NEXT_BUFFER for c in chunks)
    prefix = bytes((0x80, OUT_OF_BAND_PROTOCOL))
    if begins_like_a_plain_pickle(len(prefix) + len(code) + 1):
        prefix += PADDING
    code = prefix + code + b"."
    out.write(struct.pack("<q", len(code)) + code)
    for number in (c for c in chunks if isinstance(c, int)):
        data = sources[number]()
        out.write(struct.pack("<q", data.nbytes))
        out.write(data)
        del data


def write_chunks(path: str, chunks: list[Chunk], sources: list[BufferSource], out_of_band: bool) -> int:
    """Writes a pickle and returns its size; nothing is left of one that could not be finished."""
    try:
        with open(path, "wb") as out:
            (_write_out_of_band if out_of_band else _write_plain)(out, chunks, sources)
    except BaseException as error:
        if os.path.isfile(path):
            os.unlink(path)
        if isinstance(error, OSError) and error.filename is None:
            error.filename = path  # a failed write names no file of its own
        raise
    return os.path.getsize(path)


def write(path: str, values: dict[str, Any], warps: dict[Camera, Pickled], out_of_band: bool) -> int:
    return write_chunks(path, *_dict_of(values, warps), out_of_band)


def write_jit(path: str, pickled: Pickled) -> int:
    """A file that holds one jit and nothing else."""
    return write_chunks(path, list(pickled.section.chunks), pickled.buffers, out_of_band=False)


class _Buffers:
    """The buffers behind the opcodes, read as they are asked for. A generator would hold on to each until the next."""

    def __init__(self, source: BinaryIO) -> None:
        self.source = source

    def __iter__(self) -> Iterator[bytearray]:
        return self

    def __next__(self) -> bytearray:
        header = self.source.read(8)
        if not header:
            raise StopIteration
        data = bytearray(struct.unpack("<q", header)[0])
        if self.source.readinto(data) != len(data):  # type: ignore[attr-defined]
            raise EOFError("the file ends inside a buffer")
        return data


def load_pickle(path: str, out_of_band: bool = False) -> Any:
    """Loads a file with plain `pickle`, which is what the runtime does and what a proof must do."""
    try:
        with open(path, "rb") as source:
            if not out_of_band:
                return pickle.load(source)
            (length,) = struct.unpack("<q", source.read(8))
            return pickle.loads(source.read(length), buffers=_Buffers(source))
    except (MemoryError, KeyboardInterrupt):
        raise
    except Exception as error:
        raise DriverError("artifact_unreadable", f"{path} cannot be loaded: {type(error).__name__}: {error}") from error


def load(path: str, out_of_band: bool) -> dict[str, Any]:
    loaded = load_pickle(path, out_of_band)
    if not isinstance(loaded, dict) or loaded.get("format_version") != FORMAT_VERSION:
        raise DriverError("artifact_unreadable", f"{path} is not an artifact of format version {FORMAT_VERSION}")
    return loaded
