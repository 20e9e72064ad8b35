"""Requests: what the host asks for, checked before tinygrad is imported."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from events import DriverError

PROTOCOL = 1
DEFAULT_CACHE_MIB = 256
MODEL_TYPES = {"vision_policy": ("vision", "policy"), "vision_multi_policy": ("vision", "on_policy", "off_policy"),
               "supercombo": ("model",)}
FRAME_KINDS = ("random", "gradient", "checkerboard", "road", "structured")
PIPELINES = ("policy", "warp")
# The device that each target's DEV names.
TARGETS = {"cpu": "CPU", "qcom": "QCOM", "external-gpu": "AMD"}
Camera = tuple[int, int]
Shapes = dict[str, tuple[int, ...]]


def bad(message: str) -> DriverError:
    return DriverError("bad_request", message)


def take(request: dict[str, Any], key: str, kind: type | tuple[type, ...], *default: Any) -> Any:
    """The value of a key, of the wanted type; without a default the key is required."""
    value = request.get(key, *default)
    if value is None and (not default or default[0] is not None):
        raise bad(f"the request has no {key!r}")
    if value is not None and (not isinstance(value, kind) or isinstance(value, bool) and kind is int):
        raise bad(f"{key!r} of the request is a {type(value).__name__}")
    return value


def take_choice(request: dict[str, Any], key: str, choices: tuple[str, ...]) -> str:
    value = take(request, key, str)
    if value not in choices:
        raise bad(f"{key!r} is {value!r}: one of {', '.join(choices)}")
    return value


@dataclass(frozen=True)
class Metadata:
    """Facts of one ONNX file as the host read them from the wire: the artifact's metadata is made of these."""

    checkpoint: str | None
    output_slices: dict[str, slice]
    input_shapes: Shapes
    output_shapes: Shapes

    @staticmethod
    def parse(value: dict[str, Any]) -> Metadata:
        try:
            slices = {str(name): slice(start, stop, step) for name, start, stop, step in value["output_slices"]}
            shapes = [{str(n): tuple(int(d) for d in dims) for n, dims in value[key]} for key in ("input_shapes", "output_shapes")]
        except (KeyError, TypeError, ValueError) as error:
            raise bad(f"the metadata of a model cannot be read: {error}") from error
        if any(not isinstance(v, int | None) for s in slices.values() for v in (s.start, s.stop, s.step)):
            raise bad("a slice of a model's metadata is neither a number nor open")
        return Metadata(take(value, "model_checkpoint", str, None), slices, shapes[0], shapes[1])

    def as_stored(self) -> dict[str, Any]:
        """The form it has in an artifact: builtin slices and tuples of ints only."""
        return {"model_checkpoint": self.checkpoint, "output_slices": dict(self.output_slices),
                "input_shapes": dict(self.input_shapes), "output_shapes": dict(self.output_shapes)}


@dataclass(frozen=True)
class ModelSource:
    key: str
    onnx: str
    sha256: str | None
    metadata: Metadata


@dataclass(frozen=True)
class CompileRequest:
    model_type: str
    pipeline: str
    frame_skip: int | None
    behavior_version: str | None
    target: str
    cameras: tuple[Camera, ...]
    models: tuple[ModelSource, ...]
    artifact: str
    handover: str
    out_of_band: bool
    seeds: tuple[int, int]
    tolerance: float
    prove: bool
    cache_dir: str | None
    cache_limit: int

    @staticmethod
    def parse(request: dict[str, Any]) -> CompileRequest:
        model_type = take_choice(request, "model_type", tuple(MODEL_TYPES))
        models = tuple(ModelSource(take(m, "key", str), take(m, "onnx", str), take(m, "sha256", str, None), Metadata.parse(take(m, "metadata", dict)))
                       for m in take(request, "models", list))
        if tuple(m.key for m in models) != MODEL_TYPES[model_type]:
            raise bad(f"{model_type} needs the models {', '.join(MODEL_TYPES[model_type])}, in this order")
        return CompileRequest(
            model_type, take_choice(request, "image_history_pipeline", PIPELINES), take(request, "frame_skip", int, None),
            take(request, "behavior_version", str, None), take_choice(request, "target", tuple(TARGETS)), parse_cameras(request), models,
            take(request, "artifact", str), take(request, "handover", str), take(request, "out_of_band", bool, False),
            parse_seeds(request), float(take(request, "tolerance", (int, float), 0.0)), take(request, "prove", bool, False),
            take(request, "cache_dir", str, None), take(request, "cache_limit_mib", int, DEFAULT_CACHE_MIB) << 20)


