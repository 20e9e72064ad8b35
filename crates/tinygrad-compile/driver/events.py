"""Events of a driver run: one JSON object a line, and the errors that end one.

The process's real standard output is kept for events alone. File descriptor 1 is pointed at standard error before
tinygrad is imported, so nothing that a library prints can be mistaken for an event.
"""

from __future__ import annotations

import errno
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

KINDS = frozenset({
    "bad_request", "tinygrad_missing", "numpy_missing", "backend_missing", "onnx_unsupported", "shape_mismatch",
    "slice_width", "non_finite", "replay_mismatch", "input_ignored", "round_trip_mismatch", "artifact_unreadable",
    "out_of_memory", "disk_full", "internal",
})


class DriverError(Exception):
    """A failure with a kind that the caller can act on."""

    def __init__(self, kind: str, message: str, **detail: Any) -> None:
        super().__init__(message)
        assert kind in KINDS, kind
        self.kind, self.message, self.detail = kind, message, detail


def as_driver_error(error: BaseException) -> DriverError:
    """Gives any exception its kind; what is not recognised is `internal`."""
    if isinstance(error, DriverError):
        return error
    if isinstance(error, MemoryError):
        return DriverError("out_of_memory", f"memory ran out: {error}")
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return DriverError("disk_full", f"cannot write {error.filename or 'a file'}: {error.strerror}")
    return DriverError("internal", f"{type(error).__name__}: {error}")


class Events:
    """Writes events to the descriptor that was standard output, and sums up the seconds of each stage.

    A line is one write, so that forked workers can share the stream. A label is added to every event.
    """

    def __init__(self, descriptor: int, label: dict[str, Any] | None = None) -> None:
        self.descriptor, self.label = descriptor, label or {}
        self.seconds: dict[str, float] = {}

    def labelled(self, label: dict[str, Any]) -> Events:
        return Events(self.descriptor, self.label | label)

    def emit(self, **event: Any) -> None:
        line = json.dumps({**event, **self.label}, separators=(",", ":"), allow_nan=False) + "\n"
        data = line.encode()
        while data:
            data = data[os.write(self.descriptor, data):]

    @contextmanager
    def stage(self, name: str) -> Iterator[dict[str, Any]]:
        """Reports start and end of a stage; what the body puts into the yielded dict becomes the end's detail."""
        self.emit(event="stage", stage=name, state="start")
        detail: dict[str, Any] = {}
        started = time.perf_counter()
        yield detail
        took = round(time.perf_counter() - started, 4)
        self.seconds[name] = round(self.seconds.get(name, 0.0) + took, 4)
        end = {"event": "stage", "stage": name, "state": "end", "seconds": took}
        self.emit(**end, **({"detail": detail} if detail else {}))

    def done(self, result: dict[str, Any]) -> None:
        self.emit(event="done", result=result)

    def failed(self, error: DriverError) -> None:
        self.emit(event="failed", kind=error.kind, message=error.message, detail=error.detail)


def take_over_stdout() -> Events:
    """Keeps standard output for events and sends everything else that is printed to standard error."""
    kept = os.dup(1)
    os.set_inheritable(kept, False)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return Events(kept)
