"""The camera warps of an artifact: from the cache where they are known, else captured in processes of their own."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

import numpy as np

from calls import Inputs, warp_device
from canonical import canonical
from capture import capture, devices, number_buffers_from, programs
from events import DriverError, Events
from frames import Nv12
from isolate import Crew, Unit, run_all
from programs import tinygrad_identity
from queues import Layout, push, sample_images
from request import Camera, CompileRequest
from warp import make_sampling_warp, make_warp
from warp_cache import Entry, borrow, driver_digest, entry_path, fetch, keep, store


def camera_name(camera: Camera) -> str:
    return f"{camera[0]}x{camera[1]}"


def settings() -> dict[str, Any]:
    """The tinygrad settings that can change a captured jit."""
    from tinygrad import helpers
    names = ("DEV", "IMAGE", "FLOAT16", "NOLOCALS", "OPENPILOT_HACKS", "JIT_BATCH_SIZE", "BEAM", "NOOPT", "TC", "TC_OPT", "NUM_CPU_THREADS")
    return {n: str(getattr(getattr(helpers, n, None), "value", None)) for n in names}


def buffer_identity(request: CompileRequest, layout: Layout, camera: Camera) -> str:
    """All that the meaning of a camera's warp depends on. It numbers the warp's buffers, so it is kept free of versions."""
    history = (layout.image_queue, layout.frame_skip) if request.pipeline == "warp" else ()
    return f"warp {camera} {request.pipeline} {history} {warp_device()}"


def cache_identity(request: CompileRequest, layout: Layout, camera: Camera) -> str:
    """All that its bytes and its proof depend on."""
    machine = (platform.machine(), platform.python_version(), np.__version__, tinygrad_identity(), driver_digest(), settings())
    return f"{buffer_identity(request, layout, camera)} {request.seeds} {request.tolerance} {machine}"


def capture_warp(request: CompileRequest, layout: Layout, camera: Camera, events: Events) -> Entry:
    name, frame = camera_name(camera), Nv12(*camera)
    with events.stage(f"warp_{name}") as detail:
        number_buffers_from(buffer_identity(request, layout, camera))
        if request.pipeline == "policy":
            body = make_warp(frame, warp_device())
        else:
            body = make_sampling_warp(frame, warp_device(), layout.frame_skip, push, sample_images)
        inputs = Inputs(layout, request.pipeline)
        jit, proven = capture(name, body, lambda seed: inputs.warp_call(camera, seed), request.seeds, request.tolerance)
        facts = {"devices": devices(jit), "kernels": len(programs(jit))}
        detail.update(kernels=facts["kernels"], cached=False)
        return Entry(canonical(jit), proven, facts)


def missing_warps(request: CompileRequest, raw: dict[str, Any], layout: Layout, directory: str, cache: str | None) -> list[tuple[Path, Unit]]:
    """The entries that neither the run's own directory nor the cache has, each with the unit that captures it."""
    out = []
    for camera in request.cameras:
        path = entry_path(directory, cache_identity(request, layout, camera))
        if fetch(path) is None and not (cache and borrow(Path(cache) / path.name, path)):
            unit = {**raw, "camera": list(camera), "warp_directory": directory, "warp_cache": cache}
            out.append((path, Unit("capture_warp", unit, {})))
    return out


def provide_warps(request: CompileRequest, raw: dict[str, Any], layout: Layout, directory: str, cache: str | None, crew: Crew) -> dict[str, float]:
    """Makes sure that the directory has an entry for every camera; gives the seconds of the stages that this took."""
    units = [unit for _, unit in missing_warps(request, raw, layout, directory, cache)]
    for name in {camera_name(c) for c in request.cameras} - {camera_name(tuple(u.request["camera"])) for u in units}:
        with crew.events.stage(f"warp_{name}") as detail:
            detail["cached"] = True
    seconds: dict[str, float] = {}
    for result in run_all(crew, units):
        seconds |= result["seconds"]
    return seconds


def handle_capture(raw: dict[str, Any], events: Events, layout: Layout, request: CompileRequest) -> dict[str, Any]:
    """The unit that captures one warp and keeps it."""
    camera: Camera = (raw["camera"][0], raw["camera"][1])
    path = entry_path(raw["warp_directory"], cache_identity(request, layout, camera))
    store(path, capture_warp(request, layout, camera, events))
    if cache := raw["warp_cache"]:
        keep(path, cache, request.cache_limit)
    return {"seconds": events.seconds}


def taken(request: CompileRequest, layout: Layout, directory: str) -> dict[Camera, Entry]:
    out = {}
    for camera in request.cameras:
        entry = fetch(entry_path(directory, cache_identity(request, layout, camera)))
        if entry is None:
            raise DriverError("internal", f"the warp of {camera_name(camera)} vanished from {directory}")
        out[camera] = entry
    return out
