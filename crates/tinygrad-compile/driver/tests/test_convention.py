"""An artifact in the hands of a runtime: plain pickle, keyword calls, state over several steps, both cameras."""

from __future__ import annotations

import pickle
import unittest
from typing import Any

import numpy as np
from onnx.reference import ReferenceEvaluator

from . import reference, support
from .runtime import STEPS, make_steps, run_in_fresh_process

SKIP = 4


def unpack(packed: np.ndarray, names: list[tuple[str, list[int]]]) -> dict[str, np.ndarray]:
    out, start = {}, 8
    for name, shape in names:
        size = int(np.prod(shape))
        out[name] = packed[start:start + size].reshape(shape)
        start += size
    return out


class Expected:
    """The same steps through numpy queues and the ONNX reference evaluator."""

    def __init__(self, model_type: str) -> None:
        self.kinds = dict(support.MODELS[model_type])
        self.models = {k: ReferenceEvaluator(str(support.fixture(kind))) for k, kind in self.kinds.items()}
        self.supercombo = model_type == "supercombo"
        policy = list(self.kinds.values())[-1]
        self.policy_shapes = support.metadata(policy)["input_shapes"]
        self.small = [(n, s) for n, s in self.policy_shapes if "img" not in n and not n.startswith("desire") and n != "features_buffer"]
        self.desire_name = next(n for n, _ in self.policy_shapes if n.startswith("desire"))
        hidden = support.metadata(list(self.kinds.values())[0])["output_slices"]
        self.hidden = next(slice(a, b) for n, a, b, _ in hidden if n == "hidden_state")

    @property
    def packed(self) -> int:
        return 8 + sum(int(np.prod(s)) for _, s in self.small) + (512 if self.supercombo else 0)

    def run(self, steps: dict[str, np.ndarray], camera: tuple[int, int]) -> list[list[np.ndarray]]:
        name = f"{camera[0]}x{camera[1]}"
        queues = reference.Queues(2, (1, 25, 512), 25, SKIP, self.supercombo)
        previous, out = np.zeros(512, np.float32), []
        for step in range(STEPS):
            at = f"{name}.{step}"
            planes = [reference.warp(steps[f"{at}.{f}"], steps[f"{at}.{m}"], camera) for f, m in (("frame", "tfm"), ("big_frame", "big_tfm"))]
            images = dict(zip(("img", "big_img"), queues.push_images(np.stack(planes))))
            small = unpack(steps[f"{at}.packed"], self.small)
            small[self.desire_name] = queues.push_desire(steps[f"{at}.packed"][:8])
            if self.supercombo:
                small["features_buffer"] = queues.push_features(previous)
                results = [self.models["model"].run(None, images | small)[0]]
                previous = results[0][0, self.hidden]
            else:
                vision, *policies = self.models.values()
                seen = vision.run(None, images)[0]
                small["features_buffer"] = queues.push_features(seen[0, self.hidden])
                results = [seen, *(p.run(None, small)[0] for p in policies)]
            out.append(results)
        self.last = queues
        return out


class Convention(unittest.TestCase):
    def check(self, model_type: str, pipeline: str) -> None:
        request = support.compiled(model_type, pipeline)
        expected = Expected(model_type)
        steps = make_steps(expected.packed)
        found = run_in_fresh_process(request["artifact"], steps)
        for camera in support.CAMERAS:
            name = f"{camera[0]}x{camera[1]}"
            for step, results in enumerate(expected.run(steps, camera)):
                for i, value in enumerate(results):
                    np.testing.assert_allclose(found[f"{name}.{step}.{i}"], value, rtol=2e-4, atol=2e-4, err_msg=f"{name} {step} {i}")
            last = f"{name}.{STEPS - 1}"
            np.testing.assert_array_equal(found[f"{last}.img_q"], expected.last.images[0])
            np.testing.assert_array_equal(found[f"{last}.desire_q"], expected.last.desire)
            np.testing.assert_allclose(found[f"{last}.feat_q"], expected.last.features, rtol=2e-4, atol=2e-4)

    def test_every_model_type_in_both_pipelines(self) -> None:
        for model_type in support.MODELS:
            for pipeline in ("policy", "warp"):
                with self.subTest(model_type=model_type, pipeline=pipeline):
                    self.check(model_type, pipeline)


class Keys(unittest.TestCase):
    """The dict itself, read in this process without running a jit."""

    def load(self, model_type: str, pipeline: str) -> dict[Any, Any]:
        with open(support.compiled(model_type, pipeline)["artifact"], "rb") as file:
            return pickle.load(file)

    def test_order_and_types_of_a_split_artifact(self) -> None:
        found = self.load("vision_policy", "policy")
        self.assertEqual(list(found), ["format_version", "model_type", "metadata", "image_history_pipeline", "behavior_version", "policy_order",
                                       "frame_skip", "policy_input_keys", "warp_input_keys", "run_policy", (1928, 1208), (1344, 760)])
        self.assertEqual((found["format_version"], found["model_type"], found["behavior_version"]), (1, "vision_policy", "v15"))
        self.assertEqual(found["policy_order"], ["policy"])
        self.assertEqual(found["policy_input_keys"], ("img_q", "big_img_q", "feat_q", "desire_q", "packed_npy_inputs"))
        self.assertEqual(found["warp_input_keys"], ("tfm", "big_tfm"))
        vision = found["metadata"]["vision"]
        self.assertEqual(list(vision), ["model_checkpoint", "output_slices", "input_shapes", "output_shapes"])
        self.assertEqual(vision["output_slices"]["pad"], slice(0, None, None))
        self.assertEqual(vision["input_shapes"]["img"], (1, 12, 128, 256))

    def test_a_supercombo_has_no_policy_order(self) -> None:
        found = self.load("supercombo", "warp")
        self.assertNotIn("policy_order", found)
        self.assertEqual(found["policy_input_keys"], ("feat_q", "desire_q", "packed_npy_inputs"))
        self.assertEqual(found["warp_input_keys"], ("img_q", "big_img_q", "tfm", "big_tfm"))

    def test_on_and_off_policy_keep_their_order(self) -> None:
        self.assertEqual(self.load("vision_multi_policy", "policy")["policy_order"], ["on_policy", "off_policy"])
