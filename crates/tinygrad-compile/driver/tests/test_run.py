"""Runs: recorded inputs, structured frames, soaks, and driver monitoring as the runtime drives it."""

from __future__ import annotations

import functools
import tempfile
import unittest
from pathlib import Path
from typing import Any

import numpy as np

from . import support

RUN = {"steps": 3, "seed": 1, "frames": "random"}


def folder() -> Path:
    return Path(tempfile.mkdtemp(dir=support.WORK))


def run(model_type: str = "vision_policy", pipeline: str = "policy", **changes: Any) -> tuple[dict[str, Any], Path]:
    out = folder()
    last, _ = support.drive(support.derived_request(support.compiled(model_type, pipeline), "run", out_dir=str(out), **(RUN | changes)))
    return last, out


@functools.cache
def monitoring() -> dict[str, Any]:
    """The files of driver monitoring; made once."""
    where = folder()
    outputs = {"model": str(where / "model.pkl"), "warps": {f"{w}x{h}": str(where / f"{w}x{h}.pkl") for w, h in support.CAMERAS}}
    request = {"protocol": 1, "op": "dm", "onnx": str(support.fixture("dmonitoring")), "metadata": support.metadata("dmonitoring"),
               "target": "cpu", "cameras": [list(c) for c in support.CAMERAS], "outputs": outputs, "handover": str(where / "handover")}
    last, _ = support.drive(request)
    assert last["event"] == "done", last
    return outputs


def dm_run(**changes: Any) -> tuple[dict[str, Any], Path]:
    out = folder()
    request = {"protocol": 1, "op": "dm_run", **monitoring(), "metadata": support.metadata("dmonitoring"), "target": "cpu",
               "cameras": [list(c) for c in support.CAMERAS], "out_dir": str(out), **RUN}
    last, _ = support.drive(request | changes)
    return last, out


class Recorded(unittest.TestCase):
    def test_both_pipelines_were_given_the_same(self) -> None:
        seen = {}
        for pipeline in ("policy", "warp"):
            last, out = run(pipeline=pipeline, record=2)
            inputs = {(i["name"], tuple(i["camera"])): i for i in last["result"]["inputs"]}
            self.assertEqual(len(inputs), 4, last)
            images = inputs["images", (1344, 760)]
            self.assertEqual(images["shape"], [2, 2, 6, 128, 256])
            seen[pipeline] = (out / images["file"]).read_bytes()
            self.assertEqual(len(seen[pipeline]), 2 * 2 * 6 * 128 * 256)
        self.assertEqual(seen["policy"], seen["warp"])

    def test_a_supercombo_is_given_its_last_hidden_state(self) -> None:
        last, out = run("supercombo", record=2)
        result = last["result"]
        packed = next(i for i in result["inputs"] if i["name"] == "packed")
        values = np.fromfile(out / packed["file"], np.float32).reshape(packed["shape"])
        output = next(o for o in result["outputs"] if o["camera"] == packed["camera"])
        first = np.fromfile(out / output["file"], np.float32).reshape(output["shape"])[0]
        start, stop = next(s[1:3] for s in result["metadata"]["model"]["output_slices"] if s[0] == "hidden_state")
        np.testing.assert_array_equal(values[1, -512:], first[0, start:stop])
        self.assertEqual((result["frame_skip"], "CPU" in result["settings"]["DEV"]), (4, True))

    def test_nonsense_is_refused(self) -> None:
        for changes in ({"record": -1}, {"soak_seconds": -1}, {"frames": "film"}):
            last, _ = run(**changes)
            self.assertEqual(last["kind"], "bad_request", last)


class Probes(unittest.TestCase):
    def changed(self, model_type: str, pipeline: str, stale: str = "") -> dict[str, bool]:
        """Probe to whether the outputs are others than in the plain run; one queue may be stale."""
        import artifact
        from queues import Layout
        from request import RunRequest
        from run_op import probe_camera, run_camera
        out = folder()
        request = RunRequest.parse(support.derived_request(support.compiled(model_type, pipeline), "run", out_dir=str(out), **(RUN | {"steps": 5})))
        loaded = artifact.load(request.artifact, False)
        if stale:
            run_policy = loaded["run_policy"]
            loaded["run_policy"] = lambda **given: run_policy(**(given | {stale: (given[stale] * 0).contiguous().realize()}))
        camera = request.cameras[1]
        outputs, _, _ = run_camera(loaded, camera, request)
        plain = {o["key"]: np.fromfile(out / o["file"], np.float32).reshape(o["shape"]) for o in outputs}
        found: dict[str, bool] = {}
        for probe in probe_camera(loaded, camera, request):
            values = np.fromfile(out / probe["file"], np.float32)
            differs = bool((values != plain[probe["key"]][probe["step"]].reshape(-1)).any())
            found[probe["probe"]] = found.get(probe["probe"], False) or differs
        return found

    def test_each_queue_matters(self) -> None:
        for model_type, pipeline in (("vision_policy", "policy"), ("vision_policy", "warp"), ("supercombo", "policy")):
            found = self.changed(model_type, pipeline)
            self.assertEqual(set(found), {"history", "image_queue", "feature_queue", "desire_queue", "road", "wide"})
            self.assertTrue(all(found.values()), (model_type, pipeline, found))

    def test_a_stale_queue_shows_in_its_own_probe(self) -> None:
        for queue, probe in (("feat_q", "feature_queue"), ("desire_q", "desire_queue")):
            found = self.changed("vision_policy", "policy", stale=queue)
            self.assertEqual([name for name, differs in found.items() if not differs], [probe])


