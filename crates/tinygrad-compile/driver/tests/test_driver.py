"""The driver as a process: proofs, planted faults, equal bytes, and the messages of each failure."""

from __future__ import annotations

import json
import os
import pickletools
import shutil
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any

import numpy as np

from . import support


def folder() -> Path:
    return Path(tempfile.mkdtemp(dir=support.WORK))


def split_models(**faults: str) -> list[dict[str, Any]]:
    """A split model with a planted fault per component."""
    out = []
    for key in ("vision", "policy"):
        fault = faults.get(key)
        out.append({"key": key, "onnx": str(support.fixture(key, fault=fault)), "metadata": support.metadata(key, fault)})
    return out


def globals_of(artifact: str) -> set[str]:
    """Modules that a pickle names, without loading it: the names are strings on the stack, or taken from the memo."""
    found, recent, memo = set(), [None, None], []
    for op, argument, _ in pickletools.genops(Path(artifact).read_bytes()):
        if op.name == "STACK_GLOBAL":
            found.add(recent[-2])
        if op.name == "MEMOIZE":
            memo.append(recent[-1])
        elif op.name in ("BINGET", "LONG_BINGET"):
            recent = [recent[-1], memo[argument]]
        else:
            recent = [recent[-1], argument if "UNICODE" in op.name else None]
    return found


