"""The camera warp: a full camera frame through a 3x3 matrix into the model's 512x256 YUV, packed to six planes,
or, for driver monitoring, into one row of luminance."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tinygrad import Tensor, dtypes

from frames import MODEL_HEIGHT, MODEL_WIDTH, Nv12

# Chrominance has half the size: its matrix is the luminance's, multiplied elementwise by this.
CHROMA_SCALE = ((1.0, 1.0, 0.5), (1.0, 1.0, 0.5), (2.0, 2.0, 1.0))
LUMA_SCALE = ((1.0, 1.0, 1.0),) * 3
Scale = tuple[tuple[float, float, float], ...]


def ramp(count: int, device: str) -> Tensor:
    """0 .. count-1. Some revisions of tinygrad place it on the default device, some on none."""
    values = Tensor.arange(count)
    return values if values.device in (None, device) else values.to(device)


def nearest_pixels(matrix: Tensor, scale: Scale, size: tuple[int, int], device: str) -> tuple[Tensor, Tensor]:
    """For each pixel of an output of `size`, the nearest source column and row, as floats and without bounds."""
    width, height = size
    x = ramp(width, device).cast(dtypes.float32).reshape(1, width)
    y = ramp(height, device).cast(dtypes.float32).reshape(height, 1)
    m = [[matrix[i, j] * scale[i][j] for j in range(3)] for i in range(3)]
    column, row, depth = (m[i][0] * x + m[i][1] * y + m[i][2] for i in range(3))
    return (column / depth).round(), (row / depth).round()


def source_pixels(matrix: Tensor, scale: Scale, size: tuple[int, int], limit: tuple[int, int], device: str) -> tuple[Tensor, Tensor]:
    """The nearest source pixels, clipped into `limit`."""
    nearest = nearest_pixels(matrix, scale, size, device)
    column, row = (value.clip(0, top - 1).cast(dtypes.int32) for value, top in zip(nearest, limit))
    return column, row


def luminance(frame: Tensor, matrix: Tensor, layout: Nv12, size: tuple[int, int], device: str) -> Tensor:
    column, row = source_pixels(matrix, LUMA_SCALE, size, (layout.width, layout.height), device)
    return frame[row * layout.stride + column]


def chrominance(frame: Tensor, matrix: Tensor, layout: Nv12, size: tuple[int, int], device: str) -> Tensor:
    """U and V as (2, height, width); they are interleaved in the frame."""
    column, row = source_pixels(matrix, CHROMA_SCALE, size, (layout.width // 2, layout.height // 2), device)
    first = layout.uv_offset + row * layout.stride + column * 2
    return frame[first.unsqueeze(0) + ramp(2, device).cast(dtypes.int32).reshape(2, 1, 1)]


def warp_frame(frame: Tensor, matrix: Tensor, layout: Nv12, device: str) -> Tensor:
    """(6, 128, 256): the four phases of Y, then U, then V. The matrix comes from host memory."""
    half = (MODEL_WIDTH // 2, MODEL_HEIGHT // 2)
    here = matrix.to(device)
    y = luminance(frame, here, layout, (MODEL_WIDTH, MODEL_HEIGHT), device)
    phases = y.reshape(half[1], 2, half[0], 2).permute(3, 1, 0, 2).reshape(4, half[1], half[0])
    return phases.contiguous().cat(chrominance(frame, here, layout, half, device).contiguous())


def make_warp(layout: Nv12, device: str) -> Callable[..., Tensor]:
    """Pipeline `policy`: returns (2, 6, 128, 256), road then wide."""

    def warp(tfm: Tensor, big_tfm: Tensor, frame: Tensor, big_frame: Tensor) -> Tensor:
        road, wide = (warp_frame(f, t, layout, device) for f, t in ((frame, tfm), (big_frame, big_tfm)))
        out = road.unsqueeze(0).cat(wide.unsqueeze(0)).contiguous()
        return out.realize()

    return warp


def make_sampling_warp(layout: Nv12, device: str, frame_skip: int, push: Callable[..., Any], sample: Callable[..., Any]) -> Callable[..., Any]:
    """Pipeline `warp`: updates both image queues and returns the sampled images."""

    def warp(img_q: Tensor, big_img_q: Tensor, tfm: Tensor, big_tfm: Tensor, frame: Tensor, big_frame: Tensor) -> tuple[Tensor, Tensor]:
        images = []
        for queue, f, t in ((img_q, frame, tfm), (big_img_q, big_frame, big_tfm)):
            push(queue, warp_frame(f, t, layout, device).unsqueeze(0))
            images.append(sample(queue, frame_skip).contiguous())
        Tensor.realize(img_q, big_img_q, *images)
        return images[0], images[1]

    return warp


DM_WIDTH, DM_HEIGHT, DM_BORDER = 1440, 960, 16


def make_dm_warp(layout: Nv12, device: str) -> Callable[[Tensor, Tensor], Tensor]:
    """Driver monitoring: one row of luminance; pixels from outside the frame have the border's value."""

    def dm_warp(frame: Tensor, transform: Tensor) -> Tensor:
        column, row = nearest_pixels(transform.to(device), LUMA_SCALE, (DM_WIDTH, DM_HEIGHT), device)
        inside = (column >= 0) & (column <= layout.width - 1) & (row >= 0) & (row <= layout.height - 1)
        at = row.clip(0, layout.height - 1).cast(dtypes.int32) * layout.stride + column.clip(0, layout.width - 1).cast(dtypes.int32)
        return inside.where(frame[at], DM_BORDER).cast(dtypes.uint8).reshape(1, DM_WIDTH * DM_HEIGHT).contiguous().realize()

    return dm_warp
