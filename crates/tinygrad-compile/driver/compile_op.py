"""Operation `compile`: ONNX files to one proven artifact."""

from __future__ import annotations

import platform
from typing import Any

import artifact
from calls import Inputs, warp_device
from capture import capture, devices, number_buffers_from, programs
from events import Events
from frames import Nv12
from opcodes import Section, section
from policies import OnnxModel, PolicyBody, check_policies, check_sources, make_run_policy
from proof import Proven, hand_over
from queues import Layout, derive_frame_skip, push, sample_images
from request import Camera, CompileRequest
from warp import make_sampling_warp, make_warp


def plan_layout(request: CompileRequest) -> Layout:
    """State and inputs; refuses models whose shapes or slices do not fit together, before anything is loaded."""
    check_policies(request.models)
    metadata = {m.key: m.metadata.as_stored() for m in request.models}
    order = [m.key for m in request.models if m.key not in ("vision", "model")]
    policy = metadata[order[0] if order else "model"]
    layout = Layout.of(metadata, order or None, derive_frame_skip(request.frame_skip, policy["input_shapes"]))
    check_sources(request.models, layout)
    return layout


def warp_body(request: CompileRequest, layout: Layout, camera: Camera) -> Any:
    frame = Nv12(*camera)
    if request.pipeline == "policy":
        return make_warp(frame, warp_device())
    return make_sampling_warp(frame, warp_device(), layout.frame_skip, push, sample_images)


def camera_name(camera: Camera) -> str:
    return f"{camera[0]}x{camera[1]}"


def warp_identity(request: CompileRequest, layout: Layout, camera: Camera) -> str:
    """All that a camera's warp depends on."""
    history = (layout.image_queue, layout.frame_skip) if request.pipeline == "warp" else ()
    return f"warp {camera} {request.pipeline} {history} {warp_device()}"


def policy_identity(request: CompileRequest) -> str:
    models = [(m.key, m.sha256, m.metadata.checkpoint, sorted(m.metadata.input_shapes.items())) for m in request.models]
    return f"policy {request.model_type} {request.pipeline} {request.frame_skip} {models}"


class Compilation:
    """One artifact in the making: its parts, their proofs and their facts."""

    def __init__(self, request: CompileRequest, events: Events) -> None:
        self.request, self.events = request, events
        self.layout = plan_layout(request)
        self.inputs = Inputs(self.layout, request.pipeline)
        self.proofs: list[Proven] = []
        self.devices: dict[str, list[str]] = {}
        self.kernels: dict[str, int] = {}

    def note(self, name: str, jit: Any, proven: Proven, detail: dict[str, Any]) -> None:
        self.proofs.append(proven)
        self.devices[name], self.kernels[name] = devices(jit), len(programs(jit))
        detail["kernels"] = self.kernels[name]

    def warp(self, camera: Camera) -> Section:
        name = camera_name(camera)
        with self.events.stage(f"warp_{name}") as detail:
            number_buffers_from(warp_identity(self.request, self.layout, camera))
            jit, proven = capture(name, warp_body(self.request, self.layout, camera),
                                  lambda seed: self.inputs.warp_call(camera, seed), self.request.seeds, self.request.tolerance)
            self.note(name, jit, proven, detail)
            return section(jit, artifact.protocol_of(self.request.out_of_band))

    def policy(self) -> Any:
        number_buffers_from(policy_identity(self.request))
        with self.events.stage("load_onnx") as detail:
            models = {m.key: OnnxModel(m) for m in self.request.models}
            detail["nodes"] = sum(len(m.runner.graph_nodes) for m in models.values())
        with self.events.stage("run_policy") as detail:
            body = make_run_policy(PolicyBody(models, self.layout), self.request.pipeline)
            jit, proven = capture("run_policy", body, self.inputs.policy_call, self.request.seeds, self.request.tolerance)
            self.note("run_policy", jit, proven, detail)
        return jit

    def result(self, size: int) -> dict[str, Any]:
        return {**versions(), "devices": self.devices, "kernels": self.kernels, "seconds": self.events.seconds,
                "size": size, "frame_skip": self.layout.frame_skip}


def versions() -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version
    try:
        tinygrad = version("tinygrad")
    except PackageNotFoundError:
        tinygrad = "unknown"
    return {"tinygrad": tinygrad, "python": platform.python_version()}


def run(request: CompileRequest, events: Events) -> dict[str, Any]:
    compilation = Compilation(request, events)
    warps = {camera: compilation.warp(camera) for camera in request.cameras}
    run_policy = compilation.policy()
    with events.stage("write") as detail:
        values = artifact.head(request, compilation.layout.frame_skip, run_policy)
        size = artifact.write(request.artifact, values, warps, request.out_of_band)
        hand_over(request.handover, compilation.proofs)
        detail["size"] = size
    return compilation.result(size)
