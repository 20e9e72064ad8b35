"""Operation `run`: drives an artifact over synthetic frames as the runtime would, and leaves raw outputs.

Frames are random bytes, transforms are identities, and every small input is zero but the traffic convention and the
action times. State is carried from step to step: queues on the device, and a supercombo's own hidden state.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

import artifact
from calls import Inputs, make_warp_call, on_device
from cameras import camera_name
from events import Events
from frames import Nv12, random_bytes
from prove_op import jits_of, layout_of
from queues import Layout
from request import Camera, RunRequest

FIXED_INPUTS = {"traffic_convention": [1.0, 0.0], "action_t": [0.15, 0.25]}


class Session:
    """One artifact on one camera, with its state."""

    def __init__(self, loaded: dict[str, Any], camera: Camera, seed: int) -> None:
        self.loaded, self.camera, self.seed = loaded, camera, seed
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

    def warp(self, step: int) -> Any:
        size = Nv12(*self.camera).size
        frames = [random_bytes(self.seed, 1000 + 2 * step + i, size) for i in range(2)]
        sampled = self.loaded["image_history_pipeline"] == "warp"
        queues = {n: self.queues[n] for n in ("img_q", "big_img_q")} if sampled else {}
        call = make_warp_call(queues, [np.eye(3, dtype=np.float32)] * 2, frames)
        return self.loaded[self.camera](**call.arguments), call

    def step(self, step: int) -> list[np.ndarray]:
        warped, call = self.warp(step)
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


def run_camera(loaded: dict[str, Any], camera: Camera, request: RunRequest) -> tuple[list[dict[str, Any]], list[float]]:
    session = Session(loaded, camera, request.seed)
    keys = output_keys(loaded)
    folder = Path(request.out_dir) / camera_name(camera)
    folder.mkdir(parents=True, exist_ok=True)
    steps, seconds = [], []
    for step in range(request.steps):
        started = time.perf_counter()
        steps.append(session.step(step))
        seconds.append(round(time.perf_counter() - started, 5))
    outputs = []
    for i, key in enumerate(keys):
        values = np.stack([s[i] for s in steps]).astype("<f4")
        values.tofile(folder / f"{key}.f32")
        outputs.append({"key": key, "camera": list(camera), "file": f"{camera_name(camera)}/{key}.f32", "shape": list(values.shape)})
    return outputs, seconds


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
    step_seconds: dict[str, list[float]] = {}
    for camera in request.cameras:
        with events.stage(f"run_{camera_name(camera)}"):
            more, step_seconds[camera_name(camera)] = run_camera(loaded, camera, request)
            outputs += more
    layout = layout_of(loaded)
    return {"outputs": outputs, "step_seconds": step_seconds, "load_seconds": events.seconds["load"],
            "model_type": loaded["model_type"], "policy_order": loaded.get("policy_order", []),
            "behavior_version": loaded.get("behavior_version"), "metadata": described(loaded["metadata"]),
            "parsed_inputs": {n: list(s) for n, (_, s) in layout.packed_offsets().items()}}