class Scenes(unittest.TestCase):
    def test_structured_frames_show_three_things_and_all_move(self) -> None:
        from frames import Nv12
        from scenes import checkerboard, frames, gradient, road
        layout = Nv12(1344, 760)
        for step, drawn in ((0, gradient), (5, checkerboard), (9, road)):
            road_view, wide = frames("structured", layout, 1, step)
            self.assertEqual(road_view.size, layout.size)
            np.testing.assert_array_equal(road_view, drawn(layout, step, False))
            self.assertTrue((road_view != wide).any())
            self.assertTrue((road_view != drawn(layout, step + 1, False)).any())


class Soak(unittest.TestCase):
    def test_windows_of_times_and_memory(self) -> None:
        last, _ = run(soak_seconds=1.2)
        windows = last["result"]["soak"]
        self.assertGreaterEqual(len(windows), 2, last)
        for window in windows:
            self.assertGreater(window["resident_bytes"], 1 << 20)
            self.assertGreater(window["objects"], 1000)
            self.assertTrue(0 < window["p50"] <= window["p99"])
        self.assertEqual(sorted(w["at_seconds"] for w in windows), [w["at_seconds"] for w in windows])
        self.assertEqual(run()[0]["result"]["soak"], [])


class Thermal(unittest.TestCase):
    def test_the_hottest_plausible_zone_counts(self) -> None:
        from thermal import hottest
        where = folder()
        self.assertIsNone(hottest(where))
        for name, content in (("a", "41500\n"), ("b", "67250\n"), ("c", "-274000\n"), ("d", "off"), ("e", "900000")):
            (where / name).mkdir()
            (where / name / "temp").write_text(content)
        self.assertEqual(hottest(where), 67.25)
        self.assertEqual(set(run()[0]["result"]["temperature_celsius"]), {"before", "after"})


class DriverMonitoring(unittest.TestCase):
    def test_outputs_probes_and_warps_of_both_cameras(self) -> None:
        last, out = dm_run(probes=True, record=1)
        result = last["result"]
        self.assertEqual([o["shape"] for o in result["outputs"]], [[3, 1, 553]] * 2)
        for output in result["outputs"]:
            values = np.fromfile(out / output["file"], "<f4").reshape(output["shape"])
            self.assertTrue(np.isfinite(values).all() and (values[0] != values[1]).any())
            for probe in (p for p in result["probes"] if p["camera"] == output["camera"]):
                self.assertTrue((np.fromfile(out / probe["file"], "<f4") != values[0].ravel()).any(), probe)
        self.assertEqual({p["probe"] for p in result["probes"]}, {"image", "calibration"})
        self.assertEqual([i["shape"] for i in result["inputs"]], [[1, 1, 1382400], [1, 3]] * 2)
        beyond = next(w for w in result["warps"] if w["matrix"][2] == -64)
        self.assertEqual((out / beyond["file"]).read_bytes()[0], 16)
        self.assertGreater(result["peak_bytes"], 1 << 20)
        self.assertEqual(set(result["temperature_celsius"]), {"before", "after"})

    def test_equal_runs_give_equal_outputs(self) -> None:
        outputs = []
        for changes in ({}, {"cameras": [[1344, 760]]}):
            last, out = dm_run(**changes)
            outputs.append((out / last["result"]["outputs"][-1]["file"]).read_bytes())
        self.assertEqual(outputs[0], outputs[1])

    def test_a_damaged_file_is_named(self) -> None:
        cut = folder() / "cut.pkl"
        cut.write_bytes(Path(monitoring()["model"]).read_bytes()[:1000])
        last, _ = dm_run(model=str(cut))
        self.assertEqual(last["kind"], "artifact_unreadable", last)
        self.assertIn("cut.pkl", last["message"])
