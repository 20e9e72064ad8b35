"""A long run at the camera's own rate: how step times and memory develop, in windows of some seconds."""

from __future__ import annotations

import gc
import os
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

from events import Events

STEP_SECONDS = 0.05  # Cameras run at 20 Hz.
WINDOWS = 60
WINDOW_SECONDS = (0.5, 10.0)


def peak_bytes() -> int:
    """Largest resident size of this process so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def resident_bytes() -> int | None:
    """Resident size of this process now, where the system tells it."""
    try:
        with open("/proc/self/statm", encoding="ascii") as source:
            return int(source.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None


def window_of(at: float, seconds: list[float]) -> dict[str, Any]:
    ordered = sorted(seconds)
    return {"at_seconds": round(at, 3), "steps": len(ordered), "p50": ordered[len(ordered) // 2], "p99": ordered[len(ordered) * 99 // 100],
            "resident_bytes": resident_bytes(), "objects": len(gc.get_objects())}


def soak(step: Callable[[int], Any], duration: float, events: Events) -> list[dict[str, Any]]:
    """Calls `step` at the camera's rate until the time is over. Each window is reported, as a sign of life."""
    length = min(max(duration / WINDOWS, WINDOW_SECONDS[0]), WINDOW_SECONDS[1])
    windows: list[dict[str, Any]] = []
    began = time.perf_counter()
    count, due = 0, began
    while (now := time.perf_counter()) - began < duration:
        seconds: list[float] = []
        until = min(now + length, began + duration)
        with events.stage("soak") as detail:
            while (started := time.perf_counter()) < until or not seconds:
                step(count)
                count += 1
                ended = time.perf_counter()
                seconds.append(round(ended - started, 6))
                # A step that came late is not made up for.
                due = max(due + STEP_SECONDS, ended - STEP_SECONDS)
                time.sleep(max(0.0, due - ended))
            windows.append(window_of(time.perf_counter() - began, seconds))
            detail.update(windows[-1])
    return windows
