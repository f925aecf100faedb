"""Federated learning in which a client speaks only when it has something to say.

Importing this package is light: names are loaded when they are first used, and what a client
device needs, `taciturn.core`, needs NumPy alone.
"""

import importlib
import re
from pathlib import Path
from typing import Any

__version__ = "0.1.0"

# The module of each public name is written once, in the stub that type checkers read.
_STUB = Path(__file__).with_suffix(".pyi").read_text("utf-8")
_HOME = {name: home for home, name in re.findall(r"^from (\S+) import (\w+)", _STUB, re.MULTILINE)}
# Modules, imported when used.
_ROOMS = ("core", "data", "flower", "models", "nvflare", "sim", "tasks")

__all__ = sorted([*_HOME, "__version__"])


def __getattr__(name: str) -> Any:
    if name not in _HOME and name not in _ROOMS:
        raise AttributeError(f"module 'taciturn' has no attribute {name!r}")
    try:
        if name in _ROOMS:
            return importlib.import_module(f"taciturn.{name}")
        return getattr(importlib.import_module(_HOME[name]), name)
    except ModuleNotFoundError as error:
        if error.name not in ("jax", "optax", "equinox"):
            raise
        from taciturn.errors import MissingExtra, install

        raise MissingExtra(f"`taciturn.{name}` needs {error.name}. {install('sim')}") from None


def __dir__() -> list[str]:
    return sorted([*__all__, *_ROOMS])
