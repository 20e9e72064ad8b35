"""The proof that a jit computes what its function computes, in this process and again in a fresh one.

A round trip inside the compiling process proves nothing: tinygrad shares buffers by a per-process counter, so a loaded
copy would compute with the weights that are still in memory. The compiling process therefore hands over the values it
saw, and another process loads the finished file and must reproduce them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from calls import Call, results
from events import DriverError

Values = dict[str, np.ndarray]


def outputs_of(values: Values) -> Values:
    return {n: v for n, v in values.items() if n.startswith("output.")}


def difference(expected: Values, found: Values, tolerance: float) -> str | None:
    """The first value that differs, in words; None where all agree. A tolerance applies to floats only."""
    if list(expected) != list(found):
        return f"the results are {list(found)} instead of {list(expected)}"
    for name, value in expected.items():
        other = found[name]
        if value.shape != other.shape or value.dtype != other.dtype:
            return f"{name} is {other.dtype}{other.shape} instead of {value.dtype}{value.shape}"
        if value.tobytes() == other.tobytes():
            continue
        gap = np.abs(value.astype(np.float64) - other.astype(np.float64))
        if value.dtype.kind != "f" or not gap.max() <= tolerance:
            return f"{np.count_nonzero(gap != 0)} of {value.size} values of {name} differ, by up to {gap.max():g}"
    return None


def check_finite(jit: str, values: Values) -> None:
    for name, value in outputs_of(values).items():
        if value.dtype.kind == "f" and not np.isfinite(value).all():
            bad = int(np.count_nonzero(~np.isfinite(value)))
            raise DriverError("non_finite", f"{jit}: {bad} of {value.size} values of {name} are not finite", jit=jit, output=name)


def check_depends_on_input(jit: str, first: Values, second: Values) -> None:
    for name, value in outputs_of(first).items():
        if value.tobytes() == second[name].tobytes():
            raise DriverError("input_ignored", f"{jit}: {name} is the same for two different inputs", jit=jit, output=name)


@dataclass(frozen=True)
class Proven:
    """The values that a jit gave for both seeds."""

    jit: str
    values: dict[int, Values]


def prove_captured(jit: str, function: Any, make_call: Callable[[int], Call], seeds: tuple[int, int], tolerance: float) -> Proven:
    """Runs a fresh TinyJit eagerly, captured and replayed on equal inputs, then replayed on others."""
    runs: list[Values] = []
    for name in ("eager", "captured", "replayed"):
        call = make_call(seeds[0])
        runs.append(results(call.make(function), call))
        if name == "eager":
            check_finite(jit, runs[0])
        elif (gap := difference(runs[0], runs[-1], tolerance)) is not None:
            raise DriverError("replay_mismatch", f"{jit}: the {name} run is not the eager one: {gap}", jit=jit)
    others: list[Values] = []
    for _ in range(2):
        call = make_call(seeds[1])
        others.append(results(call.make(function), call))
    if (gap := difference(others[0], others[1], tolerance)) is not None:
        raise DriverError("replay_mismatch", f"{jit}: two replays on seed {seeds[1]} differ: {gap}", jit=jit)
    check_depends_on_input(jit, runs[0], others[0])
    return Proven(jit, {seeds[0]: runs[0], seeds[1]: others[0]})


def hand_over(directory: str, proofs: list[Proven]) -> None:
    """Leaves the values for the process that proves the file."""
    root = Path(directory)
    root.mkdir(parents=True, exist_ok=True)
    index = []
    for i, proof in enumerate(proofs):
        for seed, values in proof.values.items():
            files = {}
            for j, (name, value) in enumerate(values.items()):
                files[name] = f"{i}.{seed}.{j}.npy"
                np.save(root / files[name], value, allow_pickle=False)
            index.append({"jit": proof.jit, "seed": seed, "values": files})
    (root / "index.json").write_text(json.dumps(index, indent=1))


def handed_over(directory: str) -> list[tuple[str, int, Values]]:
    root = Path(directory)
    try:
        index = json.loads((root / "index.json").read_text())
        return [(e["jit"], e["seed"], {n: np.load(root / f, allow_pickle=False) for n, f in e["values"].items()}) for e in index]
    except (OSError, ValueError, KeyError) as error:
        raise DriverError("bad_request", f"the values handed over in {directory} cannot be read: {error}") from error


def prove_loaded(function: Any, make_call: Callable[[int], Call], jit: str, seed: int, expected: Values, tolerance: float) -> Values:
    """Replays a loaded jit and compares with what the compiling process saw."""
    call = make_call(seed)
    found = results(call.make(function), call)
    if (gap := difference(expected, found, tolerance)) is not None:
        raise DriverError("round_trip_mismatch", f"{jit}, seed {seed}: the loaded file does not compute what was captured: {gap}", jit=jit, seed=seed)
    return found
