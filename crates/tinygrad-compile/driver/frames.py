"""Camera frames: the flat NV12 layout, cheap test frames, and frames as blobs of host memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

MODEL_WIDTH, MODEL_HEIGHT = 512, 256


def align(value: int, to: int) -> int:
    return -(-value // to) * to


@dataclass(frozen=True)
class Nv12:
    """Where the planes of a camera's frame lie; the padding is the video hardware's."""

    width: int
    height: int

    @property
    def stride(self) -> int:
        return align(self.width, 128)

    @property
    def uv_offset(self) -> int:
        return self.stride * align(self.height, 32)

    @property
    def size(self) -> int:
        planes = self.uv_offset + self.stride * align(self.height // 2, 16)
        return align(planes + 4096 + max(16384, 8 * self.stride), 4096) + align(self.width, 512) * 512


def random_bytes(seed: int, stream: int, count: int) -> np.ndarray:
    """Seeded bytes straight from the generator's raw output: far cheaper than a distribution."""
    bits = np.random.PCG64(np.random.SeedSequence([seed, stream]))
    return bits.random_raw(-(-count // 8)).view(np.uint8)[:count]


@dataclass
class HostFrame:
    """A frame in host memory and the tensor that borrows it; the memory must outlive the tensor."""

    memory: np.ndarray
    tensor: Any

    @staticmethod
    def of(memory: np.ndarray, device: str) -> HostFrame:
        from tinygrad import Tensor, dtypes
        memory = np.ascontiguousarray(memory, dtype=np.uint8)
        tensor = Tensor.from_blob(memory.ctypes.data, memory.shape, dtype=dtypes.uint8, device=device)
        return HostFrame(memory, tensor)
