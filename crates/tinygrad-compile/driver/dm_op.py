"""Operation `dm`: the driver monitoring model and its camera warps, one jit a file, each proven in a fresh process."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

from tinygrad import Tensor

import abi
import artifact
from calls import Call, dm_model_call, dm_warp_call, policy_device, results, warp_device
from cameras import camera_name
from canonical import canonical
from capture import capture, devices, number_buffers_from, programs
from compile_op import versions
from events import DriverError, Events
from frames import Nv12
from isolate import Crew, Handler, Unit, open_device, parallel_jobs, run_all
from policies import OnnxModel, check_width, output_width
from proof import Proven, check_depends_on_input, check_finite, difference, hand_over, handed_over, prove_loaded
from request import Camera, DmRequest
from warp import DM_HEIGHT, DM_WIDTH, make_dm_warp

MODEL = "model"


def check_source(request: DmRequest) -> None:
    shapes = request.model.metadata.input_shapes
    images = [s for n, s in shapes.items() if "img" in n]
    if images != [(1, DM_WIDTH * DM_HEIGHT)]:
        raise DriverError("shape_mismatch", f"{request.model.onnx}: driver monitoring needs one image of (1, {DM_WIDTH * DM_HEIGHT}), found {shapes}")
    check_width(request.model.metadata, output_width(request.model), request.model.onnx)


def camera_of(name: str) -> Camera:
    width, height = name.split("x")
    return int(width), int(height)


def call_for(request: DmRequest, jit: str, seed: int) -> Call:
    return dm_model_call(request.model.metadata.input_shapes, seed) if jit == MODEL else dm_warp_call(camera_of(jit), seed)


def model_body(request: DmRequest) -> Any:
    model = OnnxModel(request.model)

    def run_model(**inputs: Tensor) -> Tensor:
        return model({n: t.to(policy_device()) for n, t in inputs.items()}).contiguous().realize()

    return run_model


def output_path(request: DmRequest, jit: str) -> str:
    return request.model_out if jit == MODEL else request.warps_out[camera_of(jit)]


def handover_of(request: DmRequest, jit: str) -> str:
    return str(Path(request.handover) / jit)


def handle_capture(raw: dict[str, Any], events: Events) -> dict[str, Any]:
    """The unit that makes one file."""
    request, jit = DmRequest.parse(raw), raw["jit"]
    with events.stage(f"dm_{jit}") as detail:
        source = (request.model.sha256, request.model.metadata.checkpoint) if jit == MODEL else warp_device()
        number_buffers_from(f"dm {jit} {source}")
        body = model_body(request) if jit == MODEL else make_dm_warp(Nv12(*camera_of(jit)), warp_device())
        function, proven = capture(jit, body, lambda seed: call_for(request, jit, seed), request.seeds, request.tolerance)
        size = artifact.write_jit(output_path(request, jit), canonical(function))
        hand_over(handover_of(request, jit), [proven])
        detail.update(kernels=len(programs(function)), size=size)
    return {"devices": devices(function), "kernels": len(programs(function)), "size": size, "seconds": events.seconds}


def handle_proof(raw: dict[str, Any], events: Events) -> dict[str, Any]:
    """The unit that loads one file and reproduces the values of its capture."""
    request, jit = DmRequest.parse(raw), raw["jit"]
    with events.stage(f"prove_{jit}"):
        function = artifact.load_pickle(output_path(request, jit))
        seen = [prove_loaded(function, lambda s: call_for(request, jit, s), jit, seed, values, request.tolerance)
                for _, seed, values in handed_over(handover_of(request, jit))]
        check_depends_on_input(jit, seen[0], seen[1])
    return {"checks": [{"jit": jit, "seed": s, "outputs": 1, "queues": 0} for s in request.seeds], "seconds": events.seconds}


def handle_replay(raw: dict[str, Any], events: Events) -> dict[str, Any]:
    """The unit that loads a file of whatever origin, calls it with both seeds and hands the values over."""
    request, jit = DmRequest.parse(raw), raw["jit"]
    with events.stage(f"replay_{jit}"):
        function = artifact.load_pickle(output_path(request, jit))
        values = {}
        for seed in request.seeds:
            call = call_for(request, jit, seed)
            values[seed] = results(call.make(function), call)
            check_finite(jit, values[seed])
        hand_over(raw["values"], [Proven(jit, values)])
    return {"seconds": events.seconds}


HANDLERS: dict[str, Handler] = {"dm_capture": handle_capture, "dm_prove": handle_proof, "dm_replay_one": handle_replay}


def jits_of(request: DmRequest) -> list[str]:
    return [MODEL, *(camera_name(c) for c in request.cameras)]


def run_replay(raw: dict[str, Any], events: Events) -> dict[str, Any]:
    """Operation `dm_replay`: files that another compiler made. Two fresh processes must agree on every seed."""
    request = DmRequest.parse(raw)
    open_device(request.target)
    crew = Crew(events, HANDLERS, parallel_jobs(request.target))
    checks = []
    with tempfile.TemporaryDirectory(prefix="replay-", dir=os.getcwd()) as own:
        places = {(jit, turn): str(Path(own) / f"{jit}.{turn}") for jit in jits_of(request) for turn in range(2)}
        run_all(crew, [Unit("dm_replay_one", {**raw, "jit": jit, "values": place}, {}) for (jit, _), place in places.items()])
        for jit in jits_of(request):
            first, second = ({seed: v for _, seed, v in handed_over(places[jit, turn])} for turn in range(2))
            for seed in request.seeds:
                if (gap := difference(first[seed], second[seed], request.tolerance)) is not None:
                    raise DriverError("replay_mismatch", f"{jit}: two processes that loaded it differ on seed {seed}: {gap}", jit=jit)
                checks.append({"jit": jit, "seed": seed, "outputs": 1, "queues": 0})
            check_depends_on_input(jit, first[request.seeds[0]], first[request.seeds[1]])
    return {"checks": checks}


def run(raw: dict[str, Any], events: Events) -> dict[str, Any]:
    request = DmRequest.parse(raw)
    check_source(request)
    open_device(request.target)
    crew = Crew(events, HANDLERS, parallel_jobs(request.target))
    jits = jits_of(request)
    made = dict(zip(jits, run_all(crew, [Unit("dm_capture", {**raw, "jit": j}, {}) for j in jits])))
    proofs = run_all(crew, [Unit("dm_prove", {**raw, "jit": j}, {}) for j in jits])
    seconds = dict(events.seconds)
    for part in [*made.values(), *proofs]:
        seconds |= part.pop("seconds")
    checks = [c for p in proofs for c in p["checks"]]
    return {**versions(), "jits": made, "checks": checks, "seconds": seconds, "abi": abi.of_compiler()}
