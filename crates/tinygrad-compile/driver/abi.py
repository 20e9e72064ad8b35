#!/usr/bin/env python3
"""The constructors and enum values that a pickled jit relies on, of the tinygrad that this process imports.

An artifact names classes, gives them positional arguments, sets fields and spells enum members as integers. Nothing in
the file says which tinygrad these were meant for, so a reader compares them with this description. `run` is the
driver's operation; `abi.py [LABEL]` prints the same as a file (LABEL instead of the package version).
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import hashlib
import importlib
import importlib.metadata
import inspect
import json
import sys
from typing import Any

# Everything that jits of any known revision name, and what their fields may hold.
NAMES = {
    "tinygrad.engine.jit": ("TinyJit", "_TinyJit", "CapturedJit"),
    "tinygrad.engine.realize": ("ExecItem", "BufferCopy", "BufferXfer", "CompiledRunner", "EncDec", "ViewOp"),
    "tinygrad.tensor": ("Tensor",),
    "tinygrad.uop": ("Ops",),
    "tinygrad.uop.ops": ("UOp", "ParamArg", "AxisType", "CallInfo", "KernelInfo", "ProgramInfo"),
    "tinygrad.dtype": ("DType", "PtrDType", "ImageDType", "AddrSpace", "ConstFloat", "InvalidType"),
    "tinygrad.device": ("Buffer", "BufferSpec", "MultiBuffer"),
    "tinygrad.helpers": ("Metadata", "Target"),
    "tinygrad.codegen.opt": ("Opt", "OptOps"),
    "tinygrad.renderer": ("Estimates", "ProgramSpec"),
}


def constructor(cls: type) -> inspect.Signature:
    """What a call of the class takes. A metaclass that caches instances defines the call, unless it passes all on."""
    call = type(cls).__call__
    if call is not type.__call__ and isinstance(call, type(constructor)):
        parameters = list(inspect.signature(call).parameters.values())[1:]
        if not any(p.kind is p.VAR_POSITIONAL for p in parameters):
            return inspect.Signature(parameters)
    function = cls.__init__ if cls.__init__ is not object.__init__ else cls.__new__
    if function in (object.__init__, object.__new__):
        return inspect.Signature()
    return inspect.Signature(list(inspect.signature(function).parameters.values())[1:])


def arity(signature: inspect.Signature) -> dict[str, Any]:
    positional = [p for p in signature.parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    open_ended = any(p.kind is p.VAR_POSITIONAL for p in signature.parameters.values())
    return {
        "positional_min": sum(p.default is p.empty for p in positional),
        "positional_max": None if open_ended else len(positional),
        "parameters": [p.name for p in positional],
    }


def settable(cls: type) -> list[str] | None:
    """Names that a pickled state may set: the fields of a dataclass or the slots of a class; None where any may be."""
    if dataclasses.is_dataclass(cls):
        return [f.name for f in dataclasses.fields(cls)]
    if any("__slots__" not in vars(base) for base in cls.__mro__[:-1]):
        return None
    slots = (vars(base)["__slots__"] for base in reversed(cls.__mro__[:-1]))
    names = [name for group in slots for name in ((group,) if isinstance(group, str) else group)]
    return [name for name in names if name not in ("__weakref__", "__dict__")]


def cached(cls: type) -> list[str]:
    """Names that an instance's state may hold besides: values that were computed once and kept."""
    return sorted(n for base in cls.__mro__ for n, v in vars(base).items() if isinstance(v, functools.cached_property))


def describe(value: Any) -> dict[str, Any]:
    if inspect.isclass(value):
        return {"kind": "class", **arity(constructor(value)), "fields": settable(value), "cached": cached(value)}
    return {"kind": "function", **arity(inspect.signature(value)), "fields": None, "cached": None}


def digest(description: dict[str, Any]) -> str:
    """SHA-256 over what decides whether a jit loads: not the label, nor the Python that printed it."""
    body = {key: description[key] for key in ("classes", "enums", "missing")}
    return hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def run(label: str | None = None) -> dict[str, Any]:
    classes: dict[str, Any] = {}
    enums: dict[str, dict[str, int]] = {}
    missing: list[str] = []
    for module_name, names in NAMES.items():
        try:
            module = importlib.import_module(module_name)
        except ImportError:
            module = None
        for name in names:
            value = getattr(module, name, None)
            key = f"{module_name}:{name}"
            if value is None or not callable(value):
                missing.append(key)
            elif isinstance(value, enum.EnumMeta):
                enums[key] = {member.name: int(member.value) for member in value}
            else:
                classes[key] = describe(value)
    description = {
        "tinygrad": label or importlib.metadata.version("tinygrad"),
        "python": ".".join(map(str, sys.version_info[:2])),
        "classes": classes,
        "enums": enums,
        "missing": sorted(missing),
    }
    return {**description, "digest": digest(description)}


def of_compiler() -> dict[str, Any]:
    """The description that goes with what this process compiled."""
    import probe_op  # needs tinygrad, which the description of a file on the command line brings itself
    return run(probe_op.label())


if __name__ == "__main__":
    json.dump(run(*sys.argv[1:2]), sys.stdout, indent=1, sort_keys=True)
    print()
