"""The warp against an independent numpy implementation."""

from __future__ import annotations

import unittest

import numpy as np

from . import reference, support
from frames import HostFrame, Nv12, random_bytes
from warp import make_warp

MATRICES = {
    "identity": np.eye(3), "scale": np.diag([3.75, 4.71875, 1.0]), "halves": np.array([[0.5, 0, 0.25], [0, 0.5, 0.25], [0, 0, 1]]),
    "outside": np.array([[1, 0, -4000.0], [0, 1, 90000.0], [0, 0, 1]]),
    "perspective": np.array([[3.1, 0.2, 40.0], [-0.1, 4.2, 12.0], [1e-4, 2e-4, 1.1]]),
}


class Warp(unittest.TestCase):
    def warp(self, camera: tuple[int, int], matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        from tinygrad import Device, Tensor
        frames = [HostFrame.of(random_bytes(7, i, Nv12(*camera).size), Device.DEFAULT) for i in range(2)]
        tensors = [Tensor(m.astype(np.float32), device="NPY").realize() for m in (matrix, np.eye(3))]
        out = make_warp(Nv12(*camera), Device.DEFAULT)(*tensors, *(f.tensor for f in frames)).numpy()
        expected = [reference.warp(f.memory, m.astype(np.float32), camera) for f, m in zip(frames, (matrix, np.eye(3)))]
        return out, np.stack(expected)

    def test_agrees_with_numpy(self) -> None:
        for camera in support.CAMERAS:
            for name, matrix in MATRICES.items():
                with self.subTest(camera=camera, matrix=name):
                    found, expected = self.warp(camera, matrix)
                    self.assertEqual((found.shape, found.dtype), ((2, 6, 128, 256), np.uint8))
                    wrong = np.mean(found != expected)
                    # Single precision may move a sample that lies between two pixels.
                    self.assertLess(wrong, 2e-3 if name == "perspective" else 1e-9)
