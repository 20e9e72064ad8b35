"""Operation `compile`: ONNX files to one proven artifact."""

from __future__ import annotations

import os
import platform
import tempfile
from typing import Any

import abi
import artifact
from calls import Inputs
from cameras import camera_name, handle_capture, provide_warps, taken
from capture import capture, devices, number_buffers_from, programs
from events import Events
from isolate import Crew, Handler, Unit, open_device, parallel_jobs, run_all
from memory import peak_growth
from policies import OnnxModel, PolicyBody, check_policies, check_sources, make_run_policy
from proof import Proven, hand_over
from queues import Layout, derive_frame_skip
from request import CompileRequest


def plan_layout(request: CompileRequest) -> Layout:
    """State and inputs; refuses models whose shapes or slices do not fit together, before anything is loaded."""
    check_policies(request.models)
    metadata = {m.key: m.metadata.as_stored() for m in request.models}
    order = [m.key for m in request.models if m.key not in ("vision", "model")]
    policy = metadata[order[0] if order else "model"]
    layout = Layout.of(metadata, order or None, derive_frame_skip(request.frame_skip, policy["input_shapes"]))
    check_sources(request.models, layout)
    return layout


def policy_identity(request: CompileRequest) -> str:
    models = [(m.key, m.sha256, m.metadata.checkpoint, sorted(m.metadata.input_shapes.items())) for m in request.models]
    return f"policy {request.model_type} {request.pipeline} {request.frame_skip} {models}"


def capture_policy(request: CompileRequest, layout: Layout, events: Events) -> tuple[Any, Proven]:
    number_buffers_from(policy_identity(request))
    with events.stage("load_onnx") as detail:
        models = {m.key: OnnxModel(m) for m in request.models}
        detail["nodes"] = sum(len(m.runner.graph_nodes) for m in models.values())
    with events.stage("run_policy") as detail:
        body = make_run_policy(PolicyBody(models, layout), request.pipeline)
        inputs = Inputs(layout, request.pipeline)
        jit, proven = capture("run_policy", body, inputs.policy_call, request.seeds, request.tolerance)
        detail["kernels"] = len(programs(jit))
    return jit, proven


def handle_policy(raw: dict[str, Any], events: Events) -> dict[str, Any]:
    """The unit that captures the policies, puts the artifact together and hands over the values of its proof."""
    request = CompileRequest.parse(raw)
    layout = plan_layout(request)
    jit, proven = capture_policy(request, layout, events)
    warps = taken(request, layout, raw["warp_directory"])
    with events.stage("write") as detail:
        values = artifact.head(request, layout.frame_skip, jit)
        with peak_growth(detail):
            size = artifact.write(request.artifact, values, {c: e.pickled for c, e in warps.items()}, request.out_of_band)
        hand_over(request.handover, [*(e.proven for e in warps.values()), proven])
        detail["size"], detail["file"] = size, request.artifact
    facts = {camera_name(c): e.facts for c, e in warps.items()}
    facts["run_policy"] = {"devices": devices(jit), "kernels": len(programs(jit))}
    return {**versions(), "devices": {n: f["devices"] for n, f in facts.items()}, "kernels": {n: f["kernels"] for n, f in facts.items()},
            "seconds": events.seconds, "size": size, "frame_skip": layout.frame_skip, "abi": abi.of_compiler()}


def handle_warp(raw: dict[str, Any], events: Events) -> dict[str, Any]:
    request = CompileRequest.parse(raw)
    return handle_capture(raw, events, plan_layout(request), request)


def handle_proof(raw: dict[str, Any], events: Events) -> dict[str, Any]:
    import prove_op
    from request import ProveRequest
    return prove_op.run(ProveRequest.parse(raw), events)


HANDLERS: dict[str, Handler] = {"capture_warp": handle_warp, "capture_policy": handle_policy, "prove": handle_proof}


def proof_units(raw: dict[str, Any], request: CompileRequest, label: dict[str, Any]) -> list[Unit]:
    """The proof of a file, as two processes where they can run side by side; each loads the file."""
    names = [camera_name(c) for c in request.cameras]
    parts = [["run_policy"], names] if parallel_jobs(request.target) > 1 else [[*names, "run_policy"]]
    return [Unit("prove", {**raw, "only": part}, label) for part in parts]


def add_proofs(result: dict[str, Any], proofs: list[dict[str, Any]]) -> None:
    result["checks"] = [*result.get("checks", []), *(c for p in proofs for c in p["checks"])]
    for proof in proofs:
        for stage, seconds in proof["seconds"].items():
            result["seconds"][stage] = max(seconds, result["seconds"].get(stage, 0.0))


def versions() -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version
    try:
        tinygrad = version("tinygrad")
    except PackageNotFoundError:
        tinygrad = "unknown"
    return {"tinygrad": tinygrad, "python": platform.python_version()}


def run(raw: dict[str, Any], events: Events) -> dict[str, Any]:
    request = CompileRequest.parse(raw)
    layout = plan_layout(request)
    open_device(request.target)
    crew = Crew(events, HANDLERS, parallel_jobs(request.target))
    with tempfile.TemporaryDirectory(prefix="warps-", dir=os.getcwd()) as own:
        seconds = {**events.seconds, **provide_warps(request, raw, layout, own, request.cache_dir, crew)}
        (result,) = run_all(crew, [Unit("capture_policy", {**raw, "warp_directory": own}, {})])
    result["seconds"] = seconds | result["seconds"]
    if request.prove:
        add_proofs(result, run_all(crew, proof_units(raw, request, {})))
    return result
