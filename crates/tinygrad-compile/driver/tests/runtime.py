"""Runs an artifact in a process that has only tinygrad and numpy."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from . import reference, support

STEPS = 6


def make_steps(packed: int) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(5)
    steps: dict[str, np.ndarray] = {"steps": np.array(STEPS)}
    for camera in support.CAMERAS:
        name = f"{camera[0]}x{camera[1]}"
        for step in range(STEPS):
            for which in ("frame", "big_frame"):
                steps[f"{name}.{step}.{which}"] = generator.integers(0, 256, reference.frame_geometry(*camera)[2], np.uint8)
            for which in ("tfm", "big_tfm"):
                steps[f"{name}.{step}.{which}"] = np.diag([2.5, 2.75, 1]).astype(np.float32)
            steps[f"{name}.{step}.packed"] = generator.standard_normal(packed).astype(np.float32)
    return steps


def run_in_fresh_process(artifact: str, steps: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    folder = Path(artifact).parent
    np.savez(folder / "steps.npz", **steps)
    script = Path(__file__).with_name("runtime_process.py")
    command = [sys.executable, "-I", str(script), artifact, str(folder / "steps.npz"), str(folder / "out.npz")]
    environment = {"DEV": "CPU", "PATH": os.environ["PATH"], "CACHEDB": str(support.WORK / "runtime.db")}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return dict(np.load(folder / "out.npz"))
