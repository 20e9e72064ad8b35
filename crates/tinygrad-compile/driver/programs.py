"""Compiled kernels: kept on disk between runs, and made in parallel where they are missing.

tinygrad's disk cache maps source text to binaries, but getting to the source text, the lowering, is most of a warm
run. Lowered programs are kept in the same cache file under the key that tinygrad itself uses within a process, joined
with the identity of this tinygrad. On the CPU the missing ones are made by forked workers.
"""

from __future__ import annotations

import functools
import hashlib
import multiprocessing
import os
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from isolate import begin_fork

TABLE = "lowered_programs"


@functools.cache
def tinygrad_identity() -> str:
    """Changes with every edit of the installed package: names, sizes and times of its sources, and a vendored commit."""
    import tinygrad
    root = Path(tinygrad.__file__).resolve().parent
    digest = hashlib.sha256()
    note = root.parent / "TINYGRAD_COMMIT"
    digest.update(note.read_bytes() if note.is_file() else b"")
    for path in sorted(root.rglob("*.py")):
        if "autogen" not in path.parts:
            stat = path.stat()
            digest.update(f"{path.relative_to(root)} {stat.st_size} {stat.st_mtime_ns}\n".encode())
    return digest.hexdigest()


class KeptPrograms(dict):  # type: ignore[type-arg]
    """tinygrad's in-process cache of lowered programs, backed by its disk cache. A damaged entry counts as absent."""

    def _name(self, key: Any) -> str:
        text = repr([k if not isinstance(k, type) else f"{k.__module__}.{k.__qualname__}" for k in key])
        return hashlib.sha256(f"{tinygrad_identity()} {text}".encode()).hexdigest()

    def _fetch(self, key: Any) -> Any:
        from tinygrad.helpers import diskcache_get
        if (found := dict.get(self, key)) is None:
            try:
                found = diskcache_get(TABLE, self._name(key))
            except Exception:
                found = None
            if found is not None:
                dict.__setitem__(self, key, found)
        return found

    def __contains__(self, key: Any) -> bool:
        return self._fetch(key) is not None

    def get(self, key: Any, default: Any = None) -> Any:
        return default if (found := self._fetch(key)) is None else found

    def __getitem__(self, key: Any) -> Any:
        if (found := self._fetch(key)) is None:
            raise KeyError(key)
        return found

    def __setitem__(self, key: Any, value: Any) -> None:
        from tinygrad.helpers import diskcache_put
        dict.__setitem__(self, key, value)
        diskcache_put(TABLE, self._name(key), value)


class ForkedWorkers:
    """Stands in for tinygrad's pool: forked workers need no import of tinygrad, and live for one set of kernels."""

    def __init__(self, count: int) -> None:
        self.count = count

    def imap_unordered(self, function: Any, tasks: Iterable[Any]) -> Iterator[Any]:
        todo = list(tasks)
        if threading.active_count() > 1:
            yield from map(function, todo)
            return
        with multiprocessing.get_context("fork").Pool(min(self.count, len(todo)), begin_fork) as pool:
            yield from pool.imap_unordered(function, todo)


def keep_backend_programs(kept: KeptPrograms) -> None:
    """The CPU backend lowers a few programs of its own whenever it is opened: 0.2 s, the same every time."""
    from tinygrad.codegen import to_program_key
    from tinygrad.runtime import ops_cpu
    lower = ops_cpu.do_to_program

    def kept_or_lowered(ast: Any, renderer: Any) -> Any:
        key = ("backend", *to_program_key(ast, renderer))
        if (found := kept.get(key)) is None:
            found = kept[key] = lower(ast, renderer)
        return found

    ops_cpu.do_to_program = kept_or_lowered


def install(device: str) -> None:
    """Puts all of it in place. A tinygrad that is built differently just does without."""
    from tinygrad import codegen
    from tinygrad.engine import realize
    if not hasattr(codegen, "to_program_cache") or not hasattr(realize, "to_program_cache"):
        return
    kept = KeptPrograms()
    codegen.to_program_cache = realize.to_program_cache = kept
    if device != "CPU":
        return
    workers = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    if workers > 1 and hasattr(realize, "get_worker_pool"):
        pool = ForkedWorkers(workers)
        realize.get_worker_pool = lambda: pool
    try:
        keep_backend_programs(kept)
    except (ImportError, AttributeError):
        pass
