"""The artifact file: its keys in order, both of its forms, and a plain load as the runtime does it."""

from __future__ import annotations

import os
import pickle
import struct
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

from events import DriverError
from opcodes import MARK, SETITEMS, STOP, Section, key_of_two
from request import Camera, CompileRequest

FORMAT_VERSION = 1
PLAIN_PROTOCOL, OUT_OF_BAND_PROTOCOL = 4, 5
WARP_KEYS = ("tfm", "big_tfm")
QUEUE_KEYS = ("img_q", "big_img_q")
STATE_KEYS = ("feat_q", "desire_q", "packed_npy_inputs")


def protocol_of(out_of_band: bool) -> int:
    return OUT_OF_BAND_PROTOCOL if out_of_band else PLAIN_PROTOCOL


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


def _warp_items(base: int, warps: dict[Camera, Section]) -> bytes:
    """The camera warps as the second and last batch of the dict's items."""
    out = bytearray()
    for camera, code in warps.items():
        out += key_of_two(camera) + code.placed(base)
        base += code.memo
    return bytes(out) + bytes([SETITEMS, STOP])


def _dump_head(out: BinaryIO, values: dict[str, Any], protocol: int, on_buffer: Callable[[Any], None] | None) -> int:
    """Pickles the first items; the final STOP becomes the MARK of the next batch. Gives the memo entries made."""
    pickler = pickle.Pickler(out, protocol, buffer_callback=on_buffer) if on_buffer else pickle.Pickler(out, protocol)
    pickler.dump(values)
    out.seek(-1, os.SEEK_END)
    assert protocol >= 4
    out.write(bytes([MARK]))
    return len(pickler.memo.copy())


def write_plain(path: str, values: dict[str, Any], warps: dict[Camera, Section]) -> None:
    with open(path, "wb") as out:
        base = _dump_head(out, values, PLAIN_PROTOCOL, None)
        out.write(_warp_items(base, warps))


def write_out_of_band(path: str, values: dict[str, Any], warps: dict[Camera, Section]) -> None:
    """The opcodes' length, the opcodes, then every buffer with its length.

    The values are pickled twice, first for the opcodes and then for the buffers, so that one buffer at a time is copied.
    """
    with open(path, "w+b") as out:
        out.write(struct.pack("<q", 0))
        base = _dump_head(out, values, OUT_OF_BAND_PROTOCOL, lambda buffer: buffer.release())
        out.write(_warp_items(base, warps))
        length = out.tell() - 8
        pickle.Pickler(_Discard(), OUT_OF_BAND_PROTOCOL, buffer_callback=lambda b: _write_buffer(out, b)).dump(values)
        out.seek(0)
        out.write(struct.pack("<q", length))


class _Discard:
    def write(self, data: Any) -> int:
        return len(data)


def _write_buffer(out: BinaryIO, buffer: pickle.PickleBuffer) -> None:
    raw = buffer.raw()
    out.write(struct.pack("<q", raw.nbytes))
    out.write(raw)
    raw.release()
    buffer.release()


def write(path: str, values: dict[str, Any], warps: dict[Camera, Section], out_of_band: bool) -> int:
    """Writes an artifact and returns its size; nothing is left of one that could not be finished."""
    try:
        (write_out_of_band if out_of_band else write_plain)(path, values, warps)
    except BaseException:
        if os.path.exists(path):
            os.unlink(path)
        raise
    return os.path.getsize(path)


def _buffers(source: BinaryIO) -> Iterator[bytearray]:
    while header := source.read(8):
        data = bytearray(struct.unpack("<q", header)[0])
        if source.readinto(data) != len(data):  # type: ignore[attr-defined]
            raise EOFError("the file ends inside a buffer")
        yield data


def load(path: str, out_of_band: bool) -> dict[str, Any]:
    """Loads an artifact with plain `pickle`, which is what the runtime does and what a proof must do."""
    try:
        with open(path, "rb") as source:
            if not out_of_band:
                loaded = pickle.load(source)
            else:
                (length,) = struct.unpack("<q", source.read(8))
                loaded = pickle.loads(source.read(length), buffers=_buffers(source))
    except (MemoryError, KeyboardInterrupt):
        raise
    except Exception as error:
        raise DriverError("artifact_unreadable", f"{path} cannot be loaded: {type(error).__name__}: {error}") from error
    if not isinstance(loaded, dict) or loaded.get("format_version") != FORMAT_VERSION:
        raise DriverError("artifact_unreadable", f"{path} is not an artifact of format version {FORMAT_VERSION}")
    return loaded