def parse_cameras(request: dict[str, Any]) -> tuple[Camera, ...]:
    cameras = take(request, "cameras", list)
    if not cameras or any(not isinstance(c, list) or len(c) != 2 or any(type(v) is not int or v < 16 for v in c) for c in cameras):
        raise bad("'cameras' is not a list of [width, height]")
    return tuple((int(w), int(h)) for w, h in cameras)


def parse_seeds(request: dict[str, Any]) -> tuple[int, int]:
    seeds = take(request, "seeds", list, [42, 43])
    if len(seeds) != 2 or any(type(s) is not int or s < 0 for s in seeds) or seeds[0] == seeds[1]:
        raise bad("'seeds' is not a pair of different numbers")
    return seeds[0], seeds[1]


@dataclass(frozen=True)
class ProveRequest:
    artifact: str
    handover: str
    out_of_band: bool
    seeds: tuple[int, int]
    tolerance: float
    cameras: tuple[Camera, ...]
    only: tuple[str, ...] | None

    @staticmethod
    def parse(request: dict[str, Any]) -> ProveRequest:
        only = take(request, "only", list, None)
        return ProveRequest(take(request, "artifact", str), take(request, "handover", str), take(request, "out_of_band", bool, False),
                            parse_seeds(request), float(take(request, "tolerance", (int, float), 0.0)), parse_cameras(request),
                            None if only is None else tuple(map(str, only)))


@dataclass(frozen=True)
class RunRequest:
    artifact: str
    out_dir: str
    out_of_band: bool
    cameras: tuple[Camera, ...]
    steps: int
    seed: int
    frames: str
    probes: bool
    record: int
    soak_seconds: float

    @staticmethod
    def parse(request: dict[str, Any]) -> RunRequest:
        frames = take_choice({"frames": request.get("frames", "random")}, "frames", FRAME_KINDS)
        steps = take(request, "steps", int)
        if steps < 1:
            raise bad("'steps' must be at least 1")
        return RunRequest(take(request, "artifact", str), take(request, "out_dir", str), take(request, "out_of_band", bool, False),
                          parse_cameras(request), steps, take(request, "seed", int, 42), frames,
                          take(request, "probes", bool, False), *parse_extent(request))


def parse_extent(request: dict[str, Any]) -> tuple[int, float]:
    """How many steps' inputs are recorded, and how long the soak takes."""
    record, soak = take(request, "record", int, 0), float(take(request, "soak_seconds", (int, float), 0.0))
    if record < 0 or not 0 <= soak < float("inf"):
        raise bad("'record' and 'soak_seconds' must not be negative")
    return record, soak


@dataclass(frozen=True)
class DmRunRequest:
    """Driver monitoring as the runtime runs it: the model, and the warp of the camera that is there."""

    model: str
    warps: dict[Camera, str]
    metadata: Metadata
    out_dir: str
    cameras: tuple[Camera, ...]
    steps: int
    seed: int
    frames: str
    probes: bool
    record: int
    soak_seconds: float
    target: str

    @staticmethod
    def parse(request: dict[str, Any]) -> DmRunRequest:
        cameras = parse_cameras(request)
        files = take(request, "warps", dict)
        driven = RunRequest.parse({**request, "artifact": take(request, "model", str)})
        return DmRunRequest(driven.artifact, {c: take(files, f"{c[0]}x{c[1]}", str) for c in cameras},
                            Metadata.parse(take(request, "metadata", dict)), driven.out_dir, cameras, driven.steps, driven.seed,
                            driven.frames, driven.probes, driven.record, driven.soak_seconds,
                            take_choice(request, "target", tuple(TARGETS)))


@dataclass(frozen=True)
class DmRequest:
    """Driver monitoring: one model and a warp per camera, each in a file of its own."""

    model: ModelSource
    target: str
    cameras: tuple[Camera, ...]
    model_out: str
    warps_out: dict[Camera, str]
    handover: str
    seeds: tuple[int, int]
    tolerance: float

    @staticmethod
    def parse(request: dict[str, Any]) -> DmRequest:
        source = ModelSource("model", take(request, "onnx", str, ""), take(request, "sha256", str, None), Metadata.parse(take(request, "metadata", dict)))
        outputs = take(request, "outputs", dict)
        cameras = parse_cameras(request)
        warps = take(outputs, "warps", dict)
        return DmRequest(source, take_choice(request, "target", tuple(TARGETS)), cameras, take(outputs, "model", str),
                         {c: take(warps, f"{c[0]}x{c[1]}", str) for c in cameras}, take(request, "handover", str, ""),
                         parse_seeds(request), float(take(request, "tolerance", (int, float), 0.0)))
