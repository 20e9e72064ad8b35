"""Frame geometry, queue shapes and the packed vector, against the runtime's definitions."""

from __future__ import annotations

import unittest

from . import reference, support
from events import DriverError
from frames import Nv12
from queues import Layout, derive_frame_skip


def layout(kind: str, supercombo: bool, skip: int = 4) -> Layout:
    shapes = {n: tuple(s) for n, s in support.metadata(kind)["input_shapes"]}
    images = shapes if supercombo else {n: tuple(s) for n, s in support.metadata("vision")["input_shapes"]}
    metadata = {"model" if supercombo else "vision": {"input_shapes": images}, "policy": {"input_shapes": shapes}}
    return Layout.of(metadata, None if supercombo else ["policy"], skip)


class Frames(unittest.TestCase):
    def test_sizes_of_both_cameras(self) -> None:
        self.assertEqual(Nv12(1928, 1208).size, 4_804_608)
        for camera in support.CAMERAS:
            stride, chroma, size = reference.frame_geometry(*camera)
            frame = Nv12(*camera)
            self.assertEqual((frame.stride, frame.uv_offset, frame.size), (stride, chroma, size))


class Queues(unittest.TestCase):
    def test_split_shapes(self) -> None:
        found = layout("on_policy", supercombo=False)
        self.assertEqual(found.image_queue, (5, 6, 128, 256))
        self.assertEqual(found.feature_queue, (97, 1, 512))
        self.assertEqual(found.desire_queue, (100, 1, 8))
        self.assertEqual(found.packed_offsets(), {"desire": (0, (8,)), "traffic_convention": (8, (1, 2)), "action_t": (10, (1, 2))})
        self.assertEqual(found.packed_size, 12)

    def test_supercombo_shapes_of_the_old_generation(self) -> None:
        found = layout("supercombo_old", supercombo=True)
        self.assertEqual(found.feature_queue, (96, 1, 512))
        names = list(found.packed_offsets())
        self.assertEqual(names, ["desire", "traffic_convention", "lateral_control_params", "prev_desired_curv", "prev_feat"])
        self.assertEqual(found.packed_size, 8 + 2 + 2 + 25 + 512)

    def test_frame_skip_is_derived_only_without_a_value(self) -> None:
        self.assertEqual(derive_frame_skip(4, {"features_buffer": (1, 99, 512)}), 4)
        self.assertEqual(derive_frame_skip(None, {"features_buffer": (1, 99, 512)}), 1)
        self.assertEqual(derive_frame_skip(None, {}), 1)
        self.assertEqual(derive_frame_skip(None, {"features_buffer": (1, 25, 512)}), 4)

    def test_refuses_what_it_cannot_feed(self) -> None:
        for change in ({"features_buffer": (1, 25)}, {"desire_pulse": (1, 25, 4)}, {"img": (1, 11, 128, 256)}):
            shapes = {n: tuple(s) for n, s in support.metadata("supercombo")["input_shapes"]} | change
            with self.subTest(change), self.assertRaises(DriverError) as caught:
                Layout.of({"model": {"input_shapes": shapes}}, None, 4)
            self.assertEqual(caught.exception.kind, "shape_mismatch")
