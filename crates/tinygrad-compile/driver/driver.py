#!/usr/bin/env python3
"""Compiles, proves and runs driving models: `driver.py REQUEST.json`, events on standard output.

The protocol is described in docs/driver-protocol.md. This file starts before tinygrad is imported, so that a missing
package or compiler is reported as such.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import traceback
from pathlib import Path
from typing import Any

from events import DriverError, Events, as_driver_error, take_over_stdout
from request import PROTOCOL, CompileRequest, ProveRequest, RunRequest, bad


def read_request(path: str) -> dict[str, Any]:
    try:
        request = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise bad(f"the request {path} cannot be read: {error}") from error
    if not isinstance(request, dict) or request.get("protocol") != PROTOCOL:
        raise bad(f"the request {path} is not of protocol {PROTOCOL}")
    return request


def set_defaults() -> None:
    """Settings that must hold before tinygrad is imported, or equal inputs would not give equal bytes.

    Names of traced functions would go into the artifact, and kernels lowered by a pool of workers share strings in
    an order that depends on which worker was faster.
    """
    os.environ |= {"TRACEMETA": "0", "PARALLEL": "0"}


def check_backend() -> None:
    """The CPU backend compiles C; without its compiler tinygrad fails late and obscurely."""
    device = os.environ.get("DEV", "")
    compiler = os.environ.get("CC", "clang")
    if device.split(":")[0].upper() in ("", "CPU") and "LLVM" not in device and shutil.which(compiler) is None:
        raise DriverError("backend_missing", f"tinygrad's CPU backend needs the C compiler {compiler!r}, which is not on the PATH", compiler=compiler)


def import_packages(events: Events) -> None:
    with events.stage("import"):
        for name, kind in (("numpy", "numpy_missing"), ("tinygrad", "tinygrad_missing")):
            try:
                __import__(name)
            except ImportError as error:
                raise DriverError(kind, f"{sys.executable} cannot import {name}: {error}") from error


def perform(request: dict[str, Any], events: Events) -> dict[str, Any]:
    op = request.get("op")
    if op == "compile":
        parsed = CompileRequest.parse(request)
        check_backend()
        import_packages(events)
        import compile_op
        return compile_op.run(parsed, events)
    if op == "prove":
        proof = ProveRequest.parse(request)
        check_backend()
        import_packages(events)
        import prove_op
        return prove_op.run(proof, events)
    if op == "run":
        steps = RunRequest.parse(request)
        check_backend()
        import_packages(events)
        import run_op
        return run_op.run(steps, events)
    if op == "probe":
        check_backend()
        import_packages(events)
        import probe_op
        return probe_op.run()
    raise bad(f"unknown operation {op!r}")


def main(arguments: list[str]) -> int:
    events = take_over_stdout()
    set_defaults()
    try:
        if len(arguments) != 1:
            raise bad("usage: driver.py REQUEST.json")
        result = perform(read_request(arguments[0]), events)
    except Exception as error:
        traceback.print_exc()
        events.failed(as_driver_error(error))
        return 1
    events.done(result)
    return 0


if __name__ == "__main__":
    status = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
