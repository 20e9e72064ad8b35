"""Operation `run`: drives an artifact over synthetic frames as the runtime would, and leaves raw outputs.

Transforms are identities, and every small input is zero but the traffic convention and the action times. State is carried
from step to step: queues on the device, and a supercombo's own hidden state. With `probes` a few more runs show what the
outputs depend on (history, each queue, road camera, wide camera), and each warp is shown alone, on frames that the host can compute.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

import artifact
from cameras import camera_name, settings
from compile_op import versions
from events import Events
from frames import Nv12
from prove_op import jits_of, layout_of
from request import Camera, RunRequest
from scenes import hash_bytes
from session import PROBED_QUEUES, WARP_MATRICES, Session, newest_images
from soak import peak_bytes, soak
from thermal import hottest


def output_keys(loaded: dict[str, Any]) -> list[str]:
    return ["vision", *loaded["policy_order"]] if "policy_order" in loaded else ["model"]


def save(request: RunRequest, camera: Camera, name: str, values: np.ndarray) -> str:
    """Writes an array below the output directory and returns its relative path."""
    file = f"{camera_name(camera)}/{name}"
    path = Path(request.out_dir) / file
    path.parent.mkdir(parents=True, exist_ok=True)
    values.tofile(path)
    return file


def run_camera(loaded: dict[str, Any], camera: Camera, request: RunRequest) -> tuple[list[dict[str, Any]], list[float], list[dict[str, Any]]]:
    """Outputs and seconds of every step, and what the models were given in the first `record` of them."""
    session = Session(loaded, camera, request)
    steps, seconds, images, packed = [], [], [], []
    for step in range(request.steps):
        shown = session.seen(step)
        if step < request.record:
            packed.append(session.packed.copy())
        started = time.perf_counter()
        steps.append(session.step(shown))
        seconds.append(round(time.perf_counter() - started, 6))
        if step < request.record:
            images.append(newest_images(session.warped))
    outputs = []
    for i, key in enumerate(output_keys(loaded)):
        values = np.stack([s[i] for s in steps]).astype("<f4")
        file = save(request, camera, f"{key}.f32", values)
        outputs.append({"key": key, "camera": list(camera), "file": file, "shape": list(values.shape)})
    return outputs, seconds, given(request, camera, images, packed)


def given(request: RunRequest, camera: Camera, images: list[np.ndarray], packed: list[np.ndarray]) -> list[dict[str, Any]]:
    """The recorded inputs of one camera: what the warps made of the frames, and the packed vectors."""
    found = []
    for name, values in (("images", images), ("packed", packed)):
        if values:
            stacked = np.stack(values)
            file = save(request, camera, f"given.{name}", stacked)
            found.append({"name": name, "camera": list(camera), "file": file, "shape": list(stacked.shape)})
    return found


def run_soak(loaded: dict[str, Any], request: RunRequest, events: Events) -> list[dict[str, Any]]:
    """The first camera's model for minutes, over a few frames again and again: making frames takes longer than a step."""
    session = Session(loaded, request.cameras[0], request)
    shown = [session.seen(step) for step in range(8)]
    return soak(lambda step: session.step(shown[step % len(shown)]), request.soak_seconds, events)


def probe_camera(loaded: dict[str, Any], camera: Camera, request: RunRequest) -> list[dict[str, Any]]:
    """One step with one thing changed: no history, another content of one queue, another road frame, another wide frame."""
    found = []
    for probe in ("history", *PROBED_QUEUES, "road", "wide"):
        session = Session(loaded, camera, request, probe)
        first = session.probed_step if probe == "history" else 0
        values: list[np.ndarray] = []
        for step in range(first, session.probed_step + 1):
            if step == session.probed_step:
                session.change_queues()
            values = session.step(session.seen(step))
        for key, value in zip(output_keys(loaded), values):
            file = save(request, camera, f"{key}.{probe}.f32", value.astype("<f4"))
            found.append({"probe": probe, "step": session.probed_step, "key": key, "camera": list(camera), "file": file,
                          "shape": [1, *value.shape]})
    return found


def show_warps(loaded: dict[str, Any], camera: Camera, request: RunRequest) -> list[dict[str, Any]]:
    """What each warp makes of hash frames: road and wide, six channels each, the newest of a history."""
    size = Nv12(*camera).size
    shown = [hash_bytes(salt, size) for salt in (1, 2)]
    found = []
    for name, matrix in WARP_MATRICES.items():
        session = Session(loaded, camera, request)
        warped, call = session.warp(shown, matrix)
        newest = newest_images(warped)
        del call
        file = save(request, camera, f"warp.{name}.u8", newest)
        found.append({"camera": list(camera), "matrix": [float(v) for row in matrix for v in row], "salts": [1, 2],
                      "file": file, "shape": list(newest.shape)})
    return found


def described(metadata: dict[str, Any]) -> dict[str, Any]:
    """An artifact's metadata in the form that requests have it."""
    return {key: {"model_checkpoint": m["model_checkpoint"],
                  "output_slices": [[n, s.start, s.stop, s.step] for n, s in m["output_slices"].items()],
                  "input_shapes": [[n, list(s)] for n, s in m["input_shapes"].items()],
                  "output_shapes": [[n, list(s)] for n, s in m["output_shapes"].items()]} for key, m in metadata.items()}


def run(request: RunRequest, events: Events) -> dict[str, Any]:
    before = hottest()
    with events.stage("load"):
        loaded = artifact.load(request.artifact, request.out_of_band)
    jits_of(loaded, request.cameras)
    outputs: list[dict[str, Any]] = []
    inputs: list[dict[str, Any]] = []
    probes: list[dict[str, Any]] = []
    warps: list[dict[str, Any]] = []
    step_seconds: dict[str, list[float]] = {}
    for camera in request.cameras:
        with events.stage(f"run_{camera_name(camera)}"):
            more, step_seconds[camera_name(camera)], recorded = run_camera(loaded, camera, request)
            outputs += more
            inputs += recorded
        if request.probes:
            with events.stage(f"probe_{camera_name(camera)}"):
                probes += probe_camera(loaded, camera, request)
                warps += show_warps(loaded, camera, request)
    windows = run_soak(loaded, request, events) if request.soak_seconds > 0 else []
    layout = layout_of(loaded)
    return {"outputs": outputs, "inputs": inputs, "probes": probes, "warps": warps, "soak": windows, "peak_bytes": peak_bytes(),
            "temperature_celsius": {"before": before, "after": hottest()}, "step_seconds": step_seconds, "load_seconds": events.seconds["load"], **versions(), "settings": settings(),
            "model_type": loaded["model_type"], "policy_order": loaded.get("policy_order", []), "frame_skip": loaded["frame_skip"],
            "behavior_version": loaded.get("behavior_version"), "metadata": described(loaded["metadata"]),
            "parsed_inputs": {n: list(s) for n, (_, s) in layout.packed_offsets().items()}}
