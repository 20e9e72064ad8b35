"""A straightforward compile: one process, kernels one after another, nothing reused, everything pickled as it is.

What the driver's artifacts are compared with: `plain_compile.py REQUEST.json` takes a compile request and writes the
artifact of it. Its outputs must be the driver's, bit for bit.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
from pathlib import Path
from typing import Any

os.environ |= {"PARALLEL": "0"}
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tinygrad import TinyJit  # noqa: E402

import artifact  # noqa: E402
from calls import Inputs, warp_device  # noqa: E402
from compile_op import plan_layout  # noqa: E402
from frames import Nv12  # noqa: E402
from policies import OnnxModel, PolicyBody, make_run_policy  # noqa: E402
from proof import prove_captured  # noqa: E402
from queues import push, sample_images  # noqa: E402
from request import CompileRequest  # noqa: E402
from warp import make_sampling_warp, make_warp  # noqa: E402


def captured(name: str, body: Any, make_call: Any, request: CompileRequest) -> Any:
    jit = TinyJit(body, prune=True)
    prove_captured(name, jit, make_call, request.seeds, request.tolerance)
    return jit


def main(path: str) -> None:
    request = CompileRequest.parse(json.loads(Path(path).read_text()))
    layout = plan_layout(request)
    inputs = Inputs(layout, request.pipeline)
    models = {m.key: OnnxModel(m) for m in request.models}
    out: dict[Any, Any] = artifact.head(request, layout.frame_skip, captured(
        "run_policy", make_run_policy(PolicyBody(models, layout), request.pipeline), inputs.policy_call, request))
    for camera in request.cameras:
        frame = Nv12(*camera)
        body = (make_warp(frame, warp_device()) if request.pipeline == "policy"
                else make_sampling_warp(frame, warp_device(), layout.frame_skip, push, sample_images))
        out[camera] = captured(str(camera), body, lambda seed, c=camera: inputs.warp_call(c, seed), request)
    with open(request.artifact, "wb") as file:
        pickle.dump(out, file)


if __name__ == "__main__":
    main(sys.argv[1])
