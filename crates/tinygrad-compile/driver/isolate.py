"""Work in processes of its own.

Buffers of two models must not meet in one process, a proof must not share one with what it proves, and a failing model
must not take the next with it. A unit is an operation and a request, run by a fork of this process, which has imported
everything but loaded no model, or by a fresh interpreter where forking is not to be trusted (macOS).
"""

from __future__ import annotations

import ctypes
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from events import DriverError, Events, as_driver_error

PR_SET_PDEATHSIG = 1
LEFT_OPEN: list[Any] = []
Handler = Callable[[dict[str, Any], Events], dict[str, Any]]


@dataclass(frozen=True)
class Unit:
    """One piece of isolated work. `label` is added to its stage events."""

    op: str
    request: dict[str, Any]
    label: dict[str, Any]


@dataclass
class Finished:
    unit: Unit
    result: dict[str, Any]
    error: DriverError | None


def forking() -> bool:
    """A process with threads is not forked: the child would wait for threads that it does not have."""
    wanted = os.environ.get("DRIVER_ISOLATION", "fork") == "fork"
    return wanted and sys.platform.startswith("linux") and threading.active_count() == 1


def begin_fork() -> None:
    """Makes a fork a process of its own.

    It ends with the process that forked it, however that one ends. It opens its own connection to the kernel cache: SQLite
    forbids to carry one over, and to close it here could damage the other's. And it forgets the freed buffers that tinygrad
    keeps for reuse: host buffers are shared mappings, so two forks that take the same one would write into each other.
    """
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    from tinygrad import Device, helpers
    if getattr(helpers, "_db_connection", None) is not None:
        LEFT_OPEN.append(helpers._db_connection)
        helpers._db_connection = None
    for name in list(Device._opened_devices):
        if (kept := getattr(Device[name].allocator, "cache", None)) is not None:
            kept.clear()


class Forked:
    """A unit in a fork. The child reports through a pipe; stage events go straight to the shared stream."""

    def __init__(self, unit: Unit, handler: Handler, events: Events) -> None:
        self.unit = unit
        self.reader, writer = os.pipe()
        self.received = b""
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self.reader)
            status = 1
            try:
                begin_fork()
                status = _report(writer, unit, handler, events)
            finally:
                os._exit(status)
        os.close(writer)

    def feed(self) -> Finished | None:
        """Takes what can be read; gives the outcome at the end of the pipe."""
        if data := os.read(self.reader, 1 << 20):
            self.received += data
            return None
        _, status = os.waitpid(self.pid, 0)
        return _outcome(self.unit, self.received, os.waitstatus_to_exitcode(status))

    def stop(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)

    def close(self) -> None:
        os.close(self.reader)


def _report(writer: int, unit: Unit, handler: Handler, events: Events) -> int:
    try:
        report: dict[str, Any] = {"result": handler(unit.request, events.labelled(unit.label))}
    except Exception as error:
        traceback.print_exc()
        failure = as_driver_error(error)
        report = {"kind": failure.kind, "message": failure.message, "detail": failure.detail}
    sys.stderr.flush()
    with os.fdopen(writer, "w") as out:
        json.dump(report, out)
    return 0


def _outcome(unit: Unit, received: bytes, status: int) -> Finished:
    try:
        report = json.loads(received)
    except ValueError:
        kind = "out_of_memory" if status == -signal.SIGKILL else "internal"
        how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
        return Finished(unit, {}, DriverError(kind, f"the process for {unit.op} {how} and reported nothing", signal=max(0, -status)))
    if "result" in report:
        return Finished(unit, report["result"], None)
    return Finished(unit, {}, DriverError(report["kind"], report["message"], **report["detail"]))


