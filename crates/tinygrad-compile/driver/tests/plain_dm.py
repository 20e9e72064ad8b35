"""Sizes of driver monitoring's jits when they are pickled as they are: `plain_dm.py REQUEST.json` prints them as JSON."""

from __future__ import annotations

import json
import os
import pickle
import sys
from pathlib import Path

os.environ |= {"PARALLEL": "0"}
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tinygrad import TinyJit  # noqa: E402

import dm_op  # noqa: E402
from frames import Nv12  # noqa: E402
from request import DmRequest  # noqa: E402
from warp import make_dm_warp  # noqa: E402


def main(path: str) -> None:
    request = DmRequest.parse(json.loads(Path(path).read_text()))
    bodies = {"model": dm_op.model_body(request), "1928x1208": make_dm_warp(Nv12(1928, 1208), "CPU")}
    sizes = {}
    for name, body in bodies.items():
        jit = TinyJit(body, prune=True)
        for _ in range(3):
            dm_op.call_for(request, name, 42).make(jit)
        sizes[name] = len(pickle.dumps(jit))
    print(json.dumps(sizes))


if __name__ == "__main__":
    main(sys.argv[1])