class Proof(unittest.TestCase):
    def test_a_fresh_process_reproduces_every_jit(self) -> None:
        for model_type in support.MODELS:
            for pipeline in ("policy", "warp"):
                last, _ = support.drive(support.derived_request(support.compiled(model_type, pipeline), "prove"))
                self.assertEqual(last["event"], "done", last)
                self.assertEqual(len(last["result"]["checks"]), 6)

    def test_zeroed_weights_in_the_file_are_caught(self) -> None:
        request = dict(support.compiled("vision_policy", "policy"))
        data = bytearray(Path(request["artifact"]).read_bytes())
        weights = np.frombuffer(support.fixture("policy").read_bytes()[-1_000_000:-500_000], np.uint8).tobytes()[:4096]
        at = data.find(weights)
        self.assertGreater(at, 0, "the weights are not in the artifact as they are in the source")
        data[at:at + 4096] = bytes(4096)
        request["artifact"] = str(folder() / "model.pkl")
        Path(request["artifact"]).write_bytes(data)
        last, _ = support.drive(support.derived_request(request, "prove"))
        self.assertEqual(last["kind"], "round_trip_mismatch", last)

    def test_a_truncated_file_is_unreadable(self) -> None:
        request = dict(support.compiled("supercombo", "policy"))
        data = Path(request["artifact"]).read_bytes()
        request["artifact"] = str(folder() / "model.pkl")
        Path(request["artifact"]).write_bytes(data[: len(data) // 2])
        last, _ = support.drive(support.derived_request(request, "prove"))
        self.assertEqual(last["kind"], "artifact_unreadable", last)

    def test_only_the_runtimes_modules_are_named(self) -> None:
        for model_type in support.MODELS:
            for name in globals_of(support.compiled(model_type, "policy")["artifact"]):
                self.assertTrue(name == "builtins" or name.startswith("tinygrad."), name)


class Faults(unittest.TestCase):
    def expect(self, kind: str, said: str, environment: dict[str, str] | None = None, model_type: str = "vision_policy", **changes: Any) -> dict[str, Any]:
        where = folder()
        request = support.compile_request(where, model_type, **changes)
        last, _ = support.drive(request, environment)
        self.assertEqual(last.get("kind"), kind, last)
        self.assertIn(said, last["message"])
        self.assertFalse((where / "model.pkl").exists())
        return last

    def test_non_finite_outputs(self) -> None:
        self.expect("non_finite", "output.1", models=split_models(policy="nan"))

    def test_outputs_that_ignore_the_inputs(self) -> None:
        self.expect("input_ignored", "output.1", models=split_models(policy="constant"))

    def test_an_operator_that_tinygrad_lacks_is_named(self) -> None:
        last = self.expect("onnx_unsupported", "NonMaxSuppression", models=split_models(vision="operator"))
        self.assertEqual(last["detail"]["operator"], "NonMaxSuppression")

    def test_policies_of_different_shapes(self) -> None:
        models = [{"key": k, "onnx": str(support.fixture(kind, fault=f)), "metadata": support.metadata(kind, f)}
                  for k, kind, f in (("vision", "vision", None), ("on_policy", "on_policy", None), ("off_policy", "off_policy", "short_features"))]
        self.expect("shape_mismatch", "off_policy", model_type="vision_multi_policy", models=models)

    def test_metadata_that_is_not_the_graphs(self) -> None:
        models = split_models()
        models[0]["metadata"]["input_shapes"][0][0] = "imgs"
        self.expect("shape_mismatch", "imgs", models=models)

    def test_slices_outside_the_output(self) -> None:
        for where in ([0, 5000, None], [10, 10, None], [0, 100, 2], [-5000, None, None]):
            models = split_models()
            models[1]["metadata"]["output_slices"].append(["beyond", *where])
            self.expect("slice_width", "beyond", models=models)

    def test_a_hidden_state_of_the_wrong_size(self) -> None:
        models = split_models()
        for entry in models[0]["metadata"]["output_slices"]:
            if entry[0] == "hidden_state":
                entry[1] += 1
        self.expect("slice_width", "hidden_state", models=models)

    def test_a_missing_compiler_is_named(self) -> None:
        self.expect("backend_missing", "clang", {"PATH": "/nonexistent"})

    def test_a_truncated_source(self) -> None:
        models = split_models()
        cut = folder() / "cut.onnx"
        cut.write_bytes(Path(models[0]["onnx"]).read_bytes()[:100_000])
        models[0]["onnx"] = str(cut)
        self.expect("onnx_unsupported", "cut.onnx", models=models)

    def test_a_device_that_is_not_the_targets(self) -> None:
        self.expect("bad_request", "QCOM", {"DEV": "QCOM"})
        self.expect("bad_request", "DEV", {"DEV": ""}, target="external-gpu")

    def test_a_source_that_is_not_there(self) -> None:
        models = split_models()
        models[1]["onnx"] = "/nonexistent/policy.onnx"
        self.expect("bad_request", "/nonexistent/policy.onnx", models=models)

    def test_bad_requests(self) -> None:
        self.expect("bad_request", "frobnicate", image_history_pipeline="frobnicate")
        self.expect("bad_request", "policy", models=split_models()[:1])
        self.expect("bad_request", "seeds", seeds=[1, 1])
        last, _ = support.drive({"protocol": 2, "op": "compile"})
        self.assertEqual(last["kind"], "bad_request")

    def test_a_disk_that_takes_no_more(self) -> None:
        where = folder()
        last, _ = support.drive(support.compile_request(where, "supercombo"), largest_file=4 << 20)
        self.assertEqual(last["kind"], "disk_full", last)
        self.assertFalse((where / "model.pkl").exists())


class EqualBytes(unittest.TestCase):
    def test_cold_and_warm_kernel_cache_other_paths_and_hash_seed(self) -> None:
        for model_type, pipeline in (("vision_policy", "policy"), ("supercombo", "warp")):
            first = Path(support.compiled(model_type, pipeline)["artifact"]).read_bytes()
            where = folder() / "another place"
            where.mkdir()
            models = []
            for model in support.compile_request(where, model_type)["models"]:
                copy = shutil.copy(model["onnx"], where / f"renamed {model['key']}.onnx")
                models.append({**model, "onnx": str(copy)})
            request = support.compile_request(where, model_type, pipeline, models, cache_dir=None)
            last, _ = support.drive(request, {"CACHEDB": str(where / "cold.db"), "PYTHONHASHSEED": "17", "TMPDIR": str(where)})
            self.assertEqual(last["event"], "done", last)
            self.assertTrue(first == (where / "model.pkl").read_bytes(), f"{model_type} {pipeline} differs between two runs")


class Run(unittest.TestCase):
    def test_raw_outputs_and_metadata(self) -> None:
        request = support.compiled("vision_multi_policy", "policy")
        out = folder()
        last, _ = support.drive(support.derived_request(request, "run", out_dir=str(out), steps=3, seed=1, frames="random"))
        result = last["result"]
        self.assertEqual([(o["key"], o["shape"]) for o in result["outputs"][:3]],
                         [("vision", [3, 1, 1576]), ("on_policy", [3, 1, 1004]), ("off_policy", [3, 1, 1000])])
        for output in result["outputs"]:
            values = np.fromfile(out / output["file"], "<f4").reshape(output["shape"])
            self.assertTrue(np.isfinite(values).all())
            self.assertTrue((values[0] != values[2]).any())
        self.assertEqual(result["metadata"]["vision"], request["models"][0]["metadata"])
        self.assertEqual(result["policy_order"], ["on_policy", "off_policy"])
        self.assertEqual(len(result["step_seconds"]["1344x760"]), 3)

    def test_probe(self) -> None:
        last, _ = support.drive({"protocol": 1, "op": "probe"})
        self.assertEqual(last["result"]["default_device"], "CPU")
        self.assertEqual(last["result"]["python"].split(".")[0], str(sys.version_info[0]))
        self.assertTrue(os.path.isdir(last["result"]["tinygrad_path"]))

    def test_probe_without_a_compiler(self) -> None:
        last, _ = support.drive({"protocol": 1, "op": "probe"}, {"PATH": "/nonexistent"})
        self.assertEqual((last["event"], last["result"]["clang"]), ("done", None), last)

    def test_the_abi_is_the_one_on_record(self) -> None:
        last, _ = support.drive({"protocol": 1, "op": "abi"})
        found = last["result"]
        known = support.REPOSITORY / "data" / "abi" / f"tinygrad-{found['tinygrad']}.json"
        if not known.is_file():
            print(f"skipped: test_the_abi_is_the_one_on_record: no description of tinygrad {found['tinygrad']}")
            return
        self.assertEqual(found["digest"], json.loads(known.read_text())["digest"])


class TwoDevices(unittest.TestCase):
    """Frames on one device and policies on another, as with an external GPU; here both are the processor."""

    def test_both_pipelines(self) -> None:
        for pipeline in ("policy", "warp"):
            request = support.compile_request(folder(), "vision_policy", pipeline, prove=True)
            last, _ = support.drive(request, {"WARP_DEV": "CPU:1"})
            self.assertEqual(last["event"], "done", (pipeline, last))
            self.assertEqual(last["result"]["devices"], {"1928x1208": ["CPU:1"], "1344x760": ["CPU:1"], "run_policy": ["CPU"]})
