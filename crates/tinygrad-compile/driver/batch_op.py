"""Operation `batch`: many models from one warm process, which itself loads none of them.

Each model is captured in a fork of its own and proven in another, so one failure is one model's, and the bytes are
those of a single run. On the CPU the proof of one model overlaps the capture of the next.
"""

from __future__ import annotations

import os
import tempfile
from typing import Any

import numpy as np

from cameras import missing_warps
from compile_op import HANDLERS, add_proofs, plan_layout, proof_units
from events import DriverError, Events, as_driver_error
from isolate import Crew, Finished, Unit, forking, open_device, parallel_jobs
from request import CompileRequest, bad, take


def warm_up(target: str) -> None:
    """Lets the forks inherit what tinygrad makes on first use: compiled rewrite patterns, and an open CPU backend."""
    open_device(target)
    if not forking() or target != "cpu":
        return
    from tinygrad import Context, Tensor, TinyJit, dtypes
    from tinygrad.nn import onnx  # noqa: F401 - imported for the forks
    from queues import push

    @TinyJit
    def step(queue: Tensor, packed: Tensor, pixels: Tensor) -> Tensor:
        push(queue, packed.to(queue.device)[:4].reshape(1, 4))
        image = pixels.cast(dtypes.float32).reshape(1, 1, 8, 8).conv2d(Tensor.ones(2, 1, 4, 4).contiguous(), stride=4).relu()
        out = queue[::2].reshape(2, 2, 4).max(1).reshape(1, 8).cat(image.reshape(1, 8), dim=1)
        out = out.tanh().matmul(Tensor.ones(16, 3).contiguous()).contiguous()
        Tensor.realize(queue, out)
        return out

    with Context(LRU=0):  # No freed buffer is kept that the forks would share.
        for _ in range(3):
            queue = Tensor(np.zeros((8, 4), np.float32)).contiguous().realize()
            pixels = Tensor(np.zeros(64, np.uint8)).contiguous().realize()
            step(queue, Tensor(np.zeros(6, np.float32), device="NPY").realize(), pixels).numpy()


class Batch:
    """The models of one batch and what became of each."""

    def __init__(self, raw: dict[str, Any], events: Events, directory: str, cache: str | None) -> None:
        self.events, self.directory, self.cache = events, directory, cache
        self.requests: list[dict[str, Any]] = [{**raw_model(r), "warp_directory": directory} for r in take(raw, "requests", list)]
        self.outcomes: dict[int, dict[str, Any]] = {}
        self.results: dict[int, dict[str, Any]] = {}
        self.unproven: dict[int, int] = {}

    def settle(self, index: int, error: DriverError | None) -> None:
        """Reports one model. It may already have failed, by a camera warp that several models wait for."""
        if index in self.outcomes:
            return
        label = self.requests[index].get("label", index)
        if error is None:
            outcome: dict[str, Any] = {"model": label, "status": "done", "result": self.results[index]}
        else:
            outcome = {"model": label, "status": "failed", "error": {"kind": error.kind, "message": error.message, "detail": error.detail}}
        self.outcomes[index] = outcome
        self.events.emit(event="model", **outcome)

    def plan(self) -> tuple[list[Unit], list[int]]:
        """Units for the camera warps that are missing, and the models that can be built."""
        units: dict[str, Unit] = {}
        ready = []
        for index, raw in enumerate(self.requests):
            try:
                request = CompileRequest.parse(raw)
                for path, unit in missing_warps(request, raw, plan_layout(request), self.directory, self.cache):
                    units.setdefault(str(path), unit)
                    unit.request.setdefault("waiting", []).append(index)
                ready.append(index)
            except Exception as error:
                self.settle(index, as_driver_error(error))
        return list(units.values()), ready

    def unit(self, op: str, index: int) -> Unit:
        raw = self.requests[index]
        return Unit(op, raw, {"model": raw.get("label", index), "index": index})

    def advance(self, outcome: Finished, crew: Crew) -> None:
        """Takes one finished capture or proof, and queues the proof before everything else."""
        index = outcome.unit.label["index"]
        if outcome.error is not None:
            self.settle(index, outcome.error)
        elif outcome.unit.op == "capture_policy":
            self.results[index] = outcome.result
            request = CompileRequest.parse(self.requests[index])
            proofs = proof_units(self.requests[index], request, outcome.unit.label) if request.prove else []
            self.unproven[index] = len(proofs)
            crew.waiting[:0] = proofs
        else:
            add_proofs(self.results[index], [outcome.result])
            self.unproven[index] -= 1
        if self.unproven.get(index) == 0:
            self.settle(index, None)


def raw_model(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise bad("a request of the batch is not an object")
    return value


def run(raw: dict[str, Any], events: Events) -> dict[str, Any]:
    targets = {r.get("target") for r in map(raw_model, take(raw, "requests", list))}
    if len(targets) != 1:
        raise bad(f"a batch has one target, this one has {sorted(map(str, targets))}")
    (target,) = targets
    with events.stage("warm_up"):
        warm_up(target)
    crew = Crew(events, HANDLERS, parallel_jobs(target))
    with tempfile.TemporaryDirectory(prefix="warps-", dir=os.getcwd()) as own:
        batch = Batch(raw, events, own, take(raw, "cache_dir", str, None))
        units, ready = batch.plan()
        for unit in units:
            crew.add(unit)
        for outcome in crew.finished():
            if outcome.error is not None:
                for index in outcome.unit.request["waiting"]:
                    batch.settle(index, outcome.error)
        for index in ready:
            if index not in batch.outcomes:
                crew.add(batch.unit("capture_policy", index))
        for outcome in crew.finished():
            batch.advance(outcome, crew)
    return {"models": [batch.outcomes[i] for i in range(len(batch.requests))]}
