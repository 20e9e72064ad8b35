"""Processes of their own: failures, deaths, and a host that goes away."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

from . import support
from events import DriverError, Events
from isolate import Crew, Unit, forking, run_all


def crew(jobs: int = 2) -> Crew:
    def work(request: dict, events: Events) -> dict:
        if request["do"] == "fail":
            raise DriverError("shape_mismatch", "as asked", detail_of="this")
        if request["do"] == "die":
            os.kill(os.getpid(), 9)
        if request["do"] == "sleep":
            time.sleep(60)
        return {"got": request["do"]}

    return Crew(Events(os.open(os.devnull, os.O_WRONLY)), {"work": work}, jobs)


def unit(do: str) -> Unit:
    return Unit("work", {"do": do}, {})


@unittest.skipUnless(sys.platform.startswith("linux"), "forks are used on Linux only")
class Forks(unittest.TestCase):
    def setUp(self) -> None:
        if not forking():
            self.skipTest("this process has threads")

    def test_results_come_in_the_order_of_the_units(self) -> None:
        self.assertEqual([r["got"] for r in run_all(crew(), [unit(str(i)) for i in range(5)])], list("01234"))

    def test_a_failure_stops_the_others(self) -> None:
        started = time.monotonic()
        with self.assertRaises(DriverError) as caught:
            run_all(crew(), [unit("sleep"), unit("fail"), unit("1")])
        self.assertEqual((caught.exception.kind, caught.exception.detail), ("shape_mismatch", {"detail_of": "this"}))
        self.assertLess(time.monotonic() - started, 30)

    def test_forks_share_no_freed_buffer(self) -> None:
        import numpy as np
        from tinygrad import Context, Device, Tensor

        def work(request: dict, events: Events) -> dict:
            wanted = np.full(1000, request["value"], np.uint8)
            kept = Tensor(wanted).to(Device.DEFAULT).contiguous().realize()
            time.sleep(1.0)
            return {"intact": bool((kept.numpy() == wanted).all())}

        with Context(LRU=1):
            Tensor(np.zeros(1000, np.uint8)).to(Device.DEFAULT).contiguous().realize().numpy()
        self.assertTrue(any(Device[Device.DEFAULT].allocator.cache.values()), "tinygrad keeps no freed buffer: the test shows nothing")
        both = Crew(Events(os.open(os.devnull, os.O_WRONLY)), {"work": work}, 2)
        found = run_all(both, [Unit("work", {"value": v}, {}) for v in (1, 2)])
        self.assertEqual([f["intact"] for f in found], [True, True])

    def test_a_killed_unit_is_an_error(self) -> None:
        with self.assertRaises(DriverError) as caught:
            run_all(crew(), [unit("die")])
        self.assertEqual((caught.exception.kind, caught.exception.detail["signal"]), ("out_of_memory", 9))


class Host(unittest.TestCase):
    def test_the_driver_ends_when_the_host_closes_its_input(self) -> None:
        for isolation in ("fork", "spawn"):
            folder = Path(tempfile.mkdtemp(dir=support.WORK))
            request = folder / "request.json"
            request.write_text(json.dumps(support.compile_request(folder, "supercombo", cache_dir=None)))
            environment = {"PATH": os.environ["PATH"], "DEV": "CPU", "CACHEDB": str(folder / "cold.db"), "DRIVER_WATCHES_STDIN": "1",
                           "DRIVER_ISOLATION": isolation}
            process = subprocess.Popen([sys.executable, str(support.DRIVER / "driver.py"), str(request)], cwd=folder, env=environment,
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            assert process.stdout is not None and process.stdin is not None
            while b"warp_" not in process.stdout.readline():
                pass
            process.stdin.close()
            # The stream ends only when the last process that could write to it has ended.
            rest = process.stdout.read()
            self.assertEqual(process.wait(timeout=30), 1)
            self.assertNotIn(b'"done"', rest)
            self.assertFalse((folder / "model.pkl").exists())
            process.stdout.close()
