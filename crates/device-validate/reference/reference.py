#!/usr/bin/env python3
"""Runs ONNX models with ONNX Runtime on recorded inputs: `reference.py REQUEST.json`, events on standard output.

The host's own Python runs this; the device never does. A request names, per model, the ONNX file, the inputs as raw arrays
with all steps concatenated, and where the outputs go (little-endian float32, steps concatenated).
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

# What a session calls the types of its inputs, in numpy's words.
TYPES = {"tensor(uint8)": "uint8", "tensor(float)": "float32", "tensor(float16)": "float16"}


class Refused(Exception):
    """The request cannot be done, with a kind that the caller can act on."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def emit(**event: Any) -> None:
    os.write(EVENTS, (json.dumps(event, separators=(",", ":")) + "\n").encode())


def inputs_of(model: dict[str, Any], session: Any) -> dict[str, Any]:
    """The recorded inputs by name, in the types that the model declares."""
    import numpy as np
    declared = {i.name: (TYPES.get(i.type), [d for d in i.shape]) for i in session.get_inputs()}
    given = {i["name"]: i for i in model["inputs"]}
    if set(declared) != set(given):
        raise Refused("shape_mismatch", f"{model['onnx']} takes {sorted(declared)}, recorded are {sorted(given)}")
    arrays = {}
    for name, (kind, shape) in declared.items():
        if kind is None:
            raise Refused("onnx_unsupported", f"{model['onnx']}: the input {name} is of a type that no driving model has")
        values = np.fromfile(given[name]["file"], given[name]["dtype"])
        arrays[name] = values.reshape(model["steps"], *given[name]["shape"]).astype(kind)
    return arrays


def run_model(ort: Any, model: dict[str, Any]) -> None:
    import numpy as np
    try:
        session = ort.InferenceSession(model["onnx"], providers=["CPUExecutionProvider"])
    except Exception as error:
        raise Refused("onnx_unsupported", f"ONNX Runtime cannot load {model['onnx']}: {error}") from error
    arrays = inputs_of(model, session)
    name = session.get_outputs()[0].name
    rows = []
    for step in range(model["steps"]):
        (values,) = session.run([name], {n: a[step] for n, a in arrays.items()})
        rows.append(np.asarray(values, "<f4").reshape(-1))
    np.stack(rows).tofile(model["output"])


def run(path: str) -> dict[str, Any]:
    request = json.loads(Path(path).read_text(encoding="utf-8"))
    try:
        import onnxruntime as ort
    except ImportError as error:
        raise Refused("reference_missing", f"{sys.executable} cannot import onnxruntime: {error}") from error
    ort.set_default_logger_severity(3)
    for model in request["models"]:
        stage = f"reference_{model['key']}"
        emit(event="stage", stage=stage, state="start")
        started = time.perf_counter()
        run_model(ort, model)
        emit(event="stage", stage=stage, state="end", seconds=round(time.perf_counter() - started, 4))
    return {"onnxruntime": ort.__version__, "python": sys.version.split()[0]}


def main(arguments: list[str]) -> int:
    try:
        result = run(arguments[0])
    except Refused as error:
        emit(event="failed", kind=error.kind, message=str(error), detail={})
        return 1
    except Exception as error:
        emit(event="failed", kind="internal", message=f"{type(error).__name__}: {error}", detail={})
        return 1
    emit(event="done", result=result)
    return 0


if __name__ == "__main__":
    # What a library prints must not be taken for an event.
    EVENTS = os.dup(1)
    os.dup2(2, 1)
    sys.exit(main(sys.argv[1:]))
