"""Operation `run`: drives an artifact over synthetic frames as the runtime would, and leaves raw outputs.

Transforms are identities, and every small input is zero but the traffic convention and the action times. State is carried
from step to step: queues on the device, and a supercombo's own hidden state. With `probes` a few more runs show what the
outputs depend on (history, road camera, wide camera), and each warp is shown alone, on frames that the host can compute.
"""

from __future__ import annotations

import resource
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import artifact
from calls import Inputs, make_warp_call, on_device
from cameras import camera_name
from events import Events
from frames import Nv12
from prove_op import jits_of, layout_of
from queues import Layout
from request import Camera, RunRequest
from scenes import frames, hash_bytes, noise

FIXED_INPUTS = {"traffic_convention": [1.0, 0.0], "action_t": [0.15, 0.25]}


# Added to the seed where a probe shows another frame.
OTHER_SEED = 7919
WARP_MATRICES = {"identity": [[1, 0, 0], [0, 1, 0], [0, 0, 1]], "scaled": [[2, 0, 16], [0, 2, 8], [0, 0, 1]]}


class Session:
    """One artifact on one camera, with its state."""

    def __init__(self, loaded: dict[str, Any], camera: Camera, request: RunRequest, probe: str = "") -> None:
        self.loaded, self.camera, self.probe = loaded, camera, probe
        self.kind, self.seed = request.frames, request.seed
        # Queues are sampled every frame_skip steps: only after so many does the first step show in what the model is given.
        self.probed_step = int(loaded["frame_skip"])
        self.layout: Layout = layout_of(loaded)
        self.inputs = Inputs(self.layout, loaded["image_history_pipeline"])
        self.queues = self.inputs.empty_queues()
        self.packed = np.zeros(self.layout.packed_size, np.float32)
        self.offsets = self.layout.packed_offsets()
        for name, values in FIXED_INPUTS.items():
            self.set_input(name, values)
        self.packed_tensor = on_device(self.packed, "NPY")

    def set_input(self, name: str, values: Any) -> None:
        if name not in self.offsets:
            return
        start, shape = self.offsets[name]
        flat = np.zeros(int(np.prod(shape)), np.float32)
        given = np.asarray(values, np.float32).reshape(-1)
        flat[: given.size] = given[: flat.size]
        self.packed[start:start + flat.size] = flat

    def seen(self, step: int) -> list[np.ndarray]:
        """What the cameras show; a probe shows the last frame of one camera otherwise."""
        layout = Nv12(*self.camera)
        shown = frames(self.kind, layout, self.seed, step)
        if step == self.probed_step and self.probe in ("road", "wide"):
            wide = self.probe == "wide"
            shown[wide] = noise(layout, self.seed + OTHER_SEED, step, wide)
        return shown

    def warp(self, shown: list[np.ndarray], matrix: Any = WARP_MATRICES["identity"]) -> Any:
        sampled = self.loaded["image_history_pipeline"] == "warp"
        queues = {n: self.queues[n] for n in ("img_q", "big_img_q")} if sampled else {}
        call = make_warp_call(queues, [np.array(matrix, np.float32)] * 2, shown)
        return self.loaded[self.camera](**call.arguments), call

    def step(self, step: int, shown: list[np.ndarray]) -> list[np.ndarray]:
        warped, call = self.warp(shown)
        state = {n: self.queues[n] for n in self.loaded["policy_input_keys"] if n in self.queues}
        images = dict(zip(("img", "big_img"), warped)) if isinstance(warped, tuple) else {"warped": warped}
        outputs = self.loaded["run_policy"](**images, **state, packed_npy_inputs=self.packed_tensor)
        values = [o.numpy() for o in outputs]
        del call
        self.feed_back(values[0])
        return values

    def feed_back(self, first: np.ndarray) -> None:
        """A supercombo is given its last hidden state again."""
        if self.layout.supercombo:
            where = self.loaded["metadata"]["model"]["output_slices"]["hidden_state"]
            self.set_input("prev_feat", first[..., where])


