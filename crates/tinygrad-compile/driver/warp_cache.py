"""Captured camera warps, kept by all that they depend on.

An entry holds the warp's section, its buffers and the values of its proof, so that an artifact made with it is
proven against the same values as one made without. Entries are checked by digest: a damaged one counts as absent.
Compiling always goes through an entry, in a directory of its own where no cache is given, so that a hit and a miss
give the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from canonical import Pickled, Section
from proof import Proven

MAGIC = b"captured-warp 1\n"
# Seconds after which a file that was begun is of a run that was killed.
LEFT_AFTER = 24 * 3600


@dataclass
class Entry:
    """A captured and proven jit, as it is kept."""

    pickled: Pickled
    proven: Proven
    facts: dict[str, Any]


def driver_digest() -> str:
    """Changes with every edit of the driver."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def entry_path(directory: str, identity: str) -> Path:
    return Path(directory) / f"{hashlib.sha256(identity.encode()).hexdigest()}.warp"


def _packed(entry: Entry) -> bytes:
    blobs: list[bytes] = []

    def put(data: Any) -> int:
        blobs.append(bytes(data))
        return len(blobs) - 1

    chunks = [c if isinstance(c, int) else {"blob": put(c)} for c in entry.pickled.section.chunks]
    buffers = [put(source()) for source in entry.pickled.buffers]
    values = [[seed, name, v.dtype.str, list(v.shape), put(np.ascontiguousarray(v).tobytes())]
              for seed, of_seed in entry.proven.values.items() for name, v in of_seed.items()]
    index = {"chunks": chunks, "memo": entry.pickled.section.memo, "buffers": buffers, "jit": entry.proven.jit, "values": values,
             "facts": entry.facts, "sizes": [len(b) for b in blobs]}
    header = json.dumps(index).encode()
    return len(header).to_bytes(8, "little") + header + b"".join(blobs)


def _unpacked(data: bytes) -> Entry:
    size = int.from_bytes(data[:8], "little")
    index = json.loads(data[8:8 + size])
    blobs, at = [], 8 + size
    for length in index["sizes"]:
        blobs.append(data[at:at + length])
        at += length
    chunks = tuple(c if isinstance(c, int) else blobs[c["blob"]] for c in index["chunks"])
    values: dict[int, dict[str, np.ndarray]] = {}
    for seed, name, kind, shape, blob in index["values"]:
        values.setdefault(seed, {})[name] = np.frombuffer(blobs[blob], np.dtype(kind)).reshape(shape)
    buffers = [lambda b=b: memoryview(blobs[b]) for b in index["buffers"]]
    return Entry(Pickled(Section(chunks, index["memo"]), buffers), Proven(index["jit"], values), index["facts"])


def store(path: Path, entry: Entry) -> None:
    """Writes an entry completely or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    body = _packed(entry)
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".partial-", delete=False) as out:
        try:
            out.write(MAGIC + hashlib.sha256(body).digest() + body)
            out.flush()
            os.replace(out.name, path)
        except BaseException:
            os.unlink(out.name)
            raise


def fetch(path: Path) -> Entry | None:
    """An entry, or None where it is absent or not what was stored."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    start = len(MAGIC) + 32
    body = data[start:]
    if not data.startswith(MAGIC) or hashlib.sha256(body).digest() != data[len(MAGIC):start]:
        return None
    try:
        os.utime(path)
    except OSError:
        pass
    return _unpacked(body)


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".partial-") as place:
        new = Path(place) / target.name
        try:
            os.link(source, new)
        except FileNotFoundError:
            raise
        except OSError:  # a file system without links
            shutil.copyfile(source, new)
        os.replace(new, target)


def borrow(kept: Path, path: Path) -> bool:
    """Takes an entry of the cache into the run's own directory: the cache may be trimmed or cleared by others at any time."""
    if fetch(kept) is None:
        return False
    try:
        _copy(kept, path)
    except FileNotFoundError:
        return False
    return fetch(path) is not None


def keep(path: Path, cache: str, limit: int) -> None:
    """Leaves an entry of a run in the cache, within its bound. A cache that somebody clears meanwhile keeps nothing."""
    try:
        _copy(path, Path(cache) / path.name)
    except FileNotFoundError:
        return
    trim(cache, limit)


def _stamped(paths: Iterable[Path]) -> list[tuple[float, int, Path]]:
    """Time, size and path of those that are still there, the newest first."""
    found = []
    for path in paths:
        try:
            stat = path.stat()
        except FileNotFoundError:
            continue
        found.append((stat.st_mtime, stat.st_size, path))
    return sorted(found, reverse=True)


def trim(directory: str, limit: int) -> None:
    """Removes the entries used longest ago until the rest fits; also what a killed run left unfinished."""
    for modified, _, path in _stamped(Path(directory).glob(".partial-*")):
        if time.time() - modified > LEFT_AFTER:
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
    entries = _stamped(Path(directory).glob("*.warp"))
    total = 0
    for _, size, path in entries:
        total += size
        if total > limit:
            path.unlink(missing_ok=True)
