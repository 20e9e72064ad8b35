"""Calls of an artifact's jits, built as the runtime builds them, from nothing but the artifact's own metadata.

The compiling process, the proof in a fresh process and the synthetic run all use this, so what is proven is the
call that will be made. Seeded calls are reproducible: the same seed gives the same inputs in every process.
"""

from __future__ import annotations

import os

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tinygrad import Device, Tensor

from frames import MODEL_HEIGHT, MODEL_WIDTH, HostFrame, Nv12, random_bytes
from queues import Layout
from request import Camera

IMAGE_QUEUES = ("img_q", "big_img_q")
POLICY_QUEUES = ("feat_q", "desire_q")


def policy_device() -> str:
    return Device.DEFAULT


def warp_device() -> str:
    """The device that holds camera frames: another than the policies' where an external GPU runs those."""
    return Device.canonicalize(os.environ.get("WARP_DEV") or Device.DEFAULT)


def on_device(values: np.ndarray, device: str) -> Tensor:
    """A tensor of its own memory on a device; the NPY device borrows the array, so that writes to it are seen."""
    if device == "NPY":
        return Tensor(values, device="NPY").realize()
    return Tensor(values, device=device).contiguous().realize()


@dataclass
class Call:
    """Keyword arguments of one call, the queues among them, and the host memory that the tensors borrow."""

    arguments: dict[str, Tensor]
    queues: tuple[str, ...]
    memory: list[Any] = field(default_factory=list)
    positional: bool = False

    def make(self, function: Any) -> Any:
        return function(*self.arguments.values()) if self.positional else function(**self.arguments)

    def state(self) -> dict[str, np.ndarray]:
        return {name: self.arguments[name].numpy() for name in self.queues}


def dm_warp_call(camera: Camera, seed: int) -> Call:
    """Driver monitoring's warp is called by position, with one frame and one matrix; most of the border is used."""
    frame = HostFrame.of(random_bytes(seed, 50, Nv12(*camera).size), warp_device())
    matrix = random_matrix(camera, seed, 51)
    matrix[:2, :2] *= 0.5
    return Call({"frame": frame.tensor, "transform": on_device(matrix, "NPY")}, (), [frame, matrix], positional=True)


def dm_model_call(shapes: Mapping[str, tuple[int, ...]], seed: int) -> Call:
    """The image input lives on the device, small inputs are written by the host."""
    arguments, memory = {}, []
    for i, (name, shape) in enumerate(shapes.items()):
        image = "img" in name
        values = random_values(shape, "uint8" if image else "float32", seed, 60 + i)
        arguments[name] = on_device(values, policy_device() if image else "NPY")
        memory.append(values)
    return Call(arguments, (), memory)


class Inputs:
    """Seeded inputs of every jit of one artifact."""

    def __init__(self, layout: Layout, pipeline: str) -> None:
        self.layout, self.pipeline = layout, pipeline

    def queue_shapes(self) -> dict[str, tuple[tuple[int, ...], str, str]]:
        """Shape, numpy type and device of every queue. Images are queued where they are consumed by the pipeline."""
        image_home = policy_device() if self.pipeline == "policy" else warp_device()
        out = {name: (self.layout.image_queue, "uint8", image_home) for name in IMAGE_QUEUES}
        out["feat_q"] = (self.layout.feature_queue, "float32", policy_device())
        out["desire_q"] = (self.layout.desire_queue, "float32", policy_device())
        return out

    def empty_queues(self) -> dict[str, Tensor]:
        return {n: on_device(np.zeros(s, t), d) for n, (s, t, d) in self.queue_shapes().items()}

    def random_queues(self, names: tuple[str, ...], seed: int) -> dict[str, Tensor]:
        shapes = self.queue_shapes()
        return {n: on_device(random_values(shapes[n][0], shapes[n][1], seed, i), shapes[n][2]) for i, n in enumerate(names)}

    def policy_call(self, seed: int) -> Call:
        names = IMAGE_QUEUES + POLICY_QUEUES if self.pipeline == "policy" else POLICY_QUEUES
        arguments: dict[str, Tensor] = {}
        if self.pipeline == "policy":
            arguments["warped"] = on_device(random_values((2, *self.layout.image_queue[1:]), "uint8", seed, 10), warp_device())
        else:
            for i, name in enumerate(("img", "big_img")):
                arguments[name] = on_device(random_values(self.layout.image, "uint8", seed, 10 + i), warp_device())
        arguments |= self.random_queues(names, seed)
        packed = random_values((self.layout.packed_size,), "float32", seed, 20)
        arguments["packed_npy_inputs"] = on_device(packed, "NPY")
        return Call(arguments, names, [packed])

    def warp_call(self, camera: Camera, seed: int) -> Call:
        size = Nv12(*camera).size
        frames = [random_bytes(seed, 30 + i, size) for i in range(2)]
        matrices = [random_matrix(camera, seed, 40 + i) for i in range(2)]
        names = IMAGE_QUEUES if self.pipeline == "warp" else ()
        return make_warp_call(self.random_queues(names, seed), matrices, frames)


def make_warp_call(queues: dict[str, Tensor], matrices: list[np.ndarray], frames: list[np.ndarray]) -> Call:
    hosts = [HostFrame.of(f, warp_device()) for f in frames]
    arguments = dict(queues)
    arguments |= {n: on_device(m, "NPY") for n, m in zip(("tfm", "big_tfm"), matrices)}
    arguments |= {n: h.tensor for n, h in zip(("frame", "big_frame"), hosts)}
    return Call(arguments, tuple(queues), [hosts, matrices])


def random_values(shape: tuple[int, ...], kind: str, seed: int, stream: int) -> np.ndarray:
    if kind == "uint8":
        return random_bytes(seed, stream, int(np.prod(shape))).reshape(shape)
    generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, stream])))
    return generator.standard_normal(shape, dtype=np.float32)


def random_matrix(camera: Camera, seed: int, stream: int) -> np.ndarray:
    """The scaling from model to camera pixels, disturbed by normal noise: most samples fall inside the frame."""
    base = np.diag([camera[0] / MODEL_WIDTH, camera[1] / MODEL_HEIGHT, 1.0])
    scale = np.array([[0.1, 0.1, 20.0], [0.1, 0.1, 20.0], [1e-4, 1e-4, 0.05]])
    return (base + scale * random_values((3, 3), "float32", seed, stream)).astype(np.float32)


def results(returned: Any, call: Call) -> dict[str, np.ndarray]:
    """Outputs, then the queues as the call left them, by name."""
    outputs = returned if isinstance(returned, tuple) else (returned,)
    out = {f"output.{i}": o.numpy() for i, o in enumerate(outputs)}
    return out | call.state()


