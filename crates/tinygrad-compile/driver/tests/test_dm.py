"""Driver monitoring: four files' worth of jits, against numpy and the ONNX reference, in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any

import numpy as np
from onnx.reference import ReferenceEvaluator

from . import reference, support

READER = '''
import pickle, sys
import numpy as np
from tinygrad import Tensor, dtypes
kind, jit, source, out = sys.argv[1:]
given = np.load(source)
with open(jit, "rb") as f: function = pickle.load(f)
results = {}
for step in range(3):
    if kind == "warp":
        frame, matrix = given[f"frame{step}"], given[f"matrix{step}"].copy()
        result = function(Tensor.from_blob(frame.ctypes.data, frame.shape, dtype=dtypes.uint8), Tensor(matrix, device="NPY").realize())
    else:
        image = Tensor(given[f"image{step}"]).contiguous().realize()
        result = function(input_img=image, calib=Tensor(given[f"calib{step}"].copy(), device="NPY").realize())
    results[str(step)] = result.numpy()
np.savez(out, **results)
'''


def dm_request(folder: Path, **changes: Any) -> dict[str, Any]:
    return {"protocol": 1, "op": "dm", "onnx": str(support.fixture("dmonitoring")), "metadata": support.metadata("dmonitoring"),
            "target": "cpu", "cameras": [list(c) for c in support.CAMERAS], "handover": str(folder / "handover"), "seeds": [42, 43],
            "outputs": {"model": str(folder / "model.pkl"), "warps": {f"{w}x{h}": str(folder / f"warp_{w}x{h}.pkl") for w, h in support.CAMERAS}}} | changes


def luminance(frame: np.ndarray, matrix: np.ndarray, camera: tuple[int, int]) -> np.ndarray:
    """The independent warp: pixels from outside the frame are 16."""
    width, height = camera
    stride, _, _ = reference.frame_geometry(width, height)
    rows, columns = np.mgrid[0:960, 0:1440]
    x, y, w = matrix.astype(np.float64) @ np.stack([columns.ravel(), rows.ravel(), np.ones(columns.size)])
    x, y = np.rint(x / w).astype(np.int64), np.rint(y / w).astype(np.int64)
    inside = (x >= 0) & (x < width) & (y >= 0) & (y < height)
    return np.where(inside, frame[np.where(inside, y * stride + x, 0)], 16).astype(np.uint8).reshape(1, -1)


class DriverMonitoring(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.folder = Path(tempfile.mkdtemp(dir=support.WORK))
        cls.last, _ = support.drive(dm_request(cls.folder))

    def read(self, kind: str, jit: Path, given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        source, out = self.folder / "given.npz", self.folder / "read.npz"
        np.savez(source, **given)
        environment = {"DEV": "CPU", "PATH": os.environ["PATH"], "CACHEDB": str(support.WORK / "runtime.db")}
        subprocess.run([sys.executable, "-I", "-c", READER, kind, str(jit), str(source), str(out)], check=True, env=environment)
        return dict(np.load(out))

    def test_every_jit_is_proven(self) -> None:
        self.assertEqual(self.last["event"], "done", self.last)
        self.assertEqual(len(self.last["result"]["checks"]), 6)

    def test_warps_with_border(self) -> None:
        matrices = [np.eye(3), np.diag([1.5, 1.25, 1.0]), np.array([[2.0, 0, -300.0], [0, 2.0, -100.0], [0, 0, 1.0]])]
        for camera in support.CAMERAS:
            given = {}
            for step, matrix in enumerate(matrices):
                given[f"matrix{step}"] = matrix.astype(np.float32)
                given[f"frame{step}"] = np.random.default_rng(step).integers(0, 256, reference.frame_geometry(*camera)[2], np.uint8)
            found = self.read("warp", self.folder / f"warp_{camera[0]}x{camera[1]}.pkl", given)
            for step, matrix in enumerate(matrices):
                expected = luminance(given[f"frame{step}"], given[f"matrix{step}"], camera)
                self.assertEqual((found[str(step)].dtype, found[str(step)].shape), (np.uint8, (1, 1_382_400)))
                np.testing.assert_array_equal(found[str(step)], expected)
            self.assertTrue((expected == 16).mean() > 0.05)

    def test_the_model_agrees_with_the_reference(self) -> None:
        generator = np.random.default_rng(1)
        given = {}
        for step in range(3):
            given[f"image{step}"] = generator.integers(0, 256, (1, 1_382_400), np.uint8)
            given[f"calib{step}"] = generator.standard_normal((1, 3)).astype(np.float32)
        found = self.read("model", self.folder / "model.pkl", given)
        model = ReferenceEvaluator(str(support.fixture("dmonitoring")))
        for step in range(3):
            expected = model.run(None, {"input_img": given[f"image{step}"], "calib": given[f"calib{step}"]})[0]
            np.testing.assert_allclose(found[str(step)], expected, rtol=2e-4, atol=2e-4)

    def test_files_are_small_and_reproducible(self) -> None:
        again = Path(tempfile.mkdtemp(dir=support.WORK))
        last, _ = support.drive(dm_request(again), {"CACHEDB": str(again / "cold.db")})
        self.assertEqual(last["event"], "done", last)
        for path in sorted(self.folder.glob("*.pkl")):
            self.assertTrue(path.read_bytes() == (again / path.name).read_bytes(), path.name)
        plain = self.plain_sizes()
        for name, path in (("model", self.folder / "model.pkl"), ("1928x1208", self.folder / "warp_1928x1208.pkl")):
            self.assertLess(path.stat().st_size, 0.1 * plain[name], name)

    def plain_sizes(self) -> dict[str, int]:
        """Sizes of the same jits, pickled as they are."""
        request = self.folder / "plain.json"
        request.write_text(json.dumps(dm_request(self.folder)))
        script = Path(__file__).with_name("plain_dm.py")
        environment = {"DEV": "CPU", "PATH": os.environ["PATH"], "CACHEDB": str(support.WORK / "plain.db")}
        done = subprocess.run([sys.executable, str(script), str(request)], check=True, env=environment, capture_output=True, text=True)
        return json.loads(done.stdout)

    def test_replay_of_files_of_any_origin(self) -> None:
        request = dm_request(self.folder) | {"op": "dm_replay"}
        del request["onnx"], request["handover"]
        last, _ = support.drive(request)
        self.assertEqual(last["event"], "done", last)
        self.assertEqual(len(last["result"]["checks"]), 6)

    def test_a_model_of_another_shape_is_refused(self) -> None:
        changed = support.metadata("dmonitoring")
        changed["input_shapes"][0][1] = [1, 100]
        last, _ = support.drive(dm_request(Path(tempfile.mkdtemp(dir=support.WORK)), metadata=changed))
        self.assertEqual(last["kind"], "shape_mismatch", last)
