"""A stand-in for the runtime: loads an artifact with plain pickle and calls it by keyword.

Run with `python -I`, so that nothing but the standard library, tinygrad and numpy can be imported. Arguments: the
artifact, an .npz of steps (frames, matrices, small inputs) per camera, and the .npz to write.
"""

import pickle
import sys

import numpy as np
from tinygrad import Tensor, dtypes


def zeros(shape, kind):
    return Tensor(np.zeros(shape, kind)).contiguous().realize()


def blob(array):
    return Tensor.from_blob(array.ctypes.data, array.shape, dtype=dtypes.uint8)


def main(artifact_path, steps_path, out_path):
    assert not any("driver" in p for p in sys.path), sys.path
    with open(artifact_path, "rb") as f:
        artifact = pickle.load(f)
    steps, out = np.load(steps_path), {}
    skip, supercombo = artifact["frame_skip"], artifact["model_type"] == "supercombo"
    metadata = artifact["metadata"]
    images = metadata["model" if supercombo else "vision"]["input_shapes"]
    policy = metadata["model" if supercombo else artifact["policy_order"][0]]["input_shapes"]
    image = next(s for n, s in images.items() if "img" in n)
    batch, length, width = policy["features_buffer"]
    desire = next(s for n, s in policy.items() if n.startswith("desire") and len(s) == 3)
    for camera in [k for k in artifact if isinstance(k, tuple)]:
        name = f"{camera[0]}x{camera[1]}"
        history = (skip * (image[1] // 6 - 1) + 1, 6, 128, 256)
        rows = skip * length if supercombo else skip * (length - 1) + 1
        state = {"img_q": zeros(history, "uint8"), "big_img_q": zeros(history, "uint8"),
                 "feat_q": zeros((rows, batch, width), "float32"), "desire_q": zeros((skip * desire[1], 1, 8), "float32")}
        packed = np.zeros(steps[f"{name}.0.packed"].size, np.float32)
        state["packed_npy_inputs"] = Tensor(packed, device="NPY").realize()
        matrices = [np.zeros((3, 3), np.float32) for _ in range(2)]
        tensors = [Tensor(m, device="NPY").realize() for m in matrices]
        previous = np.zeros(width, np.float32)
        for step in range(int(steps["steps"])):
            frames = [steps[f"{name}.{step}.{w}"] for w in ("frame", "big_frame")]
            for m, w in zip(matrices, ("tfm", "big_tfm")):
                m[:] = steps[f"{name}.{step}.{w}"]
            given = {"tfm": tensors[0], "big_tfm": tensors[1], "frame": blob(frames[0]), "big_frame": blob(frames[1])}
            keys = [k for k in artifact["warp_input_keys"] if k in state]
            warped = artifact[camera](**given, **{k: state[k] for k in keys})
            packed[:] = steps[f"{name}.{step}.packed"]
            if supercombo:
                packed[-width:] = previous
            fed = {"img": warped[0], "big_img": warped[1]} if isinstance(warped, tuple) else {"warped": warped}
            results = artifact["run_policy"](**fed, **{k: state[k] for k in artifact["policy_input_keys"]})
            assert isinstance(results, tuple)
            for i, r in enumerate(results):
                out[f"{name}.{step}.{i}"] = r.numpy()
            if supercombo:
                previous = out[f"{name}.{step}.0"][0, metadata["model"]["output_slices"]["hidden_state"]].copy()
            for key in ("feat_q", "desire_q", "img_q"):
                out[f"{name}.{step}.{key}"] = state[key].numpy()
    np.savez(out_path, **out)


if __name__ == "__main__":
    main(*sys.argv[1:])
