"""An independent numpy implementation of the runtime's arithmetic: warps, queues and packed inputs."""

from __future__ import annotations

import numpy as np


def round_up(value: int, to: int) -> int:
    return (value + to - 1) // to * to


def frame_geometry(width: int, height: int) -> tuple[int, int, int]:
    """Stride, offset of the chrominance and size of a frame."""
    stride = round_up(width, 128)
    luma, chroma = round_up(height, 32), round_up(height // 2, 16)
    size = round_up(stride * luma + stride * chroma + 4096 + max(16384, 8 * stride), 4096) + round_up(width, 512) * 512
    return stride, stride * luma, size


def nearest(matrix: np.ndarray, width: int, height: int, limit_x: int, limit_y: int) -> tuple[np.ndarray, np.ndarray]:
    rows, columns = np.mgrid[0:height, 0:width]
    points = np.stack([columns.ravel(), rows.ravel(), np.ones(width * height)]).astype(np.float64)
    x, y, w = matrix.astype(np.float64) @ points
    x, y = np.rint(x / w), np.rint(y / w)
    x, y = np.clip(x, 0, limit_x - 1), np.clip(y, 0, limit_y - 1)
    return x.astype(np.int64).reshape(height, width), y.astype(np.int64).reshape(height, width)


def warp(frame: np.ndarray, matrix: np.ndarray, camera: tuple[int, int]) -> np.ndarray:
    width, height = camera
    stride, chroma, _ = frame_geometry(width, height)
    x, y = nearest(matrix, 512, 256, width, height)
    luma = frame[y * stride + x]
    halved = matrix * np.array([[1, 1, 0.5], [1, 1, 0.5], [2, 2, 1]], np.float32)
    x, y = nearest(halved, 256, 128, width // 2, height // 2)
    u, v = frame[chroma + y * stride + 2 * x], frame[chroma + y * stride + 2 * x + 1]
    return np.stack([luma[0::2, 0::2], luma[1::2, 0::2], luma[0::2, 1::2], luma[1::2, 1::2], u, v])


class Queues:
    """The state of one artifact, updated as the runtime describes it."""

    def __init__(self, images: int, features: tuple[int, int, int], desire: int, skip: int, supercombo: bool) -> None:
        self.skip = skip
        self.images = [np.zeros((skip * (images - 1) + 1, 6, 128, 256), np.uint8) for _ in range(2)]
        rows = skip * features[1] if supercombo else skip * (features[1] - 1) + 1
        self.features = np.zeros((rows, features[0], features[2]), np.float32)
        self.desire = np.zeros((skip * desire, 1, 8), np.float32)
        self.feature_shape = features

    def push_images(self, planes: np.ndarray) -> list[np.ndarray]:
        self.images = [np.concatenate([q[1:], p[None]]) for q, p in zip(self.images, planes)]
        return [q[:: self.skip].reshape(1, -1, 128, 256) for q in self.images]

    def push_desire(self, desire: np.ndarray) -> np.ndarray:
        self.desire = np.concatenate([self.desire[1:], desire.reshape(1, 1, 8)])
        groups = self.desire.reshape(-1, self.skip, 1, 8)
        return groups.max(axis=1).reshape(1, -1, 8)

    def push_features(self, row: np.ndarray) -> np.ndarray:
        self.features = np.concatenate([self.features[1:], row.reshape(1, *self.features.shape[1:])])
        return self.features[:: self.skip].reshape(self.feature_shape)
