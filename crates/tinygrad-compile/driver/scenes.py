"""Synthetic frames for a run: what the two cameras see at each step, as flat NV12 bytes.

`random` frames are seeded noise and reach every input pixel; the others have structure, so that pictures of a run can be
read: `gradient` drifts, `checkerboard` slides, and `road` is a straight two-lane road in perspective that moves towards the
camera. `structured` shows the three in turn, the road last and for good. `hash` frames are a plain function of the byte's position, for a host that computes the same without numpy.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np

from frames import Nv12, random_bytes

GREY = 128
METRES_A_STEP = 1.0  # 20 m/s at 20 Hz


def hash_bytes(salt: int, count: int) -> np.ndarray:
    """The top byte of a multiplicative hash of each position."""
    at = np.arange(count, dtype=np.uint32)
    return (((at + np.uint32(salt)) * np.uint32(2654435761)) >> np.uint32(24)).astype(np.uint8)


def from_luminance(layout: Nv12, luminance: np.ndarray) -> np.ndarray:
    """A grey frame with this picture."""
    frame = np.full(layout.size, GREY, np.uint8)
    rows = frame[: layout.stride * layout.height].reshape(layout.height, layout.stride)
    rows[:, : layout.width] = luminance
    return frame


@lru_cache(maxsize=4)
def grid(width: int, height: int) -> tuple[np.ndarray, np.ndarray]:
    y, x = np.mgrid[0:height, 0:width]
    return x, y


def gradient(layout: Nv12, step: int, wide: bool) -> np.ndarray:
    x, y = grid(layout.width, layout.height)
    return from_luminance(layout, ((x * (1 + wide) // 8 + y // 8 + 5 * step) & 255).astype(np.uint8))


def checkerboard(layout: Nv12, step: int, wide: bool) -> np.ndarray:
    x, y = grid(layout.width, layout.height)
    size = 32 if wide else 64
    cells = ((x + 7 * step) // size + y // size) & 1
    return from_luminance(layout, np.where(cells == 1, 208, 48).astype(np.uint8))


@lru_cache(maxsize=4)
def ground(layout: Nv12, wide: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The road without its dashes, where they are, and how far away each line of the picture is: none of it moves."""
    x, y = grid(layout.width, layout.height)
    focal = layout.width * (0.3 if wide else 1.0)
    below = np.maximum(y - layout.height * 0.5, 0.5)
    distance = 1.2 * focal / below
    lateral = (x - layout.width * 0.5) * distance / focal
    picture = np.where(y > layout.height * 0.5, 80, 190).astype(np.uint8)
    near = (y > layout.height * 0.5) & (distance < 150)
    picture[near & (np.abs(np.abs(lateral) - 5.4) < 0.2)] = 235
    return picture, near & (np.abs(np.abs(lateral) - 1.8) < 0.12), distance[:, 0]


def road(layout: Nv12, step: int, wide: bool) -> np.ndarray:
    """The ground at camera height 1.2 m: dashed lane lines at +-1.8 m that come closer, and edges at +-5.4 m."""
    picture, dashes, distance = ground(layout, wide)
    shown = (distance + METRES_A_STEP * step) % 12.0 < 5.0
    drawn = picture.copy()
    drawn[dashes & shown[:, None]] = 235
    return from_luminance(layout, drawn)


def noise(layout: Nv12, seed: int, step: int, wide: bool) -> np.ndarray:
    return random_bytes(seed, 1000 + 2 * step + wide, layout.size)


STRUCTURED_STEPS = 4  # Steps of gradients, then of checkerboards, before the road.


def structured(layout: Nv12, step: int, wide: bool) -> np.ndarray:
    if step < STRUCTURED_STEPS:
        return gradient(layout, step, wide)
    if step < 2 * STRUCTURED_STEPS:
        return checkerboard(layout, step, wide)
    return road(layout, step, wide)


DRAWN: dict[str, Callable[[Nv12, int, bool], np.ndarray]] = {"gradient": gradient, "checkerboard": checkerboard, "road": road,
                                                               "structured": structured}


def frames(kind: str, layout: Nv12, seed: int, step: int) -> list[np.ndarray]:
    """The road camera's frame and the wide one's."""
    if kind == "random":
        return [noise(layout, seed, step, wide) for wide in (False, True)]
    return [DRAWN[kind](layout, step, wide) for wide in (False, True)]
