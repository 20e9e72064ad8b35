"""ONNX models as functions of tensors, and the jit body that runs them on the model's state."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from tinygrad import Device, Tensor, dtypes
from tinygrad.nn.onnx import OnnxRunner

from events import DriverError
from queues import DESIRES, Layout, image_names, push, sample_desire, sample_features, sample_images
from request import Metadata, ModelSource


def check_operators(runner: OnnxRunner, path: str) -> None:
    """Names the first operator that this tinygrad lacks, before anything is run."""
    for node in runner.graph_nodes:
        try:
            runner._select_op(node.op, node.opset_id)
        except NotImplementedError as error:
            raise DriverError("onnx_unsupported", f"{path}: this tinygrad has no ONNX operator {node.op} "
                              f"(opset {node.opset_id.version})", operator=node.op) from error


def check_inputs(runner: OnnxRunner, metadata: Metadata, path: str) -> None:
    found = {name: tuple(spec.shape) for name, spec in runner.graph_inputs.items()}
    if found != metadata.input_shapes:
        raise DriverError("shape_mismatch", f"{path}: the graph's inputs are {found}, its metadata says {metadata.input_shapes}")


class OnnxModel:
    """One ONNX file with its weights on the device."""

    def __init__(self, source: ModelSource) -> None:
        self.source = source
        if not os.path.isfile(source.onnx):
            raise DriverError("bad_request", f"{source.onnx} is not a file")
        try:
            self.runner = OnnxRunner(source.onnx)
        except (EOFError, ValueError, KeyError, AssertionError, NotImplementedError) as error:
            raise DriverError("onnx_unsupported", f"{source.onnx}: tinygrad cannot read it: {error}", operator=None) from error
        check_operators(self.runner, source.onnx)
        check_inputs(self.runner, source.metadata, source.onnx)
        weights = [v for v in self.runner.graph_values.values() if isinstance(v, Tensor)]
        if weights:
            Tensor.realize(*weights)

    def __call__(self, inputs: dict[str, Tensor]) -> Tensor:
        typed = {n: inputs[n].cast(spec.dtype) for n, spec in self.runner.graph_inputs.items()}
        return next(iter(self.runner(typed).values())).cast(dtypes.float32)


def check_width(metadata: Metadata, width: int, path: str) -> None:
    """Every slice must lie in the output and hold at least one value."""
    for name, where in metadata.output_slices.items():
        start, stop, step = where.indices(width)
        bounds = [b for b in (where.start, where.stop) if b is not None]
        if step != 1 or stop <= start or any(abs(b) > width for b in bounds):
            raise DriverError("slice_width", f"{path}: the slice {name} is {where.start}:{where.stop}:{where.step}, "
                              f"which does not fit the {width} output values", slice=name, width=width)


def hidden_state_slice(metadata: Metadata, width: int, features: int, path: str) -> slice:
    where = metadata.output_slices.get("hidden_state")
    if where is None:
        raise DriverError("slice_width", f"{path}: output_slices has no hidden_state", slice="hidden_state", width=width)
    start, stop, _ = where.indices(width)
    if stop - start != features:
        raise DriverError("slice_width", f"{path}: hidden_state holds {stop - start} values, features_buffer takes {features}",
                          slice="hidden_state", width=width)
    return slice(start, stop)


def output_width(source: ModelSource) -> int:
    shapes = list(source.metadata.output_shapes.values())
    if not shapes or len(shapes[0]) < 2 or any(d < 1 for d in shapes[0]):
        raise DriverError("shape_mismatch", f"{source.onnx}: the output shapes are {source.metadata.output_shapes}")
    return shapes[0][-1]


def check_sources(models: tuple[ModelSource, ...], layout: Layout) -> None:
    for model in models:
        check_width(model.metadata, output_width(model), model.onnx)
    first = models[0]
    hidden_state_slice(first.metadata, output_width(first), layout.features[0] * layout.feature_width, first.onnx)


class PolicyBody:
    """The body of `run_policy`: updates the queues, samples them, and runs the models in order."""

    def __init__(self, models: dict[str, OnnxModel], layout: Layout) -> None:
        self.models, self.layout = models, layout
        self.device = Device.DEFAULT

    def unpack(self, packed: Tensor) -> dict[str, Tensor]:
        vector = packed.to(self.device)
        offsets = self.layout.packed_offsets()
        return {n: vector[start:start + _size(shape)].reshape(shape) for n, (start, shape) in offsets.items()}

    def policy_inputs(self, small: dict[str, Tensor], feat_q: Tensor, desire_q: Tensor) -> dict[str, Tensor]:
        name, shape = self.layout.desire
        skip = self.layout.frame_skip
        inputs = {n: small[n] for n, _ in self.layout.packed}
        inputs[name] = sample_desire(desire_q, skip, shape)
        inputs["features_buffer"] = sample_features(feat_q, skip, self.layout.features)
        return inputs

    def images(self, first: OnnxModel, img: Tensor, big_img: Tensor) -> dict[str, Tensor]:
        road, wide = image_names(first.source.metadata.input_shapes)
        return {road: img, wide: big_img}

    def evaluate(self, img: Tensor, big_img: Tensor, feat_q: Tensor, desire_q: Tensor, packed: Tensor) -> list[Tensor]:
        small = self.unpack(packed)
        push(desire_q, small["desire"].reshape(1, 1, DESIRES).expand(1, *self.layout.desire_queue[1:]))
        row = (1, *self.layout.feature_queue[1:])
        if self.layout.supercombo:
            push(feat_q, small["prev_feat"].reshape(row))
            model = self.models["model"]
            return [model(self.images(model, img, big_img) | self.policy_inputs(small, feat_q, desire_q)).contiguous()]
        vision, *policies = self.models.values()
        seen = vision(self.images(vision, img, big_img)).contiguous()
        where = hidden_state_slice(vision.source.metadata, seen.shape[-1], self.layout.features[0] * self.layout.feature_width, vision.source.onnx)
        push(feat_q, seen[..., where].reshape(row))
        inputs = self.policy_inputs(small, feat_q, desire_q)
        return [seen, *(p(inputs).contiguous() for p in policies)]


def _size(shape: tuple[int, ...]) -> int:
    size = 1
    for d in shape:
        size *= d
    return size


def make_run_policy(body: PolicyBody, pipeline: str) -> Callable[..., tuple[Tensor, ...]]:
    """The jit's function, with the keyword arguments that the runtime passes in this pipeline."""
    skip = body.layout.frame_skip

    def run_policy(warped: Tensor, img_q: Tensor, big_img_q: Tensor, feat_q: Tensor, desire_q: Tensor, packed_npy_inputs: Tensor) -> tuple[Tensor, ...]:
        planes = warped.to(body.device)
        push(img_q, planes[0:1])
        push(big_img_q, planes[1:2])
        outputs = body.evaluate(sample_images(img_q, skip), sample_images(big_img_q, skip), feat_q, desire_q, packed_npy_inputs)
        Tensor.realize(img_q, big_img_q, feat_q, desire_q, *outputs)
        return tuple(outputs)

    def run_policy_on_images(img: Tensor, big_img: Tensor, feat_q: Tensor, desire_q: Tensor, packed_npy_inputs: Tensor) -> tuple[Tensor, ...]:
        outputs = body.evaluate(img.to(body.device), big_img.to(body.device), feat_q, desire_q, packed_npy_inputs)
        Tensor.realize(feat_q, desire_q, *outputs)
        return tuple(outputs)

    return run_policy if pipeline == "policy" else run_policy_on_images


def check_policies(models: tuple[ModelSource, ...]) -> None:
    """Policies are fed the same tensors, so their inputs must have equal names and shapes."""
    policies: list[Any] = [m for m in models if m.key not in ("vision", "model")]
    for other in policies[1:]:
        if other.metadata.input_shapes != policies[0].metadata.input_shapes:
            raise DriverError("shape_mismatch", f"{policies[0].onnx} has the inputs {policies[0].metadata.input_shapes}, "
                              f"{other.onnx} has {other.metadata.input_shapes}")
