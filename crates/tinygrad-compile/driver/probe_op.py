"""Operation `probe`: what this interpreter would compile with."""

from __future__ import annotations

import os
import platform
import shutil
from pathlib import Path
from typing import Any

from compile_op import versions


def vendored_commit(package: Path) -> str | None:
    """A tree that vendors tinygrad names its commit beside the package."""
    note = package.parent / "TINYGRAD_COMMIT"
    return note.read_text().strip() if note.is_file() else None


def label() -> str:
    """What this tinygrad is called: its commit where it is vendored, else its version."""
    import tinygrad
    return vendored_commit(Path(tinygrad.__file__).resolve().parent) or versions()["tinygrad"]


def default_device() -> str | None:
    """The device that tinygrad would use, or None where it has none; it is not opened when DEV names it."""
    from tinygrad import Device
    try:
        return Device.DEFAULT
    except Exception:
        return None


def run() -> dict[str, Any]:
    import numpy
    import tinygrad
    package = Path(tinygrad.__file__).resolve().parent
    return {"tinygrad": versions()["tinygrad"], "tinygrad_commit": vendored_commit(package), "tinygrad_path": str(package),
            "python": platform.python_version(), "numpy": numpy.__version__, "default_device": default_device(),
            "clang": shutil.which(os.environ.get("CC", "clang"))}
