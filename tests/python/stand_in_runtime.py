"""A stand-in for the runtime, written from the artifact layout alone: plain pickle, its own queues, calls by keyword.

    python -I stand_in_runtime.py ARTIFACT [STEPS]

Prints one JSON object: what was loaded, and for each camera the shapes of the outputs, whether all were finite, whether another
step and another history gave other values, and a digest of everything that came out.
"""

import hashlib
import json
import math
import pickle
import sys

import numpy as np
from tinygrad import Tensor, dtypes


def round_up(value, to):
    return (value + to - 1) // to * to


def frame_bytes(width, height):
    stride, luma, chroma = round_up(width, 128), round_up(height, 32), round_up(height // 2, 16)
    image = round_up(stride * luma + stride * chroma + 4096 + max(16384, 8 * stride), 4096)
    return image + round_up(width, 512) * 512


def device_zeros(shape, dtype):
    return Tensor(np.zeros(shape, dtype)).contiguous().realize()


def as_blob(array):
    return Tensor.from_blob(array.ctypes.data, array.shape, dtype=dtypes.uint8)


class Run:
    """One camera's run with state."""

    def __init__(self, artifact, camera, seed):
        self.artifact, self.camera = artifact, camera
        self.random = np.random.default_rng(seed)
        self.single = artifact["model_type"] == "supercombo"
        metadata = artifact["metadata"]
        vision = metadata["model"] if self.single else metadata["vision"]
        policy = metadata["model"] if self.single else metadata[artifact["policy_order"][0]]
        self.metadata, k = metadata, artifact["frame_skip"]
        images = next(shape for name, shape in vision["input_shapes"].items() if "img" in name)[1] // 6
        batch, length, *trailing = policy["input_shapes"]["features_buffer"]
        width = math.prod(trailing)
        desire = next(s for n, s in policy["input_shapes"].items() if n.startswith("desire") and len(s) == 3)
        history = (k * (images - 1) + 1, 6, 128, 256)
        feature_rows = k * length if self.single else k * (length - 1) + 1
        small = {n: s for n, s in policy["input_shapes"].items()
                 if "img" not in n and not n.startswith("desire") and n != "features_buffer"}
        self.packed = np.zeros(8 + sum(math.prod(s) for s in small.values()) + (batch * width if self.single else 0), np.float32)
        at = 8
        for name, shape in small.items():
            if name == "traffic_convention":
                self.packed[at] = 1
            at += math.prod(shape)
        self.state = {
            "img_q": device_zeros(history, "uint8"),
            "big_img_q": device_zeros(history, "uint8"),
            "feat_q": device_zeros((feature_rows, batch, width), "float32"),
            "desire_q": device_zeros((k * desire[1], desire[0], 8), "float32"),
            "packed_npy_inputs": Tensor(self.packed, device="NPY").realize(),
        }
        self.features = width
        self.transforms = [Tensor(np.eye(3, dtype=np.float32), device="NPY").realize() for _ in range(2)]

    def step(self, frames):
        given = {"tfm": self.transforms[0], "big_tfm": self.transforms[1],
                 "frame": as_blob(frames[0]), "big_frame": as_blob(frames[1])}
        given |= {key: self.state[key] for key in self.artifact["warp_input_keys"] if key in self.state}
        warped = self.artifact[self.camera](**given)
        fed = dict(zip(("img", "big_img"), warped)) if isinstance(warped, tuple) else {"warped": warped}
        results = self.artifact["run_policy"](**fed, **{k: self.state[k] for k in self.artifact["policy_input_keys"]})
        if not isinstance(results, tuple):
            raise SystemExit("run_policy returned no tuple")
        arrays = [result.numpy() for result in results]
        if self.single:
            self.packed[-self.features:] = arrays[0][0, self.metadata["model"]["output_slices"]["hidden_state"]]
        return arrays

    def frames(self):
        return [self.random.integers(0, 256, frame_bytes(*self.camera), np.uint8) for _ in range(2)]


def main(path, steps=4):
    with open(path, "rb") as file:
        artifact = pickle.load(file)
    allowed = set(sys.stdlib_module_names) | {"tinygrad", "numpy", "__main__"}
    roots = {name.split(".")[0] for name in sys.modules}
    foreign = sorted(name for name in roots - allowed if not name.startswith("_"))
    digest, cameras = hashlib.sha256(), {}
    for camera in (key for key in artifact if isinstance(key, tuple)):
        run = Run(artifact, camera, seed=7)
        outputs = [run.step(run.frames()) for _ in range(int(steps))]
        fixed = run.frames()
        outputs += [run.step(fixed), run.step(fixed)]
        for arrays in outputs:
            for array in arrays:
                digest.update(array.tobytes())
        flat = [np.concatenate([a.ravel() for a in arrays]) for arrays in outputs]
        cameras[f"{camera[0]}x{camera[1]}"] = {
            "shapes": [list(a.shape) for a in outputs[0]],
            "float32": all(a.dtype == np.float32 for arrays in outputs for a in arrays),
            "finite": bool(all(np.isfinite(f).all() for f in flat)),
            "frames_matter": bool((flat[0] != flat[1]).any()),
            "history_matters": bool((flat[-1] != flat[-2]).any()),
        }
    print(json.dumps({"keys": [str(key) for key in artifact], "model_type": artifact["model_type"], "foreign": foreign,
                      "cameras": cameras, "digest": digest.hexdigest()}))


if __name__ == "__main__":
    main(*sys.argv[1:])
