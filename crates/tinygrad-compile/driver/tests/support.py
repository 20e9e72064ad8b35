"""What the tests share: fixture models, requests, and the driver run as a process."""

from __future__ import annotations

import atexit
import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

DRIVER = Path(__file__).resolve().parents[1]
REPOSITORY = DRIVER.parents[2]
sys.path[:0] = [str(DRIVER), str(REPOSITORY / "fixtures")]
os.environ.setdefault("DEV", "CPU")
os.environ.setdefault("TRACEMETA", "0")
os.environ.setdefault("PARALLEL", "0")

import output_layouts  # noqa: E402
from make_onnx import KINDS, make_onnx  # noqa: E402

CAMERAS = ((1928, 1208), (1344, 760))
MODELS = {"vision_policy": (("vision", "vision"), ("policy", "policy")),
          "vision_multi_policy": (("vision", "vision"), ("on_policy", "on_policy"), ("off_policy", "off_policy")),
          "supercombo": (("model", "supercombo"),)}
WORK = Path(tempfile.mkdtemp(prefix="driver-tests-"))
atexit.register(shutil.rmtree, WORK, ignore_errors=True)


@functools.cache
def fixture(kind: str, seed: int = 0, fault: str | None = None) -> Path:
    return make_onnx(kind, WORK / "onnx" / f"{kind}-{seed}-{fault}.onnx", seed, fault=fault)


def metadata(kind: str, fault: str | None = None) -> dict[str, Any]:
    """What the host would read from the fixture."""
    from make_onnx import model_inputs
    model = KINDS[kind]
    width = sum(p.width for p in model.parts) + model.pad
    slices = output_layouts.slices(model.parts, model.pad, model.whole_pad)
    return {"model_checkpoint": f"fixture-{kind}/0",
            "output_slices": [[n, s.start, s.stop, s.step] for n, s in slices.items()],
            "input_shapes": [[n, list(s)] for n, _, s in model_inputs(model, fault)],
            "output_shapes": [["outputs", [1, width]]]}


def compile_request(folder: Path, model_type: str, pipeline: str = "policy", models: list[dict[str, Any]] | None = None, **changes: Any) -> dict[str, Any]:
    if models is None:
        models = [{"key": k, "onnx": str(fixture(kind)), "metadata": metadata(kind)} for k, kind in MODELS[model_type]]
    request = {"protocol": 1, "op": "compile", "model_type": model_type, "image_history_pipeline": pipeline, "frame_skip": 4,
               "behavior_version": "v15", "target": "cpu", "cameras": [list(c) for c in CAMERAS], "models": models,
               "artifact": str(folder / "model.pkl"), "handover": str(folder / "handover"), "out_of_band": False,
               "seeds": [42, 43], "tolerance": 0.0, "cache_dir": str(WORK / "warps")}
    return request | changes


def derived_request(compile_request: dict[str, Any], op: str, **changes: Any) -> dict[str, Any]:
    keys = ("protocol", "artifact", "handover", "out_of_band", "seeds", "tolerance", "cameras")
    return {k: compile_request[k] for k in keys} | {"op": op} | changes


def drive(request: dict[str, Any], environment: dict[str, str] | None = None, largest_file: int | None = None) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Runs the driver on a request; gives its last event and all of them, and checks the shape of the stream."""
    folder = Path(tempfile.mkdtemp(dir=WORK))
    path = folder / "request.json"
    path.write_text(json.dumps(request))
    settings = {"PATH": os.environ["PATH"], "DEV": "CPU", "CACHEDB": str(WORK / "kernels.db"), **(environment or {})}
    command = [sys.executable, str(DRIVER / "driver.py"), str(path)]
    if largest_file is not None:
        command = ["bash", "-c", f"ulimit -f {largest_file // 1024}; exec \"$@\"", "limited", *command]
    done = subprocess.run(command, cwd=folder, env=settings, capture_output=True, text=True)
    events = [json.loads(line) for line in done.stdout.splitlines()]
    last = events[-1]
    assert {e["event"] for e in events[:-1]} <= {"stage", "model"}, done.stderr
    assert (done.returncode, last["event"]) in ((0, "done"), (1, "failed")), done.stderr
    return last, events


@functools.cache
def compiled(model_type: str, pipeline: str) -> dict[str, Any]:
    """A request whose artifact has been compiled; made once for all tests."""
    folder = WORK / f"{model_type}-{pipeline}"
    folder.mkdir()
    request = compile_request(folder, model_type, pipeline)
    last, _ = drive(request)
    assert last["event"] == "done", last
    return request
