"""Operation `dm_run`: drives the driver monitoring set over synthetic frames as the runtime would, and leaves raw outputs.

Each camera is a process of its own, which loads the model and that camera's warp and nothing else: a device has one camera.
With `probes` one more step each shows whether another frame and another calibration matter, and what the warp makes of frames
that the host can compute.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

import artifact
from calls import on_device, warp_device
from cameras import camera_name, settings
from compile_op import versions
from events import DriverError, Events
from frames import HostFrame, Nv12
from isolate import Crew, Handler, Unit, open_device, run_all
from queues import is_image
from request import Camera, DmRunRequest
from scenes import frames, hash_bytes, noise
from session import OTHER_SEED
from soak import peak_bytes, soak
from thermal import hottest

IDENTITY = [[1, 0, 0], [0, 1, 0], [0, 0, 1]]
# The second reaches beyond the frame on every side: the border shows.
WARP_MATRICES = {"identity": IDENTITY, "beyond": [[2, 0, -64], [0, 2, -64], [0, 0, 1]]}
OTHER_CALIBRATION = 0.05


class Monitor:
    """The model with one camera's warp."""

    def __init__(self, request: DmRunRequest, camera: Camera) -> None:
        self.request, self.camera = request, camera
        self.model, self.warp = artifact.load_pickle(request.model), artifact.load_pickle(request.warps[camera])
        self.shapes = request.metadata.input_shapes
        images = [n for n in self.shapes if is_image(n)]
        if len(images) != 1:
            raise DriverError("shape_mismatch", f"driver monitoring needs one image input, its metadata has {self.shapes}")
        self.image = images[0]
        self.small = {n: np.zeros(s, np.float32) for n, s in self.shapes.items() if n != self.image}
        self.tensors = {n: on_device(v, "NPY") for n, v in self.small.items()}
        self.warped: Any = None

    def seen(self, step: int) -> np.ndarray:
        return frames(self.request.frames, Nv12(*self.camera), self.request.seed, step)[0]

    def warp_of(self, shown: np.ndarray, matrix: Any) -> tuple[Any, list[Any]]:
        """The warp's result, and the memory that must outlive it."""
        frame, transform = HostFrame.of(shown, warp_device()), np.array(matrix, np.float32)
        return self.warp(frame.tensor, on_device(transform, "NPY")), [frame, transform]

    def step(self, shown: np.ndarray) -> np.ndarray:
        self.warped, memory = self.warp_of(shown, IDENTITY)
        arguments = {n: self.warped if n == self.image else self.tensors[n] for n in self.shapes}
        values = self.model(**arguments).numpy()
        del memory
        return values


def save(request: DmRunRequest, camera: Camera, name: str, values: np.ndarray) -> dict[str, Any]:
    file = f"{camera_name(camera)}/{name}"
    path = Path(request.out_dir) / file
    path.parent.mkdir(parents=True, exist_ok=True)
    values.tofile(path)
    return {"camera": list(camera), "file": file, "shape": list(values.shape)}


def drive(monitor: Monitor) -> dict[str, Any]:
    request, camera = monitor.request, monitor.camera
    steps, seconds, images, packed = [], [], [], []
    for step in range(request.steps):
        shown = monitor.seen(step)
        started = time.perf_counter()
        steps.append(monitor.step(shown))
        seconds.append(round(time.perf_counter() - started, 6))
        if step < request.record:
            images.append(monitor.warped.numpy().astype(np.uint8))
            packed.append(np.concatenate([v.reshape(-1) for v in monitor.small.values()] or [np.zeros(0, np.float32)]))
    given = [{"name": n, **save(request, camera, f"given.{n}", np.stack(v))} for n, v in (("images", images), ("packed", packed)) if v]
    outputs = [{"key": "model", **save(request, camera, "model.f32", np.stack(steps).astype("<f4"))}]
    return {"outputs": outputs, "inputs": given, "step_seconds": seconds}


def probe(monitor: Monitor) -> list[dict[str, Any]]:
    """The first step again with another frame, then with another calibration."""
    request, camera = monitor.request, monitor.camera
    values = {"image": monitor.step(noise(Nv12(*camera), request.seed + OTHER_SEED, 0, False))}
    for small in monitor.small.values():
        small += OTHER_CALIBRATION
    values["calibration"] = monitor.step(monitor.seen(0))
    for small in monitor.small.values():
        small -= OTHER_CALIBRATION
    return [{"probe": n, "step": 0, "key": "model", **save(request, camera, f"model.{n}.f32", v[None].astype("<f4"))} for n, v in values.items()]


def show_warp(monitor: Monitor) -> list[dict[str, Any]]:
    found = []
    for name, matrix in WARP_MATRICES.items():
        warped, memory = monitor.warp_of(hash_bytes(1, Nv12(*monitor.camera).size), matrix)
        values = warped.numpy().astype(np.uint8)
        del memory
        found.append({"matrix": [float(v) for row in matrix for v in row], "salts": [1], **save(monitor.request, monitor.camera, f"warp.{name}.u8", values)})
    return found


def handle_one(raw: dict[str, Any], events: Events) -> dict[str, Any]:
    """The unit that runs one camera."""
    request, camera = DmRunRequest.parse(raw), (raw["camera"][0], raw["camera"][1])
    with events.stage("load"):
        monitor = Monitor(request, camera)
    with events.stage(f"run_{camera_name(camera)}"):
        result = drive(monitor)
    result |= {"probes": [], "warps": [], "soak": []}
    if request.probes:
        with events.stage(f"probe_{camera_name(camera)}"):
            result |= {"probes": probe(monitor), "warps": show_warp(monitor)}
    if request.soak_seconds > 0:
        shown = [monitor.seen(step) for step in range(8)]
        result["soak"] = soak(lambda step: monitor.step(shown[step % len(shown)]), request.soak_seconds, events)
    return {**result, "load_seconds": events.seconds["load"], "peak_bytes": peak_bytes(), "settings": settings()}


HANDLERS: dict[str, Handler] = {"dm_run_one": handle_one}


def run(raw: dict[str, Any], events: Events) -> dict[str, Any]:
    """One camera after the other: two at once would disturb each other's times. Only the first is soaked."""
    request = DmRunRequest.parse(raw)
    before = hottest()
    open_device(request.target)
    crew = Crew(events, HANDLERS, 1)
    units = [Unit("dm_run_one", {**raw, "camera": list(c), "soak_seconds": 0 if at else request.soak_seconds}, {}) for at, c in enumerate(request.cameras)]
    parts = run_all(crew, units)
    lists = {n: [entry for part in parts for entry in part[n]] for n in ("outputs", "inputs", "probes", "warps", "soak")}
    m = request.metadata
    metadata = {"model_checkpoint": m.checkpoint, "output_slices": [[n, s.start, s.stop, s.step] for n, s in m.output_slices.items()],
                "input_shapes": [[n, list(s)] for n, s in m.input_shapes.items()], "output_shapes": [[n, list(s)] for n, s in m.output_shapes.items()]}
    return {**lists, **versions(), "settings": parts[0]["settings"], "metadata": {"model": metadata},
            "step_seconds": {camera_name(c): part["step_seconds"] for c, part in zip(request.cameras, parts)},
            "load_seconds": max(part["load_seconds"] for part in parts), "peak_bytes": max(part["peak_bytes"] for part in parts),
            "temperature_celsius": {"before": before, "after": hottest()},
            "parsed_inputs": {n: list(s) for n, s in m.input_shapes.items() if not is_image(n)}}