def output_keys(loaded: dict[str, Any]) -> list[str]:
    return ["vision", *loaded["policy_order"]] if "policy_order" in loaded else ["model"]


def save(request: RunRequest, camera: Camera, name: str, values: np.ndarray) -> str:
    """Writes an array below the output directory and returns its relative path."""
    file = f"{camera_name(camera)}/{name}"
    path = Path(request.out_dir) / file
    path.parent.mkdir(parents=True, exist_ok=True)
    values.tofile(path)
    return file


def run_camera(loaded: dict[str, Any], camera: Camera, request: RunRequest) -> tuple[list[dict[str, Any]], list[float]]:
    session = Session(loaded, camera, request)
    steps, seconds = [], []
    for step in range(request.steps):
        shown = session.seen(step)
        started = time.perf_counter()
        steps.append(session.step(step, shown))
        seconds.append(round(time.perf_counter() - started, 6))
    outputs = []
    for i, key in enumerate(output_keys(loaded)):
        values = np.stack([s[i] for s in steps]).astype("<f4")
        file = save(request, camera, f"{key}.f32", values)
        outputs.append({"key": key, "camera": list(camera), "file": file, "shape": list(values.shape)})
    return outputs, seconds


def probe_camera(loaded: dict[str, Any], camera: Camera, request: RunRequest) -> list[dict[str, Any]]:
    """One step with one thing changed: no history, another road frame, another wide frame."""
    found = []
    for probe in ("history", "road", "wide"):
        session = Session(loaded, camera, request, probe)
        first = session.probed_step if probe == "history" else 0
        values: list[np.ndarray] = []
        for step in range(first, session.probed_step + 1):
            values = session.step(step, session.seen(step))
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
        parts = [part.numpy() for part in warped] if isinstance(warped, tuple) else list(warped.numpy())
        del call
        newest = np.concatenate([part.reshape(-1, *part.shape[-2:])[-6:] for part in parts]).astype(np.uint8)
        file = save(request, camera, f"warp.{name}.u8", newest)
        found.append({"camera": list(camera), "matrix": [float(v) for row in matrix for v in row], "salts": [1, 2],
                      "file": file, "shape": [2, 6, *newest.shape[1:]]})
    return found


def peak_bytes() -> int:
    """Largest resident size of this process so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def described(metadata: dict[str, Any]) -> dict[str, Any]:
    """An artifact's metadata in the form that requests have it."""
    return {key: {"model_checkpoint": m["model_checkpoint"],
                  "output_slices": [[n, s.start, s.stop, s.step] for n, s in m["output_slices"].items()],
                  "input_shapes": [[n, list(s)] for n, s in m["input_shapes"].items()],
                  "output_shapes": [[n, list(s)] for n, s in m["output_shapes"].items()]} for key, m in metadata.items()}


def run(request: RunRequest, events: Events) -> dict[str, Any]:
    with events.stage("load"):
        loaded = artifact.load(request.artifact, request.out_of_band)
    jits_of(loaded, request.cameras)
    outputs: list[dict[str, Any]] = []
    probes: list[dict[str, Any]] = []
    warps: list[dict[str, Any]] = []
    step_seconds: dict[str, list[float]] = {}
    for camera in request.cameras:
        with events.stage(f"run_{camera_name(camera)}"):
            more, step_seconds[camera_name(camera)] = run_camera(loaded, camera, request)
            outputs += more
        if request.probes:
            with events.stage(f"probe_{camera_name(camera)}"):
                probes += probe_camera(loaded, camera, request)
                warps += show_warps(loaded, camera, request)
    layout = layout_of(loaded)
    return {"outputs": outputs, "probes": probes, "warps": warps, "peak_bytes": peak_bytes(), "step_seconds": step_seconds, "load_seconds": events.seconds["load"],
            "model_type": loaded["model_type"], "policy_order": loaded.get("policy_order", []),
            "behavior_version": loaded.get("behavior_version"), "metadata": described(loaded["metadata"]),
            "parsed_inputs": {n: list(s) for n, (_, s) in layout.packed_offsets().items()}}


