"""Operation `prove`: a fresh process loads the finished file and reproduces the values of the compiling process."""

from __future__ import annotations

from typing import Any

import artifact
from calls import Inputs
from cameras import camera_name
from events import DriverError, Events
from memory import peak_growth
from proof import check_depends_on_input, handed_over, outputs_of, prove_loaded
from queues import Layout
from request import Camera, ProveRequest


def layout_of(loaded: dict[str, Any]) -> Layout:
    return Layout.of(loaded["metadata"], loaded.get("policy_order"), loaded["frame_skip"])


def cameras_of(loaded: dict[str, Any]) -> list[Camera]:
    return [k for k in loaded if isinstance(k, tuple)]


def jits_of(loaded: dict[str, Any], cameras: tuple[Camera, ...]) -> dict[str, tuple[Any, Any]]:
    """Per jit: what is called, and how its seeded call is made."""
    inputs = Inputs(layout_of(loaded), loaded["image_history_pipeline"])
    missing = [camera_name(c) for c in cameras if c not in loaded]
    if missing or "run_policy" not in loaded:
        raise DriverError("artifact_unreadable", f"the artifact lacks {missing or 'run_policy'}")
    out: dict[str, tuple[Any, Any]] = {camera_name(c): (loaded[c], lambda seed, c=c: inputs.warp_call(c, seed)) for c in cameras}
    return out | {"run_policy": (loaded["run_policy"], inputs.policy_call)}


def run(request: ProveRequest, events: Events) -> dict[str, Any]:
    with events.stage("load") as detail:
        with peak_growth(detail):
            loaded = artifact.load(request.artifact, request.out_of_band)
        detail["keys"] = [str(k) for k in loaded]
    jits = jits_of(loaded, request.cameras)
    wanted = request.only or tuple(jits)
    expected = [e for e in handed_over(request.handover) if e[0] in wanted]
    if {(j, s) for j, s, _ in expected} != {(j, s) for j in wanted for s in request.seeds}:
        raise DriverError("bad_request", f"the values in {request.handover} are not those of {sorted(wanted)} and the seeds {request.seeds}")
    checks, seen = [], {}
    with events.stage("round_trip"):
        for jit, seed, values in expected:
            function, make_call = jits[jit]
            found = prove_loaded(function, make_call, jit, seed, values, request.tolerance)
            if jit in seen:
                check_depends_on_input(jit, seen[jit], found)
            seen[jit] = found
            outputs = len(outputs_of(found))
            checks.append({"jit": jit, "seed": seed, "outputs": outputs, "queues": len(found) - outputs})
    return {"checks": checks, "seconds": events.seconds}
