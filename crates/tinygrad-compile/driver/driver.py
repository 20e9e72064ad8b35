#!/usr/bin/env python3
"""Compiles, proves and runs driving models: `driver.py REQUEST.json`, events on standard output.

The protocol is described in docs/driver-protocol.md. This file starts before tinygrad is imported, so that a missing
package or compiler is reported as such.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import re
import shutil
import sqlite3
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from events import DriverError, Events, as_driver_error, take_over_stdout
from isolate import watch_host
from request import PROTOCOL, TARGETS, CompileRequest, DmRequest, DmRunRequest, ProveRequest, RunRequest, bad, take


def read_request(path: str) -> dict[str, Any]:
    try:
        request = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise bad(f"the request {path} cannot be read: {error}") from error
    if not isinstance(request, dict) or request.get("protocol") != PROTOCOL:
        raise bad(f"the request {path} is not of protocol {PROTOCOL}")
    return request


def set_defaults() -> None:
    """Names of traced functions would go into the artifact and differ with what the process did before."""
    os.environ["TRACEMETA"] = "0"


def check_device(request: dict[str, Any]) -> None:
    """The target is explicit: tinygrad must not choose by what is plugged in."""
    target, device = request.get("target"), os.environ.get("DEV", "")
    if target is None or target not in TARGETS:
        return
    if not device:
        if target == "external-gpu":
            raise bad("the target external-gpu needs DEV in the environment")
        os.environ["DEV"] = {"cpu": "CPU", "qcom": "QCOM"}[target]
    elif TARGETS[target] not in re.split("[:+]", device.upper()):
        raise bad(f"the target is {target}, but DEV is {device!r}")


def check_backend() -> None:
    """The CPU backend compiles C; without its compiler tinygrad fails late and obscurely."""
    device = os.environ.get("DEV", "")
    compiler = os.environ.get("CC", "clang")
    if device.split(":")[0].upper() in ("", "CPU") and shutil.which(compiler) is None:
        raise DriverError("backend_missing", f"tinygrad's CPU backend needs the C compiler {compiler!r}, which is not on the PATH", compiler=compiler)


def set_aside_damaged_kernels() -> None:
    """A damaged cache of kernels would fail every compile: it is set aside, and kernels are compiled anew."""
    path = os.environ.get("CACHEDB")
    if not path or not os.path.exists(path):
        return
    try:
        with contextlib.closing(sqlite3.connect(path, timeout=60)) as database:
            database.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.OperationalError:
        pass  # in use, or not to be opened: tinygrad says what it is
    except sqlite3.DatabaseError as error:
        print(f"the cache of kernels {path} is damaged ({error}); it is set aside as {path}.damaged", file=sys.stderr)
        for suffix in ("", "-wal", "-shm"):
            with contextlib.suppress(FileNotFoundError):
                os.replace(path + suffix, f"{path}.damaged{suffix}")


@dataclass(frozen=True)
class Operation:
    """A check that needs no package, and the work, whose modules may import tinygrad; `leads` others that do the work."""

    check: Callable[[dict[str, Any]], object]
    run: Callable[[dict[str, Any], Events], dict[str, Any]]
    leads: bool = False


def compile_(request: dict[str, Any], events: Events) -> dict[str, Any]:
    import compile_op
    return compile_op.run(request, events)


def unit(request: dict[str, Any], events: Events) -> dict[str, Any]:
    import compile_op
    return compile_op.HANDLERS[request["op"]](request, events)


def batch(request: dict[str, Any], events: Events) -> dict[str, Any]:
    import batch_op
    return batch_op.run(request, events)


def dm(request: dict[str, Any], events: Events) -> dict[str, Any]:
    import dm_op
    return dm_op.run(request, events)


def dm_replay(request: dict[str, Any], events: Events) -> dict[str, Any]:
    import dm_op
    return dm_op.run_replay(request, events)


def dm_unit(request: dict[str, Any], events: Events) -> dict[str, Any]:
    import dm_op
    return dm_op.HANDLERS[request["op"]](request, events)


def dm_run(request: dict[str, Any], events: Events) -> dict[str, Any]:
    import dm_run_op
    return dm_run_op.run(request, events)


def dm_run_unit(request: dict[str, Any], events: Events) -> dict[str, Any]:
    import dm_run_op
    return dm_run_op.HANDLERS[request["op"]](request, events)


def prove(request: dict[str, Any], events: Events) -> dict[str, Any]:
    import prove_op
    return prove_op.run(ProveRequest.parse(request), events)


def run(request: dict[str, Any], events: Events) -> dict[str, Any]:
    import run_op
    return run_op.run(RunRequest.parse(request), events)


def abi_(request: dict[str, Any], events: Events) -> dict[str, Any]:
    import abi
    label = take(request, "label", str, None)
    return abi.run(label) if label else abi.of_compiler()


def probe(request: dict[str, Any], events: Events) -> dict[str, Any]:
    import probe_op
    return probe_op.run()


OPERATIONS = {
    "compile": Operation(CompileRequest.parse, compile_, leads=True),
    "prove": Operation(ProveRequest.parse, prove),
    "run": Operation(RunRequest.parse, run),
    "probe": Operation(lambda _: None, probe),
    "abi": Operation(lambda _: None, abi_),
    "batch": Operation(lambda r: take(r, "requests", list), batch, leads=True),
    "dm": Operation(DmRequest.parse, dm, leads=True),
    "dm_replay": Operation(DmRequest.parse, dm_replay, leads=True),
    "dm_run": Operation(DmRunRequest.parse, dm_run, leads=True),
    # Units of these, where forking is not used.
    "dm_capture": Operation(DmRequest.parse, dm_unit),
    "dm_prove": Operation(DmRequest.parse, dm_unit),
    "dm_replay_one": Operation(DmRequest.parse, dm_unit),
    "dm_run_one": Operation(DmRunRequest.parse, dm_run_unit),
    "capture_warp": Operation(CompileRequest.parse, unit),
    "capture_policy": Operation(CompileRequest.parse, unit),
}


def import_packages(events: Events) -> None:
    with events.stage("import"):
        for name, kind in (("numpy", "numpy_missing"), ("tinygrad", "tinygrad_missing")):
            try:
                __import__(name)
            except ImportError as error:
                raise DriverError(kind, f"{sys.executable} cannot import {name}: {error}") from error


def perform(request: dict[str, Any], events: Events) -> dict[str, Any]:
    op = request.get("op")
    if op not in OPERATIONS:
        raise bad(f"unknown operation {op!r}")
    OPERATIONS[op].check(request)
    if not OPERATIONS[op].leads:
        watch_host()
    check_device(request)
    if op not in ("probe", "abi"):
        check_backend()
    if OPERATIONS[op].leads:
        set_aside_damaged_kernels()
    import_packages(events)
    if op not in ("probe", "abi"):
        import programs
        from tinygrad import Device
        programs.install(Device.DEFAULT)
    return OPERATIONS[op].run(request, events)


def main(arguments: list[str]) -> int:
    gc.disable()  # Graphs of tinygrad are freed by reference counts; walking them over and over takes a tenth of a run.
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
