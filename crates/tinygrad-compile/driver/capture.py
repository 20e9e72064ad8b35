"""Capturing a jit: identifiers that do not depend on the process, a proof, and only the contents that are needed."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable
from typing import Any

from tinygrad import TinyJit
from tinygrad.uop.ops import Ops, UOp

from calls import Call
from proof import Proven, prove_captured

IDENTIFIERS = 1 << 20


def number_buffers_from(identity: str) -> None:
    """Starts tinygrad's buffer counter at a place of its own for each identity.

    Buffers are told apart by this number, type and size alone, also after loading. A place derived from what is compiled
    gives equal bytes whatever the process did before, and keeps an artifact's buffers from being taken for the queues
    of the process that loads it, for those of another artifact, or for those of a camera warp spliced into it.
    """
    place = int.from_bytes(hashlib.sha256(identity.encode()).digest()[:4], "big")
    UOp.unique_num = itertools.count((place + 1) * IDENTIFIERS)  # type: ignore[assignment]


def programs(jit: Any) -> list[UOp]:
    """The captured kernel calls, those inside graphs too."""
    captured = jit.captured
    linear = captured._linear if hasattr(captured, "_linear") else captured.linear
    return [u for u in linear.toposort() if u.op is Ops.CALL and u.src[0].op is Ops.PROGRAM]


def devices(jit: Any) -> list[str]:
    found: set[str] = set()
    for call in programs(jit):
        device = call.src[1].device
        found |= {device} if isinstance(device, str) else set(device or ())
    return sorted(found)


def capture(name: str, body: Callable[..., Any], make_call: Callable[[int], Call], seeds: tuple[int, int], tolerance: float) -> tuple[Any, Proven]:
    """A captured, pruned and proven jit without the contents of scratch and output buffers."""
    jit = TinyJit(body, prune=True)
    proven = prove_captured(name, jit, make_call, seeds, tolerance)
    if hasattr(jit.captured, "free_intermediates"):
        jit.captured.free_intermediates()
    return jit, proven
