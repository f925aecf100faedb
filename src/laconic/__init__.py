"""Federated learning in which a client speaks only when it has something to say.

Importing this package is light: names are loaded when they are first used, and what a client
device needs, `laconic.core`, needs NumPy alone.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from laconic.core.codecs import float32 as float32
    from laconic.core.policy import Policy as Policy
    from laconic.core.policy import parse as parse
    from laconic.core.rules import adaptive as adaptive
    from laconic.core.rules import fixed as fixed
    from laconic.core.rules import full as full
    from laconic.core.rules import random as random
    from laconic.core.standins import ignore as ignore
    from laconic.core.standins import last as last
    from laconic.core.standins import ou as ou
    from laconic.core.standins import zero as zero
    from laconic.errors import LaconicError as LaconicError
    from laconic.sim import History as History
    from laconic.sim import compare as compare
    from laconic.sim import simulate as simulate
    from laconic.tasks import Generated as Generated
    from laconic.tasks import Stored as Stored
    from laconic.tasks import Task as Task
    from laconic.tasks import classification as classification

__version__ = "0.1.0"

_HOMES = {
    "laconic.core.rules": ("full", "fixed", "adaptive", "random"),
    "laconic.core.standins": ("ou", "zero", "ignore", "last"),
    "laconic.core.codecs": ("float32",),
    "laconic.core.policy": ("Policy", "parse"),
    "laconic.errors": ("LaconicError",),
    "laconic.sim": ("History", "compare", "simulate"),
    "laconic.tasks": ("Generated", "Stored", "Task", "classification"),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}

__all__ = sorted([*_HOME, "__version__"])


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'laconic' has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(_HOME[name]), name)
    except ModuleNotFoundError as error:
        if error.name not in ("jax", "optax", "equinox"):
            raise
        from laconic.errors import MissingExtra

        raise MissingExtra(
            f"`laconic.{name}` needs {error.name}. Install it with: pip install 'laconic[sim]'"
        ) from None


def __dir__() -> list[str]:
    return list(__all__)
