"""The model's state: queues on the device, and the packed vector of small inputs. Shapes follow from metadata alone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from events import DriverError

Shape = tuple[int, ...]
DESIRES = 8
IMAGE_PLANES = 6


def is_image(name: str) -> bool:
    return "img" in name


def is_desire(name: str) -> bool:
    return name.startswith("desire")


def image_names(shapes: Mapping[str, Shape]) -> tuple[str, str]:
    """The road and the wide image input, told apart by `big`."""
    road = [n for n in shapes if is_image(n) and "big" not in n]
    wide = [n for n in shapes if is_image(n) and "big" in n]
    if len(road) != 1 or len(wide) != 1 or shapes[road[0]] != shapes[wide[0]]:
        raise DriverError("shape_mismatch", f"need one road and one wide image input of equal shape, found {dict(shapes)}")
    return road[0], wide[0]


def derive_frame_skip(given: int | None, shapes: Mapping[str, Shape]) -> int:
    """Only for a run without a value: a buffer of 99 or more features, or none, was filled at the camera's own rate."""
    if given is not None:
        return given
    features = shapes.get("features_buffer")
    return 1 if features is None or features[1] >= 99 else 4


@dataclass(frozen=True)
class Layout:
    """Everything about state and inputs of one artifact that a caller must know."""

    supercombo: bool
    frame_skip: int
    image: Shape
    features: Shape
    desire: tuple[str, Shape]
    packed: tuple[tuple[str, Shape], ...]

    @property
    def image_queue(self) -> Shape:
        count = self.image[1] // IMAGE_PLANES
        return (self.frame_skip * (count - 1) + 1, IMAGE_PLANES, *self.image[2:])

    @property
    def feature_queue(self) -> Shape:
        batch, length = self.features[:2]
        rows = self.frame_skip * length if self.supercombo else self.frame_skip * (length - 1) + 1
        return (rows, batch, self.feature_width)

    @property
    def feature_width(self) -> int:
        return math.prod(self.features[2:])

    @property
    def desire_queue(self) -> Shape:
        batch, length, width = self.desire[1]
        return (self.frame_skip * length, batch, width)

    @property
    def packed_size(self) -> int:
        extra = self.features[0] * self.feature_width if self.supercombo else 0
        return DESIRES + sum(math.prod(s) for _, s in self.packed) + extra

    def packed_offsets(self) -> dict[str, tuple[int, Shape]]:
        """Where each input starts in the packed vector; `desire` and a supercombo's `prev_feat` among them."""
        out: dict[str, tuple[int, Shape]] = {"desire": (0, (DESIRES,))}
        start = DESIRES
        for name, shape in self.packed:
            out[name] = (start, shape)
            start += math.prod(shape)
        if self.supercombo:
            out["prev_feat"] = (start, (self.features[0], self.feature_width))
        return out

    @staticmethod
    def of(metadata: Mapping[str, Mapping[str, Any]], order: list[str] | None, frame_skip: int) -> Layout:
        """From an artifact's metadata; `order` is its policy order, None for a supercombo."""
        supercombo = order is None
        images = metadata["model" if supercombo else "vision"]["input_shapes"]
        policy = metadata["model" if order is None else order[0]]["input_shapes"]
        for key in order or []:
            if dict(metadata[key]["input_shapes"]) != dict(policy):
                raise DriverError("shape_mismatch", f"the policies differ in their inputs: {dict(policy)} and, in {key}, "
                                  f"{dict(metadata[key]['input_shapes'])}")
        desires = [n for n in policy if is_desire(n) and len(policy[n]) == 3 and policy[n][2] == DESIRES]
        if len(desires) != 1:
            raise DriverError("shape_mismatch", f"need one desire input of {DESIRES} values a row, found {dict(policy)}")
        if len(policy.get("features_buffer", ())) < 3:
            raise DriverError("shape_mismatch", f"need a features_buffer of three dimensions, found {dict(policy)}")
        rest = tuple((n, tuple(s)) for n, s in policy.items() if not is_image(n) and n not in (desires[0], "features_buffer"))
        image = tuple(images[image_names(images)[0]])
        if len(image) != 4 or image[0] != 1 or image[1] % IMAGE_PLANES or image[2:] != (128, 256):
            raise DriverError("shape_mismatch", f"an image input has the shape {image}, not (1, {IMAGE_PLANES}n, 128, 256)")
        return Layout(supercombo, frame_skip, image, tuple(policy["features_buffer"]), (desires[0], tuple(policy[desires[0]])), rest)


def push(queue: Any, rows: Any) -> None:
    """Drops the oldest rows and appends new ones, in place."""
    queue.assign(queue[rows.shape[0]:].cat(rows).contiguous())


def sample_images(queue: Any, frame_skip: int) -> Any:
    rows = queue[::frame_skip]
    return rows.reshape(1, rows.shape[0] * rows.shape[1], *rows.shape[2:])


def sample_features(queue: Any, frame_skip: int, shape: Shape) -> Any:
    return queue[::frame_skip].reshape(shape)


def sample_desire(queue: Any, frame_skip: int, shape: Shape) -> Any:
    """The maximum over each group of `frame_skip`, so that no pulse is lost between samples."""
    batch, length, width = shape
    return queue.reshape(length, frame_skip, batch, width).max(1).reshape(shape)