class Spawned:
    """A unit in a fresh interpreter: the driver itself, run on a request for one operation."""

    def __init__(self, unit: Unit, events: Events) -> None:
        self.unit, self.events = unit, events.labelled(unit.label)
        self.file = tempfile.NamedTemporaryFile("w", suffix=".json", delete=False)
        json.dump({**unit.request, "protocol": 1, "op": unit.op}, self.file)
        self.file.close()
        driver = Path(__file__).with_name("driver.py")
        self.reader, writer = os.pipe()
        environment = os.environ | {"DRIVER_WATCHES_STDIN": "1"}
        self.process = subprocess.Popen([sys.executable, str(driver), self.file.name], stdin=subprocess.PIPE, stdout=writer, env=environment)
        os.close(writer)
        self.unfinished, self.last = b"", {}

    def feed(self) -> Finished | None:
        if data := os.read(self.reader, 1 << 16):
            *lines, self.unfinished = (self.unfinished + data).split(b"\n")
            for event in map(json.loads, lines):
                if event["event"] == "stage":
                    self.events.emit(**event)
                else:
                    self.last = event
            return None
        status = self.process.wait()
        return _outcome(self.unit, json.dumps(self.last).encode() if self.last else b"", status)

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        os.close(self.reader)
        if self.process.stdin is not None:
            self.process.stdin.close()
        os.unlink(self.file.name)


def parallel_jobs(target: str) -> int:
    """Only the CPU backend is shared by processes; another device is used by one at a time."""
    if target != "cpu":
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def open_device(target: str) -> None:
    """Opens the CPU backend before forking, which costs each process 0.1 s otherwise. Real devices are left to the forks.

    Some revisions of tinygrad start threads here; fresh interpreters are used with those.
    """
    if forking() and target == "cpu":
        from tinygrad import Device
        Device[Device.DEFAULT]


class Crew:
    """Runs units, at most `jobs` at a time, and ends with the host where it was asked to watch it."""

    def __init__(self, events: Events, handlers: dict[str, Handler], jobs: int) -> None:
        self.events, self.handlers, self.jobs = events, handlers, max(1, jobs)
        self.waiting: list[Unit] = []
        self.working: dict[int, Forked | Spawned] = {}
        # Not epoll: a fork would keep its registrations of pipes that are closed here.
        self.selector = selectors.PollSelector() if hasattr(selectors, "PollSelector") else selectors.SelectSelector()
        if host_is_watched():
            self.selector.register(0, selectors.EVENT_READ)

    def add(self, unit: Unit) -> None:
        self.waiting.append(unit)

    def _start(self, unit: Unit) -> None:
        worker = Forked(unit, self.handlers[unit.op], self.events) if forking() else Spawned(unit, self.events)
        self.working[worker.reader] = worker
        self.selector.register(worker.reader, selectors.EVENT_READ)

    def finished(self) -> Iterator[Finished]:
        """Outcomes in the order in which they arrive; units may be added meanwhile. Leaving early stops the rest."""
        try:
            while self.waiting or self.working:
                while self.waiting and len(self.working) < self.jobs:
                    self._start(self.waiting.pop(0))
                for key, _ in self.selector.select():
                    if key.fd == 0:
                        leave_with_host()
                    elif (outcome := self.working[key.fd].feed()) is not None:
                        self._release(key.fd)
                        yield outcome
        finally:
            for reader, worker in list(self.working.items()):
                worker.stop()
                self._release(reader)

    def _release(self, reader: int) -> None:
        self.selector.unregister(reader)
        self.working.pop(reader).close()


def host_is_watched() -> bool:
    """The host keeps our standard input open for as long as it lives."""
    return os.environ.get("DRIVER_WATCHES_STDIN") == "1"


def leave_with_host() -> None:
    """Takes what the host wrote; at the end of its input this process ends, and with it what it forked."""
    if not os.read(0, 1 << 16):
        os._exit(1)


def watch_host() -> None:
    """For an operation that works in this process itself: a thread waits for the end of the host."""
    def wait() -> None:
        while True:
            leave_with_host()

    if host_is_watched():
        threading.Thread(target=wait, daemon=True).start()


def run_all(crew: Crew, units: list[Unit]) -> list[dict[str, Any]]:
    """Results in the order of the units; the first failure stops the others and is raised."""
    for unit in units:
        crew.add(unit)
    results: dict[int, dict[str, Any]] = {}
    for outcome in crew.finished():
        if outcome.error is not None:
            raise outcome.error
        results[id(outcome.unit)] = outcome.result
    return [results[id(u)] for u in units]
