"""One artifact on one camera, stepped as the runtime steps it, with its state."""

from __future__ import annotations

from typing import Any

import numpy as np

from calls import Inputs, make_warp_call, on_device
from frames import Nv12
from prove_op import layout_of
from queues import Layout
from request import Camera, RunRequest
from scenes import frames, noise

FIXED_INPUTS = {"traffic_convention": [1.0, 0.0], "action_t": [0.15, 0.25]}
# Added to the seed where a probe shows another frame.
OTHER_SEED = 7919
WARP_MATRICES = {"identity": [[1, 0, 0], [0, 1, 0], [0, 0, 1]], "scaled": [[2, 0, 16], [0, 2, 8], [0, 0, 1]]}
IMAGE_PLANES = 6
# Probe to the queues whose content it changes, and what they hold then. No run asks for a lane change: a desire queue is empty as it is.
PROBED_QUEUES = {"image_queue": (("img_q", "big_img_q"), 0), "feature_queue": (("feat_q",), 0), "desire_queue": (("desire_q",), 1)}


def newest_images(warped: Any) -> np.ndarray:
    """What a warp made of this step's frames, road then wide; pipeline `warp` returns a history, whose end is the newest."""
    parts = [part.numpy() for part in warped] if isinstance(warped, tuple) else list(warped.numpy())
    return np.stack([part.reshape(-1, *part.shape[-2:])[-IMAGE_PLANES:] for part in parts]).astype(np.uint8)


class Session:
    """The queues on the device, the packed vector of small inputs, and a supercombo's own hidden state."""

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
        self.warped: Any = None
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

    def change_queues(self) -> None:
        """Gives the probed queues another content than the steps before left in them."""
        names, value = PROBED_QUEUES.get(self.probe, ((), 0))
        empty = self.inputs.empty_queues()
        for name in names:
            self.queues[name] = (empty[name] + value).contiguous().realize() if value else empty[name]

    def warp(self, shown: list[np.ndarray], matrix: Any = WARP_MATRICES["identity"]) -> Any:
        sampled = self.loaded["image_history_pipeline"] == "warp"
        queues = {n: self.queues[n] for n in ("img_q", "big_img_q")} if sampled else {}
        call = make_warp_call(queues, [np.array(matrix, np.float32)] * 2, shown)
        return self.loaded[self.camera](**call.arguments), call

    def step(self, shown: list[np.ndarray]) -> list[np.ndarray]:
        self.warped, call = self.warp(shown)
        warped = self.warped
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
