"""Federated learning in which a client speaks only when it has something to say.

Importing this package is light: names are loaded when they are first used, and what a client
device needs, `taciturn.core`, needs NumPy alone.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from taciturn.core.codecs import Codec as Codec
    from taciturn.core.codecs import Form as Form
    from taciturn.core.codecs import bfloat16 as bfloat16
    from taciturn.core.codecs import eden as eden
    from taciturn.core.codecs import float16 as float16
    from taciturn.core.codecs import float32 as float32
    from taciturn.core.codecs import peaks as peaks
    from taciturn.core.codecs import quantize as quantize
    from taciturn.core.codecs import sparse_ternary as sparse_ternary
    from taciturn.core.codecs import top_k as top_k
    from taciturn.core.policy import Policy as Policy
    from taciturn.core.policy import budget as budget
    from taciturn.core.policy import parse as parse
    from taciturn.core.policy import register as register
    from taciturn.core.rules import ClientStats as ClientStats
    from taciturn.core.rules import Rule as Rule
    from taciturn.core.rules import adaptive as adaptive
    from taciturn.core.rules import fixed as fixed
    from taciturn.core.rules import full as full
    from taciturn.core.rules import optimal as optimal
    from taciturn.core.rules import random as random
    from taciturn.core.standins import StandIn as StandIn
    from taciturn.core.standins import ignore as ignore
    from taciturn.core.standins import last as last
    from taciturn.core.standins import ou as ou
    from taciturn.core.standins import own as own
    from taciturn.core.standins import zero as zero
    from taciturn.errors import TaciturnError as TaciturnError
    from taciturn.sim import History as History
    from taciturn.sim import as_model as as_model
    from taciturn.sim import compare as compare
    from taciturn.sim import evaluate as evaluate
    from taciturn.sim import prepare as prepare
    from taciturn.sim import simulate as simulate
    from taciturn.studies.comparison import load_model as load_model
    from taciturn.tasks import Generated as Generated
    from taciturn.tasks import Stored as Stored
    from taciturn.tasks import Task as Task
    from taciturn.tasks import classification as classification
    from taciturn.tasks import load as load
    from taciturn.tasks import regression as regression
    from taciturn.tasks.table import table as table

__version__ = "0.1.0"

_HOMES = {
    "taciturn.core.rules": (
        "Rule", "ClientStats", "full", "fixed", "adaptive", "random", "optimal",
    ),
    "taciturn.core.standins": ("StandIn", "ou", "zero", "ignore", "last", "own"),
    "taciturn.core.codecs": (
        "Codec", "Form", "float32", "float16", "bfloat16", "quantize", "eden", "top_k",
        "sparse_ternary", "peaks",
    ),
    "taciturn.core.policy": ("Policy", "budget", "parse", "register"),
    "taciturn.errors": ("TaciturnError",),
    "taciturn.sim": ("History", "as_model", "compare", "evaluate", "prepare", "simulate"),
    "taciturn.studies.comparison": ("load_model",),
    "taciturn.tasks": (
        "Generated", "Stored", "Task", "classification", "load", "regression", "table",
    ),
}  # fmt: skip
# Modules, imported when used.
_ROOMS = ("core", "data", "flower", "models", "nvflare", "sim", "tasks")
_HOME = {name: home for home, names in _HOMES.items() for name in names}

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
